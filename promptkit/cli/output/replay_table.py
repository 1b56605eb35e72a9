"""Print the results of `promptkit replay`: a line for each policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from promptkit.bench.plot import format_size
from promptkit.cli.output.terminal import escape_control_chars
from promptkit.replay.results import ReplayTotals, priced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.replay.results import FileResult, PolicyResult
    from promptkit.replay.runner import ReplayOptions

__all__ = ["print_replay"]

EXACT = 100_000
"""Tokens below which every one is shown."""

ANY = 1_000
"""Characters that no table needs: with so much room it is as wide as it wants to be."""

LEGEND = (
    "req: requests. sum: summaries put in place. wait: requests that waited for one. over: requests larger than the window, billed as if taken. "
    "bad: requests that a provider refuses. facts: of what answers used after it was dropped, there or reachable; there alone. "
    "asked: of what the person asked, there or reachable."
)


def print_replay(files: Sequence[FileResult], order: ReplayOptions, *, each: bool) -> None:
    """Print a table of all files together and, with `each`, one of each before. Fits 80 columns and needs no colour."""
    console = Console(highlight=False)
    rules = order.rules
    if each and len(files) > 1:
        for file in files:
            _heading(console, escape_control_chars(file.file), [file])
            _print(console, file.policies)
            console.print()
    name = escape_control_chars(files[0].file) if len(files) == 1 else f"{len(files):,} files"
    _heading(console, name, files)
    _print(console, _added(files, order))
    console.print(Text(LEGEND, style="bright_black"))
    console.print(
        f"{format_size(rules.window)} window, prices of {escape_control_chars(rules.model)}, cache rules: {rules.cache}", soft_wrap=True
    )


def _heading(console: Console, name: str, files: Sequence[FileResult]) -> None:
    talks, messages = sum(file.conversations for file in files), sum(file.messages for file in files)
    said = f": {talks:,} conversation{'s' * (talks != 1)}, {messages:,} message{'s' * (messages != 1)}"
    console.print(Text.assemble((name, "bold"), said), soft_wrap=True)


def _added(files: Sequence[FileResult], order: ReplayOptions) -> list[PolicyResult]:
    hour = order.rules.cache == "anthropic-1h"
    tallies = [(name, sum((file.policies[at].tally for file in files), ReplayTotals())) for at, name in enumerate(order.policies)]
    return [priced(name, tally, order.price, hour=hour) for name, tally in tallies]


def _print(console: Console, results: Sequence[PolicyResult]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 1), collapse_padding=True)
    table.add_column("policy", no_wrap=True)
    for heading in ("req", "sum", "wait", "over", "bad", "input", "cached", "price $", "facts", "asked"):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        table.add_row(*_cells(result))
    table.width = Measurement.get(console, console.options.update(width=ANY), table).maximum
    console.print(table, crop=False)  # in a narrow terminal lines run on, and no figure is cut


def _cells(result: PolicyResult) -> tuple[str | Text, ...]:
    tally = result.tally
    bill = tally.bill
    return (
        result.policy,
        f"{tally.requests:,}",
        f"{tally.checkpoints:,}",
        f"{tally.foreground_waits:,}",
        _wrong(tally.overflows),
        _wrong(tally.invalid_requests),
        _millions(bill.input_tokens),
        _percent(bill.cached_tokens / bill.input_tokens if bill.input_tokens else 0.0),
        f"{result.price:,.3f}",
        f"{_percent(result.facts_share)} {_percent(result.facts_present_share)}",
        _percent(result.requests_share),
    )


def _wrong(count: int) -> Text:
    return Text(f"{count:,}", style="red" if count else "")


def _millions(tokens: int) -> str:
    """Tokens in at most six characters."""
    return f"{tokens:,}" if tokens < EXACT else f"{tokens / 1_000:,.0f}k" if tokens < 100 * EXACT else f"{tokens / 1_000_000:,.1f}m"


def _percent(share: float) -> str:
    """In whole percent; nothing and everything are only what is exactly that."""
    return f"{share:.0%}" if share in (0.0, 1.0) else f"{min(0.99, max(0.01, share)):.0%}"
