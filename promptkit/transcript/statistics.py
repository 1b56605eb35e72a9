"""Figures about a transcript, added up entry by entry: all that was ever said counts, before a checkpoint or on a branch that was left."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import attrs

from promptkit.messages import Usage
from promptkit.transcript.entries import Checkpoint, MessageEntry, Unknown
from promptkit.transcript.transcript import EntryTree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from promptkit.messages import Message
    from promptkit.transcript.entries import Entry

__all__ = ["Statistics", "TranscriptTotals", "statistics"]


@attrs.frozen(kw_only=True)
class Statistics:
    """What a transcript comes to."""

    entries: int
    kinds: Mapping[str, int]
    """Entries by kind; one of a kind that is not known by its own word."""
    roles: Mapping[str, int]
    """Messages by role."""
    tool_calls: int
    tokens: Mapping[str, int] | None
    """Of messages, by role, each counted once; None where nobody counted."""
    usage: Usage
    """What the provider says that all requests cost together, those of summaries included."""
    checkpoints: int
    branches: int
    """Entries that nothing stands behind."""
    first: float | None
    """When the oldest entry was written, in seconds since 1970."""
    last: float | None


class TranscriptTotals:
    """Adds entries up. `count` gives the tokens of a message; `partial` is as in `Loaded`."""

    def __init__(self, *, count: Callable[[Message], int] | None = None, partial: bool = False) -> None:
        self.tree = EntryTree(partial=partial)
        self._count = count
        self._kinds: Counter[str] = Counter()
        self._roles: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._calls = 0
        self._usage = Usage(input_tokens=0)
        self._times: tuple[float, float] | None = None

    def add(self, entry: Entry) -> None:
        """Count an entry; one whose id was there before is left out."""
        if entry.id in self.tree:
            return
        self.tree.add(entry.id, entry.parent_id)
        payload = entry.payload
        self._kinds[payload.kind if isinstance(payload, Unknown) else entry.kind] += 1
        first, last = self._times or (entry.time, entry.time)
        self._times = min(first, entry.time), max(last, entry.time)
        if isinstance(payload, MessageEntry | Checkpoint) and payload.usage is not None:
            self._usage = _sum(self._usage, payload.usage)
        message = entry.message
        if message is not None:
            self._roles[message.role] += 1
            self._calls += len(message.tool_calls)
            if self._count is not None:
                self._tokens[message.role] += self._count(message)

    @property
    def result(self) -> Statistics:
        """What was added so far."""
        first, last = self._times or (None, None)
        return Statistics(
            entries=len(self.tree),
            kinds=dict(self._kinds),
            roles=dict(self._roles),
            tool_calls=self._calls,
            tokens=None if self._count is None else dict(self._tokens),
            usage=self._usage,
            checkpoints=self._kinds["checkpoint"],
            branches=len(self.tree.leaves()),
            first=first,
            last=last,
        )


def statistics(entries: Iterable[Entry], *, count: Callable[[Message], int] | None = None) -> Statistics:
    """The figures of these entries; `count` gives the tokens of a message."""
    tally = TranscriptTotals(count=count)
    for entry in entries:
        tally.add(entry)
    return tally.result


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(**{field.name: getattr(one, field.name) + getattr(other, field.name) for field in attrs.fields(Usage)})
