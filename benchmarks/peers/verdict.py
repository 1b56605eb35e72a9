"""Compare what a peer kept with what it should keep."""

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
    """The check of a result: counted exactly, and compared item by item."""

    kept: tuple[int, ...]
    """The indices of the items that were kept unchanged, in the order of the result."""
    tokens: int
    """The tokens of the result as OpenAI bills them."""
    faults: tuple[str, ...]
    """The faults of the result."""

    @property
    def fits(self) -> bool:
        """Whether it is within the budget."""
        return OVER not in self.faults

    @property
    def sound(self) -> bool:
        """Whether it consists of the newest items, unchanged, without gaps, and calls with their results. Its size does not matter here."""
        return not {*self.faults} - {OVER}


def judge(work: Work, messages: Sequence[Mapping[str, Any]]) -> Verdict:  # Any: JSON
    """Check the messages that a peer returned."""
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
    """Return the key of each item of a result; for `chunks`, its lines without empty ones."""
    if work.shape != "chunks":
        return [key(message) for message in messages]
    return [line for message in messages for line in str(message["content"]).split("\n") if line]


def _pairs(messages: Sequence[Mapping[str, Any]]) -> dict[str, bool]:  # Any: JSON
    """Return which faults there are between calls and results. A provider rejects a request for either."""
    asked: set[str] = set()
    answered: set[str] = set()
    orphan = False
    for message in messages:
        asked |= {call["id"] for call in message.get("tool_calls") or ()}
        if message["role"] == "tool":
            answered.add(message["tool_call_id"])
            orphan = orphan or message["tool_call_id"] not in asked
    return {ORPHAN: orphan, UNANSWERED: bool(asked - answered)}
