"""Measure the price of recordings under several policies: `python -m benchmarks.economics FOLDER`.

Plays each recording under the default preset, under `break_even` with several settings, and under a
naive rule, and compares the prices with the planned optimum, and what requests show of the lines
and names that answers use with what those of the default show. docs/economics.md explains the figures.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from promptkit.bench.plot import add_dark_mode
from promptkit.lab.engines import open_engine
from promptkit.lab.replay import FileResult, ReplayOptions, ReplayRules, cache_rule_for, replay
from promptkit.lab.replay.results import SHOWN
from promptkit.lab.replay.runner import sum_results
from promptkit.tokens import parse_tokens, read_prices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

DEFAULT = "vscode"
RECOMMENDED = "break_even"
POLICIES = (
    DEFAULT,
    RECOMMENDED,
    "break_even:beta=3",
    "break_even:beta=3:tail_tokens=0:names_tokens=0",
    "vscode:threshold=48000",
    "drop_oldest",
)
WINDOWS = ("32k", "64k", "128k")
# from the point, in points
LABEL_OFFSETS = ((7, 0), (-7, 0), (7, 8), (7, -8), (-7, 8), (-7, -8), (7, 14), (7, -14))
START, END = "<!-- figures -->", "<!-- end of figures -->"
"""The place of the tables in docs/economics.md."""

MODELS = ("gpt-5", "claude-sonnet-4-5")

Figures = dict[str, float]


class Run(TypedDict):
    """The figures with one model and window, as --json prints them."""

    window: int
    model: str
    lower_bound: float
    summary_tokens: int
    policies: dict[str, Figures]


def measure(
    files: Sequence[Path], window: int, model: str, policies: Sequence[str], summary_tokens: int
) -> Run:
    """Return the figures of each policy with one model and window."""
    rules = ReplayRules(
        model=model,
        window=window,
        cache=cache_rule_for(model),
        summary_tokens=summary_tokens,
    )
    options = ReplayOptions(
        policies=tuple(policies), rules=rules, price=read_prices().for_model(model), oracle=True
    )
    with open_engine("local") as engine:
        results = [
            each for each in replay(files, options, executor=engine) if isinstance(each, FileResult)
        ]
    total = sum_results(results, options, file="all")
    default = total.policies[0]
    figures: dict[str, Figures] = {}
    for each in total.policies:
        totals = each.totals
        figures[each.policy] = {
            "price": round(each.price, 3),
            "over_planned": round(each.over_planned or 0.0, 3),
            "over_default": round(each.price / default.price, 3),
            **{name: round(share, 4) for name, share in each.shown.items()},
            "answers_lacking": totals.retention.answers_lacking,
            "checkpoints": totals.checkpoints,
            "waits": totals.foreground_waits,
            "overflows": totals.overflows,
            "invalid_requests": totals.invalid_requests,
        }
    return {
        "window": window,
        "model": model,
        "lower_bound": round(total.lower_bound or 0.0, 3),
        "summary_tokens": summary_tokens,
        "policies": figures,
    }


def draw(runs: Sequence[Run]) -> str:
    """Draw the policies of each run by their price and by the facts that requests show."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "promptkit"  # the same figures give the same bytes
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(runs), figsize=(5.2 * len(runs), 4.2), squeeze=False)
    for axis, run in zip(axes[0], runs, strict=True):
        for name, figures in run["policies"].items():
            colour = (
                "#c4501b"
                if name.startswith("break_even")
                else "#0b5fa5"
                if name.startswith("vscode")
                else "#5c5c5c"
            )
            axis.plot(figures["price"], 100 * figures["quoted"], "o", color=colour)
        axis.axvline(run["lower_bound"], color="#808080", linestyle=":", linewidth=1)
        axis.set_title(f"{run['model']}, {int(str(run['window'])) // 1_000}k", fontsize=10)
        axis.set_xlabel("price in dollars; dotted: a lower bound", fontsize=8)
        axis.set_ylabel("quoted lines that requests show, %", fontsize=8)
        axis.margins(x=0.1, y=0.14)
    figure.tight_layout()
    for axis, run in zip(axes[0], runs, strict=True):
        place_labels(
            axis,
            {
                label(name): (each["price"], 100 * each["quoted"])
                for name, each in run["policies"].items()
            },
        )
    content = io.StringIO()
    figure.savefig(content, format="svg", transparent=True, metadata={"Date": None})  # pyright: ignore[reportUnknownMemberType]  # PathLike without a parameter in its signature
    plt.close(figure)
    return add_dark_mode(content.getvalue())


