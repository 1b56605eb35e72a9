"""Recorded messages as a prompt shows them."""

from __future__ import annotations

import pytest

from promptkit.messages import CacheBreakpointPart, DocumentPart, Message
from promptkit.rendering.build import show_message


def test_adjacent_texts_are_one_and_cache_breakpoints_are_gone() -> None:
    document = DocumentPart(data="", media_type="application/pdf")
    shown = show_message(Message(role="user", content=("one ", CacheBreakpointPart(), "two", "", document, "three", "four")))
    assert shown is not None
    assert shown.content == ("one two", document, "threefour")


@pytest.mark.parametrize("content", [(), ("",), ("", CacheBreakpointPart(), "")])
def test_a_message_of_nothing_is_not_shown(content: tuple[str | CacheBreakpointPart, ...]) -> None:
    assert show_message(Message(role="user", content=content)) is None
