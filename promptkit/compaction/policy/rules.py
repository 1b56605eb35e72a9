"""When a conversation is compacted: rules over plain values, of which the first that has something to say decides.

The default policy is that of VS Code Copilot Chat, with bounds where it has none. Nothing here reads a clock, calls a model or keeps a
state; chance comes from a generator that the caller gives.

Rules for policies beside those of the default one: when other systems compact, each as one rule that can be put into a list.

The guards are the same for all: attempts without progress are bounded, and nothing is done automatically where that is switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

import attrs

from promptkit.compaction.policy.decisions import (
    ApplySummary,
    Compact,
    Decision,
    DiscardSummary,
    Fail,
    NoAction,
    Promote,
    Prune,
    Reason,
    RenderPruned,
    StartBackground,
    Wait,
)
from promptkit.compaction.policy.state import PolicyState

if TYPE_CHECKING:
    from promptkit.compaction.budget import Budget
    from promptkit.compaction.policy.state import Phase

__all__ = [
    "Policy",
    "Rule",
    "Thresholds",
    "before_turns",
    "block_at",
    "compact_above",
    "compact_at",
    "compact_on",
    "default_policy",
    "discard_stale",
    "fail_on",
    "first_match",
    "idle_at",
    "least_messages",
    "manual",
    "on_overflow",
    "once_a_turn",
    "promote",
    "prune_at",
    "prune_on",
    "settle_background",
    "start_at",
    "start_background",
]


FOREGROUND = "foreground"
MANUAL = "manual"
THRESHOLD = "threshold"


class Policy(Protocol):
    """Decides. A policy that keeps nothing between two decisions can be shared by any number of conversations."""

    def decide(self, state: PolicyState) -> Decision:
        """What to do now. After Discard, Wait and Prune, ask again with the new state; after all others, act and go on."""
        ...


Rule: TypeAlias = Callable[[PolicyState], Decision | None]
"""A part of a policy: None where it has nothing to say."""


@attrs.frozen
class _FirstMatch:
    rules: tuple[Rule, ...]

    def decide(self, state: PolicyState) -> Decision:
        for rule in self.rules:
            decision = rule(state)
            if decision is not None:
                return decision
        return manual(state) or NoAction(reason=Reason(why=f"no rule is about the phase {state.phase!r}", ratio=state.ratio))


def first_match(rules: Sequence[Rule]) -> Policy:
    """The policy in which the first rule that has something to say decides. Where none has: what is asked for is done, and nothing else."""
    return _FirstMatch(tuple(rules))


def manual(state: PolicyState) -> Decision | None:
    """What somebody asked for is done, whatever was tried before."""
    return Compact(trigger=MANUAL, reason=Reason(why="asked for", ratio=state.ratio)) if state.phase == "manual" else None


def discard_stale(state: PolicyState) -> Decision | None:
    """A summary of what is no more is never put in place."""
    if not state.stale or state.background not in {"running", "ready"}:
        return None
    return DiscardSummary(reason=Reason(why="the history or the model is not that which the summary was made for"))


def settle_background(at: float = 0.65) -> Rule:
    """Before a render: put a ready summary in place if the ratio is still `at` or more, else drop it."""

    def rule(state: PolicyState) -> Decision | None:
        if state.phase != "before_render" or state.background != "ready":
            return None
        ratio = state.ratio
        if not state.enabled:
            return DiscardSummary(reason=Reason(why="automatic compaction is off", ratio=ratio))
        if ratio is None or ratio < at:
            return DiscardSummary(reason=Reason(why="the conversation is small enough without the summary", ratio=ratio, threshold=at))
        return ApplySummary(reason=Reason(why="a summary is ready", ratio=ratio, threshold=at))

    return rule


def on_overflow(*, wait_seconds: float = 60, attempts: int = 1, breaker: int = 3) -> Rule:
    """When a request is too large: a ready summary, else a bounded wait for a running one, else one made now; then pruned; then failure.

    At most `attempts` without progress per message of the person's, `breaker` in a row.
    """

    def rule(state: PolicyState) -> Decision | None:  # noqa: PLR0911  # a ladder: one return for each step
        if state.phase not in {"overflow", "rejected"}:
            return None
        because = Reason(
            why="the provider refused the request" if state.phase == "rejected" else "the request overflows", ratio=state.ratio
        )
        if state.refused_by is not None and state.refused_by != state.model:
            return NoAction(reason=attrs.evolve(because, why=f"the refusal is of {state.refused_by}, and not of {state.model}"))
        hopeless = state.unreachable(state.budget.render_budget)
        if hopeless:
            return Fail(reason=attrs.evolve(because, why=hopeless))
        if state.pruned:
            return Fail(reason=attrs.evolve(because, why=f"{because.why} even with all of the history pruned that may be"))
        if state.compacted:
            return RenderPruned(reason=attrs.evolve(because, why=f"{because.why} with its summary, too"))
        if state.enabled and state.background == "ready":
            return ApplySummary(reason=because)
        if state.enabled and state.background == "running" and not state.waited:
            return Wait(seconds=wait_seconds, reason=because)
        spent = state.attempts_exhausted(attempts, breaker)
        return RenderPruned(reason=attrs.evolve(because, why=spent)) if spent else Compact(trigger=FOREGROUND, reason=because)

    return rule


def start_background(*, draw: Callable[[], float], warm: float = 0.78, jitter: float = 0.04, cold: float = 0.90, breaker: int = 3) -> Rule:
    """After a render: start to summarize at `warm + draw() * jitter` with a warm cache, at `cold` without one.

    `draw` gives a number from 0 to below 1. With a warm cache it is asked once for each check, also while a pass is running, so that
    conversations do not all start at the same size; with a cold one it is not.
    """

    def rule(state: PolicyState) -> Decision | None:  # noqa: PLR0911  # a ladder: one return for each step
        if state.phase != "rendered":
            return None
        ratio = state.ratio
        because = Reason(why="below the threshold", ratio=ratio, warm=state.warm)
        if not state.enabled:
            return NoAction(reason=attrs.evolve(because, why="automatic compaction is off"))
        if state.compacted or state.pruned:
            return NoAction(reason=attrs.evolve(because, why="this request was made smaller already"))
        if ratio is None:
            return NoAction(reason=attrs.evolve(because, why="no window or no count is known"))
        because = attrs.evolve(because, threshold=warm + draw() * jitter if state.warm else cold)
        if ratio < (because.threshold or 0):
            return NoAction(reason=because)
        if state.background in {"running", "ready"}:
            return NoAction(reason=attrs.evolve(because, why=f"a summary is {state.background}"))
        base = state.budget.base
        why = state.unreachable(None if base is None else int(base * warm)) or state.attempts_exhausted(1, breaker, helped=True)
        if why:
            return NoAction(reason=attrs.evolve(because, why=why))
        return StartBackground(reason=attrs.evolve(because, why="warm cache" if state.warm else "cold cache, and nearly full"))

    return rule


def prune_at(at: float, *, least: int = 20_000) -> Rule:
    """Before a render: take old tool outputs out of the view, from the ratio `at` on, where that saves at least so many tokens."""

    def rule(state: PolicyState) -> Decision | None:
        ratio = state.ratio
        if state.phase != "before_render" or not state.enabled or ratio is None or ratio < at or state.prunable < max(1, least):
            return None
        return Prune(reason=Reason(why=f"old tool outputs take {state.prunable:,} tokens", ratio=ratio, threshold=at))

    return rule


def compact_at(at: float, *, phases: Sequence[Phase] = ("before_render",), attempts: int = 1, breaker: int = 3) -> Rule:
    """Summarize in the foreground from the ratio `at` on. What the background has ready, or is at work on, is left to other rules."""

    def rule(state: PolicyState) -> Decision | None:
        ratio = state.ratio
        if state.phase not in phases or ratio is None or ratio < at or state.compacted or state.background in {"running", "ready"}:
            return None
        because = Reason(why="at the threshold", ratio=ratio, threshold=at)
        base = state.budget.base
        why = state.unreachable(None if base is None else int(base * at)) or state.attempts_exhausted(attempts, breaker)
        return NoAction(reason=attrs.evolve(because, why=why)) if why else Compact(trigger=THRESHOLD, reason=because)

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


FOREGROUND_PHASES = frozenset({"overflow", "rejected", "manual"})
"""Here a rule must not keep silent because a conversation is short: nobody would make room."""


def block_at(at: float, *, wait_seconds: float = 60, attempts: int = 1, breaker: int = 3) -> Rule:
    """Before a render, from the ratio `at` on: no request goes out until a summary is in place.

    One that is ready is put in place, one that is running is waited for, else one is made now. (Copilot CLI.)
    """

    def rule(state: PolicyState) -> Decision | None:
        ratio = state.ratio
        if state.phase != "before_render" or ratio is None or ratio < at or state.compacted:
            return None
        because = Reason(why="no request goes out before there is a summary", ratio=ratio, threshold=at)
        if state.enabled and state.background == "ready":
            return ApplySummary(reason=because)
        if state.enabled and state.background == "running" and not state.waited:
            return Wait(seconds=wait_seconds, reason=because)
        why = state.attempts_exhausted(attempts, breaker)
        return NoAction(reason=attrs.evolve(because, why=why)) if why else Compact(trigger="threshold", reason=because)

    return rule


def start_at(at: float, *, breaker: int = 3) -> Rule:
    """After a render, from the ratio `at` on: start to summarize beside the conversation, whatever the cache holds, as Copilot CLI does."""

    def rule(state: PolicyState) -> Decision | None:
        ratio = state.ratio
        if state.phase != "rendered" or ratio is None or ratio < at or state.background in {"running", "ready"}:
            return None
        because = Reason(why="at the threshold of the background", ratio=ratio, threshold=at)
        if state.compacted or state.pruned:
            return NoAction(reason=attrs.evolve(because, why="this request was made smaller already"))
        why = state.attempts_exhausted(1, breaker, helped=True)
        return NoAction(reason=attrs.evolve(because, why=why)) if why else StartBackground(reason=because)

    return rule


def compact_above(
    tokens: Callable[[Budget], float | None], *phases: Phase, inclusive: bool = False, attempts: int = 1, breaker: int = 3
) -> Rule:
    """Summarize in one of these phases where the conversation takes more than so many tokens of a budget; None: never.

    `inclusive`: at that figure already.
    """

    def rule(state: PolicyState) -> Decision | None:
        most = tokens(state.budget)
        if state.phase not in phases or state.compacted or most is None or state.tokens is None or state.tokens < most:
            return None
        if state.tokens == most and not inclusive:
            return None
        because = Reason(why=f"{state.tokens:,} tokens, and {int(most):,} are the most", ratio=state.ratio)
        why = state.unreachable(int(most)) or state.attempts_exhausted(attempts, breaker)
        return NoAction(reason=attrs.evolve(because, why=why)) if why else Compact(trigger="threshold", reason=because)

    return rule


def compact_on(*phases: Phase, attempts: int = 1, breaker: int = 3) -> Rule:
    """Summarize whenever one of these phases comes, however full the window is. The phase is the trigger that the checkpoint names.

    After a change of the model only where the new one has a smaller window.
    """

    def rule(state: PolicyState) -> Decision | None:
        if state.phase not in phases or state.compacted or (state.phase == "model_switch" and not state.to_smaller_window):
            return None
        if (other := _of_another(state)) is not None:
            return other
        because = Reason(why=f"the phase {state.phase!r}", ratio=state.ratio)
        why = state.attempts_exhausted(attempts, breaker)
        return NoAction(reason=attrs.evolve(because, why=why)) if why else Compact(trigger=state.phase, reason=because)

    return rule


def idle_at(tokens: int, *, seconds: float) -> Rule:
    """With nothing said for so long, summarize a conversation of at least so many tokens: nobody waits for it, as oh-my-pi has it."""

    def rule(state: PolicyState) -> Decision | None:
        if state.phase != "idle" or state.tokens is None or state.tokens < tokens or state.idle_seconds < seconds:
            return None
        because = Reason(why=f"nothing was said for {state.idle_seconds:,.0f} seconds", ratio=state.ratio)
        why = state.attempts_exhausted(1, 3)
        return NoAction(reason=attrs.evolve(because, why=why)) if why else Compact(trigger="idle", reason=because)

    return rule


def promote(*phases: Phase) -> Rule:
    """In these phases, by default when a request is too large, go on with a larger model if there is one, before anything is summarized."""
    wanted = phases or ("overflow", "rejected")

    def rule(state: PolicyState) -> Decision | None:
        if state.phase not in wanted or state.larger_model is None or not state.enabled or _of_another(state) is not None:
            return None
        return Promote(reason=Reason(why=f"{state.larger_model} has a larger window", ratio=state.ratio))

    return rule


def prune_on(*phases: Phase) -> Rule:
    """When a request is too large, leave its oldest part out and summarize nothing; where that was no help, fail."""
    wanted = phases or ("overflow", "rejected")

    def rule(state: PolicyState) -> Decision | None:
        if state.phase not in wanted:
            return None
        because = Reason(why="nothing is summarized here", ratio=state.ratio)
        return _of_another(state) or (Fail(reason=because) if state.pruned else RenderPruned(reason=because))

    return rule


def fail_on(*phases: Phase) -> Rule:
    """When a request is too large, say so, and change nothing."""
    wanted = phases or ("overflow", "rejected")

    def rule(state: PolicyState) -> Decision | None:
        if state.phase not in wanted:
            return None
        because = Reason(why="the request is too large, and nothing is to be done about that", ratio=state.ratio)
        return _of_another(state) or Fail(reason=because)

    return rule


def before_turns(rule: Rule) -> Rule:
    """A rule for what comes before a render, heeded only before the first request of a turn, not between calls of tools."""

    def first(state: PolicyState) -> Decision | None:
        return None if state.phase == "before_render" and state.warm else rule(state)

    return first


def once_a_turn(rule: Rule) -> Rule:
    """A rule that is heeded until a compaction has ended, with whatever outcome, since the person has spoken last, as GSV has it."""
    return lambda state: None if state.attempts.done and state.phase != "manual" else rule(state)


def least_messages(count: int, rules: Sequence[Rule], *, asked: int = 0) -> Rule:
    """The first of these rules that has something to say, in a conversation of at least `count` messages; of `asked` where somebody asks.

    What does not fit is summarized however short it is.
    """

    def guarded(state: PolicyState) -> Decision | None:
        least = asked if state.phase == "manual" else 0 if state.phase in FOREGROUND_PHASES else count
        if state.messages < least:
            why = f"the conversation has {state.messages} messages, and {least} are the least that is summarized"
            return NoAction(reason=Reason(why=why, ratio=state.ratio)) if state.phase == "manual" else None
        return next((decision for rule in rules if (decision := rule(state)) is not None), None)

    return guarded


def _of_another(state: PolicyState) -> NoAction | None:
    """A refusal by a model that was switched from says nothing of this one."""
    if state.refused_by is None or state.refused_by == state.model:
        return None
    return NoAction(reason=Reason(why=f"the refusal is of {state.refused_by}, and not of {state.model}", ratio=state.ratio))
