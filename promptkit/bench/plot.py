"""Draw a run with matplotlib: a heat map of the kept shares for each model, and curves of tokens, utilisation and times.

matplotlib is imported only when something is drawn. The choice of the elements in a heat map is
shared with the terminal table.
"""

from __future__ import annotations

import io
import re
import warnings
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import attrs

from promptkit.bench.results import Element, Run, Sweep
from promptkit.bench.sweep import PATH_SEPARATOR
from promptkit.errors import PromptKitError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# matplotlib's own stubs leave keyword arguments without a type.
# pyright: reportUnknownMemberType=false


FORMATS = (".svg", ".png", ".html")
"""File formats of drawings, as suffixes."""

DPI = 160
"""Resolution of PNG files, in dots per inch."""


class PlotError(PromptKitError):
    """A drawing cannot be made: its format is unknown, or matplotlib is not installed."""


def check_drawable(suffix: str) -> None:
    """Raise PlotError unless a drawing with this suffix (`.svg`, `.png` or `.html`) can be made."""
    if suffix not in FORMATS:
        raise PlotError(f"invalid plot format {suffix!r}: use {', '.join(FORMATS)}.")
    if find_spec("matplotlib") is None:
        raise PlotError(
            "plots need matplotlib: run `pip install 'matplotlib>=3.9'`, or `pip install '.[plot]'` in a checkout of promptkit."
        )


def draw_run(run: Run, suffix: str) -> bytes:
    """Return the drawing of a run as the content of a file with this suffix. Raises PlotError.

    The same run gives the same bytes with the same version of matplotlib.
    """
    return draw_picture(partial(build_figure, run), suffix, partial(format_run, run))


WIDE, NARROW = 10.5, 4.6
"""Widths of a picture in inches. A page has both, and shows the one that its window has room for."""


