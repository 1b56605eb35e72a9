"""Policies and the rules that they are made of: when a conversation is compacted, pruned or switched to a larger model.

A policy is a list of rules; the first rule that applies decides. The default policy is that of VS
Code Copilot Chat, with limits on waiting and on repeated attempts. The other rules follow other
systems. Rules are pure: they read no clock, call no model and keep no state. Randomness comes from
a generator that the caller passes. Ratios are shares of the size from which on a request overflows.

All rules respect the same guards: attempts without progress are bounded, and nothing happens
automatically where compaction is off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

import attrs

from promptkit.compaction.policy.state import (
    THRESHOLD,
    WAIT_SECONDS,
    ApplySummary,
    Compact,
    Decision,
    DiscardSummary,
    Fail,
    NoAction,
    Phase,
    PolicyState,
    Promote,
    Prune,
    Reason,
    RenderPruned,
    StartBackground,
    Wait,
)
from promptkit.sizes import read_tokens
from promptkit.tokens import ContextBudget

# Triggers, as checkpoints in transcript files record them.
FOREGROUND = "foreground"
MANUAL = "manual"

TOO_LARGE: tuple[Phase, ...] = ("overflow", "rejected", "incomplete")
"""The phases in which a request is too large, or too large for its reply."""

PROBLEMS = {
    "overflow": "the request is larger than the budget",
    "rejected": "the provider refused the request",
    "incomplete": "the reply was cut off because the context window is full",
}
"""The reasons of decisions in these phases."""


class Policy(Protocol):
    """Decides what to do with a conversation.

    A policy without state of its own can serve any number of conversations.
    """

    def decide(self, state: PolicyState) -> Decision:
        """Decide what to do now.

        Before a request, and when a request is too large, the caller carries the decision out and
        asks again with the new state, until the request can be built. In the other phases it asks
        once, and carries out `Compact`, `Promote` and `Prune`; after a reply, only
        `StartBackground`.
        """
        ...


Rule: TypeAlias = Callable[[PolicyState], Decision | None]
"""A part of a policy. Returns None where it does not apply."""


def first_match(rules: Sequence[Rule]) -> Policy:
    """Make a policy in which the first rule that applies decides.

    If none applies, a compaction that the user asked for is done, and nothing else.

    >>> policy = first_match([compact_on_demand, on_overflow(), compact_at(0.85)])
    """
    return _FirstMatch(tuple(rules))


def _find_decision(rules: Iterable[Rule], state: PolicyState) -> Decision | None:
    return next((decision for rule in rules if (decision := rule(state)) is not None), None)


@attrs.frozen
class _FirstMatch:
    rules: tuple[Rule, ...]

    def decide(self, state: PolicyState) -> Decision:
        return (
            _find_decision(self.rules, state)
            or compact_on_demand(state)
            or NoAction(
                reason=Reason(
                    why=f"no rule applies in the phase {state.phase!r}", ratio=state.ratio
                )
            )
        )


@attrs.frozen(kw_only=True)
class Thresholds:
    """The figures of the default policy.

    The ratios are VS Code's; the limits on waiting and attempts are promptkit's.

    VS Code's ratios are shares of the window, of which tools reserve up to a tenth: there, a
    request overflows before it reaches `cold`.
    """

    warm: float = 0.78
    """Lowest ratio at which a background summary starts with a warm prompt cache."""
    jitter: float = 0.04
    """Width of the random range above `warm`."""
    cold: float = 0.90
    """Ratio at which a background summary starts with a cold prompt cache."""
    apply: float = 0.65
    """Ratio below which a ready summary is discarded."""
    wait_seconds: float = WAIT_SECONDS
    """Longest wait of a request for the background summary, and then for each summarizer that is
    asked, in seconds."""
    attempts: int = 1
    """Attempts without progress per user message."""
    breaker: int = 3
    """Consecutive attempts without progress after which no other is made."""


def default_policy(*, rng: Callable[[], float], thresholds: Thresholds | None = None) -> Policy:
    """Make the default policy: summarize in the background before it is needed, in the foreground if that was too late, else prune.

    Args:
        rng: Returns a number from 0 to below 1, such as `random.Random().random`.
        thresholds: The figures. None: the defaults of `Thresholds`.

    Returns:
        The policy.
    """
    at = thresholds or Thresholds()

    def on_demand(state: PolicyState) -> Compact | None:
        decision = compact_on_demand(state)
        return decision and attrs.evolve(decision, seconds=at.wait_seconds)

    return first_match(
        (
            on_demand,
            discard_stale,
            apply_or_discard(at.apply),
            on_overflow(wait_seconds=at.wait_seconds, attempts=at.attempts, breaker=at.breaker),
            start_background(
                rng=rng, warm=at.warm, jitter=at.jitter, cold=at.cold, breaker=at.breaker
            ),
        )
    )


def compact_on_demand(state: PolicyState) -> Compact | None:
    """Compact when the user asks for it, whatever was tried before."""
    return (
        Compact(trigger=MANUAL, reason=Reason(why="requested", ratio=state.ratio))
        if state.phase == "manual"
        else None
    )


def discard_stale(state: PolicyState) -> Decision | None:
    """Discard a background summary whose source messages have changed."""
    return (
        DiscardSummary(reason=Reason(why="the history changed after the summary was started"))
        if state.stale and state.has_summary
        else None
    )


def apply_or_discard(threshold: float = 0.65) -> Rule:
    """Make a rule for before a render: apply a ready summary if the ratio is `threshold` or more, else discard it."""

    def rule(state: PolicyState) -> Decision | None:
        if state.phase != "before_render" or state.background != "ready":
            return None
        ratio = state.ratio
        if not state.enabled:
            return DiscardSummary(reason=Reason(why="automatic compaction is off", ratio=ratio))
        return (
            DiscardSummary(
                reason=Reason(
                    why="the conversation is small enough without the summary",
                    ratio=ratio,
                    threshold=threshold,
                )
            )
            if ratio is None or ratio < threshold
            else ApplySummary(
                reason=Reason(why="a summary is ready", ratio=ratio, threshold=threshold)
            )
        )

    return rule


def on_overflow(*, wait_seconds: float = WAIT_SECONDS, attempts: int = 1, breaker: int = 3) -> Rule:
    """Make a rule for a request that is too large: apply a ready summary, or wait for a running one, or compact now, without a model where it has failed; then prune; then fail.

    Args:
        wait_seconds: Longest wait for a running background summary, and for each summarizer that is
            asked now, in seconds.
        attempts: Attempts without progress per user message.
        breaker: Consecutive attempts without progress after which no other is made.

    Returns:
        The rule.
    """

    def rule(state: PolicyState) -> Decision | None:
        if state.phase not in TOO_LARGE:
            return None
        problem = PROBLEMS[state.phase]
        reason = Reason(why=problem, ratio=state.ratio)
        unreachable = state.unreachable(state.budget.render_budget)
        if unreachable or state.pruned:
            why = unreachable or f"{problem}, even with the history pruned"
            return _ignore_refusal(state) or Fail(reason=attrs.evolve(reason, why=why))
        pending = None if state.compacted else _use_background(state, reason, wait_seconds)
        if pending is not None:
            return _ignore_refusal(state) or pending
        exhausted = (
            f"{problem}, even with the summary"
            if state.compacted
            else state.attempts_exhausted(attempts, breaker)
        )
        if exhausted is None:
            return _ignore_refusal(state) or Compact(
                trigger=FOREGROUND, reason=reason, seconds=wait_seconds
            )
        reason = attrs.evolve(reason, why=exhausted)
        # a model's summaries have failed; the extract needs none
        return _ignore_refusal(state) or (
            Compact(trigger=FOREGROUND, reason=reason, extract=True)
            if state.enabled and not state.compacted and not state.extracted
            else RenderPruned(reason=reason)
        )

    return rule


def _use_background(
    state: PolicyState, reason: Reason, seconds: float
) -> ApplySummary | Wait | None:
    """Apply a ready background summary, or wait once for a running one."""
    if state.enabled and state.background == "ready":
        return ApplySummary(reason=reason)
    waits = state.enabled and state.background == "running" and not state.waited
    return Wait(seconds=seconds, reason=reason) if waits else None


def _ignore_refusal(state: PolicyState) -> NoAction | None:
    """Ignore the refusal of a model that the conversation no longer uses: it says nothing about the current model's window."""
    return (
        None
        if state.refused_by in {None, state.model}
        else NoAction(
            reason=Reason(
                why=f"{state.refused_by} refused the request, but the model is now {state.model}",
                ratio=state.ratio,
            )
        )
    )


