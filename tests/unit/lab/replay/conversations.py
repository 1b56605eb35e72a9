"""Conversations for the tests of replays."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from promptkit import JsonlStore, Message, Transcript
from promptkit.lab.replay.recordings import Recording, recording_from_messages
from promptkit.transcript.log.entries import MessageEntry
from tests.conversations import assistant_message, call_message, result_message, user_message

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["long_conversation", "recording_of", "run_call", "write_transcript"]


def run_call(call: str, text: str = "", **arguments: str) -> Message:
    """A message of the model with one call of the tool `run`."""
    return call_message(call, text=text, name="run", arguments=json.dumps(arguments))


def long_conversation(turns: int, *, rounds: int = 3, words: int = 60) -> list[Message]:
    """Turns in which the model calls a tool a few times, and uses again what was read long before."""
    talk: list[Message] = []
    for turn in range(turns):
        talk.append(
            user_message(
                f"request {turn}: mend load_row_{turn} in src/part_{turn}.py "
                + f"word{turn} " * (words // 3)
            )
        )
        for number in range(rounds):
            name = f"c{turn}_{number}"
            talk.append(
                run_call(name, path=f"src/part_{turn}.py", again=f"src/part_{turn // 2}.py")
            )
            talk.append(
                result_message(
                    name,
                    f"def load_row_{turn}(): # line {number}\n" + f"value_{turn}_{number} " * words,
                )
            )
        talk.append(assistant_message(f"load_row_{turn} is mended, as was load_row_{turn // 2}."))
    return talk


def recording_of(messages: Sequence[Message], times: Sequence[float] | None = None) -> Recording:
    return recording_from_messages(
        [(message, None if times is None else times[at]) for at, message in enumerate(messages)]
    )


def write_transcript(path: Path, messages: Sequence[Message]) -> Path:
    """A transcript in a file, a message a minute."""
    numbers = iter(range(1_000_000))
    times = iter(range(1_767_225_600, 1_900_000_000, 60))
    transcript = Transcript(
        JsonlStore(path), clock=lambda: float(next(times)), new_id=lambda: f"e{next(numbers)}"
    )
    transcript.append(*(MessageEntry(message=message) for message in messages))
    return path
