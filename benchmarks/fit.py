"""Measure the share of a short budget that `fit` uses with recorded conversations, and the messages that it keeps.

    python -m benchmarks.fit PATH ...          # a table
    python -m benchmarks.fit --json PATH ...

Each path is a recording, or a folder of recordings, in any format that promptkit imports. A conversation counts at every budget that it
does not fit. Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress
from pathlib import Path
from statistics import mean

import attrs

from promptkit import BudgetExceededError, Message, fit
from promptkit.errors import PromptKitError
from promptkit.replay.recordings import read_recordings
from promptkit.tokens import tokenizer_for
from promptkit.tool_pairing import pair_tool_calls

BUDGETS = (2_000, 4_000, 8_000, 16_000)
MODEL = "gpt-5"
MEAN_BAR = 0.95
LOW_BAR = 0.90


@attrs.frozen
class Figures:
    """The figures of all conversations at one budget."""

    budget: int
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


def measure(conversations: dict[str, list[Message]], budget: int) -> Figures:
    """Fit each conversation that does not fit the budget."""
    used: list[float] = []
    refused = over = unpaired = kept = whole = recordings = 0
    for name, messages in conversations.items():
        try:
            fitted = fit(messages, budget=budget, model=MODEL)
        except BudgetExceededError as error:
            recordings, refused = recordings + 1, refused + 1
            print(f"refused at {budget:,}: {name}: {error}", file=sys.stderr)
            continue
        if not fitted.changed and not fitted.removed:
            continue
        recordings += 1
        used.append(fitted.tokens / budget)
        over += fitted.tokens > budget
        unpaired += bool(pair_tool_calls(fitted.messages).repairs)
        kept += len(fitted.messages)
        with suppress(BudgetExceededError):  # nothing is kept if only shortening would make it fit
            whole += len(fit(messages, budget=budget, model=MODEL, shorten=False).messages)
    used.sort()
    return Figures(
        budget=budget,
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
    """Read the conversations of recordings, by name. Files that are no recordings are skipped, and named."""
    found: dict[str, list[Message]] = {}
    files = [file for path in paths for file in (sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path])]
    for file in files:
        try:
            for number, recording in enumerate(read_recordings(file)):
                found[f"{file.name}[{number}]"] = [*recording.system, *recording.messages]
        except PromptKitError as error:
            print(f"skipped: {error}", file=sys.stderr)
    return found


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, help="recordings, or folders of recordings")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    tokenizer_for(MODEL)
    conversations = read_conversations(arguments.paths)
    figures = [measure(conversations, budget) for budget in BUDGETS]
    if arguments.json:
        print(json.dumps([attrs.asdict(each) for each in figures], indent=2))
    else:
        names = [field.name for field in attrs.fields(Figures)]
        print(" | ".join(names))
        for each in figures:
            print(" | ".join(f"{getattr(each, name):{len(name)}}" for name in names))
    return int(any(each.missed() for each in figures))


if __name__ == "__main__":
    sys.exit(main())