def start_background(
    *,
    rng: Callable[[], float],
    warm: float = 0.78,
    jitter: float = 0.04,
    cold: float = 0.90,
    breaker: int = 3,
) -> Rule:
    """Make a rule for after a render: start a background summary at a jittered threshold.

    With a warm prompt cache `rng` is called once per check, also while a summary is running, so
    that conversations do not all compact at the same size. With a cold one it is not called.

    Args:
        rng: Returns a number from 0 to below 1.
        warm: With a warm cache, the threshold is `warm + rng() * jitter`.
        jitter: Width of the random range above `warm`.
        cold: The threshold with a cold cache.
        breaker: Consecutive attempts without progress after which no summary is started.

    Returns:
        The rule.
    """

    def rule(state: PolicyState) -> Decision | None:
        if state.phase != "rendered":
            return None
        ratio, threshold = state.ratio, None
        why: str | None = "the context window or the size of the request is unknown"
        if not state.enabled:
            why = "automatic compaction is off"
        elif state.compacted or state.pruned:
            why = "this request was already reduced"
        elif ratio is not None:
            threshold = warm + rng() * jitter if state.warm else cold
            why = (
                "below the threshold" if ratio < threshold else _find_obstacle(state, warm, breaker)
            )
        reason = Reason(
            why=why or ("warm cache" if state.warm else "cold cache, and nearly full"),
            ratio=ratio,
            threshold=threshold,
            warm=state.warm,
        )
        return NoAction(reason=reason) if why else StartBackground(reason=reason)

    return rule