def place_labels(axis: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """Write each label beside its point, where it covers neither a label nor a point and does not leave the axes, if there is such a place."""
    from matplotlib.transforms import Bbox

    room = axis.get_window_extent()
    taken = [
        Bbox.from_extents(x - 4, y - 4, x + 4, y + 4)
        for x, y in (axis.transData.transform(point) for point in points.values())
    ]
    for text, point in points.items():
        for number, (x, y) in enumerate(LABEL_OFFSETS):
            written = axis.annotate(  # pyright: ignore[reportUnknownMemberType]  # its keywords have no types
                text,
                point,
                xytext=(x, y),
                textcoords="offset points",
                fontsize=7,
                ha="right" if x < 0 else "left",
                va="center",
            )
            box = written.get_window_extent()
            if number + 1 == len(LABEL_OFFSETS) or (
                room.containsx(box.x0) and room.containsx(box.x1) and not box.count_overlaps(taken)
            ):
                taken.append(box)
                break
            written.remove()


def label(name: str) -> str:
    """Shorten the name of a policy for a picture."""
    preset, *settings = name.split(":")
    short = {
        "beta": "β ",
        "tail_tokens": "tail ",
        "names_tokens": "names ",
        "threshold": "at ",
        "summary_tokens": "S ",
    }
    parts = [
        f"{short[key]}{value}" for key, _, value in (setting.partition("=") for setting in settings)
    ]
    return ", ".join([preset if preset != RECOMMENDED or not parts else "", *parts]).removeprefix(
        ", "
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.economics", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--window", action="append", type=parse_tokens)
    parser.add_argument("--model", action="append")
    parser.add_argument(
        "--policy",
        action="append",
        help="instead of all of them; the first is the default that others are compared with",
    )
    parser.add_argument(
        "--summary-tokens",
        type=int,
        default=0,
        help="the least tokens that a summary is billed: 2600 is the median of real ones",
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", type=Path, help="write the tables into this page")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    files = sorted(
        path for path in given.folder.rglob("*") if path.is_file() and path.suffix != ".md"
    )
    windows = given.window or [parse_tokens(window) for window in WINDOWS]
    runs = [
        measure(files, window, model, given.policy or POLICIES, given.summary_tokens)
        for model in given.model or MODELS
        for window in windows
    ]
    if given.plot:
        given.plot.write_text(draw(runs), encoding="utf-8")
    if given.json:
        sys.stdout.write(json.dumps({"runs": runs}) + "\n")
        return
    if given.markdown:
        tables = "\n\n".join(map(format_table, runs))
        before, _, rest = given.markdown.read_text(encoding="utf-8").partition(START)
        after = rest.partition(END)[2]
        page = f"{before}{START}\n\n{tables}\n\n{END}{after}"
        given.markdown.write_text(page, encoding="utf-8")
        return
    for run in runs:
        sys.stdout.write(f"\n{run['model']}, {run['window']:,}: at least ${run['lower_bound']}\n")
        for name, figures in run["policies"].items():
            shown = "  ".join(f"{each} {figures[each]:6.1%}" for each in SHOWN)
            sys.stdout.write(
                f"  {name:34} ${figures['price']:7.3f}  {figures['over_planned']:.2f} of the planned optimum  {figures['over_default']:.2f} of {DEFAULT}  "
                f"{shown}  lacking {figures['answers_lacking']:4,}  waits {figures['waits']:3,}  "
                f"overflows {figures['overflows']}  invalid {figures['invalid_requests']}\n"
            )


def format_table(run: Run) -> str:
    """Return the table of a run as docs/economics.md has it."""
    head = (
        "$",
        "over the planned optimum",
        f"over `{DEFAULT}`",
        "quoted, %",
    )
    rows = [
        (
            f"`{name}`",
            f"{figures['price']:.2f}",
            f"{figures['over_planned']:.2f}",
            f"{figures['over_default']:.2f}",
            f"{100 * figures['quoted']:.1f}",
        )
        for name, figures in run["policies"].items()
    ]
    lines = (("policy", *head), ("---",) * (1 + len(head)), *rows)
    title = f"{run['model']}, a window of {run['window'] // 1_000}k: at least ${run['lower_bound']:.2f}."
    return "\n".join((title, "", *(f"| {' | '.join(cells)} |" for cells in lines)))


if __name__ == "__main__":
    main()
