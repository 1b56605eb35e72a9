"""Sequences of entries that are read when they are needed: the path through a long conversation, and all of its entries."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, islice
from math import inf
from operator import attrgetter, eq, itemgetter
from typing import cast, overload

from promptkit.errors import TranscriptError
from promptkit.transcript.log.entries import Edit, Entry, EntryKind
from promptkit.transcript.stores.store import EarlierEntries

PAGE = 128
"""Entries that are read at once."""

MAX_TUPLE = 1_024
"""A longer part of a sequence is not read before it is needed."""


class EntryNumbers:
    """Map the indices of a sequence to the numbers of the earlier entries that it holds.

    Args:
        earlier: The earlier entries.
        leaf: The number of the last entry of a path. None: all earlier entries.
    """

    def __init__(self, earlier: EarlierEntries, leaf: int | None = None) -> None:
        self.earlier = earlier
        self.newest = len(earlier) - 1 if leaf is None else leaf
        """The number of the last entry."""
        self._has_all = leaf is None
        self._version: int | None = None
        self._runs: list[range] = []
        self._starts: list[int] = [0]  # the index of the first entry of each run, and the length

    def __len__(self) -> int:
        self._load()
        return self._starts[-1]

    def get(self, index: int) -> int:
        """Return the number of the entry at an index, after comparing it and all newer ones with the store."""
        self._load()
        at = bisect_right(self._starts, index) - 1
        number = self._runs[at][index - self._starts[at]]
        self.earlier.verify(number)
        self._load()
        return number

    def index(self, number: int) -> int | None:
        """Return the index of the entry with a number; None if the sequence does not have it."""
        self.earlier.verify(number)
        self._load()
        at = bisect_right(self._runs, number, key=attrgetter("start")) - 1
        return (
            self._starts[at] + number - self._runs[at].start
            if at >= 0 and number in self._runs[at]
            else None
        )

    def iter_ranges(self, start: int, stop: int) -> Iterator[range]:
        """Yield the numbers from one index up to another, as ranges, in order."""
        if start < stop:
            self.get(start)
        yield from filter(
            None,
            (
                run[max(start - first, 0) : max(stop - first, 0)]
                for first, run in zip(self._starts, list(self._runs), strict=False)
            ),
        )

    def iter_back(self, number: int | None) -> Iterator[range]:
        """Yield the numbers from one entry back to the first, as ranges, newest range first.

        A caller that reads backwards usually stops early, so the first ranges are short.
        """
        size = 1
        while number is not None:
            start = max(number + 1 - size, 0)
            self.earlier.verify(start)
            first, parent = self._find_run(number)
            yield range(max(start, first), number + 1)
            number = parent if first >= start else start - 1
            size = min(2 * size, PAGE)

    def verify(self) -> None:
        """Compare the index of all earlier entries with the store, and forget what it said before."""
        self.earlier.verify(0)
        self._version = None

    def _load(self) -> None:
        """Find the runs of the sequence, unless they are known for this version of the index."""
        if self._version == self.earlier.version:
            return
        runs: list[range] = []
        number: int | None = self.newest
        while number is not None:
            first, parent = self._find_run(number)
            runs.append(range(first, number + 1))
            number = parent
        runs.reverse()
        starts = [*accumulate(map(len, runs), initial=0)]
        if self._version is not None and starts[-1] != self._starts[-1]:
            raise TranscriptError(
                "the index of this transcript was not that of its file, and was made again: open the transcript again."
            )
        self._version, self._runs, self._starts = self.earlier.version, runs, starts

    def _find_run(self, number: int) -> tuple[int, int | None]:
        if self._has_all:
            return 0, None
        runs = self.earlier.runs
        return runs[bisect_right(runs, number, key=itemgetter(0)) - 1]


class EntrySequence(Sequence["Entry"]):
    """Entries that are read when they are needed, followed by entries in memory.

    It equals every sequence of the same entries.

    Args:
        numbers: The entries that are read.
        tail: The entries after them.
        start: The index of the first entry, in both together.
        stop: The index after the last one. None: all.
    """

    def __init__(
        self,
        numbers: EntryNumbers,
        tail: Sequence[Entry],
        *,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        self.numbers = numbers
        self._tail = tail
        self._start, self._stop = start, stop

    @property
    def _end(self) -> int:
        return len(self.numbers) + len(self._tail) if self._stop is None else self._stop

    def __len__(self) -> int:
        return self._end - self._start

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | Sequence[Entry]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            part = EntrySequence(
                self.numbers,
                self._tail,
                start=self._start + start,
                stop=self._start + max(start, stop),
            )
            if step != 1:
                return tuple(part)[::step] if step > 0 else tuple(self)[index]
            return part if len(part) > MAX_TUPLE else tuple(part)
        place = range(self._start, self._end)[index]
        earlier = len(self.numbers)
        if place >= earlier:
            return self._tail[place - earlier]
        number = self.numbers.get(place)
        return self.numbers.earlier.read(number, number + 1)[0]

    def __iter__(self) -> Iterator[Entry]:
        if self._start == 0 and self._stop is None:
            self.numbers.verify()
        earlier = len(self.numbers)
        for numbers in self.numbers.iter_ranges(self._start, min(self._end, earlier)):
            for at in range(0, len(numbers), PAGE):
                page = numbers[at : at + PAGE]
                yield from self.numbers.earlier.read(page.start, page.stop)
        yield from self._newer()

    def __reversed__(self) -> Iterator[Entry]:
        yield from reversed(self._newer())
        numbers = self.numbers
        number = numbers.newest
        left: float = inf
        if self._start or self._stop is not None:
            stop = min(self._end, len(numbers))
            left = stop - self._start
            number = numbers.get(stop - 1) if left > 0 else number
        for page in numbers.iter_back(number) if left > 0 else ():
            entries = numbers.earlier.read(page.start, page.stop)
            yield from islice(reversed(entries), int(min(left, PAGE)))
            left -= len(entries)
            if left <= 0:
                return

    def _newer(self) -> Sequence[Entry]:
        """Return the entries of the sequence that are in memory."""
        earlier = len(self.numbers)
        return self._tail[max(self._start - earlier, 0) : max(self._end - earlier, 0)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple | list | EntrySequence):
            return NotImplemented
        others = cast("Sequence[object]", other)  # of whatever a list of another type holds
        return len(self) == len(others) and all(map(eq, self, others))

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        return f"<{len(self):,} entries>"

    def find(self, entry_id: str) -> int | None:
        """Return the index of the entry with an id; None if there is none."""
        earlier = len(self.numbers)
        for place in range(self._end - 1, max(self._start, earlier) - 1, -1):
            if self._tail[place - earlier].id == entry_id:
                return place - self._start
        number = self.numbers.earlier.find(entry_id)
        found = None if number is None else self.numbers.index(number)
        return (
            found - self._start if found is not None and self._start <= found < self._end else None
        )

    def find_text(self, texts: Sequence[str]) -> Iterator[int]:
        """Yield the indices of the entries whose message may contain one of these texts, which are in lower case.

        All of the tail may.
        """
        for number in self.numbers.earlier.find_text(texts, lower=True):
            if (at := self.numbers.index(number)) is not None and self._start <= at < self._end:
                yield at - self._start
        yield from range(max(len(self.numbers) - self._start, 0), len(self))

    def count_messages(self) -> int:
        """Return the number of messages of a path."""
        numbers, stop = self.numbers, min(self._end, len(self.numbers))
        return numbers.earlier.count_messages([*numbers.iter_ranges(self._start, stop)]) + sum(
            entry.message is not None for entry in self._newer()
        )

    def find_kinds(self, kinds: Collection[EntryKind]) -> Iterator[Entry]:
        """Yield the entries of these kinds, newest first, without reading the others."""
        yield from (entry for entry in reversed(self._newer()) if entry.kind in kinds)
        stop = min(self._end, len(self.numbers))
        for number in reversed(self.numbers.earlier.find_kinds(kinds)):
            if (index := self.numbers.index(number)) is not None and self._start <= index < stop:
                yield self.numbers.earlier.read(number, number + 1)[0]


def find_kinds(path: Sequence[Entry], *kinds: EntryKind) -> Iterator[Entry]:
    """Yield the entries of a path that are of these kinds, newest first."""
    return (
        path.find_kinds(kinds)
        if isinstance(path, EntrySequence)
        else (entry for entry in reversed(path) if entry.kind in kinds)
    )


def iter_redactions(path: Sequence[Entry]) -> Iterator[Edit]:
    """Yield the edits of a path that redact an entry, newest first."""
    return (
        entry.payload
        for entry in find_kinds(path, "edit")
        if isinstance(entry.payload, Edit) and entry.payload.reason == "redacted"
    )


def find_entry(path: Sequence[Entry], entry_id: str) -> int | None:
    """Return the index of the entry of a path with an id; None if there is none."""
    return (
        path.find(entry_id)
        if isinstance(path, EntrySequence)
        else next(
            (index for index in range(len(path) - 1, -1, -1) if path[index].id == entry_id), None
        )
    )
