"""Replace what no provider accepts in a text: halves of surrogate pairs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import Message

_SURROGATE = re.compile(r"[\ud800-\udfff]")
"""Half of a surrogate pair: in names of files that are not UTF-8, in replies that were cut inside a
pair, and in recordings of both."""


def replace_lone_surrogates(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages with U+FFFD for each lone surrogate, as tokenizers count it.

    Other messages stay the same objects.

    A request with a lone surrogate is refused or cannot be sent, and so every later request of that
    conversation.
    """
    return [_replace_in_message(message) for message in messages]


def _replace_in_message(message: Message) -> Message:
    texts = [
        *(part for part in message.content if isinstance(part, str)),
        *(call.name + call.arguments for call in message.tool_calls),
    ]
    if not any(map(_has_lone_surrogate, texts)):
        return message
    return attrs.evolve(
        message,
        content=tuple(
            _replace_in_text(part) if isinstance(part, str) else part for part in message.content
        ),
        tool_calls=tuple(
            attrs.evolve(
                call, name=_replace_in_text(call.name), arguments=_replace_in_text(call.arguments)
            )
            for call in message.tool_calls
        ),
    )


def _has_lone_surrogate(text: str) -> bool:
    return not text.isascii() and _SURROGATE.search(text) is not None


def _replace_in_text(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
