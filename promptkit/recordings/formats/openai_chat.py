"""OpenAI chat messages as JSON: a list of them, a request that holds one, a list of such requests, or one of these a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from promptkit.recordings.reading.codec import head_of
from promptkit.recordings.reading.conversations import ConversationWriter, walk
from promptkit.recordings.reading.messages import read_chat
from promptkit.transcript.entries import Custom, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.recordings.reading.codec import Batch, Head
    from promptkit.recordings.reading.conversations import Pattern
    from promptkit.recordings.reading.source import Source

__all__ = ["LAYOUTS", "OpenAIChat", "layout_of"]

NAME = "openai_chat"

LAYOUTS: Mapping[str, tuple[Pattern, int]] = {
    "item.role": ((None,), 0),
    "messages.item.role": (("messages", None), 0),
    "item.messages.item.role": ((None, "messages", None), 1),
    "item.item.role": ((None, None), 1),
    "role": ((), -1),
}
"""Where a role stands → where messages do, and how deep conversations begin."""


def layout_of(head: Head) -> tuple[Pattern, int] | None:
    """How the messages of a file are laid out; None where there are none."""
    return next((layout for fact, layout in LAYOUTS.items() if fact in head.facts), None)


class OpenAIChat:
    """Reads OpenAI chat messages."""

    name = NAME
    about = "OpenAI chat messages JSON"

    def detects(self, head: Head) -> bool:
        """Objects with a role, in one of the places where they may stand."""
        return layout_of(head) is not None

    def read(self, source: Source) -> Iterator[Batch]:
        """The entries of a file, message by message."""
        pattern, depth = layout_of(head_of(source)) or ((None,), 0)
        talks = ConversationWriter(NAME)
        for member in walk(source, [pattern], depth=depth):
            talks.turn(member.talk)
            if member.pattern is None:
                yield talks.add([Setting(name=f"{NAME}.{member.key}", value=member.value)])
            elif not isinstance(member.value, Mapping):
                yield talks.unread(member, "no JSON object.")
            elif payloads := read_chat(member.value, NAME):
                yield talks.add(payloads, messages=1)
            else:
                yield talks.add([Custom(name=f"{NAME}.message", data=member.value)])
