"""Print the results of `promptkit replay`: a line for each policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Console
from rich.text import Text

from promptkit.bench.plot import format_share, format_size
from promptkit.cli.output.terminal import escape_control_chars, print_legend, print_table

if TYPE_CHECKING:
    from promptkit.lab.replay import FileResult, PolicyResult, ReplayOptions
    from promptkit.tokens import BilledTokens

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
    conversations, messages = file.conversations, file.messages
    counts = f": {conversations:,} conversation{'s' * (conversations != 1)}, {messages:,} message{'s' * (messages != 1)}"
    console.print(Text.assemble((escape_control_chars(file.file), "bold"), counts), soft_wrap=True)
    if file.bill is not None:
        model = escape_control_chars(file.model)
        console.print(
            f"{file.bill.describe()} At the prices of {model} it is ${file.bill.model_price:,.2f}.",
            soft_wrap=True,
        )
    if file.lower_bound is not None:
        console.print(
            f"No policy can cost less than ${file.lower_bound:,.3f}, where what is new is read once.",
            soft_wrap=True,
        )
    columns = [column for column in _columns(file, options) if column[2]]
    headings = tuple(heading for name, *_ in columns for heading in name.split(", "))
    rows = [
        tuple(cell for *_, show in columns for cell in show(result)) for result in file.policies
    ]
    print_table(console, headings, rows, gap=1, first="left")


Column: TypeAlias = "tuple[str, str, bool, Callable[[PolicyResult], tuple[str | Text, ...]]]"
"""The heading (with a comma that of two columns), its explanation, whether it is shown, and the
cells of a policy."""


def _columns(file: FileResult, options: ReplayOptions) -> tuple[Column, ...]:
    from promptkit.lab.replay.results import SHOWN

    several = "s" * (options.lookups != 1)
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
                format_share(_find_cached_share(each.totals.requests_billed)),
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
            f"the price with {options.lookups:,} look-up{several} for each answer that lacks a line",
            options.lookups > 0,
            lambda each: (f"{each.price_with_lookups:,.3f}",),
        ),
        *(
            (name, meaning, True, partial(_format_shown, name=name))
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


def _find_cached_share(billed: BilledTokens) -> float:
    return billed.cached_tokens / billed.input_tokens if billed.input_tokens else 0.0


def _format_shown(result: PolicyResult, name: str) -> tuple[str]:
    return (format_share(result.shown[name]),)


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
