"""tau-bench's results: a list of tasks, each with its conversation; or one task, or one task per line."""

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
from promptkit.transcript.log.entries import CustomEntry

if TYPE_CHECKING:
    from promptkit.lab.recordings.reading.source import RecordingSource

NAME = "tau_bench"


class TauBenchFormat:
    """Read tau-bench's results."""

    name = NAME
    description = "tau-bench trajectories JSON"

    def matches(self, head: FileHead) -> bool:
        """Return whether the file contains objects with a trajectory of messages."""
        return bool({"item.traj.item.role", "traj.item.role"} & head.json_paths)

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """Yield the entries of a file, message by message. Each task is a conversation."""
        writer = ConversationWriter(NAME)
        listed = "item.traj.item.role" in read_head(source).json_paths
        pattern: PathPattern = (None, "traj", None) if listed else ("traj", None)
        for member in walk_members(source, [pattern], depth=int(listed)):
            writer.switch(member.conversation)
            if member.pattern is None:
                if member.key == "task_id":
                    writer.title = f"task {member.value}"
                yield writer.keep(member)
            elif isinstance(member.value, Mapping):
                payloads = read_chat_message(member.value, NAME)
                yield writer.add(
                    payloads or [CustomEntry(name=f"{NAME}.message", data=member.value)],
                    messages=int(bool(payloads)),
                )
            else:
                yield writer.keep_unreadable(member, "no JSON object.")
