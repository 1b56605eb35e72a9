"""The bar of `/context`: what fills the context window, by part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.agent.window.usage import ContextUsage

MIN_WIDTH, MAX_WIDTH = 20, 72
"""Columns of the bar, on narrow and on wide terminals."""

MUTED = "bright_black"


@attrs.frozen
class _Part:
    """A part of the window."""

    name: str
    tokens: int
    letter: str
    """Fills the bar where there are no colours."""
    style: str
    block: str = "█"


def draw_context(usage: ContextUsage, *, width: int, colours: bool) -> list[Text]:
    """Draw a bar with a cell for each share of the window, a mark where the preset compacts next, and a legend.

    Args:
        usage: What fills the window.
        width: Columns of the terminal.
        colours: Draw coloured blocks. Otherwise each part has a letter.

    Returns:
        The lines, with the sizes in tokens.
    """
    parts = _list_parts(usage)
    whole = sum(part.tokens for part in parts)
    cells = max(MIN_WIDTH, min(MAX_WIDTH, width - 1))
    filled = zip(parts, split_cells([part.tokens for part in parts], cells), strict=True)
    lines = [
        Text("tokens of the next request:"),
        Text.assemble(*(_draw_cells(part, count, colours=colours) for part, count in filled)),
    ]
    if usage.threshold is not None and usage.threshold <= whole:
        at = min(cells - 1, usage.threshold * cells // whole)
        lines += _draw_mark(
            f"compacts at {usage.threshold:,}", at, cells, mark="▲" if colours else "^"
        )
    names, digits = (
        max(len(part.name) for part in parts),
        max(len(f"{part.tokens:,}") for part in parts),
    )
    lines += [
        Text.assemble(
            _draw_cells(part, 1, colours=colours),
            f" {part.name:<{names}}  {part.tokens:>{digits},}  ",
            (f"{part.tokens / whole:>6.1%}" if whole else "", MUTED),
        )
        for part in parts
    ]
    return lines


def split_cells(tokens: Sequence[int], cells: int) -> list[int]:
    """Split the cells of a bar in proportion to tokens.

    A part with tokens has at least one cell, as far as there are cells.

    The cells that rounding leaves go to the parts with the largest remainders, and those of small
    parts come from the largest part.
    """
    whole = sum(tokens)
    if not whole:
        return [0] * len(tokens)
    counts = [each * cells // whole for each in tokens]
    remainders = sorted(range(len(tokens)), key=lambda at: -(tokens[at] * cells % whole))
    for at in remainders[: cells - sum(counts)]:
        counts[at] += 1
    for at, each in enumerate(tokens):
        largest = max(range(len(tokens)), key=counts.__getitem__)
        if each and not counts[at] and counts[largest] > 1:
            counts[at], counts[largest] = 1, counts[largest] - 1
    return counts


def _list_parts(usage: ContextUsage) -> list[_Part]:
    """Return the parts of the window. Where it is unknown, only those of the request."""
    sizes = usage.parts
    parts = [
        _Part("instructions", sizes.system, "i", "cyan"),
        _Part("tools", sizes.tools, "t", "blue"),
        _Part("summary", sizes.summary, "s", "magenta"),
        _Part("messages", sizes.messages, "m", "green"),
        _Part("tool results", sizes.results, "r", "yellow"),
    ]
    if usage.limit is not None:
        parts.append(_Part("free", max(0, usage.limit - sizes.total), ".", MUTED, "░"))
        if usage.window is not None and usage.window > usage.limit:
            parts.append(
                _Part(
                    "kept for the reply",
                    usage.window - max(usage.limit, min(sizes.total, usage.window)),
                    "-",
                    MUTED,
                    "▒",
                )
            )
    return parts


def _draw_cells(part: _Part, count: int, *, colours: bool) -> tuple[str, str]:
    return (part.block * count, part.style) if colours else (part.letter * count, "")


def _draw_mark(words: str, cell: int, cells: int, *, mark: str) -> list[Text]:
    """Draw a mark below a cell of the bar, with words where they have room: before it, behind it, or in a line of their own."""
    if cell > len(words):
        lines = [f"{words:>{cell - 1}} {mark}"]
    elif cell + 2 + len(words) <= cells:
        lines = [f"{' ' * cell}{mark} {words}"]
    else:
        lines = [f"{' ' * cell}{mark}", words]
    return [Text(line, style=MUTED) for line in lines]