def _find_obstacle(state: PolicyState, target_ratio: float, breaker: int) -> str | None:
    """Return why a background summary that is due cannot start, or None if it can."""
    if state.has_summary:
        return f"a summary is {state.background}"
    return state.unreachable(_take_share(state, target_ratio)) or state.attempts_exhausted(
        1, breaker, ignore_failed=True
    )


def _take_share(state: PolicyState, ratio: float) -> int | None:
    """Return a ratio of the size from which on a request overflows, in tokens. None: unknown."""
    full = state.budget.render_budget
    return None if full is None else int(full * ratio)


def start_background_at(threshold: float, *, breaker: int = 3) -> Rule:
    """Make a rule for after a render: start a background summary from the ratio `threshold` on, with any cache state, as Copilot CLI does."""

    def rule(state: PolicyState) -> Decision | None:
        if state.phase != "rendered" or not state.reaches(threshold) or state.has_summary:
            return None
        why = (
            "this request was already reduced"
            if state.compacted or state.pruned
            else state.attempts_exhausted(1, breaker, ignore_failed=True)
        )
        reason = Reason(
            why=why or "at the background threshold", ratio=state.ratio, threshold=threshold
        )
        return NoAction(reason=reason) if why else StartBackground(reason=reason)

    return rule


def block_at(
    threshold: float, *, wait_seconds: float = WAIT_SECONDS, attempts: int = 1, breaker: int = 3
) -> Rule:
    """Make a rule for before a render: from the ratio `threshold` on, send no request without a new summary, as Copilot CLI does.

    Args:
        threshold: The ratio. A ready summary is applied, a running one is waited for, else one is
            made now.
        wait_seconds: Longest wait for a running background summary, and for each summarizer that is
            asked now, in seconds.
        attempts: Attempts without progress per user message.
        breaker: Consecutive attempts without progress after which no other is made.

    Returns:
        The rule.
    """

    def rule(state: PolicyState) -> Decision | None:
        if state.phase != "before_render" or not state.reaches(threshold) or state.compacted:
            return None
        reason = Reason(
            why="a summary is needed before the next request",
            ratio=state.ratio,
            threshold=threshold,
        )
        return _use_background(state, reason, wait_seconds) or _limit(
            Compact(trigger=THRESHOLD, reason=reason, seconds=wait_seconds),
            state,
            attempts,
            breaker,
        )

    return rule


