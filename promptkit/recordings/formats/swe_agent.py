"""SWE-agent's trajectories: the messages of the agent's history, and the steps that they come from, which are kept beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from promptkit.messages import Message
from promptkit.recordings.reading.codec import head_of
from promptkit.recordings.reading.conversations import ConversationWriter, walk
from promptkit.recordings.reading.json_values import rest, text_of
from promptkit.recordings.reading.messages import read_chat
from promptkit.transcript.entries import Custom, MessageEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.recordings.reading.codec import Batch, Head
    from promptkit.recordings.reading.json_values import Record
    from promptkit.recordings.reading.source import Source
    from promptkit.transcript.entries import Payload

__all__ = ["SweAgent"]

NAME = "swe_agent"


class SweAgent:
    """Reads SWE-agent's trajectories."""

    name = NAME
    about = "SWE-agent trajectory"

    def detects(self, head: Head) -> bool:
        """A history beside a trajectory, or steps with an action and what was observed."""
        return {"history.item.role", "trajectory"} <= head.facts or {"trajectory.item.action", "trajectory.item.observation"} <= head.facts

    def read(self, source: Source) -> Iterator[Batch]:
        """The entries of a file, message by message; of one without a history, step by step."""
        has_history = _has_history(source)
        talks = ConversationWriter(NAME)
        for member in walk(source, [("history", None), ("trajectory", None)]):
            talks.turn(member.talk)
            if member.pattern is None:
                yield talks.beside(member)
            elif not isinstance(member.value, Mapping):
                yield talks.unread(member, "no JSON object.")
            elif member.pattern[0] == "history":
                said = read_chat(member.value, NAME)
                yield talks.add(said or [Custom(name=f"{NAME}.message", data=member.value)], messages=int(bool(said)))
            elif has_history:
                yield talks.add([Custom(name=f"{NAME}.step", data=member.value)])
            else:
                payloads, messages = _step(member.value)
                yield talks.add(payloads, messages=messages)


def _has_history(source: Source) -> bool:
    if "history.item" in head_of(source).facts:
        return True
    return any(member.pattern == ("history", None) for member in walk(source, [("history", None)]))


def _step(step: Record) -> tuple[list[Payload], int]:
    """A step as the two messages that it stands for."""
    payloads: list[Payload] = []
    if response := text_of(step.get("response")) or text_of(step.get("action")):
        payloads.append(MessageEntry(message=Message(role="assistant", content=(response,))))
    if observation := text_of(step.get("observation")):
        payloads.append(MessageEntry(message=Message(role="user", content=(observation,))))
    messages = len(payloads)
    if left := rest(step, {"response", "observation"}):
        payloads.append(Custom(name=f"{NAME}.fields", data=left))
    return payloads, messages