def draw_picture(
    figure: Callable[[float], Figure], suffix: str, page: Callable[[Sequence[str]], str]
) -> bytes:
    """Return a figure as the content of a picture file. Raises PlotError.

    Args:
        figure: Builds the figure with a width, in the style of all pictures.
        suffix: The format: `.svg`, `.png` or `.html`.
        page: Returns the HTML page of two SVG drawings, a wide and a narrow one.
    """
    check_drawable(suffix)
    import matplotlib as mpl

    with (
        mpl.rc_context({"svg.hashsalt": "promptkit", "svg.fonttype": "path", "font.size": 9}),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # characters that the font lacks are drawn as boxes
        if suffix == ".png":
            file = io.BytesIO()
            figure(WIDE).savefig(
                file, format="png", metadata={"Software": "promptkit"}, dpi=DPI, bbox_inches="tight"
            )
            return file.getvalue()
        svg = _draw_svg(figure(WIDE))
        if suffix == ".svg":
            return svg.encode()
        narrow = _draw_svg(figure(NARROW))
    # two drawings in one document need ids of their own
    narrow = re.sub(r'(\bid="|href="#|url\(#)', r"\1narrow-", narrow)
    return page([svg, narrow]).encode("ascii", "xmlcharrefreplace")


HOVER = "hover: "
"""The beginning of the group ids that become titles, which browsers show under the pointer."""


def _draw_svg(figure: Figure) -> str:
    file = io.BytesIO()
    figure.savefig(
        file, format="svg", metadata={"Creator": "promptkit", "Date": None}, bbox_inches="tight"
    )
    return re.sub(
        rf'<g id="{HOVER}([^"]*)">',
        r'<g class="hover"><title>\1</title>',
        add_dark_mode(file.getvalue().decode()),
    )


def add_hover(axes: Axes, left: float, right: float, text: str, *, row: int | None = None) -> None:
    """Let a part of a drawing show a text under the pointer.

    It reaches from `left` to `right`, over the whole height or, in a heat map, over a row.
    """
    from matplotlib.patches import Rectangle

    axes.add_artist(
        Rectangle(
            (left, 0 if row is None else row),
            right - left,
            1,
            transform=axes.get_xaxis_transform() if row is None else axes.transData,
            color="none",
            zorder=10,
            gid=HOVER + text.encode("utf-8", "replace").decode(),
        )
    )


class Table(NamedTuple):
    """A table of a page."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    links: Sequence[str] = ()
    """For each row, the address that its first cell links to."""


class Section(NamedTuple):
    """A heading of a page with the tables below it."""

    title: str
    tables: Sequence[Table]
    note: str = ""


def format_page(
    title: str, drawings: Sequence[str], *, label: str, sections: Sequence[Section]
) -> str:
    """Return a self-contained HTML page without scripts.

    All texts are escaped; the wide and the narrow SVG drawing are inserted as they are, with
    `label` as their description.
    """
    from jinja2 import Environment

    return (
        Environment(autoescape=True, keep_trailing_newline=True)
        .from_string(Path(__file__).with_name("page.html.j2").read_text(encoding="utf-8"))
        .render(
            title=title,
            drawings=zip(("wide", "narrow"), drawings, strict=True),
            label=label,
            sections=sections,
        )
    )


def format_run(run: Run, drawings: Sequence[str]) -> str:
    """Return the page of a run: the drawings, and the same figures as tables for screen readers and for copying."""
    return format_page(
        run.target,
        drawings,
        label="Kept share of each element, and curves. The tables contain the same figures.",
        sections=[_describe_sweep(sweep) for sweep in run.sweeps],
    )


def _describe_sweep(sweep: Sweep) -> Section:
    budgets = [f"{point.budget:,}" for point in sweep.points]
    timed = bool(sweep.floor)
    points = [
        (budget, f"needs {point.required:,}")
        if point.required is not None
        else (
            budget,
            f"{point.used:,}",
            f"{point.utilisation or 0:.0%}",
            f"{point.removed:,}",
            f"{sweep.dropped_tokens(at):,}",
            f"{point.stable_prefix:,}",
            *(_format_time(sweep, seconds) for seconds in (point.cold, point.warm) if timed),
        )
        for at, (budget, point) in enumerate(zip(budgets, sweep.points, strict=True))
    ]
    head = (
        "budget",
        "used",
        "filled",
        "elements removed",
        "tokens dropped",
        "stable prefix",
        *(("cold", "warm") if timed else ()),
    )
    kept = [
        (
            element.path,
            f"{element.whole:,}",
            *("" if kept is None else f"{kept:,}" for kept in element.kept),
        )
        for element in sweep.elements
    ]
    return Section(
        title=f"{sweep.model} ({sweep.tokenizer})" if sweep.model else sweep.tokenizer,
        note=f"{sweep.whole:,} tokens in {sweep.messages:,} messages without a budget. `promptkit trace` with the same prompt shows what is kept at each budget.",
        tables=[
            Table(head, points, "Figures at each budget"),
            Table(("element", "tokens", *budgets), kept, "Tokens kept of each element"),
        ],
    )


def _format_time(sweep: Sweep, seconds: float | None) -> str:
    ratio = sweep.over_floor(seconds)
    return (
        ""
        if seconds is None
        else f"{seconds * 1000:,.1f} ms" + (f" ({ratio:.2f}x)" if ratio else "")
    )


DARK_COLOURS = {
    "#ffffff": "#16181d",  # background, and gaps between cells
    "#000000": "#c9ccd1",  # axes
    "#eeeeee": "#33373f",  # grid
    "#0b5fa5": "#5aa9ec",
    "#c4501b": "#f08a5d",
    "#2b8a3e": "#5fc46f",
    "#7b3fa0": "#c08ae0",
    "#8a6d00": "#d0ad3a",
    "#5c5c5c": "#a9a9a9",
    "#b0246b": "#ee72ad",
    "#12808a": "#4dc0cb",
}
"""Colour of a drawing → the colour in its place for a reader who prefers a dark page. Other colours
are read on both."""

LIGHT_TEXT, DARK_TEXT = "#fefefe", "#010101"
"""Text on a cell, which has the same colour on both pages. They are nearly white and black, so that
DARK_COLOURS does not replace them."""


def add_dark_mode(svg: str) -> str:
    """Add the rules that make matplotlib's SVG dark for a reader who prefers a dark page."""
    hover = ".hover path { pointer-events: all } .hover:hover path { fill: #80808040 !important }"
    rules = [
        "svg { fill: #e4e6ea }",  # text has no colour of its own
        *(
            f'[style*="{kind}: {light}"] {{ {kind}: {dark} !important }}'
            for light, dark in DARK_COLOURS.items()
            for kind in ("fill", "stroke")
        ),
    ]
    return svg.replace(
        "</style>",
        f"{hover} @media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}</style>",
        1,
    )


MAX_ELEMENTS = 12
"""Elements of a terminal's heat map that have a row of their own."""


def select_largest(sweep: Sweep, limit: int = MAX_ELEMENTS) -> tuple[Element, ...]:
    """Return the `limit` largest elements under short names, largest first, and one element for the sum of all others.

    A short name leaves out the first step of the path if all paths share it. An element that
    contains others and has tokens of its own, such as the framing of a message, is marked
    `(itself)`.
    """
    elements = sorted(sweep.elements, key=lambda element: -element.whole)
    named = [
        attrs.evolve(element, path=name)
        for element, name in zip(elements, _names([each.path for each in elements]), strict=True)
    ]
    # a single remaining element gets its own row
    return (
        tuple(named) if len(named) <= limit + 1 else (*named[:limit], _sum_elements(named[limit:]))
    )


def format_size(tokens: int) -> str:
    """Format a number of tokens below 1,000 million in at most 4 characters: `480`, `1.4k`, `128k`, `1.5m`."""
    for unit, letter in ((1_000_000, "m"), (1_000, "k")):
        if 2 * tokens >= 2 * unit - unit // 1_000:  # 999,500 is nearer to 1m than to 999k
            return (
                f"{tokens / unit:.1f}".removesuffix(".0") + letter
                if tokens < 10 * unit
                else f"{tokens / unit:.0f}{letter}"
            )
    return str(tokens)


def format_share(share: float) -> str:
    """Format a share in whole percent. 0% and 100% are printed only for exactly these shares."""
    return f"{share:.0%}" if share in (0.0, 1.0) else f"{min(0.99, max(0.01, share)):.0%}"


def _names(paths: Sequence[str]) -> list[str]:
    holders = {path.rpartition(PATH_SEPARATOR)[0] for path in paths}
    first = paths[0].partition(PATH_SEPARATOR)[0] if paths else ""
    shared = all(path.startswith(f"{first}{PATH_SEPARATOR}") for path in paths)
    return [
        (path.removeprefix(f"{first}{PATH_SEPARATOR}") if shared else path)
        + (" (itself)" if path in holders else "")
        for path in paths
    ]


def _sum_elements(elements: Sequence[Element]) -> Element:
    return attrs.evolve(
        elements[0],
        path=f"{len(elements):,} more",
        whole=sum(element.whole for element in elements),
        kept=tuple(
            None
            if kept[0] is None
            else sum(
                min(element.whole, tokens or 0)
                for element, tokens in zip(elements, kept, strict=True)
            )
            for kept in zip(*(element.kept for element in elements), strict=True)
        ),
    )


MAX_DRAWN_ELEMENTS = 20
"""Elements of a drawn heat map that have a row of their own."""

NAME_CHARACTERS = 40
"""Characters of an element's name."""

MAX_LABELLED_COLUMNS = 18
"""Columns of a heat map up to which each cell is labelled with its share."""

ROW, MARGIN, CURVES = 0.28, 1.1, 3.0
"""Sizes in inches."""

DARK = 0.5
"""The share from which a cell is dark enough for white text."""

LOG_RATIO = 10
"""The ratio of the largest budget to the smallest from which the scale is logarithmic."""

COLOURS = ("#0b5fa5", "#c4501b", "#2b8a3e", "#7b3fa0", "#8a6d00", "#5c5c5c")


class Curve(NamedTuple):
    """One line of a panel."""

    label: str
    points: Sequence[tuple[int, float]]
    colour: str
    style: str = "-"


def build_figure(run: Run, width: float) -> Figure:
    """Return the matplotlib figure of a run."""
    from matplotlib.figure import Figure

    maps = [
        (sweep, elements)
        for sweep in run.sweeps
        if (elements := select_largest(sweep, MAX_DRAWN_ELEMENTS))
    ]
    panels = 3 if any(sweep.floor for sweep in run.sweeps) else 2
    rows, columns = (1, panels) if width == WIDE else (panels, 1)
    heights = [*(ROW * len(elements) + MARGIN for _, elements in maps), CURVES * rows]
    figure = Figure(figsize=(width, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, (sweep, elements) in zip(parts, maps, strict=False):
        _heat_map(part.subplots(), run, sweep, elements, scale=width / WIDE)
    _curves(run, parts[-1].subplots(rows, columns))
    return figure


def _heat_map(
    axes: Axes, run: Run, sweep: Sweep, elements: Sequence[Element], *, scale: float
) -> None:
    """Draw a heat map; `scale` is its width over the usual one."""
    import matplotlib as mpl

    columns = range(len(sweep.points))
    shares = [[element.kept_share(at) for at in columns] for element in elements]
    cells = axes.pcolormesh(
        [[float("nan") if share is None else share for share in row] for row in shares],
        cmap=mpl.colormaps["YlGnBu"].with_extremes(bad="#d9d9d9"),
        vmin=0,
        vmax=1,
        edgecolors="white",
        linewidth=0.5,
    )
    axes.invert_yaxis()
    every = -(-len(columns) // round(MAX_LABELLED_COLUMNS * scale**1.5))
    axes.set_xticks(
        [column + 0.5 for column in columns[::every]],
        [format_size(point.budget) for point in sweep.points[::every]],
    )
    length = round(NAME_CHARACTERS * scale)
    axes.set_yticks(
        [row + 0.5 for row in range(len(elements))],
        [f"{fit_name(element.path, length)}   {element.whole:,}" for element in elements],
        parse_math=False,
    )
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    title = f"{run.target}, {sweep.model}" if sweep.model else run.target
    axes.set_title(
        f"{fit_name(title, length)}: share kept of each element",
        loc="left",
        fontweight="bold",
        parse_math=False,
    )
    axes.set_xlabel(
        "budget in tokens"
        + (
            "; grey: too small a budget"
            if any(point.required is not None for point in sweep.points)
            else ""
        )
    )
    if every == 1:
        for row, values in enumerate(shares):
            for column, share in enumerate(values):
                if share is not None and share < 1:
                    axes.text(
                        column + 0.5,
                        row + 0.5,
                        format_share(share),
                        ha="center",
                        va="center",
                        fontsize=7,
                        color=LIGHT_TEXT if share > DARK else DARK_TEXT,
                    )
    if scale == 1:
        axes.figure.colorbar(cells, ax=axes, format="{x:.0%}", fraction=0.02, pad=0.01)
    for row, element in enumerate(elements):
        for column, (point, kept) in enumerate(zip(sweep.points, element.kept, strict=True)):
            add_hover(
                axes,
                column,
                column + 1,
                f"{element.path}: {'too small a budget' if kept is None else f'{kept:,}'} of {element.whole:,} tokens at {point.budget:,}",
                row=row,
            )


def _curves(run: Run, panels: Sequence[Axes]) -> None:
    used = [Curve("the whole budget", [(budget, budget) for budget in run.budgets], "#bbbbbb", ":")]
    filled: list[Curve] = []
    times: list[Curve] = []
    for number, sweep in enumerate(run.sweeps):
        colour = COLOURS[number % len(COLOURS)]
        model = f" {sweep.model}" if len(run.sweeps) > 1 else ""
        points = [point for point in sweep.points if point.required is None]
        used += [
            Curve(f"used{model}", [(point.budget, point.used) for point in points], colour),
            Curve(
                f"stable prefix{model}",
                [(point.budget, point.stable_prefix) for point in points],
                colour,
                "--",
            ),
        ]
        filled.append(
            Curve(
                f"used{model}", [(point.budget, point.utilisation or 0) for point in points], colour
            )
        )
        times += [
            Curve(
                f"{name}{model}",
                [
                    (point.budget, ratio)
                    for point, seconds in zip(points, taken, strict=True)
                    if (ratio := sweep.over_floor(seconds)) is not None
                ],
                colour,
                style,
            )
            for name, taken, style in (
                ("cold", [point.cold for point in points], "-"),
                ("warm", [point.warm for point in points], "--"),
            )
        ]
    _panel(panels[0], "Tokens", used, run.budgets, lambda tokens: format_size(round(tokens)))
    panels[0].set_yscale(panels[0].get_xscale())
    panels[0].minorticks_off()
    panels[0].yaxis.set_major_formatter(lambda tokens, _: format_size(round(tokens)))
    _panel(panels[1], "Share of the budget used", filled, run.budgets, "{:.0%}".format)
    panels[1].set_ylim(0, 1.05)
    for panel in panels[2:]:
        _panel(panel, "Time over tokenising alone", times, run.budgets, "{:.3g}x".format)
        panel.set_ylim(bottom=0)


def _panel(
    axes: Axes,
    title: str,
    curves: Sequence[Curve],
    budgets: Sequence[int],
    format_value: Callable[[float], str],
) -> None:
    axes.set_title(title, loc="left")
    for curve in curves:
        axes.plot(
            [budget for budget, _ in curve.points],
            [value for _, value in curve.points],
            color=curve.colour,
            linestyle=curve.style,
            marker="." if curve.style == "-" else "",
            label=curve.label,
        )
    if budgets[-1] >= LOG_RATIO * budgets[0]:
        axes.set_xscale("log")
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_formatter(lambda tokens, _: format_size(round(tokens)))
    axes.yaxis.set_major_formatter(lambda value, _: format_value(value))
    axes.set_xlabel("budget in tokens")
    axes.grid(color="#eeeeee")
    edges = [
        budgets[0],
        *((one * other) ** 0.5 for one, other in pairwise(budgets)),
        budgets[-1] * 1.0001,
    ]
    for budget, (left, right) in zip(budgets, pairwise(edges), strict=True):
        values = (
            f"\n{curve.label}: {format_value(value)}"
            for curve in curves
            for at, value in curve.points
            if at == budget
        )
        add_hover(axes, left, right, f"budget {budget:,}{''.join(values)}")
    if len(curves) > 1:
        axes.legend(fontsize=7, frameon=False)


def fit_name(name: str, length: int) -> str:
    """Cut a name to so many characters.

    The beginning is cut, because the end tells more. Lone surrogates are replaced.
    """
    name = name.encode("utf-8", "replace").decode()
    return name if len(name) <= length else f"…{name[len(name) - length + 1 :]}"