def _limit(
    compact: Compact,
    state: PolicyState,
    attempts: int = 1,
    breaker: int = 3,
    *,
    target_tokens: int | None = None,
) -> NoAction | Compact:
    """Return the decision, unless no summary can bring the request below `target_tokens` (by default, make it fit) or the attempts are exhausted."""
    target = state.budget.render_budget if target_tokens is None else target_tokens
    why = state.unreachable(target) or state.attempts_exhausted(attempts, breaker)
    return NoAction(reason=attrs.evolve(compact.reason, why=why)) if why else compact


def compact_at(
    threshold: float,
    *,
    attempts: int = 1,
    breaker: int = 3,
) -> Rule:
    """Make a rule that compacts before a request is rendered, from a ratio on.

    A running or ready background summary is left to other rules.

    Args:
        threshold: The ratio.
        attempts: Attempts without progress per user message.
        breaker: Consecutive attempts without progress after which no other is made.

    Returns:
        The rule.
    """
    return lambda state: (
        _limit(
            Compact(
                trigger=THRESHOLD,
                reason=Reason(why="at the threshold", ratio=state.ratio, threshold=threshold),
            ),
            state,
            attempts,
            breaker,
            target_tokens=_take_share(state, threshold),
        )
        if state.phase == "before_render"
        and state.reaches(threshold)
        and not (state.compacted or state.has_summary)
        else None
    )


def compact_above(
    max_tokens: Callable[[ContextBudget], float | None],
    *phases: Phase,
    inclusive: bool = False,
    trigger: str = THRESHOLD,
    attempts: int = 1,
    breaker: int = 3,
) -> Rule:
    """Make a rule that compacts in the foreground where a request takes more tokens than a budget allows.

    Args:
        max_tokens: Returns the limit in tokens for a budget. None: never compact.
        phases: The phases in which the rule applies.
        inclusive: Whether a request of exactly the limit is compacted as well.
        trigger: The cause, as the checkpoint records it. `handoff` replaces the whole conversation
            by a document for the rest of the work.
        attempts: Attempts without progress per user message.
        breaker: Consecutive attempts without progress after which no other is made.

    Returns:
        The rule.
    """

    def rule(state: PolicyState) -> Decision | None:
        limit, tokens = max_tokens(state.budget), state.tokens
        if state.phase not in phases or state.compacted or limit is None or tokens is None:
            return None
        if tokens < limit or (tokens == limit and not inclusive):
            return None
        why = f"{tokens:,} tokens, the limit is {int(limit):,}"
        return _limit(
            Compact(trigger=trigger, reason=Reason(why=why, ratio=state.ratio)),
            state,
            attempts,
            breaker,
            target_tokens=int(limit),
        )

    return rule


def compact_on(*phases: Phase, attempts: int = 1, breaker: int = 3) -> Rule:
    """Make a rule that compacts in these phases, however full the context window is.

    The checkpoint names the phase as its trigger.

    In the phase `model_switch` it applies only if the new model has a smaller context window.

    Args:
        phases: The phases in which the rule applies.
        attempts: Attempts without progress per user message.
        breaker: Consecutive attempts without progress after which no other is made.

    Returns:
        The rule.
    """
    return lambda state: (
        _ignore_refusal(state)
        or _limit(
            Compact(
                trigger=state.phase,
                reason=Reason(why=f"due in the phase {state.phase!r}", ratio=state.ratio),
            ),
            state,
            attempts,
            breaker,
        )
        if state.phase in phases
        and not state.compacted
        and (state.phase != "model_switch" or state.to_smaller_window)
        else None
    )


def compact_when_idle(min_tokens: int | str, *, seconds: float) -> Rule:
    """Make a rule for the phase `idle`: compact a conversation of at least `min_tokens` after so many seconds without a message, as oh-my-pi does."""
    least = read_tokens(min_tokens)

    return lambda state: (
        _limit(
            Compact(
                trigger="idle",
                reason=Reason(why=f"idle for {state.idle_seconds:,.0f} seconds", ratio=state.ratio),
            ),
            state,
        )
        if state.phase == "idle"
        and state.tokens is not None
        and state.tokens >= least
        and state.idle_seconds >= seconds
        else None
    )


