"""What automatic compaction has come to so far: whether it may try again, and whether it helped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs

if TYPE_CHECKING:
    from promptkit.compaction.budget import Budget

__all__ = ["ENOUGH", "Attempts", "Outcome", "judge"]

ENOUGH = 0.78
"""The ratio that a conversation must be below after a compaction: from there on the next one would start at once."""

Outcome: TypeAlias = Literal["reduced", "not enough", "not reduced", "failed"]
"""Smaller, and small enough; smaller, but the next would start at once; no smaller, or larger; no summary was to be had."""


def judge(before: int, after: int, *, budget: Budget, enough: float = ENOUGH) -> Outcome:
    """What a compaction has come to that took a request from `before` to `after` tokens, tools included."""
    if after >= before:
        return "not reduced"
    ratio = budget.ratio(after)
    return "not enough" if ratio is not None and ratio >= enough else "reduced"


@attrs.frozen(kw_only=True)
class Attempts:
    """What was tried, as a value: each thing that happens makes a new one. Start anew after a reset, or with another model."""

    failed: int = 0
    """Attempts without progress since the person spoke last: failed ones in the foreground, and those that did not help."""
    in_a_row: int = 0
    """Attempts of any kind without progress, one after the other."""
    last: Outcome | None = None
    rested: int = 0
    """How often the person has spoken since the last attempt."""
    done: int = 0
    """Attempts of any kind that have ended since the person spoke last, whatever they came to."""

    def asked(self) -> Attempts:
        """The person has spoken: one more attempt is free."""
        return attrs.evolve(self, failed=0, done=0, rested=self.rested + 1)

    def settled(self, outcome: Outcome, *, background: bool = False) -> Attempts:
        """An attempt has ended. A background summary that could not be had leaves the foreground its attempt."""
        if outcome == "reduced":
            return Attempts(last=outcome, done=self.done + 1)
        spent = not (background and outcome == "failed")
        return Attempts(failed=self.failed + spent, in_a_row=self.in_a_row + 1, last=outcome, done=self.done + 1)
