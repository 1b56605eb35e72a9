"""Which element keeps how many of its tokens: the items of a trace, summed up by their path without positions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from promptkit.bench.run import Element

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptkit.tracing.trace import Trace

__all__ = ["STEP", "kept_by_element", "rows"]

STEP = " > "
"""Between the steps of a path."""

POSITION = re.compile(r"\[\d+\]$")
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
"""In a name: what breaks a line or moves a cursor, and what no file can hold."""


def kept_by_element(trace: Trace, depth: int) -> dict[str, int]:
    """Path of at most `depth` steps → the tokens of all that stands there and is kept, in written order; 0 for what is gone.

    Plain text belongs to the element around it. What stands in for something removed, such as a fallback, is not counted: the
    tokens are those of the prompt as it was written.
    """
    state = trace.state or 0
    found: dict[str, int] = {}
    names: list[str] = []
    steps: list[int] = []
    for item in trace.items:
        # An item comes after what it stands in, so one pass knows every path. Paths are cut at the depth: their length is bounded.
        above, level = ("", 0) if item.parent is None else (names[item.parent], steps[item.parent])
        inside = item.parent is not None and level < depth and (item.kind not in ("text", "part") or item.own)
        label = UNPRINTABLE.sub(" ", POSITION.sub("", item.label))
        names.append((f"{above}{STEP}{label}" if above else label) if inside else above)
        steps.append(level + inside)
        if item.tokens and not item.since:
            found[names[-1]] = found.get(names[-1], 0) + (item.tokens if item.kept(state) else 0)
    return found


def rows(whole: Mapping[str, int], kept: Sequence[Mapping[str, int] | None]) -> tuple[Element, ...]:
    """An element for each path: what it has with room for everything, and what is kept at each budget (None: there is no render).

    An element that is there only when room is short comes last, and is measured by the most that it has at any budget. What a
    limit removes at every budget is no row.
    """
    renders = [found for found in kept if found is not None]
    paths = dict.fromkeys(path for found in (whole, *renders) for path in found)
    sizes = {path: whole.get(path) or max((found.get(path, 0) for found in renders), default=0) for path in paths}
    return tuple(
        Element(path=path, whole=size, kept=tuple(None if found is None else found.get(path, 0) for found in kept))
        for path, size in sizes.items()
        if size
    )
