"""OpenAI chat messages as JSON: a list of messages, a request with such a list, a list of requests, or one of these per line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from promptkit.lab.recordings.reading.conversations import (
    ConversationWriter,
    PathPattern,
    walk_members,
)
from promptkit.lab.recordings.reading.format import Batch, FileHead, read_head
from promptkit.lab.recordings.reading.messages import read_chat_message
from promptkit.transcript.log.entries import CustomEntry, Setting

if TYPE_CHECKING:
    from promptkit.lab.recordings.reading.source import RecordingSource

NAME = "openai_chat"

LAYOUTS: Mapping[str, tuple[PathPattern, int]] = {
    "item.role": ((None,), 0),
    "messages.item.role": (("messages", None), 0),
    "item.messages.item.role": ((None, "messages", None), 1),
    "item.item.role": ((None, None), 1),
    "role": ((), -1),
}
"""For each JSON path of a role the path of the messages and the depth at which conversations
begin."""


def find_layout(head: FileHead) -> tuple[PathPattern, int] | None:
    """Find the path of the messages in a file and the depth at which conversations begin; None if there are no messages."""
    return next((layout for fact, layout in LAYOUTS.items() if fact in head.json_paths), None)


class OpenAIChatFormat:
    """Read OpenAI chat messages."""

    name = NAME
    description = "OpenAI chat messages JSON"

    def matches(self, head: FileHead) -> bool:
        """Return whether the file contains objects with a role at one of the paths of `LAYOUTS`."""
        return find_layout(head) is not None

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """Yield the entries of a file, message by message."""
        pattern, depth = find_layout(read_head(source)) or ((None,), 0)
        writer = ConversationWriter(NAME)
        for member in walk_members(source, [pattern], depth=depth):
            writer.switch(member.conversation)
            if member.pattern is None:
                yield writer.add([Setting(name=f"{NAME}.{member.key}", value=member.value)])
            elif not isinstance(member.value, Mapping):
                yield writer.keep_unreadable(member, "no JSON object.")
            elif payloads := read_chat_message(member.value, NAME):
                yield writer.add(payloads, messages=1)
            else:
                yield writer.add([CustomEntry(name=f"{NAME}.message", data=member.value)])
