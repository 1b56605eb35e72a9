"""Recorded messages as a prompt shows them."""

from __future__ import annotations

import pytest

from promptkit import TokenLimit, UserMessage, render
from promptkit.elements.rounds import Rounds
from promptkit.messages import CacheBreakpointPart, DocumentPart, Message
from promptkit.rendering.expand.build import show_message
from promptkit.testing import WordTokenizer


def test_adjacent_texts_are_one_and_cache_breakpoints_are_gone() -> None:
    document = DocumentPart(data="", media_type="application/pdf")
    shown = show_message(
        Message(
            role="user",
            content=("one ", CacheBreakpointPart(), "two", "", document, "three", "four"),
        )
    )
    assert shown is not None
    assert shown.content == ("one two", document, "threefour")


@pytest.mark.parametrize("content", [(), ("",), ("", CacheBreakpointPart(), "")])
def test_a_message_of_nothing_is_not_shown(content: tuple[str | CacheBreakpointPart, ...]) -> None:
    assert show_message(Message(role="user", content=content)) is None


ROUNDS = Rounds(
    rounds=[Message(role="user", content=(text,)) for text in ("a b", "c d", "e f")],
    order=[0, 1, 2],
    priorities=[0, 1, 2],
    marker=lambda count: f"{count} left out",
)
QUESTION = UserMessage(required=True)["q"]


def test_a_marker_counts_for_the_limit_around_its_conversation() -> None:
    made = render(
        (TokenLimit(max_tokens=5)[ROUNDS], QUESTION), budget=100, tokenizer=WordTokenizer()
    )
    assert [message.text for message in made.messages] == ["2 left out", "e f", "q"]
    assert made.tokens == 6


def test_a_marker_counts_for_the_budget() -> None:
    for budget in range(1, 8):
        made = render((ROUNDS, QUESTION), budget=budget, tokenizer=WordTokenizer())
        assert made.tokens == sum(len(message.text.split()) for message in made.messages) <= budget
