"""tau-bench's results: a list of tasks, each with the conversation in which it was tried; or one task, or one a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from promptkit.recordings.reading.codec import head_of
from promptkit.recordings.reading.conversations import ConversationWriter, walk
from promptkit.recordings.reading.messages import read_chat
from promptkit.transcript.entries import Custom

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.recordings.reading.codec import Batch, Head
    from promptkit.recordings.reading.conversations import Pattern
    from promptkit.recordings.reading.source import Source

__all__ = ["TauBench"]

NAME = "tau_bench"


class TauBench:
    """Reads tau-bench's results."""

    name = NAME
    about = "tau-bench trajectories JSON"

    def detects(self, head: Head) -> bool:
        """Objects with a trajectory of messages."""
        return bool({"item.traj.item.role", "traj.item.role"} & head.facts)

    def read(self, source: Source) -> Iterator[Batch]:
        """The entries of a file, message by message; each task is a conversation."""
        talks = ConversationWriter(NAME)
        listed = "item.traj.item.role" in head_of(source).facts
        pattern: Pattern = (None, "traj", None) if listed else ("traj", None)
        for member in walk(source, [pattern], depth=int(listed)):
            talks.turn(member.talk)
            if member.pattern is None:
                if member.key == "task_id":
                    talks.title = f"task {member.value}"
                yield talks.beside(member)
            elif isinstance(member.value, Mapping):
                said = read_chat(member.value, NAME)
                yield talks.add(said or [Custom(name=f"{NAME}.message", data=member.value)], messages=int(bool(said)))
            else:
                yield talks.unread(member, "no JSON object.")
