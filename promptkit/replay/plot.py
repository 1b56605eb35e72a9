"""A replay as a picture: for each file the context over its requests, with the summaries, and the share that was cached."""

# matplotlib's own stubs leave keyword arguments without a type.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import io
import warnings
from html import escape
from itertools import accumulate
from typing import TYPE_CHECKING

from promptkit.bench.plot import PlotError, check_drawable, format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from promptkit.replay.results import FileResult, PolicyResult

__all__ = ["MOST", "draw_timeline"]

MOST = 12
"""Files in one picture."""

WIDTH, HEIGHT, DOTS = 10.5, 4.2, 160
"""Inches, of the picture and of each file in it; dots to an inch."""

NAME = 60
"""Characters of a file's name."""

COLOURS = ("#0b5fa5", "#c4501b", "#2b8a3e", "#7b3fa0", "#8a6d00", "#5c5c5c", "#b0246b", "#12808a")
STYLES = ("-", "--", ":")

STYLE = """
:root { color-scheme: light dark; }
body { margin: 2rem auto; padding: 0 1rem; max-width: 70rem; font: 1rem/1.5 system-ui, sans-serif; }
figure { margin: 0; padding: 1rem; background: #fff; border-radius: 6px; overflow-x: auto; }
figure svg { width: 100%; min-width: 40rem; height: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
thead th { border-bottom: 1px solid; }
"""


def draw_timeline(files: Sequence[FileResult], form: str) -> bytes:
    """The picture as a file of a form: `.svg`, `.png` or `.html`, which has the figures as tables, too. The same results, the same bytes.

    Raises PlotError for another form, without matplotlib, and for more than MOST files.
    """
    check_drawable(form)
    if len(files) > MOST:
        message = f"a picture shows at most {MOST} files, not {len(files)}: name fewer with --plot."
        raise PlotError(message)
    import matplotlib as mpl

    same = mpl.rc_context({"svg.hashsalt": "promptkit", "svg.fonttype": "path", "font.size": 9})
    with same, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name may have letters that the font lacks: they are drawn as boxes
        figure = _figure(files)
        content = io.BytesIO()
        if form == ".png":
            figure.savefig(content, format="png", dpi=DOTS, bbox_inches="tight")
            return content.getvalue()
        figure.savefig(content, format="svg", metadata={"Date": None}, bbox_inches="tight")
    if form == ".svg":
        return content.getvalue()
    return _page(files, content.getvalue().decode()).encode("ascii", "xmlcharrefreplace")


def _figure(files: Sequence[FileResult]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT * max(1, len(files))), layout="constrained")
    parts = figure.subfigures(max(1, len(files)), 1, squeeze=False)[:, 0]
    for part, file in zip(parts, files, strict=False):
        _draw(file, *part.subplots(2, 1, sharex=True, height_ratios=(2, 1)))
    return figure


def _draw(file: FileResult, context: Axes, cached: Axes) -> None:
    name = file.file.encode("utf-8", "replace").decode()
    context.set_title(name if len(name) <= NAME else f"…{name[1 - NAME :]}", loc="left", fontweight="bold", parse_math=False)
    for number, result in enumerate(file.policies):
        _lines(context, cached, result, colour=COLOURS[number % len(COLOURS)], style=STYLES[number // len(COLOURS) % len(STYLES)])
    context.set_ylabel("tokens of the request")
    context.yaxis.set_major_formatter(lambda tokens, _: format_size(round(tokens)))
    context.set_ylim(bottom=0)
    context.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    cached.set_ylabel("cached so far")
    cached.set_ylim(0, 1)
    cached.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    cached.set_xlabel("request; a dot: a summary was put in place")
    for axes in (context, cached):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#eeeeee")


def _lines(context: Axes, cached: Axes, result: PolicyResult, *, colour: str, style: str) -> None:
    steps = result.steps
    numbers = range(1, len(steps) + 1)
    context.plot(numbers, [step.tokens for step in steps], color=colour, linestyle=style, linewidth=1, label=result.policy)
    marks = [(number, step.tokens) for number, step in zip(numbers, steps, strict=True) if step.checkpoint]
    context.plot([number for number, _ in marks], [tokens for _, tokens in marks], color=colour, linestyle="", marker="o", markersize=4)
    sent = accumulate(step.tokens for step in steps)
    met = accumulate(step.cached for step in steps)
    shares = [part / max(1, whole) for part, whole in zip(met, sent, strict=True)]
    cached.plot(numbers, shares, color=colour, linestyle=style, linewidth=1)


def _page(files: Sequence[FileResult], svg: str) -> str:
    drawing = svg[svg.index("<svg") :].replace(
        "<svg", '<svg role="img" aria-label="Context over requests, and the share that was cached; the tables have the figures."', 1
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
        f"<title>Replay</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>Replay</h1>\n<figure>\n{drawing}</figure>\n"
        f"{''.join(map(_table, files))}</body>\n</html>\n"
    )


def _table(file: FileResult) -> str:
    head = ("policy", "requests", "summaries", "waits", "overflows", "invalid", "input", "cached", "price", "facts", "asked")
    rows = [
        (
            each.policy,
            f"{each.tally.requests:,}",
            f"{each.tally.checkpoints:,}",
            f"{each.tally.foreground_waits:,}",
            f"{each.tally.overflows:,}",
            f"{each.tally.invalid_requests:,}",
            f"{each.tally.bill.input_tokens:,}",
            f"{each.tally.bill.cached_tokens:,}",
            f"${each.price:,.4f}",
            f"{each.facts_share:.1%}",
            f"{each.requests_share:.1%}",
        )
        for each in file.policies
    ]
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in rows)
    heads = "".join(f'<th scope="col">{name}</th>' for name in head)
    return f"<h2>{escape(file.file)}</h2>\n<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{lines}</tbody></table>\n"
