"""SWE-agent's trajectories: the messages of the agent's history, and its steps, which are kept in custom entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from promptkit.lab.recordings.reading.conversations import ConversationWriter, walk_members
from promptkit.lab.recordings.reading.format import Batch, FileHead, read_head
from promptkit.lab.recordings.reading.json_values import JsonObject, as_text, omit_fields
from promptkit.lab.recordings.reading.messages import read_chat_message
from promptkit.messages import Message
from promptkit.transcript.log.entries import CustomEntry, EntryPayload, MessageEntry

if TYPE_CHECKING:
    from promptkit.lab.recordings.reading.source import RecordingSource

NAME = "swe_agent"


class SweAgentFormat:
    """Read SWE-agent's trajectories."""

    name = NAME
    description = "SWE-agent trajectory"

    def matches(self, head: FileHead) -> bool:
        """Return whether the file contains a history and a trajectory, or steps with an action and an observation."""
        return {"history.item.role", "trajectory"} <= head.json_paths or {
            "trajectory.item.action",
            "trajectory.item.observation",
        } <= head.json_paths

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """Yield the entries of a file, message by message; of a file without a history, step by step."""
        has_history = _has_history(source)
        writer = ConversationWriter(NAME)
        for member in walk_members(source, [("history", None), ("trajectory", None)]):
            writer.switch(member.conversation)
            if member.pattern is None:
                yield writer.keep(member)
            elif not isinstance(member.value, Mapping):
                yield writer.keep_unreadable(member, "no JSON object.")
            elif member.pattern[0] == "history":
                payloads = read_chat_message(member.value, NAME)
                yield writer.add(
                    payloads or [CustomEntry(name=f"{NAME}.message", data=member.value)],
                    messages=int(bool(payloads)),
                )
            elif has_history:
                yield writer.add([CustomEntry(name=f"{NAME}.step", data=member.value)])
            else:
                payloads, messages = _read_step(member.value)
                yield writer.add(payloads, messages=messages)


def _has_history(source: RecordingSource) -> bool:
    if "history.item" in read_head(source).json_paths:
        return True
    return any(
        member.pattern == ("history", None) for member in walk_members(source, [("history", None)])
    )


def _read_step(step: JsonObject) -> tuple[list[EntryPayload], int]:
    """Read a step as two messages: the action and the observation.

    Returns the payloads and the number of messages.
    """
    payloads: list[EntryPayload] = []
    if response := as_text(step.get("response")) or as_text(step.get("action")):
        payloads.append(MessageEntry(message=Message(role="assistant", content=(response,))))
    if observation := as_text(step.get("observation")):
        payloads.append(MessageEntry(message=Message(role="user", content=(observation,))))
    messages = len(payloads)
    if extra := omit_fields(step, {"response", "observation"}):
        payloads.append(CustomEntry(name=f"{NAME}.fields", data=extra))
    return payloads, messages
