"""When a conversation is compacted: rules over plain values, of which the first that has something to say decides.

The default policy is that of VS Code Copilot Chat, with bounds where it has none. Nothing here reads a clock, calls a model or keeps a
state; chance comes from a generator that the caller gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

import attrs

from promptkit.compaction.decision import (
    Apply,
    Because,
    Compact,
    Decision,
    Discard,
    Fail,
    Nothing,
    Prune,
    RenderPruned,
    StartBackground,
    Wait,
)
from promptkit.compaction.state import State

if TYPE_CHECKING:
    from promptkit.compaction.state import Phase

__all__ = [
    "Policy",
    "Rule",
    "Thresholds",
    "compact_at",
    "default_policy",
    "discard_stale",
    "first_match",
    "manual",
    "on_overflow",
    "prune_at",
    "settle_background",
    "start_background",
]

FOREGROUND = "foreground"
MANUAL = "manual"
THRESHOLD = "threshold"


class Policy(Protocol):
    """Decides. A policy that keeps nothing between two decisions can be shared by any number of conversations."""

    def decide(self, state: State) -> Decision:
        """What to do now. After Discard, Wait and Prune, ask again with the new state; after all others, act and go on."""
        ...


Rule: TypeAlias = Callable[[State], Decision | None]
"""A part of a policy: None where it has nothing to say."""


@attrs.frozen
class _FirstMatch:
    rules: tuple[Rule, ...]

    def decide(self, state: State) -> Decision:
        for rule in self.rules:
            decision = rule(state)
            if decision is not None:
                return decision
        return manual(state) or Nothing(because=Because(why=f"no rule is about the phase {state.phase!r}", ratio=state.ratio))


def first_match(rules: Sequence[Rule]) -> Policy:
    """The policy in which the first rule that has something to say decides. Where none has: what is asked for is done, and nothing else."""
    return _FirstMatch(tuple(rules))


def manual(state: State) -> Decision | None:
    """What somebody asked for is done, whatever was tried before."""
    return Compact(trigger=MANUAL, because=Because(why="asked for", ratio=state.ratio)) if state.phase == "manual" else None


def discard_stale(state: State) -> Decision | None:
    """A summary of what is no more is never put in place."""
    if not state.stale or state.background not in {"running", "ready"}:
        return None
    return Discard(because=Because(why="the history or the model is not that which the summary was made for"))


def settle_background(at: float = 0.65) -> Rule:
    """Before a render: put a ready summary in place if the ratio is still `at` or more, else drop it."""

    def rule(state: State) -> Decision | None:
        if state.phase != "before_render" or state.background != "ready":
            return None
        ratio = state.ratio
        if not state.enabled:
            return Discard(because=Because(why="automatic compaction is off", ratio=ratio))
        if ratio is None or ratio < at:
            return Discard(because=Because(why="the conversation is small enough without the summary", ratio=ratio, threshold=at))
        return Apply(because=Because(why="a summary is ready", ratio=ratio, threshold=at))

    return rule


def on_overflow(*, wait_seconds: float = 60, attempts: int = 1, breaker: int = 3) -> Rule:
    """When a request is too large: a ready summary, else a bounded wait for a running one, else one made now; then pruned; then failure.

    At most `attempts` without progress per message of the person's, `breaker` in a row.
    """

    def rule(state: State) -> Decision | None:  # noqa: PLR0911  # a ladder: one return for each step
        if state.phase not in {"overflow", "rejected"}:
            return None
        because = Because(
            why="the provider refused the request" if state.phase == "rejected" else "the request overflows", ratio=state.ratio
        )
        if state.refused_by is not None and state.refused_by != state.model:
            return Nothing(because=attrs.evolve(because, why=f"the refusal is of {state.refused_by}, and not of {state.model}"))
        hopeless = state.hopeless(state.budget.render_budget)
        if hopeless:
            return Fail(because=attrs.evolve(because, why=hopeless))
        if state.pruned:
            return Fail(because=attrs.evolve(because, why=f"{because.why} even with all of the history pruned that may be"))
        if state.compacted:
            return RenderPruned(because=attrs.evolve(because, why=f"{because.why} with its summary, too"))
        if state.enabled and state.background == "ready":
            return Apply(because=because)
        if state.enabled and state.background == "running" and not state.waited:
            return Wait(seconds=wait_seconds, because=because)
        spent = state.spent(attempts, breaker)
        return RenderPruned(because=attrs.evolve(because, why=spent)) if spent else Compact(trigger=FOREGROUND, because=because)

    return rule


def start_background(*, draw: Callable[[], float], warm: float = 0.78, jitter: float = 0.04, cold: float = 0.90, breaker: int = 3) -> Rule:
    """After a render: start to summarize at `warm + draw() * jitter` with a warm cache, at `cold` without one.

    `draw` gives a number from 0 to below 1. With a warm cache it is asked once for each check, also while a pass is running, so that
    conversations do not all start at the same size; with a cold one it is not.
    """

    def rule(state: State) -> Decision | None:  # noqa: PLR0911  # a ladder: one return for each step
        if state.phase != "rendered":
            return None
        ratio = state.ratio
        because = Because(why="below the threshold", ratio=ratio, warm=state.warm)
        if not state.enabled:
            return Nothing(because=attrs.evolve(because, why="automatic compaction is off"))
        if state.compacted or state.pruned:
            return Nothing(because=attrs.evolve(because, why="this request was made smaller already"))
        if ratio is None:
            return Nothing(because=attrs.evolve(because, why="no window or no count is known"))
        because = attrs.evolve(because, threshold=warm + draw() * jitter if state.warm else cold)
        if ratio < (because.threshold or 0):
            return Nothing(because=because)
        if state.background in {"running", "ready"}:
            return Nothing(because=attrs.evolve(because, why=f"a summary is {state.background}"))
        base = state.budget.base
        why = state.hopeless(None if base is None else int(base * warm)) or state.spent(1, breaker, helped=True)
        if why:
            return Nothing(because=attrs.evolve(because, why=why))
        return StartBackground(because=attrs.evolve(because, why="warm cache" if state.warm else "cold cache, and nearly full"))

    return rule


def prune_at(at: float, *, least: int = 20_000) -> Rule:
    """Before a render: take old tool outputs out of the view, from the ratio `at` on, where that saves at least so many tokens."""

    def rule(state: State) -> Decision | None:
        ratio = state.ratio
        if state.phase != "before_render" or not state.enabled or ratio is None or ratio < at or state.prunable < max(1, least):
            return None
        return Prune(because=Because(why=f"old tool outputs take {state.prunable:,} tokens", ratio=ratio, threshold=at))

    return rule


def compact_at(at: float, *, phases: Sequence[Phase] = ("before_render",), attempts: int = 1, breaker: int = 3) -> Rule:
    """Summarize in the foreground from the ratio `at` on. What the background has ready, or is at work on, is left to other rules."""

    def rule(state: State) -> Decision | None:
        ratio = state.ratio
        if state.phase not in phases or ratio is None or ratio < at or state.compacted or state.background in {"running", "ready"}:
            return None
        because = Because(why="at the threshold", ratio=ratio, threshold=at)
        base = state.budget.base
        why = state.hopeless(None if base is None else int(base * at)) or state.spent(attempts, breaker)
        return Nothing(because=attrs.evolve(because, why=why)) if why else Compact(trigger=THRESHOLD, because=because)

    return rule


@attrs.frozen(kw_only=True)
class Thresholds:
    """The figures of the default policy: VS Code's, and the bounds that it has none of."""

    warm: float = 0.78
    jitter: float = 0.04
    cold: float = 0.90
    apply: float = 0.65
    wait_seconds: float = 60
    attempts: int = 1
    breaker: int = 3


def default_policy(*, draw: Callable[[], float], thresholds: Thresholds | None = None) -> Policy:
    """A background summary before it is needed, a foreground one where that was not enough, pruning where neither was to be had.

    `draw` gives a number from 0 to below 1, such as `random.Random().random`.
    """
    at = thresholds or Thresholds()
    return first_match(
        (
            manual,
            discard_stale,
            settle_background(at.apply),
            on_overflow(wait_seconds=at.wait_seconds, attempts=at.attempts, breaker=at.breaker),
            start_background(draw=draw, warm=at.warm, jitter=at.jitter, cold=at.cold, breaker=at.breaker),
        )
    )
