"""tau-bench's results: a list of tasks, each with its conversation; or one task, or one task per line."""

from __future__ import annotations

from collections.abc import Iterator

from promptkit.lab.recordings.reading.format import (
    Batch,
    ConversationWriter,
    FileHead,
    JsonFormat,
    JsonMember,
    read_head,
    walk_members,
)
from promptkit.lab.recordings.reading.source import RecordingSource


class TauBenchFormat(JsonFormat):
    """Read tau-bench's results. Each task is a conversation."""

    name = "tau_bench"

    def matches(self, head: FileHead) -> bool:
        """Return whether the file contains objects with a trajectory of messages."""
        return bool({"item.traj.item.role", "traj.item.role"} & head.json_paths)

    def find_members(self, source: RecordingSource) -> Iterator[JsonMember]:
        """Yield the values of a file, messages one by one."""
        listed = "item.traj.item.role" in read_head(source).json_paths
        pattern = (None, "traj", None) if listed else ("traj", None)
        return walk_members(source, [pattern], depth=int(listed))

    def keep(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        """Keep a value in a custom entry. The task's id is the conversation's title."""
        if member.key == "task_id":
            writer.title = f"task {member.value}"
        return super().keep(writer, member)
