"""Print results as tables: a run of `promptkit bench` by budget, with a heat map of what is kept, and those of `promptkit replay` by policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from promptkit.bench import Element, Point, Run, Sweep
from promptkit.bench.plot import format_share, format_size, select_largest
from promptkit.cli.output.terminal import (
    count_nouns,
    escape_control_chars,
    print_legend,
    print_table,
)
from promptkit.lab.replay import FileResult, PolicyResult, ReplayOptions
from promptkit.lab.replay.results import SHOWN

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
            f"{sweep.whole:,} tokens in {count_nouns(sweep.messages, 'message')} without a budget"
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
            f"{_milliseconds(seconds)} {'-' if (over := sweep.over_floor(seconds)) is None else f'{over:.2f}x':>6}"
            for seconds in (point.cold, point.warm)
            if seconds is not None
        ),
    )


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.{1 if seconds < 1 else 0}f} ms"


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
        for mark in [_mark(element, at) for at in shown]:
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
    if (share := element.kept_share(at)) is None:
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


EXACT_BELOW = 100_000
"""Token counts below this number are printed in full, larger ones in thousands or millions."""


def print_replay(
    files: Sequence[FileResult], total: FileResult, options: ReplayOptions, *, each: bool
) -> None:
    """Print a table for all files together and, with `each`, one for each file before it.

    Needs no colour.
    """
    console = Console(highlight=False)
    rules = options.rules
    if each and len(files) > 1:
        for file in files:
            _print(console, file, options)
            console.print()
    _print(console, total, options)
    console.print()
    print_legend(
        [(name, text) for name, text, is_shown, _ in _columns(total, options) if is_shown and text],
        width=console.width,
    )
    console.print()
    console.print(
        f"{format_size(rules.window)} window, prices of {escape_control_chars(rules.model)}, cache rules: {rules.cache}",
        soft_wrap=True,
    )


def _print(console: Console, file: FileResult, options: ReplayOptions) -> None:
    console.print(
        Text.assemble(
            (escape_control_chars(file.file), "bold"),
            f": {count_nouns(file.conversations, 'conversation')}, {count_nouns(file.messages, 'message')}",
        ),
        soft_wrap=True,
    )
    if file.bill is not None:
        console.print(
            f"{file.bill.describe()} At the prices of {escape_control_chars(file.model)} it is ${file.bill.model_price:,.2f}.",
            soft_wrap=True,
        )
    if file.lower_bound is not None:
        console.print(
            f"No policy can cost less than ${file.lower_bound:,.3f}, where what is new is read once.",
            soft_wrap=True,
        )
    columns = [column for column in _columns(file, options) if column[2]]
    print_table(
        console,
        tuple(heading for name, *_ in columns for heading in name.split(", ")),
        [tuple(cell for *_, show in columns for cell in show(result)) for result in file.policies],
        gap=1,
        first="left",
    )


Column: TypeAlias = "tuple[str, str, bool, Callable[[PolicyResult], tuple[str | Text, ...]]]"
"""The heading (with a comma that of two columns), its explanation, whether it is shown, and the
cells of a policy."""


def _columns(file: FileResult, options: ReplayOptions) -> tuple[Column, ...]:
    return (
        ("policy", "", True, lambda each: (each.policy,)),
        ("req", "requests", True, lambda each: (f"{each.totals.requests:,}",)),
        (
            "sum",
            "summaries that replaced messages",
            True,
            lambda each: (f"{each.totals.checkpoints:,}",),
        ),
        (
            "wait",
            "requests that waited for a summary",
            True,
            lambda each: (f"{each.totals.foreground_waits:,}",),
        ),
        (
            "over",
            "requests that were larger than the context window allows; they are billed as if the model had accepted them",
            True,
            lambda each: (_red_if_any(each.totals.overflows),),
        ),
        (
            "bad",
            "requests that a provider would reject as invalid",
            True,
            lambda each: (_red_if_any(each.totals.invalid_requests),),
        ),
        (
            "input, cached",
            "input tokens of the requests, and the share of them that was read from the prompt cache",
            True,
            lambda each: (
                _format_tokens(each.totals.requests_billed.input_tokens),
                format_share(
                    each.totals.requests_billed.cached_tokens
                    / max(1, each.totals.requests_billed.input_tokens)
                ),
            ),
        ),
        (
            "price $",
            "dollars for requests, replies and summaries",
            True,
            lambda each: (f"{each.price:,.3f}",),
        ),
        (
            "planned $",
            "the planned optimum in dollars",
            file.lower_bound is not None,
            lambda each: (f"{each.planned_optimum or 0:,.3f}",),
        ),
        (
            "ratio",
            "the price, as a multiple of the planned optimum: compactions at the points that are best by a model of sizes, with summaries as large as the policy's own; a policy can be below it",
            file.lower_bound is not None,
            lambda each: ("-" if each.over_planned is None else f"{each.over_planned:.2f}",),
        ),
        (
            "look-ups $",
            f"the price with {count_nouns(options.lookups, 'look-up')} for each answer that lacks a line",
            options.lookups > 0,
            lambda each: (f"{each.price_with_lookups:,.3f}",),
        ),
        *(
            (name, meaning, True, lambda each, name=name: (format_share(each.shown[name]),))
            for name, meaning in SHOWN.items()
        ),
        (
            "lack",
            "answers that quote an earlier line which the request does not show",
            True,
            lambda each: (f"{each.totals.retention.answers_lacking:,}",),
        ),
        (
            "asked",
            "share of the user's messages that the request shows; second figure: with what the model can look up",
            True,
            lambda each: (
                f"{format_share(each.requests_present_share)} {format_share(each.requests_share)}",
            ),
        ),
    )


def _red_if_any(count: int) -> Text:
    return Text(f"{count:,}", style="red" if count else "")


def _format_tokens(tokens: int) -> str:
    """Format a number of tokens in at most six characters."""
    return (
        f"{tokens:,}"
        if tokens < EXACT_BELOW
        else f"{tokens / 1_000:,.0f}k"
        if tokens < 100 * EXACT_BELOW
        else f"{tokens / 1_000_000:,.1f}m"
    )
