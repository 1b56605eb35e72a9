"""tau-bench's results: a list of tasks, each with the conversation in which it was tried; or one task, or one a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from promptkit.recordings.reading.codec import read_head
from promptkit.recordings.reading.conversations import ConversationWriter, walk_members
from promptkit.recordings.reading.messages import read_chat_message
from promptkit.transcript.entries import CustomEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.recordings.reading.codec import Batch, FileHead
    from promptkit.recordings.reading.conversations import PathPattern
    from promptkit.recordings.reading.source import RecordingSource

__all__ = ["TauBenchFormat"]

NAME = "tau_bench"


class TauBenchFormat:
    """Reads tau-bench's results."""

    name = NAME
    about = "tau-bench trajectories JSON"

    def detects(self, head: FileHead) -> bool:
        """Objects with a trajectory of messages."""
        return bool({"item.traj.item.role", "traj.item.role"} & head.json_paths)

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """The entries of a file, message by message; each task is a conversation."""
        talks = ConversationWriter(NAME)
        listed = "item.traj.item.role" in read_head(source).json_paths
        pattern: PathPattern = (None, "traj", None) if listed else ("traj", None)
        for member in walk_members(source, [pattern], depth=int(listed)):
            talks.switch(member.conversation)
            if member.pattern is None:
                if member.key == "task_id":
                    talks.title = f"task {member.value}"
                yield talks.keep(member)
            elif isinstance(member.value, Mapping):
                said = read_chat_message(member.value, NAME)
                yield talks.add(said or [CustomEntry(name=f"{NAME}.message", data=member.value)], messages=int(bool(said)))
            else:
                yield talks.keep_unreadable(member, "no JSON object.")
