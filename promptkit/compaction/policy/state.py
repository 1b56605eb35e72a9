"""All that a decision rests on, as one value.

What automatic compaction has come to so far: whether it may try again, and whether it helped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs

if TYPE_CHECKING:
    from promptkit.compaction.budget import Budget

__all__ = ["ENOUGH", "AttemptOutcome", "Attempts", "BackgroundState", "Phase", "PolicyState", "judge_attempt"]


ENOUGH = 0.78
"""The ratio that a conversation must be below after a compaction: from there on the next one would start at once."""

AttemptOutcome: TypeAlias = Literal["reduced", "not enough", "not reduced", "failed"]
"""Smaller, and small enough; smaller, but the next would start at once; no smaller, or larger; no summary was to be had."""


def judge_attempt(before: int, after: int, *, budget: Budget, enough: float = ENOUGH) -> AttemptOutcome:
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
    last: AttemptOutcome | None = None
    rested: int = 0
    """How often the person has spoken since the last attempt."""
    done: int = 0
    """Attempts of any kind that have ended since the person spoke last, whatever they came to."""

    def after_user_message(self) -> Attempts:
        """The person has spoken: one more attempt is free."""
        return attrs.evolve(self, failed=0, done=0, rested=self.rested + 1)

    def after_attempt(self, outcome: AttemptOutcome, *, background: bool = False) -> Attempts:
        """An attempt has ended. A background summary that could not be had leaves the foreground its attempt."""
        if outcome == "reduced":
            return Attempts(last=outcome, done=self.done + 1)
        spent = not (background and outcome == "failed")
        return Attempts(failed=self.failed + spent, in_a_row=self.in_a_row + 1, last=outcome, done=self.done + 1)


Phase: TypeAlias = Literal[
    "before_render", "rendered", "turn_end", "incomplete", "overflow", "rejected", "idle", "memory", "model_switch", "manual"
]
"""When is decided: before a render; after one that fits; when the model is done with a turn; when its text was cut off; when a render does
not fit; when the provider refused the request as too large; with nothing to do; when memory is short; after a change of the model;
because somebody asked."""

BackgroundState: TypeAlias = Literal["idle", "running", "ready", "failed"]


@attrs.frozen(kw_only=True)
class PolicyState:
    """All that a decision rests on. Figures are tokens of a request with its tools."""

    phase: Phase
    budget: Budget
    tokens: int | None = None
    """What the next request takes, or the last one took; None: unknown."""
    fixed: int = 0
    """What every request has beside the conversation: no summary makes that smaller."""
    prunable: int = 0
    """What pruning old tool outputs would save."""
    warm: bool = False
    """Whether the provider has the start of the request in its cache: a round of tool calls was completed in this turn."""
    enabled: bool = True
    """Whether anything is done that nobody asked for."""
    background: BackgroundState = "idle"
    stale: bool = False
    """The background works, or has worked, on what is no more: the history was changed, or the model."""
    attempts: Attempts = attrs.field(factory=Attempts)
    messages: int = 0
    """How many messages the view has."""
    idle_seconds: float = 0.0
    """How long nothing was said."""
    to_smaller_window: bool = False
    """The model was changed for one with a smaller window, and this is the first request since."""
    larger_model: str | None = None
    """A model with a larger window that this conversation may go on with."""
    compacted: bool = False
    """A summary was put in place for this very request."""
    waited: bool = False
    """This request has waited for the background."""
    pruned: bool = False
    """This request was rendered pruned."""
    model: str | None = None
    refused_by: str | None = None
    """The model that refused the request, where a provider did."""

    @property
    def ratio(self) -> float | None:
        """What the request takes of the budget's base; None: unknown."""
        return self.budget.ratio(self.tokens)

    def unreachable(self, room: int | None) -> str | None:
        """Why no summary can help: what every request has is as large as what is to be reached. None: it can."""
        if room is None or self.fixed < room:
            return None
        return (
            f"what every request has beside the conversation takes {self.fixed:,} tokens, and {room:,} are to be reached: no summary helps"
        )

    def attempts_exhausted(self, attempts: int, breaker: int, *, helped: bool = False) -> str | None:
        """Why there is to be no attempt; None: there may be. `helped`: one that failed is no reason, only one that did not help."""
        tried = self.attempts
        if not self.enabled:
            return "automatic compaction is off"
        if tried.in_a_row >= breaker and tried.rested < breaker:  # a provider may be well again: it is asked anew after as long a rest
            return f"{tried.in_a_row} attempts in a row have failed or not helped"
        if tried.failed >= attempts and not (helped and tried.last == "failed"):
            return f"an attempt since the last message of the person has come to this: {tried.last}"
        return None
