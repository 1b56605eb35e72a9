"""Which entry stands behind which. Holds ids only, so that a large file can be gone through without being kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Tree"]


class Tree:
    """The ids of a transcript's entries and their parents. Only what is there can be a parent, so nothing ever stands behind itself.

    `partial`: older entries are elsewhere, and an entry whose parent is not there begins a branch; else it stands behind the entry
    that was added before it.
    """

    def __init__(self, *, partial: bool = False) -> None:
        self.partial = partial
        self.parents: dict[str, str | None] = {}
        """In the order in which they were added."""
        self.last: str | None = None

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self.parents

    def __len__(self) -> int:
        return len(self.parents)

    def add(self, entry_id: str, parent: str | None) -> str | None:
        """Add an entry that is not there yet; what is wrong with its place, in words, or None."""
        problem = None
        if parent is not None and parent not in self.parents:
            if self.partial:
                parent = None
            else:
                where = f"it stands behind {self.last!r} instead" if self.last else "it stands at the beginning instead"
                problem = f"the entry {entry_id!r} belongs behind {parent!r}, which is not there before it; {where}."
                parent = self.last
        self.parents[entry_id] = parent
        self.last = entry_id
        return problem

    def up(self, leaf: str) -> Iterator[str]:
        """The ids from a leaf to its root."""
        at: str | None = leaf
        while at is not None:
            yield at
            at = self.parents[at]

    def leaves(self) -> list[str]:
        """The ids that nothing stands behind, oldest first."""
        parents = set(self.parents.values())
        return [entry_id for entry_id in self.parents if entry_id not in parents]

    def children(self, parent: str | None) -> list[str]:
        """The ids that stand right behind one, oldest first; behind None the roots."""
        return [entry_id for entry_id, its in self.parents.items() if its == parent]
