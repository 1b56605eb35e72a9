"""Print a run of `promptkit bench`: a table of budgets, and a heat map of what is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from promptkit.bench.plot import format_size, select_largest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.bench.results import Element, Point, Run, Sweep

__all__ = ["print_run"]

STEPS = 7
"""Between nothing and everything."""

BLOCKS = "·▁▂▃▄▅▆▇█x"
PLAIN = ".:-~=+o%#x"
"""Nothing, seven steps, everything, and no render; the second for terminals that know no blocks."""

STYLES = ("red", "red", "red", "yellow", "yellow", "yellow", "green", "green", "green", "bright_black")

HEADING = "share kept of"

NAME = 28
"""Characters that a name in the heat map gets before cells are made narrower."""

WIDEST = 3
"""Characters of a cell."""

ANY = 1_000
"""Characters that no table needs: with so much room it is as wide as it wants to be."""


def print_run(run: Run) -> None:
    """Print the table and the heat map of every model. Fits 80 columns and needs no colour."""
    console = Console(highlight=False)
    for number, sweep in enumerate(run.sweeps):
        if number:
            console.print()
        console.print(Text.assemble((run.target, "bold"), f", counted as {sweep.model} ({sweep.tokenizer})" if sweep.model else ""))
        console.print(
            f"{sweep.whole:,} tokens in {sweep.messages:,} message{'s' * (sweep.messages != 1)} with room for everything"
            + (f"; tokenising alone {_milliseconds(sweep.floor)}" if sweep.floor else ""),
            soft_wrap=True,
        )
        console.print()
        table = _table(sweep)
        table.width = Measurement.get(console, console.options.update(width=ANY), table).maximum
        console.print(table, crop=False)  # in a narrow terminal lines run on, and no figure is cut
        console.print()
        _print_heat_map(console, sweep)


def _table(sweep: Sweep) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for heading in ("budget", "used", "filled", "left out", "stable\nprefix", *(("cold", "warm") if sweep.floor else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    for at, point in enumerate(sweep.points):
        table.add_row(*_cells(sweep, point, at))
    return table


def _cells(sweep: Sweep, point: Point, at: int) -> Sequence[str]:
    if point.required is not None:
        return f"{point.budget:,}", f"needs {point.required:,}"
    return (
        f"{point.budget:,}",
        f"{point.used:,}",
        f"{point.utilisation or 0:.0%}",
        f"{sweep.dropped_tokens(at):,}",
        f"{point.stable_prefix:,}",
        *(f"{_milliseconds(seconds)} {_times(sweep.over_floor(seconds))}" for seconds in (point.cold, point.warm) if seconds is not None),
    )


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.{1 if seconds < 1 else 0}f} ms"


def _times(ratio: float | None) -> str:
    return f"{'-' if ratio is None else f'{ratio:.2f}x':>6}"


def _print_heat_map(console: Console, sweep: Sweep) -> None:
    elements = select_largest(sweep)
    marks = BLOCKS if console.encoding.startswith("utf") else PLAIN
    names = max([len(HEADING), *(cell_len(element.path) for element in elements)])
    room = console.width - 10  # the tokens of an element, and what stands between the columns
    most = max(1, room - min(names, NAME, console.width // 3))
    cell = max(1, min(WIDEST, most // len(sweep.points)))
    shown = range(0, len(sweep.points), -(-len(sweep.points) // most))
    width = max(len(HEADING), min(names, room - cell * len(shown)))
    console.print(f"{HEADING:<{width}}  {'tokens':>7} {_header([sweep.points[at].budget for at in shown], cell)}", soft_wrap=True)
    for element in elements:
        line = Text(f"{_fitted(element.path, width)}  {element.whole:>7,} ")
        for at in shown:
            mark = _mark(element, at)
            line.append(marks[mark] * cell, STYLES[mark])
        console.print(line, soft_wrap=True)
    legend = f"{marks[0]} nothing   {marks[1]} to {marks[STEPS]} some   {marks[STEPS + 1]} all"
    if any(point.required is not None for point in sweep.points):
        legend += f"   {marks[-1]} too small a budget"
    console.print(Text(legend, style="bright_black"), soft_wrap=True)


def _header(budgets: Sequence[int], cell: int) -> str:
    """The budgets above their columns; where a column is too narrow for its budget, some are left out."""
    line = ""
    for at, budget in enumerate(budgets):
        if len(line) <= at * cell:
            line = f"{line:<{at * cell}}{format_size(budget)} "
    return line.rstrip()


def _mark(element: Element, at: int) -> int:
    """The index of the mark for a share: nothing and everything are only what is exactly that."""
    share = element.kept_share(at)
    if share is None:
        return STEPS + 2
    return 0 if not share else STEPS + 1 if share >= 1 else 1 + int(share * STEPS)


def _fitted(name: str, width: int) -> str:
    """A name as wide as its column: its end says more than its beginning."""
    shown, name = name, name[-width:]
    while cell_len(shown) > width:
        name = name[1:]
        shown = f"…{name}"
    return shown + " " * (width - cell_len(shown))
