"""OpenAI chat messages as JSON: a list of messages, a request with such a list, a list of requests, or one of these per line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from promptkit.lab.recordings.reading.conversations import (
    ConversationWriter,
    JsonFormat,
    JsonMember,
    PathPattern,
    walk_members,
)
from promptkit.lab.recordings.reading.format import Batch, FileHead, read_head

if TYPE_CHECKING:
    from promptkit.lab.recordings.reading.source import RecordingSource

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


class OpenAIChatFormat(JsonFormat):
    """Read OpenAI chat messages."""

    name = "openai_chat"

    def matches(self, head: FileHead) -> bool:
        """Return whether the file contains objects with a role at one of the paths of `LAYOUTS`."""
        return find_layout(head) is not None

    def find_members(self, source: RecordingSource) -> Iterator[JsonMember]:
        """Yield the values of a file, messages one by one."""
        pattern, depth = find_layout(read_head(source)) or ((None,), 0)
        return walk_members(source, [pattern], depth=depth)

    def keep(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        """Keep a value next to the messages as a setting."""
        return writer.keep_setting(member)
