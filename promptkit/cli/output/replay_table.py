"""Print the results of `promptkit replay`: a line for each policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from promptkit.bench.plot import format_size
from promptkit.cli.output.terminal import escape_control_chars, print_legend, print_table
from promptkit.replay.results import ReplayTotals, price_totals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.replay.results import FileResult, PolicyResult
    from promptkit.replay.runner import ReplayOptions

__all__ = ["print_replay"]

EXACT_BELOW = 100_000
"""Token counts below this number are printed in full, larger ones in thousands or millions."""

FACTS = "share of identifiers of dropped messages that later answers reuse and that the request, or the transcript it names, contains"

LEGEND = (
    ("req", "requests"),
    ("sum", "summaries that replaced messages"),
    ("wait", "requests that waited for a summary"),
    ("over", "requests that were larger than the context window allows; they are billed as if the model had accepted them"),
    ("bad", "requests that a provider would reject as invalid"),
    ("input, cached", "input tokens of the requests, and the share of them that was read from the prompt cache"),
    ("price $", "dollars for requests, replies and summaries"),
    ("facts", f"{FACTS}; second figure: the request alone"),
    ("asked", "share of the user's requests that the request, or the transcript it names, contains"),
)


def print_replay(files: Sequence[FileResult], options: ReplayOptions, *, each: bool) -> None:
    """Print a table for all files together and, with `each`, one for each file before it. Fits 60 columns and needs no colour."""
    console = Console(highlight=False)
    rules = options.rules
    if each and len(files) > 1:
        for file in files:
            _heading(console, escape_control_chars(file.file), [file])
            _print(console, file.policies)
            console.print()
    name = escape_control_chars(files[0].file) if len(files) == 1 else f"{len(files):,} files"
    _heading(console, name, files)
    _print(console, _sum_results(files, options))
    console.print()
    print_legend(LEGEND, width=console.width)
    console.print()
    console.print(
        f"{format_size(rules.window)} window, prices of {escape_control_chars(rules.model)}, cache rules: {rules.cache}", soft_wrap=True
    )


def _heading(console: Console, name: str, files: Sequence[FileResult]) -> None:
    conversations, messages = sum(file.conversations for file in files), sum(file.messages for file in files)
    counts = f": {conversations:,} conversation{'s' * (conversations != 1)}, {messages:,} message{'s' * (messages != 1)}"
    console.print(Text.assemble((name, "bold"), counts), soft_wrap=True)


def _sum_results(files: Sequence[FileResult], options: ReplayOptions) -> list[PolicyResult]:
    one_hour_cache = options.rules.cache == "anthropic-1h"
    totals = [(name, sum((file.policies[index].totals for file in files), ReplayTotals())) for index, name in enumerate(options.policies)]
    return [price_totals(name, total, options.price, one_hour_cache=one_hour_cache) for name, total in totals]


def _print(console: Console, results: Sequence[PolicyResult]) -> None:
    headings = ("policy", "req", "sum", "wait", "over", "bad", "input", "cached", "price $", "facts", "asked")
    print_table(console, headings, list(map(_cells, results)), gap=1, first="left")


def _cells(result: PolicyResult) -> tuple[str | Text, ...]:
    totals = result.totals
    billed = totals.requests_billed
    return (
        result.policy,
        f"{totals.requests:,}",
        f"{totals.checkpoints:,}",
        f"{totals.foreground_waits:,}",
        _red_if_any(totals.overflows),
        _red_if_any(totals.invalid_requests),
        _format_tokens(billed.input_tokens),
        _percent(billed.cached_tokens / billed.input_tokens if billed.input_tokens else 0.0),
        f"{result.price:,.3f}",
        f"{_percent(result.facts_share)} {_percent(result.facts_present_share)}",
        _percent(result.requests_share),
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


def _percent(share: float) -> str:
    """Format a share in whole percent. 0% and 100% are printed only for exactly these shares."""
    return f"{share:.0%}" if share in (0.0, 1.0) else f"{min(0.99, max(0.01, share)):.0%}"
