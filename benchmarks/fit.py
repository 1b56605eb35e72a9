"""Measure the share of a short budget that `fit` and `History` use with recorded conversations, and the messages that they keep.

    python -m benchmarks.fit PATH ...          # two tables: of fit, and of History
    python -m benchmarks.fit --json PATH ...

Each path is a recording, or a folder of recordings, in any format that promptkit imports. A
conversation counts at every budget that it does not fit. Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import attrs

from promptkit import BudgetExceededError, History, Message, fit, render
from promptkit.errors import PromptKitError
from promptkit.fitting import describe_omitted
from promptkit.lab.replay.recordings import read_recordings
from promptkit.pairing import pair_tool_calls
from promptkit.tokens import tokenizer_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BUDGETS = (2_000, 4_000, 8_000, 16_000)
UNLIMITED = 1_000_000_000
MODEL = "gpt-5"
MEAN_BAR = 0.95
LOW_BAR = 0.90


@attrs.frozen
class Use:
    """The figures of all conversations at one budget."""

    recordings: int
    refused: int
    mean_used: float
    p10_used: float
    over_budget: int
    unpaired: int
    messages_kept: int
    messages_kept_whole_rounds_only: int

    def missed(self) -> bool:
        """Return whether a bar is missed."""
        return (
            self.mean_used < MEAN_BAR
            or self.p10_used < LOW_BAR
            or self.over_budget > 0
            or self.unpaired > 0
            or self.messages_kept <= self.messages_kept_whole_rounds_only
        )


@attrs.frozen
class Figures:
    """The figures at one budget, of `fit` and of `History`."""

    budget: int
    fit: Use
    history: Use

    def as_dict(self) -> dict[str, object]:
        """Return the figures of `fit`, and those of `History` below them."""
        return {
            "budget": self.budget,
            **attrs.asdict(self.fit),
            "history": attrs.asdict(self.history),
        }


@attrs.frozen
class Short:
    """A conversation at one budget: the messages that stay, without the marker, and the tokens of the request."""

    messages: Sequence[Message]
    tokens: int


def fit_short(messages: Sequence[Message], budget: int, *, shorten: bool) -> Short:
    """Fit a conversation with `fit`."""
    fitted = fit(messages, budget=budget, model=MODEL, shorten=shorten)
    return Short(fitted.messages, fitted.tokens)


def show_short(messages: Sequence[Message], budget: int, *, shorten: bool) -> Short:
    """Render a conversation with `History`."""
    rendered = render(
        History(turns=messages, keep_system=True, shorten=shorten), budget=budget, model=MODEL
    )
    markers = {describe_omitted(count) for count in range(1, len(messages) + 1)}
    return Short(
        [message for message in rendered.messages if message.text not in markers], rendered.tokens
    )


def measure(
    conversations: dict[str, list[Message]], budget: int, shorten_with: Callable[..., Short]
) -> Use:
    """Shorten each conversation that does not fit the budget."""
    used: list[float] = []
    refused = over = unpaired = kept = whole = recordings = 0
    for name, messages in conversations.items():
        if shorten_with(messages, UNLIMITED, shorten=True).tokens <= budget:
            continue
        recordings += 1
        try:
            short = shorten_with(messages, budget, shorten=True)
        except BudgetExceededError as error:
            refused += 1
            print(f"refused at {budget:,}: {name}: {error}", file=sys.stderr)
            continue
        used.append(short.tokens / budget)
        over += short.tokens > budget
        unpaired += bool(pair_tool_calls(short.messages).repairs)
        kept += len(short.messages)
        with suppress(BudgetExceededError):  # nothing is kept if only shortening would make it fit
            whole += len(shorten_with(messages, budget, shorten=False).messages)
    used.sort()
    return Use(
        recordings=recordings,
        refused=refused,
        mean_used=round(mean(used), 4) if used else 0.0,
        p10_used=round(used[len(used) // 10], 4) if used else 0.0,
        over_budget=over,
        unpaired=unpaired,
        messages_kept=kept,
        messages_kept_whole_rounds_only=whole,
    )


def read_conversations(paths: list[Path]) -> dict[str, list[Message]]:
    """Read the conversations of recordings, by name.

    Files that are no recordings are skipped, and named.
    """
    found: dict[str, list[Message]] = {}
    files = [
        file
        for path in paths
        for file in (
            sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        )
    ]
    for file in files:
        try:
            for number, recording in enumerate(read_recordings(file)):
                found[f"{file.name}[{number}]"] = [*recording.system, *recording.messages]
        except PromptKitError as error:
            print(f"skipped: {error}", file=sys.stderr)
    return found


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, help="recordings, or folders of recordings")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    tokenizer_for(MODEL)
    conversations = read_conversations(arguments.paths)
    figures = [
        Figures(
            budget,
            measure(conversations, budget, fit_short),
            measure(conversations, budget, show_short),
        )
        for budget in BUDGETS
    ]
    if arguments.json:
        print(json.dumps([each.as_dict() for each in figures], indent=2))
    else:
        print_table("fit", {each.budget: each.fit for each in figures})
        print_table("History", {each.budget: each.history for each in figures})
    return int(any(each.fit.missed() or each.history.missed() for each in figures))


def print_table(title: str, uses: dict[int, Use]) -> None:
    """Print the figures of all budgets, one per line."""
    names = [field.name for field in attrs.fields(Use)]
    print(" | ".join([f"{title:>8}", *names]))
    for budget, use in uses.items():
        print(
            " | ".join([f"{budget:8,}", *(f"{getattr(use, name):{len(name)}}" for name in names)])
        )


if __name__ == "__main__":
    sys.exit(main())
