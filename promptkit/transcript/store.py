"""Where a transcript is kept: the protocol of all stores, and the one that forgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

from promptkit.errors import TranscriptConflictError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.transcript.entries import Entry

__all__ = ["InMemoryStore", "Loaded", "Problem", "Store"]


@attrs.frozen(kw_only=True)
class Problem:
    """Something in a store that could not be read, and was left where it is. `line` counts from 1."""

    line: int
    detail: str


@attrs.frozen(kw_only=True)
class Loaded:
    """What a store holds, in the order in which it was written."""

    entries: tuple[Entry, ...] = ()
    problems: tuple[Problem, ...] = ()
    lines: tuple[int, ...] = ()
    """For each entry the line that it stands in."""
    last: str = ""
    """The id of the last entry in the store, given here or before; empty where there is none."""
    torn: int = 0
    """Bytes at the end that are of a write that was cut short. They are of no entry, and go when the next one is written."""
    partial: bool = False
    """Whether older entries are elsewhere, so that parents may be missing."""


class Store(Protocol):
    """Keeps entries. A batch is there as a whole or not at all, and once `append` has returned it survives a crash.

    A store belongs to one transcript; two transcripts, in one process or in two, each open a store of their own on the same place.
    """

    def load(self) -> Loaded:
        """All entries, as far as they can be read."""
        ...

    def refresh(self) -> Loaded:
        """What others have written since the store was read. It may hold entries that were given before."""
        ...

    def append(self, entries: Sequence[Entry], *, expect: str | None = None) -> None:
        """Write a batch behind all that is there.

        `expect` is the id of the entry that the caller believes to be the last; an empty text: that there is none. Raises
        TranscriptConflictError, with what was written since, if another writer was faster; nothing is written then. None: whatever
        the last entry is. Raises TranscriptWriteError if it cannot be written.
        """
        ...

    @property
    def place(self) -> str | None:
        """The path of the file that a reader can open, or None."""
        ...

    @property
    def lines(self) -> int:
        """The lines of that file, as far as the store has read and written it; 0 where there is none."""
        ...


class InMemoryStore:
    """Keeps entries for as long as the process lives. Several transcripts may share one."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self._entries = list(entries)

    def load(self) -> Loaded:
        """All entries."""
        return Loaded(entries=tuple(self._entries), lines=tuple(range(1, len(self._entries) + 1)), last=self._last)

    def refresh(self) -> Loaded:
        """All entries: they are at hand."""
        return self.load()

    def append(self, entries: Sequence[Entry], *, expect: str | None = None) -> None:
        """Keep a batch."""
        if expect not in {None, self._last}:
            raise TranscriptConflictError(expect or "", _since(self._entries, expect or ""))
        self._entries.extend(entries)

    @property
    def _last(self) -> str:
        return self._entries[-1].id if self._entries else ""

    @property
    def place(self) -> str | None:
        """No file."""
        return None

    @property
    def lines(self) -> int:
        """None: there is no file."""
        return 0


def _since(entries: Sequence[Entry], known: str) -> list[Entry]:
    for at in range(len(entries) - 1, -1, -1):
        if entries[at].id == known:
            return list(entries[at + 1 :])
    return list(entries)
