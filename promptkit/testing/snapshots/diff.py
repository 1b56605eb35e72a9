"""What has changed between a snapshot and what was received, for the report of a failed test."""

from __future__ import annotations

from difflib import unified_diff
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from promptkit.testing.snapshots.markdown import outside_fences

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["difference"]

AROUND = 3
"""Lines around a change."""


def difference(snapshot: str, received: str) -> list[str]:
    """The lines that are gone (`-`) and new (`+`), with those around them; each place is named by its line and the headings above it."""
    return list(_changes(*(text.removesuffix("\n").split("\n") for text in (snapshot, received))))


def _changes(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    # What is the same at both ends costs no comparison: its time grows with the square of what it is given.
    start = _shared(before, after)
    end = _shared(before[start:][::-1], after[start:][::-1])
    first = max(start - AROUND, 0)
    last = max(end - AROUND, 0)
    named = [(index, line) for index, line in outside_fences(before) if line.startswith("#")][::-1]
    above: list[str] = []
    hunks = unified_diff(before[first : len(before) - last], after[first : len(after) - last], lineterm="", n=AROUND)
    for line in islice(hunks, 2, None):  # without the names of two files
        if line.startswith("@@ "):
            number = int(line[4:].partition(" ")[0].partition(",")[0]) + first
            while named and named[-1][0] < number + AROUND:
                _enter(above, named.pop()[1])
            yield f"@@ {' '.join([f'line {number}', *above])} @@"
        else:
            yield line


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines at the beginning are the same."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _enter(above: list[str], heading: str) -> None:
    """Go below a heading: those of its rank and lower end there."""
    while above and _rank(above[-1]) >= _rank(heading):
        above.pop()
    above.append(heading)


def _rank(heading: str) -> int:
    return len(heading) - len(heading.lstrip("#"))
