"""Draw a replay: for each file the tokens of its requests, the summaries, and the share of tokens that was cached."""

# matplotlib's own stubs leave keyword arguments without a type.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from promptkit.bench.plot import (
    WIDE,
    PlotError,
    Section,
    Table,
    add_hover,
    check_drawable,
    draw_picture,
    fit_name,
    format_page,
    format_size,
)
from promptkit.lab.replay.results import SHOWN, FileResult, PolicyResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MAX_FILES = 12
"""Files that one picture can show."""

HEIGHT = 4.2
"""Height of each file in the picture, in inches."""

MAX_HOVERED = 300
"""Parts of a picture that show figures under the pointer; with more requests, each stands for
several, and shows the last."""

MAX_NAME = 60
"""Characters of a file's name in its title."""

COLOURS = ("#0b5fa5", "#c4501b", "#2b8a3e", "#7b3fa0", "#8a6d00", "#5c5c5c", "#b0246b", "#12808a")
STYLES = ("-", "--", ":")

FAR = 4
"""A window of so many times the largest request is not drawn: the requests would be a flat line."""

LIMIT_COLOUR = "#808080"
"""The line of the context window: a grey that is read on white and on black."""


def draw_timeline(
    files: Sequence[FileResult],
    suffix: str,
    views: Mapping[tuple[str, str], str] | None = None,
) -> bytes:
    """Draw the requests of each file, and return the content of a picture file.

    The same results give the same bytes.

    Args:
        files: Results with a timeline (`ReplayOptions.timeline`), at most MAX_FILES.
        suffix: The format: `.svg`, `.png` or `.html`. A page also has the figures as tables.
        views: For each file and policy the address of the page of its requests, which the policies
            of the tables link to.

    Raises:
        PlotError: The format is unknown, matplotlib is not installed, or there are too many files.
    """
    check_drawable(suffix)
    if len(files) > MAX_FILES:
        raise PlotError(
            f"a picture shows at most {MAX_FILES} files, not {len(files)}: name fewer files with --plot."
        )
    return draw_picture(
        lambda width: _create_figure(files, width),
        suffix,
        lambda drawings: format_page(
            "Replay",
            drawings,
            label="Tokens of the requests, and the share of them that was cached; the tables have the figures.",
            sections=[
                Section(title=file.file, tables=[_make_table(file, views or {})]) for file in files
            ],
        ),
    )


def _create_figure(files: Sequence[FileResult], width: float) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, HEIGHT * max(1, len(files))), layout="constrained")
    for part, file in zip(
        figure.subfigures(max(1, len(files)), 1, squeeze=False)[:, 0], files, strict=False
    ):
        context, cached = part.subplots(2, 1, sharex=True, height_ratios=(2, 1))
        _draw_file(file, context, cached, length=round(MAX_NAME * width / WIDE))
        if width == WIDE:
            context.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        else:
            part.legend(fontsize=7, frameon=False, loc="outside lower left", ncols=2)
    return figure


def _draw_file(file: FileResult, context: Axes, cached: Axes, *, length: int) -> None:
    """Draw the requests of a file, whose name has room for so many characters."""
    from matplotlib.ticker import MaxNLocator

    context.set_title(fit_name(file.file, length), loc="left", fontweight="bold", parse_math=False)
    for number, result in enumerate(file.policies):
        _draw_policy(
            context,
            cached,
            result,
            colour=COLOURS[number % len(COLOURS)],
            style=STYLES[number // len(COLOURS) % len(STYLES)],
        )
    if file.window < FAR * context.get_ylim()[1]:
        context.axhline(
            file.window,
            color=LIMIT_COLOUR,
            linestyle="-.",
            linewidth=1,
            label=f"context window, {format_size(file.window)}",
        )
    context.set_ylabel("tokens of the request")
    context.yaxis.set_major_formatter(lambda tokens, _: format_size(round(tokens)))
    # numbers that format_size writes exactly
    context.yaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=(1, 2, 5, 10)))
    context.set_ylim(bottom=0)
    cached.set_ylabel("cached so far")
    cached.set_ylim(0, 1)
    cached.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    requests = max((len(result.timeline) for result in file.policies), default=0)
    cached.set_xlim(0.5, max(1, requests) + 0.5)
    cached.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    cached.set_xlabel("request; dots: a summary replaced messages")
    for axes in (context, cached):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#eeeeee")
        step = -(-requests // MAX_HOVERED) or 1
        for number in range(step, requests + 1, step):
            lines = [
                f"{result.policy}: {request.tokens:,} tokens, {request.cached:,} cached"
                f"{', after a summary' if request.checkpoint else ''}"
                for result in file.policies
                for request in result.timeline[number - 1 : number]
            ]
            add_hover(
                axes, number - step + 0.5, number + 0.5, "\n".join([f"request {number:,}", *lines])
            )


def _draw_policy(
    context: Axes, cached: Axes, result: PolicyResult, *, colour: str, style: str
) -> None:
    requests = result.timeline
    numbers = range(1, len(requests) + 1)
    context.plot(
        numbers,
        [request.tokens for request in requests],
        color=colour,
        linestyle=style,
        linewidth=1,
        label=result.policy,
    )
    marks = [
        (number, request.tokens)
        for number, request in zip(numbers, requests, strict=True)
        if request.checkpoint
    ]
    context.plot(
        [number for number, _ in marks],
        [tokens for _, tokens in marks],
        color=colour,
        linestyle="",
        marker="o",
        markersize=4,
    )
    cached.plot(
        numbers,
        [
            read / max(1, sent)
            for read, sent in zip(
                accumulate(request.cached for request in requests),
                accumulate(request.tokens for request in requests),
                strict=True,
            )
        ],
        color=colour,
        linestyle=style,
        linewidth=1,
    )


def _make_table(file: FileResult, views: Mapping[tuple[str, str], str]) -> Table:
    return Table(
        (
            "policy",
            "requests",
            "summaries",
            "waits",
            "overflows",
            "invalid",
            "input",
            "cached",
            "price",
            *SHOWN,
            "asked",
        ),
        [
            (
                each.policy,
                f"{each.totals.requests:,}",
                f"{each.totals.checkpoints:,}",
                f"{each.totals.foreground_waits:,}",
                f"{each.totals.overflows:,}",
                f"{each.totals.invalid_requests:,}",
                f"{each.totals.requests_billed.input_tokens:,}",
                f"{each.totals.requests_billed.cached_tokens:,}",
                f"${each.price:,.4f}",
                *(f"{each.shown[name]:.1%}" for name in SHOWN),
                f"{each.requests_share:.1%}",
            )
            for each in file.policies
        ],
        links=[views.get((file.file, each.policy), "") for each in file.policies] if views else [],
    )
