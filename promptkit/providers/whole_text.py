"""Text that can be sent: half surrogate pairs, of which one would have a whole conversation refused for ever, are replaced."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import Message

__all__ = ["whole"]

HALVES = re.compile(r"[\ud800-\udfff]")
"""In names of files that are no UTF-8, in answers that were cut between two halves, and in recordings of both."""


def whole(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages with U+FFFD in the place of each half surrogate pair, as tokenizers count it. What is whole stays the same object."""
    return [_whole(message) for message in messages]


def _whole(message: Message) -> Message:
    texts = [*(part for part in message.content if isinstance(part, str)), *(call.name + call.arguments for call in message.tool_calls)]
    if not any(map(_is_torn, texts)):
        return message
    return attrs.evolve(
        message,
        content=tuple(_mended(part) if isinstance(part, str) else part for part in message.content),
        tool_calls=tuple(attrs.evolve(call, name=_mended(call.name), arguments=_mended(call.arguments)) for call in message.tool_calls),
    )


def _is_torn(text: str) -> bool:
    return not text.isascii() and HALVES.search(text) is not None


def _mended(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
