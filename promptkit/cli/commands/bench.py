"""`promptkit bench`: one prompt at many budgets, and whether it got worse.

A bench as people read it in a terminal: a table of budgets, and a heat map of what is kept, in characters.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from promptkit.bench.plot import largest, short_size
from promptkit.cli.input.params import SHARE, SHARE_OR_OFF
from promptkit.cli.input.props import read_props
from promptkit.cli.input.target import load
from promptkit.cli.output.errors import usage_error
from promptkit.cli.output.terminal import working

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.bench.results import Element, Point, Run, Sweep

__all__ = ["bench", "print_run"]


# \b keeps click from joining the lines.
EXAMPLES = """\b
Examples:
  promptkit bench prompt.py:Review --props props.json
  promptkit bench prompt.py:Review --budgets 1k:32k:log12 --models gpt-5,gpt-4.1
  promptkit bench prompt.py:Review --plot review.svg
  promptkit bench prompt.py:Review --repeat 0 --json baseline.json
  promptkit bench prompt.py:Review --repeat 0 --baseline baseline.json
"""


class Budgets(click.ParamType[tuple[int, ...]]):
    """Budgets as `parse_budgets` reads them."""

    name = "budgets"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The budgets, in tokens. Fails with what is wrong with the text."""
        from promptkit.bench.budget_ranges import BadBudgetsError, parse_budgets

        try:
            return parse_budgets(str(value))
        except BadBudgetsError as error:
            self.fail(str(error), param, ctx)


@click.command(short_help="Measure a prompt at many budgets.", epilog=EXAMPLES)
@click.argument("target", metavar="FILE.py:COMPONENT|TEMPLATE.j2")
@click.option(
    "--props", type=click.Path(path_type=Path), metavar="FILE.json", help="The component's props, as a JSON object; - reads stdin."
)
@click.option(
    "--budgets",
    type=Budgets(),
    default="1k:128k:log16",
    show_default=True,
    metavar="LIST",
    help="Sizes such as 2k,8k and ranges: A:B:log16 are 16 sizes in equal ratios, A:B:lin16 in equal steps, A:B:STEP steps of that size.",
)
@click.option("--models", default="", metavar="LIST", help="The models that count, such as gpt-5,gpt-4.1.")
@click.option("--repeat", type=click.IntRange(0, 1_000), default=5, show_default=True, help="How often times are taken; 0: not at all.")
@click.option(
    "--depth", type=click.IntRange(1, 20), default=3, show_default=True, help="Steps of a path after which elements are summed up."
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the run, for machines and as a baseline; - is stdout.",
)
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw it: .svg, .png or .html.")
@click.option("--baseline", type=click.Path(path_type=Path), metavar="FILE", help="Hold the run against this one; exit 1 if it is worse.")
@click.option("--tolerance", type=SHARE, default="5%", show_default=True, help="What shares kept and utilisation may lose: points of 100.")
@click.option("--time-tolerance", type=SHARE_OR_OFF, default="50%", show_default=True, help="What times over the floor may gain; or off.")
@click.pass_context
def bench(  # noqa: PLR0913  # one argument for each option of the command
    ctx: click.Context,
    *,
    target: str,
    props: Path | None,
    budgets: tuple[int, ...],
    models: str,
    repeat: int,
    depth: int,
    json_file: Path | None,
    plot: Path | None,
    baseline: Path | None,
    tolerance: float,
    time_tolerance: float | None,
) -> None:
    """Render a prompt at many budgets: what it uses, what it loses, what it takes.

    Exits with 1 if a --baseline is given and the run is worse than it. To take a run as the new baseline, write it there with --json.
    """
    from promptkit.bench.baseline import compare, report, require_same
    from promptkit.bench.results import read_run, run_as_text
    from promptkit.bench.sweep import measure

    wanted = tuple(dict.fromkeys(name.strip() for name in models.split(",") if name.strip()))
    before = read_run(baseline) if baseline else None
    if before:
        require_same(before, budgets=budgets, models=wanted or (None,), depth=depth)
    _check_files(json_file, plot, baseline)
    element = load(target, read_props(props))
    with working(f"Measuring {target} at {len(budgets):,} budgets"):
        run = measure(element, budgets=budgets, models=wanted, repeat=repeat, depth=depth, target=target)
    text = run_as_text(run)
    piped = str(json_file) == "-"
    if piped:
        click.echo(text, nl=False)
    else:
        print_run(run)
    if json_file and not piped:
        _write(json_file, text.encode())
    if plot:
        from promptkit.bench.plot import draw

        with working(f"Drawing {plot}"):
            _write(plot, draw(run, plot.suffix))
    if before and baseline:
        found = compare(run, before, tolerance=tolerance, time_tolerance=time_tolerance)
        click.echo(report(found) if piped else f"\n{report(found)}", err=piped)
        if found.worse:
            click.echo(
                f"Where that is meant, write the baseline anew: the same command with --json {baseline} and without --baseline.", err=piped
            )
            ctx.exit(1)


def _check_files(json_file: Path | None, plot: Path | None, baseline: Path | None) -> None:
    """Refuse, before anything is measured, what could not be written in the end."""
    if json_file and baseline and json_file.resolve() == baseline.resolve():
        usage_error(f"{baseline} cannot be the baseline and be written: leave --baseline out to write it anew.")
    if plot:
        from promptkit.bench.plot import require_plots

        require_plots(plot.suffix)
        if plot.resolve() in [path.resolve() for path in (json_file, baseline) if path]:
            usage_error(f"{plot} cannot be the picture and the run: name two files.")
    for path in (json_file, plot):
        if path and str(path) != "-" and not path.resolve().parent.is_dir():
            usage_error(f"{path} cannot be written: there is no folder {path.parent}.")
        if path and path.is_dir():
            usage_error(f"{path} cannot be written: it is a folder.")


def _write(path: Path, content: bytes) -> None:
    from promptkit.bench.results import write_whole

    try:
        write_whole(path, content)
    except OSError as error:
        usage_error(f"{path} cannot be written: {error.strerror}.")


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
        f"{sweep.dropped(at):,}",
        f"{point.stable_prefix:,}",
        *(f"{_milliseconds(seconds)} {_times(sweep.over_floor(seconds))}" for seconds in (point.cold, point.warm) if seconds is not None),
    )


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.{1 if seconds < 1 else 0}f} ms"


def _times(ratio: float | None) -> str:
    return f"{'-' if ratio is None else f'{ratio:.2f}x':>6}"


def _print_heat_map(console: Console, sweep: Sweep) -> None:
    elements = largest(sweep)
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
            line = f"{line:<{at * cell}}{short_size(budget)} "
    return line.rstrip()


def _mark(element: Element, at: int) -> int:
    """The index of the mark for a share: nothing and everything are only what is exactly that."""
    share = element.share(at)
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
