"""The drawing of a run with matplotlib: a heat map for each model, and panels of curves below."""

# matplotlib's own stubs leave keyword arguments without a type.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from promptkit.bench.grid import largest, short_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from promptkit.bench.run import Element, Point, Run, Sweep

__all__ = ["figure_of"]

ELEMENT_ROWS = 20
"""Elements of a heat map that are shown on their own."""

NAME = 40
"""Characters of an element's name."""

LABELLED = 18
"""Columns of a heat map up to which each cell says its share."""

WIDTH, ROW, MARGIN, CURVES = 10.5, 0.28, 1.1, 3.0
"""Inches."""

DARK = 0.5
"""The share from which a cell is so dark that it takes white text."""

WIDE = 10
"""The largest budget over the smallest, from which the scale is logarithmic."""

COLOURS = ("#0b5fa5", "#c4501b", "#2b8a3e", "#7b3fa0", "#8a6d00", "#5c5c5c")


class Curve(NamedTuple):
    """One line of a panel."""

    label: str
    points: Sequence[tuple[int, float]]
    colour: str
    style: str = "-"


def figure_of(run: Run) -> Figure:
    """The figure of a run."""
    from matplotlib.figure import Figure

    maps = [(sweep, elements) for sweep in run.sweeps if (elements := largest(sweep, ELEMENT_ROWS))]
    heights = [*(ROW * len(elements) + MARGIN for _, elements in maps), CURVES]
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, (sweep, elements) in zip(parts, maps, strict=False):
        _heat_map(part.subplots(), run, sweep, elements)
    _curves(run, parts[-1].subplots(1, 3 if any(sweep.floor for sweep in run.sweeps) else 2))
    return figure


def _heat_map(axes: Axes, run: Run, sweep: Sweep, elements: Sequence[Element]) -> None:
    import matplotlib as mpl

    columns = range(len(sweep.points))
    shares = [[element.share(at) for at in columns] for element in elements]
    cells = axes.pcolormesh(
        [[float("nan") if share is None else share for share in row] for row in shares],
        cmap=mpl.colormaps["YlGnBu"].with_extremes(bad="#d9d9d9"),
        vmin=0,
        vmax=1,
        edgecolors="white",
        linewidth=0.5,
    )
    axes.invert_yaxis()
    every = -(-len(columns) // LABELLED)
    axes.set_xticks([column + 0.5 for column in columns[::every]], [short_size(point.budget) for point in sweep.points[::every]])
    names = [f"{_fitted(element.path)}   {element.whole:,}" for element in elements]
    axes.set_yticks([row + 0.5 for row in range(len(elements))], names, parse_math=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    title = f"{run.target}, {sweep.model}" if sweep.model else run.target
    axes.set_title(f"{_fitted(title)}: share kept of each element", loc="left", fontweight="bold", parse_math=False)
    axes.set_xlabel(
        "budget in tokens" + ("; grey: too small a budget" if any(point.required is not None for point in sweep.points) else "")
    )
    if every == 1:
        for row, values in enumerate(shares):
            for column, share in enumerate(values):
                if share is not None and share < 1:
                    colour = "white" if share > DARK else "black"
                    axes.text(column + 0.5, row + 0.5, _percent(share), ha="center", va="center", fontsize=7, color=colour)
    axes.figure.colorbar(cells, ax=axes, format="{x:.0%}", fraction=0.02, pad=0.01)


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
            Curve(f"stable prefix{model}", [(point.budget, point.stable_prefix) for point in points], colour, "--"),
        ]
        filled.append(Curve(f"used{model}", [(point.budget, point.utilisation or 0) for point in points], colour))
        times += [
            Curve(f"cold{model}", _over_floor(sweep, [(point, point.cold) for point in points]), colour),
            Curve(f"warm{model}", _over_floor(sweep, [(point, point.warm) for point in points]), colour, "--"),
        ]
    _panel(panels[0], "Tokens", used, run.budgets)
    panels[0].set_yscale(panels[0].get_xscale())
    panels[0].minorticks_off()
    panels[0].yaxis.set_major_formatter(lambda tokens, _: short_size(round(tokens)))
    _panel(panels[1], "Share of the budget used", filled, run.budgets)
    panels[1].set_ylim(0, 1.05)
    panels[1].yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    for panel in panels[2:]:
        _panel(panel, "Time over tokenising alone", times, run.budgets)
        panel.set_ylim(bottom=0)
        panel.yaxis.set_major_formatter(lambda ratio, _: f"{ratio:g}x")


def _over_floor(sweep: Sweep, times: Sequence[tuple[Point, float | None]]) -> list[tuple[int, float]]:
    ratios = [(point.budget, sweep.over_floor(seconds)) for point, seconds in times]
    return [(budget, ratio) for budget, ratio in ratios if ratio is not None]


def _panel(axes: Axes, title: str, curves: Sequence[Curve], budgets: Sequence[int]) -> None:
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
    if budgets[-1] >= WIDE * budgets[0]:
        axes.set_xscale("log")
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_formatter(lambda tokens, _: short_size(round(tokens)))
    axes.set_xlabel("budget in tokens")
    axes.grid(color="#eeeeee")
    if len(curves) > 1:
        axes.legend(fontsize=7, frameon=False)


def _percent(share: float) -> str:
    """A share that is less than everything, in whole percent; nothing and everything are only what is exactly that."""
    return f"{min(0.99, max(0.01, share)):.0%}" if share else "0%"


def _fitted(name: str) -> str:
    """A name that leaves room for the map: its end says more than its beginning. Without what no font can draw."""
    name = name.encode("utf-8", "replace").decode()
    return name if len(name) <= NAME else f"…{name[len(name) - NAME + 1 :]}"