def prune_results(*, least_saving: int = 20_000, warm_ratio: float = 0.5) -> Rule:
    """Make a rule for before a render: replace old and superseded tool results, if it is worth it to change what the provider has cached.

    While a background summary is running or ready, nothing is replaced: the summary would no longer
    fit the conversation.

    Args:
        least_saving: Tokens that replacing old results must save. With a cold cache, superseded
            ones are replaced whatever they save.
        warm_ratio: The ratio from which on results are replaced with a warm cache, too.

    Returns:
        The rule.
    """

    def rule(state: PolicyState) -> Decision | None:
        saved, superseded = state.prunable_tokens, state.superseded_tokens
        all_of_them = saved >= max(1, least_saving)
        if (
            state.phase != "before_render"
            or not state.enabled
            or state.has_summary
            or (state.warm and not state.reaches(warm_ratio))
            or not (all_of_them or (superseded and not state.warm))
        ):
            return None
        what, tokens = ("tool", saved) if all_of_them else ("superseded", superseded)
        return Prune(
            reason=Reason(
                why=f"replacing {what} results saves {tokens:,} tokens",
                ratio=state.ratio,
                threshold=warm_ratio if state.warm else None,
                warm=state.warm,
            ),
            only_superseded=not all_of_them,
        )

    return rule


def prune_old_reasoning(state: PolicyState) -> Decision | None:
    """Take the reasoning of earlier turns out before a render, once the cache no longer holds the conversation."""
    return (
        Prune(
            reason=Reason(
                why=f"the cache is cold, and the reasoning of earlier turns takes {state.reasoning_tokens:,} tokens",
                ratio=state.ratio,
                warm=False,
            ),
            only_reasoning=True,
        )
        if state.phase == "before_render"
        and state.enabled
        and state.reasoning_tokens
        and not state.has_summary
        else None
    )


def render_pruned_if_too_large(state: PolicyState) -> Decision | None:
    """Leave the oldest messages out of a request that is too large, and never summarize; fail if the pruned request is too large."""
    why = "this policy does not summarize"
    return (
        _ignore_refusal(state)
        or (Fail if state.pruned else RenderPruned)(reason=Reason(why=why, ratio=state.ratio))
        if state.phase in TOO_LARGE
        else None
    )


def fail_if_too_large(state: PolicyState) -> Decision | None:
    """Fail where a request is too large, and change nothing."""
    why = "the request is too large, and this policy does not reduce requests"
    return (
        _ignore_refusal(state) or Fail(reason=Reason(why=why, ratio=state.ratio))
        if state.phase in TOO_LARGE
        else None
    )


def promote(*phases: Phase) -> Rule:
    """Make a rule that switches to a larger model, if there is one, before anything is summarized.

    Without `phases` it applies where a request is too large.
    """
    return lambda state: (
        Promote(
            reason=Reason(
                why=f"{state.larger_model} has a larger context window", ratio=state.ratio
            )
        )
        if state.phase in (phases or TOO_LARGE)
        and state.larger_model is not None
        and state.enabled
        and _ignore_refusal(state) is None
        else None
    )


def only_before_turns(rule: Rule) -> Rule:
    """Restrict a rule for before a render to the first request of a turn: between tool calls it does not apply."""
    return lambda state: None if state.phase == "before_render" and state.mid_turn else rule(state)


def once_per_turn(rule: Rule) -> Rule:
    """Restrict a rule to one compaction per user message, whatever its outcome.

    Compaction on demand is not restricted. GSV does this.
    """
    return lambda state: (
        None if state.attempts.ended_this_turn and state.phase != "manual" else rule(state)
    )


def require_messages(count: int, rules: Sequence[Rule], *, manual_count: int = 0) -> Rule:
    """Restrict rules to conversations with a minimum number of messages.

    A request that is too large is reduced at any number.

    Args:
        count: The minimum for automatic compaction.
        rules: The rules. The first that applies decides.
        manual_count: The minimum for a compaction that the user asks for.

    Returns:
        The rule.
    """

    def rule(state: PolicyState) -> Decision | None:
        minimum = (
            manual_count if state.phase == "manual" else 0 if state.phase in TOO_LARGE else count
        )
        if state.messages < minimum:
            why = f"the conversation has {state.messages} messages; a summary needs at least {minimum}"
            return (
                NoAction(reason=Reason(why=why, ratio=state.ratio))
                if state.phase == "manual"
                else None
            )
        return _find_decision(rules, state)

    return rule
