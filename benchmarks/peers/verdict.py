"""What a peer kept, held against what it should keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from benchmarks.peers.work import Work, count, key

if TYPE_CHECKING:
    from benchmarks.peers.work import WireMessage

__all__ = ["CUT", "NOT_NEWEST", "ORPHAN", "OVER", "UNANSWERED", "Verdict", "judge"]

OVER: Final = "does not fit"
NOT_NEWEST: Final = "not the newest in a row"
CUT: Final = "cut in the middle"
ORPHAN: Final = "result without its call"
UNANSWERED: Final = "call without its result"


@attrs.frozen(kw_only=True)
class Verdict:
    """A result, looked at from outside: counted exactly, and told apart item by item."""

    kept: tuple[int, ...]
    """The places of the items that were kept whole, in the order in which they came back."""
    tokens: int
    """What the result really costs, counted as OpenAI bills it."""
    faults: tuple[str, ...]
    """What is wrong with it; empty if nothing is."""

    @property
    def fits(self) -> bool:
        """Whether it is within the budget."""
        return OVER not in self.faults

    @property
    def sound(self) -> bool:
        """Whether the newest items are there, whole, in a row, calls with their results; that it fits is another question."""
        return not {*self.faults} - {OVER}


def judge(work: Work, messages: Sequence[Mapping[str, Any]]) -> Verdict:  # Any: JSON
    """What the messages that came back are worth."""
    place = {key(item): index for index, item in enumerate(work.items)}
    found = [place.get(piece) for piece in _pieces(work, messages)]
    kept = tuple(index for index in found if index is not None)
    tokens = count(messages)
    checks = {
        OVER: tokens > work.budget,
        NOT_NEWEST: not kept or kept != tuple(range(work.size - len(kept), work.size)),
        CUT: None in found,
        **_pairs(messages),
    }
    return Verdict(kept=kept, tokens=tokens, faults=tuple(fault for fault, holds in checks.items() if holds))


def _pieces(work: Work, messages: Sequence[WireMessage]) -> list[str]:
    """What tells each item of a result: of the shape `chunks` its lines, without empty ones."""
    if work.shape != "chunks":
        return [key(message) for message in messages]
    return [line for message in messages for line in str(message["content"]).split("\n") if line]


def _pairs(messages: Sequence[Mapping[str, Any]]) -> dict[str, bool]:  # Any: JSON
    """Which fault there is between calls and results: a provider refuses a request for either."""
    asked: set[str] = set()
    answered: set[str] = set()
    orphan = False
    for message in messages:
        asked |= {call["id"] for call in message.get("tool_calls") or ()}
        if message["role"] == "tool":
            answered.add(message["tool_call_id"])
            orphan = orphan or message["tool_call_id"] not in asked
    return {ORPHAN: orphan, UNANSWERED: bool(asked - answered)}
