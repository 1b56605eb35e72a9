"""Compare what a peer kept with what it should keep."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from benchmarks.peers.work import Work, count, key
from benchmarks.recorded import TURN

if TYPE_CHECKING:
    from benchmarks.peers.work import WireMessage

__all__ = [
    "CUT",
    "FOREIGN",
    "LOST",
    "NOT_NEWEST",
    "ORPHAN",
    "OVER",
    "UNANSWERED",
    "Verdict",
    "judge",
]

OVER: Final = "does not fit"
NOT_NEWEST: Final = "not the newest in a row"
CUT: Final = "cut in the middle"
ORPHAN: Final = "result without its call"
UNANSWERED: Final = "call without its result"
LOST: Final = "without instructions or request"
FOREIGN: Final = "text of no message"

MARKERS: Final = re.compile(r"\s*\[…[^\]]*\]\s*|\[truncated\]…\n|\.\.|\[[\d,]+ messages? omitted\]")
"""The markers that libraries write where they cut a text, or leave out messages."""


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
        """True if it is within the budget."""
        return OVER not in self.faults

    @property
    def sound(self) -> bool:
        """True if it consists of the newest items, without gaps, and has each call with its result, whatever its size is.

        In the shape `history` messages may be shortened; in the others they are unchanged.
        """
        return not {*self.faults} - {OVER}


def judge(work: Work, messages: Sequence[Mapping[str, Any]]) -> Verdict:  # Any: JSON
    """Check the messages that a peer returned."""
    place = {key(item): index for index, item in enumerate(work.items)}
    if work.shape == "history":
        return _judge_history(work, messages, place)
    found = [place.get(piece) for piece in _pieces(work, messages)]
    kept = tuple(index for index in found if index is not None)
    tokens = count(messages)
    checks = {
        OVER: tokens > work.budget,
        NOT_NEWEST: not kept or kept != tuple(range(work.size - len(kept), work.size)),
        CUT: None in found,
        **_pairs(messages),
    }
    return Verdict(
        kept=kept, tokens=tokens, faults=tuple(fault for fault, holds in checks.items() if holds)
    )


# Any stands for JSON
def _judge_history(
    work: Work, messages: Sequence[Mapping[str, Any]], place: Mapping[str, int]
) -> Verdict:
    """Check a prompt with a history: messages may be shortened, the oldest turn shown in part, and a marker stand for those left out."""
    unchanged = tuple(
        index for message in messages if (index := place.get(key(message))) is not None
    )
    recorded = range(1, work.size + 1)
    sources = (_find_source(work, message, place) for message in messages)
    shown = {index for index in sources if index is not None and index in recorded}
    oldest = min(shown, default=work.size) - 1
    whole = {*range(oldest - oldest % TURN + TURN + 1, work.size + 1), work.size}
    known = "\0".join(str(item["content"]) for item in work.items)
    tokens = count(messages)
    checks = {
        OVER: tokens > work.budget,
        LOST: not {0, len(work.items) - 1} <= {*unchanged},
        NOT_NEWEST: not shown >= whole or [*unchanged] != sorted({*unchanged}),
        FOREIGN: any(
            piece.strip() not in known
            for message in messages
            for piece in MARKERS.split(message.get("content") or "")
        ),
        **_pairs(messages),
    }
    kept = tuple(index - 1 for index in unchanged if index in recorded)
    return Verdict(
        kept=kept, tokens=tokens, faults=tuple(fault for fault, holds in checks.items() if holds)
    )


def _find_source(work: Work, message: WireMessage, place: Mapping[str, int]) -> int | None:
    """Return the item that a message shows, whole or shortened.

    None: it is a marker, or no message of the workload.
    """
    if message["role"] == "tool":
        call = place.get(str(message["tool_call_id"]))
        return None if call is None else call + 1
    found = place.get(key(message))
    if found is not None:
        return found
    head = MARKERS.split(str(message.get("content") or ""))[0]
    starts = [
        index
        for index, item in enumerate(work.items)
        if head and str(item["content"]).startswith(head)
    ]
    return starts[0] if len(starts) == 1 else None


def _pieces(work: Work, messages: Sequence[WireMessage]) -> list[str]:
    """Return the key of each item of a result; for `chunks`, its lines without empty ones."""
    if work.shape != "chunks":
        return [key(message) for message in messages]
    return [line for message in messages for line in str(message["content"]).split("\n") if line]


def _pairs(messages: Sequence[Mapping[str, Any]]) -> dict[str, bool]:  # Any: JSON
    """Return which faults there are between calls and results.

    A provider rejects a request for either.
    """
    asked: set[str] = set()
    answered: set[str] = set()
    orphan = False
    for message in messages:
        asked |= {call["id"] for call in message.get("tool_calls") or ()}
        if message["role"] == "tool":
            answered.add(message["tool_call_id"])
            orphan = orphan or message["tool_call_id"] not in asked
    return {ORPHAN: orphan, UNANSWERED: bool(asked - answered)}
