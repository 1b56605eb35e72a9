"""Sequences of entries that are read when they are needed: the path through a long conversation, and all of its entries."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Protocol, cast, overload

from promptkit.transcript.log.entries import Checkpoint, Edit, Reset, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.transcript.log.entries import Entry
    from promptkit.transcript.stores.store import EarlierEntries

PAGE = 128
"""Entries that are read at once."""

MAX_TUPLE = 1_024
"""A longer part of a sequence is not read before it is needed."""


class EntryNumbers(Protocol):
    """The numbers of earlier entries, in the order of a sequence."""

    earlier: EarlierEntries

    def __len__(self) -> int: ...

    def get(self, index: int) -> int:
        """Return the number of the entry at an index."""
        ...

    def index(self, number: int) -> int | None:
        """Return the index of the entry with a number; None if the sequence does not have it."""
        ...

    def iter_ranges(self, start: int, stop: int) -> Iterator[range]:
        """Yield the numbers from one index up to another, as ranges, in order."""
        ...


class PathNumbers:
    """The numbers of the entries from the root to an entry.

    They are found from the end on, as far back as is needed.
    """

    def __init__(self, earlier: EarlierEntries, leaf: int) -> None:
        self.earlier = earlier
        self.leaf = leaf
        self._length = earlier.get_node(leaf).depth + 1
        # newest first: the index of its first entry, and its numbers
        self._runs: list[tuple[int, range]] = []
        self._next: int | None = leaf

    def __len__(self) -> int:
        return self._length

    def get(self, index: int) -> int:
        """Return the number of the entry at an index."""
        while not self._runs or self._runs[-1][0] > index:
            if not self._add_run():
                raise IndexError(index)
        start, numbers = self._runs[self._find_run(index)]
        return numbers[index - start]

    def index(self, number: int) -> int | None:
        """Return the index of the entry with a number; None if it is not on the path."""
        while (not self._runs or self._runs[-1][1].start > number) and self._add_run():
            pass
        low, high = 0, len(self._runs) - 1
        while low <= high:
            middle = (low + high) // 2
            start, numbers = self._runs[middle]
            if number in numbers:
                return start + number - numbers.start
            if number < numbers.start:
                low = middle + 1
            else:
                high = middle - 1
        return None

    def iter_ranges(self, start: int, stop: int) -> Iterator[range]:
        """Yield the numbers from one index up to another, as ranges, in order."""
        while start < stop:
            self.get(start)
            first, numbers = self._runs[self._find_run(start)]
            piece = numbers[start - first : stop - first]
            yield piece
            start += len(piece)

    def _add_run(self) -> bool:
        if self._next is None:
            return False
        node = self.earlier.get_node(self._next)
        self._runs.append((node.depth - (self._next - node.run), range(node.run, self._next + 1)))
        self._next = self.earlier.get_node(node.run).parent
        return True

    def _find_run(self, index: int) -> int:
        low, high = 0, len(self._runs) - 1
        while low < high:
            middle = (low + high) // 2
            if self._runs[middle][0] <= index:
                high = middle
            else:
                low = middle + 1
        return low


class AllNumbers:
    """The numbers of all earlier entries."""

    def __init__(self, earlier: EarlierEntries) -> None:
        self.earlier = earlier

    def __len__(self) -> int:
        return len(self.earlier)

    def get(self, index: int) -> int:
        """Return the index itself."""
        return index

    def index(self, number: int) -> int | None:
        """Return the number itself."""
        return number

    def iter_ranges(self, start: int, stop: int) -> Iterator[range]:
        """Yield one range."""
        yield range(start, stop)


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
        earlier = len(self.numbers)
        for numbers in self.numbers.iter_ranges(self._start, min(self._end, earlier)):
            for at in range(0, len(numbers), PAGE):
                page = numbers[at : at + PAGE]
                yield from self.numbers.earlier.read(page.start, page.stop)
        yield from self._tail[max(self._start - earlier, 0) : max(self._end - earlier, 0)]

    def __reversed__(self) -> Iterator[Entry]:
        earlier = len(self.numbers)
        yield from reversed(self._tail[max(self._start - earlier, 0) : max(self._end - earlier, 0)])
        stop, size = min(self._end, earlier), 1
        while stop > self._start:  # who reads backwards as a rule ends soon
            start = max(self._start, stop - size)
            pages = (
                self.numbers.earlier.read(page.start, page.stop)
                for page in self.numbers.iter_ranges(start, stop)
            )
            yield from reversed([*chain.from_iterable(pages)])
            stop, size = start, min(2 * size, PAGE)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple | list | EntrySequence):
            return NotImplemented
        others = cast("Sequence[object]", other)  # of whatever a list of another type holds
        return len(self) == len(others) and all(
            one == two for one, two in zip(self, others, strict=True)
        )

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
            index = self.numbers.index(number)
            if index is not None and self._start <= index < self._end:
                yield index - self._start
        yield from range(max(len(self.numbers) - self._start, 0), len(self))

    def count_messages(self) -> int:
        """Return the number of messages of a path."""
        earlier = len(self.numbers)
        tail = self._tail[max(self._start - earlier, 0) : max(self._end - earlier, 0)]
        stop = min(self._end, earlier)
        ends = [at for at in (stop, self._start) if at and stop > self._start]
        before = [self.numbers.earlier.get_node(self.numbers.get(at - 1)).messages for at in ends]
        return (
            sum(entry.message is not None for entry in tail)
            + (before[0] if before else 0)
            - (before[1] if before[1:] else 0)
        )

    def iter_marks(self, *, redactions: bool = False) -> Iterator[tuple[int, Entry]]:
        """Yield the checkpoints, resets, edits and settings of a path with their indices, newest first.

        With `redactions`, only the edits that redact an entry.
        """
        earlier = len(self.numbers)
        for place in range(self._end - 1, max(self._start, earlier) - 1, -1):
            entry = self._tail[place - earlier]
            if _is_mark(entry, redactions=redactions):
                yield place - self._start, entry
        stop = min(self._end, earlier)
        number = self.numbers.get(stop - 1) if stop > self._start else None
        while number is not None:
            node = self.numbers.earlier.get_node(number)
            mark = node.redaction if redactions else node.mark
            index = None if mark is None else self.numbers.index(mark)
            if mark is None or index is None or index < self._start:
                return
            yield index - self._start, self.numbers.earlier.read(mark, mark + 1)[0]
            number = self.numbers.earlier.get_node(mark).parent


def iter_marks(path: Sequence[Entry]) -> Iterator[tuple[int, Entry]]:
    """Yield the checkpoints, resets, edits and settings of a path with their indices, newest first."""
    if isinstance(path, EntrySequence):
        yield from path.iter_marks()
        return
    for index in range(len(path) - 1, -1, -1):
        if _is_mark(path[index]):
            yield index, path[index]


def iter_redactions(path: Sequence[Entry]) -> Iterator[Edit]:
    """Yield the edits of a path that redact an entry, newest first."""
    entries = (
        (entry for _, entry in path.iter_marks(redactions=True))
        if isinstance(path, EntrySequence)
        else reversed(path)
    )
    for entry in entries:
        if isinstance(entry.payload, Edit) and entry.payload.reason == "redacted":
            yield entry.payload


def find_entry(path: Sequence[Entry], entry_id: str) -> int | None:
    """Return the index of the entry of a path with an id; None if there is none."""
    if isinstance(path, EntrySequence):
        return path.find(entry_id)
    return next(
        (index for index in range(len(path) - 1, -1, -1) if path[index].id == entry_id), None
    )


def _is_mark(entry: Entry, *, redactions: bool = False) -> bool:
    payload = entry.payload
    if redactions:
        return isinstance(payload, Edit) and payload.reason == "redacted"
    return isinstance(payload, Checkpoint | Reset | Edit | Setting)
