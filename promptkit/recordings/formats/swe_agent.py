"""SWE-agent's trajectories: the messages of the agent's history, and the steps that they come from, which are kept beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from promptkit.messages import Message
from promptkit.recordings.reading.codec import read_head
from promptkit.recordings.reading.conversations import ConversationWriter, walk_members
from promptkit.recordings.reading.json_values import omit_fields, as_text
from promptkit.recordings.reading.messages import read_chat_message
from promptkit.transcript.entries import CustomEntry, MessageEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.recordings.reading.codec import Batch, FileHead
    from promptkit.recordings.reading.json_values import JsonObject
    from promptkit.recordings.reading.source import RecordingSource
    from promptkit.transcript.entries import EntryPayload

__all__ = ["SweAgentFormat"]

NAME = "swe_agent"


class SweAgentFormat:
    """Reads SWE-agent's trajectories."""

    name = NAME
    about = "SWE-agent trajectory"

    def detects(self, head: FileHead) -> bool:
        """A history beside a trajectory, or steps with an action and what was observed."""
        return {"history.item.role", "trajectory"} <= head.json_paths or {"trajectory.item.action", "trajectory.item.observation"} <= head.json_paths

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """The entries of a file, message by message; of one without a history, step by step."""
        has_history = _has_history(source)
        talks = ConversationWriter(NAME)
        for member in walk_members(source, [("history", None), ("trajectory", None)]):
            talks.switch(member.conversation)
            if member.pattern is None:
                yield talks.keep(member)
            elif not isinstance(member.value, Mapping):
                yield talks.keep_unreadable(member, "no JSON object.")
            elif member.pattern[0] == "history":
                said = read_chat_message(member.value, NAME)
                yield talks.add(said or [CustomEntry(name=f"{NAME}.message", data=member.value)], messages=int(bool(said)))
            elif has_history:
                yield talks.add([CustomEntry(name=f"{NAME}.step", data=member.value)])
            else:
                payloads, messages = _step(member.value)
                yield talks.add(payloads, messages=messages)


def _has_history(source: RecordingSource) -> bool:
    if "history.item" in read_head(source).json_paths:
        return True
    return any(member.pattern == ("history", None) for member in walk_members(source, [("history", None)]))


def _step(step: JsonObject) -> tuple[list[EntryPayload], int]:
    """A step as the two messages that it stands for."""
    payloads: list[EntryPayload] = []
    if response := as_text(step.get("response")) or as_text(step.get("action")):
        payloads.append(MessageEntry(message=Message(role="assistant", content=(response,))))
    if observation := as_text(step.get("observation")):
        payloads.append(MessageEntry(message=Message(role="user", content=(observation,))))
    messages = len(payloads)
    if left := omit_fields(step, {"response", "observation"}):
        payloads.append(CustomEntry(name=f"{NAME}.fields", data=left))
    return payloads, messages
