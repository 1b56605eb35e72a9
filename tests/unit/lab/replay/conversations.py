"""Conversations for the tests of replays."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import attrs

from promptkit import JsonlStore, Message, Transcript
from promptkit.compaction.presets.break_even import QUESTION_TOKENS
from promptkit.lab.replay.prompt_cache import bill_prefix, find_lifetime
from promptkit.lab.replay.recordings import Recording, recording_from_messages
from promptkit.transcript.log.entries import MessageEntry
from tests.conversations import assistant_message, call_message, result_message, user_message

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from promptkit.lab.replay.oracle import PricedConversation

__all__ = [
    "expand_change",
    "long_conversation",
    "price_of",
    "recording_of",
    "run_call",
    "write_transcript",
]


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


def expand_change(before: Sequence[int], change: Sequence[int]) -> list[int]:
    """The numbers of the messages that a request shows, from those of the request before and `LoggedRequest.change`."""
    shown: list[int] = []
    for start, length in zip(change[::2], change[1::2], strict=True):
        shown += (
            before[start : start + length] if start >= 0 else range(-1 - start, -1 - start + length)
        )
    return shown


def recording_of(messages: Sequence[Message], times: Sequence[float] | None = None) -> Recording:
    return recording_from_messages(
        [(message, None if times is None else times[at]) for at, message in enumerate(messages)]
    )


def price_of(conversation: PricedConversation, compactions: Collection[int]) -> float:
    """The price of a conversation with compactions before the requests at these places, request by request."""
    rule, price, total = conversation.cache, conversation.price, 0.0
    lifetime = find_lifetime(rule)
    shift, cached, used = 0, 0, -math.inf
    for at, request in enumerate(conversation.requests):
        if at in compactions:
            closed = conversation.requests[at - 1]
            size = closed.tokens + shift
            known = size if closed.replied - closed.sent <= lifetime else 0
            question = bill_prefix(rule, size, known)
            total += price.cost(
                attrs.evolve(
                    question,
                    input_tokens=question.input_tokens + QUESTION_TOKENS,
                    output_tokens=conversation.summary_tokens,
                )
            )
            beside = conversation.summary_tokens + conversation.beside_tokens + closed.user_tokens
            shift = conversation.fixed_tokens + beside - closed.tokens
            cached, used = conversation.fixed_tokens, closed.replied
        size = request.tokens + shift
        billed = bill_prefix(rule, size, cached if request.sent - used <= lifetime else 0)
        total += price.cost(attrs.evolve(billed, output_tokens=request.output_tokens))
        cached, used = size, request.sent
    return total


def write_transcript(path: Path, messages: Sequence[Message]) -> Path:
    """A transcript in a file, a message a minute."""
    numbers = iter(range(1_000_000))
    times = iter(range(1_767_225_600, 1_900_000_000, 60))
    transcript = Transcript(
        JsonlStore(path), clock=lambda: float(next(times)), new_id=lambda: f"e{next(numbers)}"
    )
    transcript.append(*(MessageEntry(message=message) for message in messages))
    return path
