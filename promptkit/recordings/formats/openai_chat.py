"""OpenAI chat messages as JSON: a list of them, a request that holds one, a list of such requests, or one of these a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from promptkit.recordings.reading.codec import read_head
from promptkit.recordings.reading.conversations import ConversationWriter, walk_members
from promptkit.recordings.reading.messages import read_chat_message
from promptkit.transcript.entries import CustomEntry, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.recordings.reading.codec import Batch, FileHead
    from promptkit.recordings.reading.conversations import PathPattern
    from promptkit.recordings.reading.source import RecordingSource

__all__ = ["LAYOUTS", "OpenAIChatFormat", "find_layout"]

NAME = "openai_chat"

LAYOUTS: Mapping[str, tuple[PathPattern, int]] = {
    "item.role": ((None,), 0),
    "messages.item.role": (("messages", None), 0),
    "item.messages.item.role": ((None, "messages", None), 1),
    "item.item.role": ((None, None), 1),
    "role": ((), -1),
}
"""Where a role stands → where messages do, and how deep conversations begin."""


def find_layout(head: FileHead) -> tuple[PathPattern, int] | None:
    """How the messages of a file are laid out; None where there are none."""
    return next((layout for fact, layout in LAYOUTS.items() if fact in head.json_paths), None)


class OpenAIChatFormat:
    """Reads OpenAI chat messages."""

    name = NAME
    about = "OpenAI chat messages JSON"

    def detects(self, head: FileHead) -> bool:
        """Objects with a role, in one of the places where they may stand."""
        return find_layout(head) is not None

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """The entries of a file, message by message."""
        pattern, depth = find_layout(read_head(source)) or ((None,), 0)
        talks = ConversationWriter(NAME)
        for member in walk_members(source, [pattern], depth=depth):
            talks.switch(member.conversation)
            if member.pattern is None:
                yield talks.add([Setting(name=f"{NAME}.{member.key}", value=member.value)])
            elif not isinstance(member.value, Mapping):
                yield talks.keep_unreadable(member, "no JSON object.")
            elif payloads := read_chat_message(member.value, NAME):
                yield talks.add(payloads, messages=1)
            else:
                yield talks.add([CustomEntry(name=f"{NAME}.message", data=member.value)])
