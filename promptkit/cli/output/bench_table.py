"""Print a run of `promptkit bench`: a table of budgets, and a heat map of what is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from promptkit.bench.plot import format_size, select_largest
from promptkit.cli.output.terminal import print_legend, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.bench import Element, Point, Run, Sweep

LEGEND = (
    ("budget", "tokens that the prompt may have"),
    (
        "used",
        "tokens of the rendered prompt; if the required elements do not fit, the tokens that these need",
    ),
    ("filled", "share of the budget that is used"),
    ("dropped", "tokens of the elements that were removed"),
    (
        "stable prefix",
        "tokens of the leading messages that are the same as without a budget, so that a prompt cache can serve them",
    ),
)

TIMES_LEGEND = (
    ("cold", "time of a first render, and its multiple of the time to tokenise all text once"),
    ("warm", "time of the next render with the same Renderer, and the same multiple"),
)

STEPS = 7
"""Marks between 0 % and 100 %."""

BLOCKS = "·▁▂▃▄▅▆▇█x"
PLAIN = ".:-~=+o%#x"
"""Marks for 0 %, seven steps, 100 %, and no render. PLAIN is for terminals that cannot print block
characters."""

STYLES = (
    "red",
    "red",
    "red",
    "yellow",
    "yellow",
    "yellow",
    "green",
    "green",
    "green",
    "bright_black",
)

HEADING = "share kept of"

NAME_WIDTH = 28
"""Columns that names in the heat map get before the cells become narrower."""

MAX_CELL_WIDTH = 3
"""Columns of a cell of the heat map."""


def print_run(run: Run) -> None:
    """Print a table and a heat map for each model, and a legend.

    Fits 60 columns and needs no colour.
    """
    console = Console(highlight=False)
    for number, sweep in enumerate(run.sweeps):
        if number:
            console.print()
        console.print(
            Text.assemble(
                (run.target, "bold"),
                f", counted as {sweep.model} ({sweep.tokenizer})" if sweep.model else "",
            )
        )
        console.print(
            f"{sweep.whole:,} tokens in {sweep.messages:,} message{'s' * (sweep.messages != 1)} without a budget"
            + (f"; tokenising alone {_milliseconds(sweep.floor)}" if sweep.floor else "")
        )
        console.print()
        print_table(
            console,
            (
                "budget",
                "used",
                "filled",
                "dropped",
                "stable\nprefix",
                *(("cold", "warm") if sweep.floor else ()),
            ),
            [_cells(sweep, point, at) for at, point in enumerate(sweep.points)],
            gap=2,
            first="right",
        )
        console.print()
        _print_heat_map(console, sweep)
    console.print()
    print_legend(
        (*LEGEND, *(TIMES_LEGEND if any(sweep.floor for sweep in run.sweeps) else ())),
        width=console.width,
    )


def _cells(sweep: Sweep, point: Point, at: int) -> Sequence[str]:
    if point.required is not None:
        return f"{point.budget:,}", f"needs {point.required:,}"
    return (
        f"{point.budget:,}",
        f"{point.used:,}",
        f"{point.utilisation or 0:.0%}",
        f"{sweep.dropped_tokens(at):,}",
        f"{point.stable_prefix:,}",
        *(
            f"{_milliseconds(seconds)} {_multiple(sweep.over_floor(seconds))}"
            for seconds in (point.cold, point.warm)
            if seconds is not None
        ),
    )


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.{1 if seconds < 1 else 0}f} ms"


def _multiple(ratio: float | None) -> str:
    return f"{'-' if ratio is None else f'{ratio:.2f}x':>6}"


def _print_heat_map(console: Console, sweep: Sweep) -> None:
    elements = select_largest(sweep)
    marks = BLOCKS if console.encoding.startswith("utf") else PLAIN
    names = max([len(HEADING), *(cell_len(element.path) for element in elements)])
    available = console.width - 10  # without the column of tokens and the spaces between columns
    cells_width = max(1, available - min(names, NAME_WIDTH, console.width // 3))
    cell = max(1, min(MAX_CELL_WIDTH, cells_width // len(sweep.points)))
    shown = range(0, len(sweep.points), -(-len(sweep.points) // cells_width))
    width = max(len(HEADING), min(names, available - cell * len(shown)))
    console.print(
        f"{HEADING:<{width}}  {'tokens':>7} {_header([sweep.points[at].budget for at in shown], cell)}",
        soft_wrap=True,
    )
    for element in elements:
        line = Text(f"{_fit_name(element.path, width)}  {element.whole:>7,} ")
        for at in shown:
            mark = _mark(element, at)
            line.append(marks[mark] * cell, STYLES[mark])
        console.print(line, soft_wrap=True)
    legend = f"{marks[0]} nothing is kept   {marks[1]} to {marks[STEPS]} a part is kept   {marks[STEPS + 1]} everything is kept"
    if any(point.required is not None for point in sweep.points):
        legend += f"\n{marks[-1]} the budget is too small for what is required"
    console.print(Text(legend, style="bright_black"))


def _header(budgets: Sequence[int], cell: int) -> str:
    """Return the budgets above their columns.

    Where columns are too narrow, only some budgets are printed.
    """
    line = ""
    for at, budget in enumerate(budgets):
        if len(line) <= at * cell:
            line = f"{line:<{at * cell}}{format_size(budget)} "
    return line.rstrip()


def _mark(element: Element, at: int) -> int:
    """Return the index of the mark for a kept share.

    The marks for 0 % and 100 % are used only for exactly these shares.
    """
    share = element.kept_share(at)
    if share is None:
        return STEPS + 2
    return 0 if not share else STEPS + 1 if share >= 1 else 1 + int(share * STEPS)


def _fit_name(name: str, width: int) -> str:
    """Cut and pad a name to the width of its column.

    The beginning is cut, because the end tells more.
    """
    shown, name = name, name[-width:]
    while cell_len(shown) > width:
        name = name[1:]
        shown = f"…{name}"
    return shown + " " * (width - cell_len(shown))
