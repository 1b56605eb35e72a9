"""Draw the times of a comparison at half of all tokens: one panel for each shape, both axes logarithmic, so that a slope is a power of the size."""

# matplotlib's own stubs leave keyword arguments without a type.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from itertools import cycle
from math import log
from typing import TYPE_CHECKING, Any, Final

from benchmarks.peers.peer import OWN
from benchmarks.peers.report import SHAPE_TITLES
from benchmarks.peers.work import HALF, SHAPES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.peers.figures import Case, Comparison

__all__ = ["draw", "spread"]

# Okabe and Ito's colours, which also differ for the colour blind; promptkit is black.
COLOURS: Final = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#8C564B",
    "#7F7F7F",
)
MARKERS: Final = "osD^vPX*"
APART: Final = 0.052
"""Least distance of the names at the right edge, as a share of the panel's height."""


def draw(comparison: Comparison, file: Path) -> None:
    """Write the chart in the format of the file's suffix. The same figures give the same file."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    shapes = [shape for shape in SHAPES if any(case.shape == shape for case in comparison.cases)]
    styles = _styles(comparison)
    with mpl.rc_context(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "peers",
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    ):
        figure = Figure(figsize=(4.6 * len(shapes), 4.6), layout="constrained", facecolor="white")
        # Any: matplotlib's arrays carry no types
        panels: Any = figure.subplots(1, len(shapes), sharey=True, squeeze=False)
        for panel, shape in zip(panels[0], shapes, strict=True):
            _panel(
                panel,
                [case for case in comparison.cases if case.shape == shape and case.at == HALF],
                comparison,
                styles,
            )
            panel.set_title(SHAPE_TITLES[shape], fontsize=9.5, loc="left")
            panel.set_xlabel("items")
        panels[0][0].set_ylabel("milliseconds of processor time")
        file.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Date": None} if file.suffix == ".svg" else None
        figure.savefig(file, metadata=metadata)


def _styles(comparison: Comparison) -> dict[str, Mapping[str, Any]]:  # Any: matplotlib's keywords
    """Return the line style of each peer, the same in every panel."""
    others = [peer.name for peer in comparison.peers if peer.name != OWN]
    styles: dict[str, Mapping[str, Any]] = {  # Any: as above
        name: {"color": colour, "marker": marker, "linewidth": 1.3, "markersize": 4}
        for name, colour, marker in zip(others, cycle(COLOURS), cycle(MARKERS), strict=False)
    }
    return {
        **styles,
        OWN: {"color": "black", "marker": "o", "linewidth": 2.6, "markersize": 5, "zorder": 5},
    }


def _panel(
    panel: Any,  # noqa: ANN401  # Any: matplotlib's axes and keywords
    cases: Sequence[Case],
    comparison: Comparison,
    styles: Mapping[str, Mapping[str, Any]],
) -> None:
    panel.set_xscale("log")
    panel.set_yscale("log")
    sizes = [case.size for case in cases]
    panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
    panel.minorticks_off()
    panel.set_xlim(sizes[0] * 0.8, sizes[-1] * 20)  # room for the names
    panel.set_ylim(_heights(comparison))
    panel.yaxis.set_major_formatter(_written)
    panel.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    panel.axhline(comparison.limit * 1000, color="#999999", linewidth=0.8, linestyle=":")
    panel.text(
        sizes[0],
        comparison.limit * 1000,
        f"ended after {comparison.limit:g} s",
        fontsize=7,
        color="#666666",
        va="bottom",
    )
    names: list[tuple[str, float, float]] = []
    for peer in comparison.peers:
        line = [
            (case.size, 1000 * seconds)
            for case in cases
            if (seconds := case.outcomes[peer.name].seconds) is not None
        ]
        marked = list(range(len(line)))
        over = next(
            (case.size for case in cases if case.outcomes[peer.name].status == "over"), None
        )
        if over is not None:
            line.append((over, 1000 * comparison.limit))
            panel.plot(
                *line[-1],
                **{**styles[peer.name], "marker": "^", "markersize": 7, "fillstyle": "none"},
            )
        if line:
            panel.plot(*zip(*line, strict=True), markevery=marked, **styles[peer.name])
            names.append((peer.name, *line[-1]))
    _name(panel, names, comparison, styles)


def _written(value: float, place: int) -> str:
    """Format a time in full, where matplotlib would write a power of ten."""
    _ = place
    return f"{value:,.10g}"


def _heights(comparison: Comparison) -> tuple[float, float]:
    """Return the lowest and the highest time of all panels, in milliseconds."""
    times = [
        1000 * outcome.seconds
        for case in comparison.cases
        for outcome in case.outcomes.values()
        if outcome.seconds
    ]
    return min(times, default=1) / 1.6, max([*times, 1000 * comparison.limit]) * 1.6


def _name(
    panel: Any,  # noqa: ANN401  # Any: matplotlib's axes
    names: Sequence[tuple[str, float, float]],
    comparison: Comparison,
    styles: Mapping[str, Mapping[str, Any]],  # Any: matplotlib's keywords
) -> None:
    """Write the names at the right edge, each as near to the end of its line as the others allow."""
    titles = {peer.name: peer.title.split(" (")[0] for peer in comparison.peers}
    low, high = _heights(comparison)
    places = spread([log(time / low) / log(high / low) for _, _, time in names], APART)
    (left, right), edge = panel.get_xlim(), max((size for _, size, _ in names), default=1)
    for (name, size, time), place in zip(names, places, strict=True):
        note = panel.annotate(
            titles[name],
            (size, time),
            (log(edge / left) / log(right / left) + 0.05, place),
            textcoords="axes fraction",
            va="center",
            fontsize=7.5,
            fontweight="bold" if name == OWN else "normal",
            color=styles[name]["color"],
            arrowprops={
                "arrowstyle": "-",
                "color": styles[name]["color"],
                "linewidth": 0.5,
                "shrinkA": 1,
                "shrinkB": 3,
            },
        )
        note.set_in_layout(False)  # it is inside the panel


def spread(wanted: Sequence[float], apart: float) -> list[float]:
    """Return positions near the wanted ones, in the same order, with at least `apart` between them.

    Groups that would overlap are moved apart around their middle.
    """
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    groups: list[list[int]] = []
    for index in order:
        groups.append([index])
        while len(groups) > 1 and _top(groups[-2], wanted, apart) + apart > _bottom(
            groups[-1], wanted, apart
        ):
            last = groups.pop()
            groups[-1] += last
    places = [0.0] * len(wanted)
    for group in groups:
        for step, index in enumerate(group):
            places[index] = _bottom(group, wanted, apart) + step * apart
    return places


def _bottom(group: Sequence[int], wanted: Sequence[float], apart: float) -> float:
    return sum(wanted[index] for index in group) / len(group) - apart * (len(group) - 1) / 2


def _top(group: Sequence[int], wanted: Sequence[float], apart: float) -> float:
    return _bottom(group, wanted, apart) + apart * (len(group) - 1)
