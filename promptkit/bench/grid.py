"""What a heat map shows: the largest elements by short names, the rest summed up, and budgets in a few characters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.bench.elements import STEP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.bench.run import Element, Sweep

__all__ = ["ROWS", "largest", "short_size"]

ROWS = 12
"""Elements that are shown on their own."""


def largest(sweep: Sweep, most: int = ROWS) -> tuple[Element, ...]:
    """The `most` largest elements, most tokens first, under their short names; behind them one for all others together.

    A short name leaves out the first step where all paths share it. An element that holds others and has tokens of its own, such
    as the framing of a message, is marked `(itself)`.
    """
    elements = sorted(sweep.elements, key=lambda element: -element.whole)
    named = [attrs.evolve(element, path=name) for element, name in zip(elements, _names([each.path for each in elements]), strict=True)]
    if len(named) <= most + 1:  # one line for one other says less than the other itself
        return tuple(named)
    return (*named[:most], _together(named[most:]))


def short_size(tokens: int) -> str:
    """A size in at most 4 characters, as long as it is below 1,000 million: `480`, `1.4k`, `128k`, `1.5m`."""
    for unit, letter in ((1_000_000, "m"), (1_000, "k")):
        if 2 * tokens >= 2 * unit - unit // 1_000:  # 999,500 is nearer to 1m than to 999k
            return f"{tokens / unit:.1f}".removesuffix(".0") + letter if tokens < 10 * unit else f"{tokens / unit:.0f}{letter}"
    return str(tokens)


def _names(paths: Sequence[str]) -> list[str]:
    holders = {path.rpartition(STEP)[0] for path in paths}
    first = paths[0].partition(STEP)[0] if paths else ""
    shared = all(path.startswith(f"{first}{STEP}") for path in paths)
    return [(path.removeprefix(f"{first}{STEP}") if shared else path) + (" (itself)" if path in holders else "") for path in paths]


def _together(elements: Sequence[Element]) -> Element:
    return attrs.evolve(
        elements[0],
        path=f"{len(elements):,} more",
        whole=sum(element.whole for element in elements),
        kept=tuple(
            None if kept[0] is None else sum(min(element.whole, tokens or 0) for element, tokens in zip(elements, kept, strict=True))
            for kept in zip(*(element.kept for element in elements), strict=True)
        ),
    )
