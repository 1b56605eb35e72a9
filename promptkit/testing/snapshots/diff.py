"""Compare two documents line by line, with the headings above each change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import unified_diff
from itertools import islice, takewhile

from promptkit.testing.snapshots.markdown import iter_outside_fences

CONTEXT_LINES = 3
"""Lines that a diff shows around a change."""


def diff_lines(snapshot: str, received: str) -> list[str]:
    """Compare two documents: removed (`-`) and new lines (`+`) with their context, each place named by its line and its headings."""
    return list(_iter_diff(*(text.removesuffix("\n").split("\n") for text in (snapshot, received))))


def show_first(lines: Sequence[str], limit: int) -> Sequence[str]:
    """Return the first lines of a difference, and how many more there are."""
    more = len(lines) - limit
    return lines if more <= 0 else [*lines[:limit], f"… and {more:,} more lines"]


def _iter_diff(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    # Equal lines at both ends are cut off first, because difflib's time grows with the square of
    # the number of lines.
    start = _count_shared(before, after)
    end = _count_shared(before[start:][::-1], after[start:][::-1])
    first = max(start - CONTEXT_LINES, 0)
    last = max(end - CONTEXT_LINES, 0)
    headings = [
        (index, line) for index, line in iter_outside_fences(before) if line.startswith("#")
    ][::-1]
    current: list[str] = []
    for line in islice(
        unified_diff(
            before[first : len(before) - last],
            after[first : len(after) - last],
            lineterm="",
            n=CONTEXT_LINES,
        ),
        2,
        None,
    ):  # without the names of two files
        if line.startswith("@@ "):
            number = int(line[4:].partition(" ")[0].partition(",")[0]) + first
            while headings and headings[-1][0] < number + CONTEXT_LINES:
                _enter_heading(current, headings.pop()[1])
            yield f"@@ {' '.join([f'line {number}', *current])} @@"
        else:
            yield line


def _count_shared(one: Sequence[str], other: Sequence[str]) -> int:
    """Count the leading lines that are the same."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _enter_heading(current: list[str], heading: str) -> None:
    """Append a heading to the path of headings, in place of those of its level and below."""
    while current and _heading_level(current[-1]) >= _heading_level(heading):
        current.pop()
    current.append(heading)


def _heading_level(heading: str) -> int:
    return len(heading) - len(heading.lstrip("#"))
