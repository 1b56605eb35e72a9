"""SWE-agent's trajectories: the messages of the agent's history, and its steps, which are kept in custom entries."""

from __future__ import annotations

from collections.abc import Iterator

from promptkit.lab.recordings.reading.conversations import (
    ConversationWriter,
    JsonFormat,
    JsonMember,
    walk_members,
)
from promptkit.lab.recordings.reading.format import Batch, FileHead, RecordingSource, read_head
from promptkit.lab.recordings.reading.json_texts import (
    JsonObject,
    as_text,
    keep_fields,
    omit_fields,
)
from promptkit.messages import Message
from promptkit.transcript import CustomEntry, EntryPayload, MessageEntry

NAME = "swe_agent"
HISTORY, STEPS = ("history", None), ("trajectory", None)
"""The paths of the messages and of the agent's steps."""


class SweAgentFormat(JsonFormat):
    """Read SWE-agent's trajectories."""

    name = NAME

    def matches(self, head: FileHead) -> bool:
        """Return whether the file contains a history and a trajectory, or steps with an action and an observation."""
        return {"history.item.role", "trajectory"} <= head.json_paths or {
            "trajectory.item.action",
            "trajectory.item.observation",
        } <= head.json_paths

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """Yield the entries of a file, message by message; of a file without a history, step by step."""
        return super().read(source) if _has_history(source) else _StepFormat().read(source)

    def find_members(self, source: RecordingSource) -> Iterator[JsonMember]:
        """Yield the values of a file, messages and steps one by one."""
        return walk_members(source, [HISTORY, STEPS])

    def read_record(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        """Read a message. A step, which repeats messages of the history, becomes a custom entry."""
        if member.pattern == STEPS:
            return writer.add([CustomEntry(name=f"{NAME}.step", data=member.value)])
        return super().read_record(writer, member)


def _has_history(source: RecordingSource) -> bool:
    return "history.item" in read_head(source).json_paths or any(
        member.pattern == HISTORY for member in walk_members(source, [HISTORY])
    )


class _StepFormat(JsonFormat):
    """Read trajectories that have no history."""

    name = NAME

    def find_members(self, source: RecordingSource) -> Iterator[JsonMember]:
        return walk_members(source, [STEPS])

    def read_record(self, writer: ConversationWriter, member: JsonMember) -> Batch:
        said = [*_read_step(member.record)]
        extra = omit_fields(member.record, {"response", "observation"})
        return writer.add([*said, *keep_fields(NAME, extra)], messages=len(said))


def _read_step(step: JsonObject) -> Iterator[EntryPayload]:
    """Read a step as two messages: the action and the observation."""
    if response := as_text(step.get("response")) or as_text(step.get("action")):
        yield MessageEntry(message=Message(role="assistant", content=(response,)))
    if observation := as_text(step.get("observation")):
        yield MessageEntry(message=Message(role="user", content=(observation,)))
