"""Rules for policies beside those of the default one: when other systems compact, each as one rule that can be put into a list.

The guards are the same for all: attempts without progress are bounded, and nothing is done automatically where that is switched off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.decision import Apply, Because, Compact, Fail, Nothing, Promote, RenderPruned, StartBackground, Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit.compaction.budget import Budget
    from promptkit.compaction.decision import Decision
    from promptkit.compaction.policy import Rule
    from promptkit.compaction.state import Phase, State

__all__ = [
    "before_turns",
    "block_at",
    "compact_above",
    "compact_on",
    "fail_on",
    "idle_at",
    "least_messages",
    "once_a_turn",
    "promote",
    "prune_on",
    "start_at",
]

FOREGROUND_PHASES = frozenset({"overflow", "rejected", "manual"})
"""Here a rule must not keep silent because a conversation is short: nobody would make room."""


def block_at(at: float, *, wait_seconds: float = 60, attempts: int = 1, breaker: int = 3) -> Rule:
    """Before a render, from the ratio `at` on: no request goes out until a summary is in place.

    One that is ready is put in place, one that is running is waited for, else one is made now. (Copilot CLI.)
    """

    def rule(state: State) -> Decision | None:
        ratio = state.ratio
        if state.phase != "before_render" or ratio is None or ratio < at or state.compacted:
            return None
        because = Because(why="no request goes out before there is a summary", ratio=ratio, threshold=at)
        if state.enabled and state.background == "ready":
            return Apply(because=because)
        if state.enabled and state.background == "running" and not state.waited:
            return Wait(seconds=wait_seconds, because=because)
        why = state.spent(attempts, breaker)
        return Nothing(because=attrs.evolve(because, why=why)) if why else Compact(trigger="threshold", because=because)

    return rule


def start_at(at: float, *, breaker: int = 3) -> Rule:
    """After a render, from the ratio `at` on: start to summarize beside the conversation, whatever the cache holds, as Copilot CLI does."""

    def rule(state: State) -> Decision | None:
        ratio = state.ratio
        if state.phase != "rendered" or ratio is None or ratio < at or state.background in {"running", "ready"}:
            return None
        because = Because(why="at the threshold of the background", ratio=ratio, threshold=at)
        if state.compacted or state.pruned:
            return Nothing(because=attrs.evolve(because, why="this request was made smaller already"))
        why = state.spent(1, breaker, helped=True)
        return Nothing(because=attrs.evolve(because, why=why)) if why else StartBackground(because=because)

    return rule


def compact_above(
    tokens: Callable[[Budget], float | None], *phases: Phase, inclusive: bool = False, attempts: int = 1, breaker: int = 3
) -> Rule:
    """Summarize in one of these phases where the conversation takes more than so many tokens of a budget; None: never.

    `inclusive`: at that figure already.
    """

    def rule(state: State) -> Decision | None:
        most = tokens(state.budget)
        if state.phase not in phases or state.compacted or most is None or state.tokens is None or state.tokens < most:
            return None
        if state.tokens == most and not inclusive:
            return None
        because = Because(why=f"{state.tokens:,} tokens, and {int(most):,} are the most", ratio=state.ratio)
        why = state.hopeless(int(most)) or state.spent(attempts, breaker)
        return Nothing(because=attrs.evolve(because, why=why)) if why else Compact(trigger="threshold", because=because)

    return rule


def compact_on(*phases: Phase, attempts: int = 1, breaker: int = 3) -> Rule:
    """Summarize whenever one of these phases comes, however full the window is. The phase is the trigger that the checkpoint names.

    After a change of the model only where the new one has a smaller window.
    """

    def rule(state: State) -> Decision | None:
        if state.phase not in phases or state.compacted or (state.phase == "model_switch" and not state.smaller):
            return None
        if (other := _of_another(state)) is not None:
            return other
        because = Because(why=f"the phase {state.phase!r}", ratio=state.ratio)
        why = state.spent(attempts, breaker)
        return Nothing(because=attrs.evolve(because, why=why)) if why else Compact(trigger=state.phase, because=because)

    return rule


def idle_at(tokens: int, *, seconds: float) -> Rule:
    """With nothing said for so long, summarize a conversation of at least so many tokens: nobody waits for it, as oh-my-pi has it."""

    def rule(state: State) -> Decision | None:
        if state.phase != "idle" or state.tokens is None or state.tokens < tokens or state.idle_seconds < seconds:
            return None
        because = Because(why=f"nothing was said for {state.idle_seconds:,.0f} seconds", ratio=state.ratio)
        why = state.spent(1, 3)
        return Nothing(because=attrs.evolve(because, why=why)) if why else Compact(trigger="idle", because=because)

    return rule


def promote(*phases: Phase) -> Rule:
    """In these phases, by default when a request is too large, go on with a larger model if there is one, before anything is summarized."""
    wanted = phases or ("overflow", "rejected")

    def rule(state: State) -> Decision | None:
        if state.phase not in wanted or state.larger is None or not state.enabled or _of_another(state) is not None:
            return None
        return Promote(because=Because(why=f"{state.larger} has a larger window", ratio=state.ratio))

    return rule


def prune_on(*phases: Phase) -> Rule:
    """When a request is too large, leave its oldest part out and summarize nothing; where that was no help, fail."""
    wanted = phases or ("overflow", "rejected")

    def rule(state: State) -> Decision | None:
        if state.phase not in wanted:
            return None
        because = Because(why="nothing is summarized here", ratio=state.ratio)
        return _of_another(state) or (Fail(because=because) if state.pruned else RenderPruned(because=because))

    return rule


def fail_on(*phases: Phase) -> Rule:
    """When a request is too large, say so, and change nothing."""
    wanted = phases or ("overflow", "rejected")

    def rule(state: State) -> Decision | None:
        if state.phase not in wanted:
            return None
        because = Because(why="the request is too large, and nothing is to be done about that", ratio=state.ratio)
        return _of_another(state) or Fail(because=because)

    return rule


def before_turns(rule: Rule) -> Rule:
    """A rule for what comes before a render, heeded only before the first request of a turn, not between calls of tools."""

    def first(state: State) -> Decision | None:
        return None if state.phase == "before_render" and state.warm else rule(state)

    return first


def once_a_turn(rule: Rule) -> Rule:
    """A rule that is heeded until a compaction has ended, with whatever outcome, since the person has spoken last, as GSV has it."""
    return lambda state: None if state.attempts.done and state.phase != "manual" else rule(state)


def least_messages(count: int, rules: Sequence[Rule], *, asked: int = 0) -> Rule:
    """The first of these rules that has something to say, in a conversation of at least `count` messages; of `asked` where somebody asks.

    What does not fit is summarized however short it is.
    """

    def guarded(state: State) -> Decision | None:
        least = asked if state.phase == "manual" else 0 if state.phase in FOREGROUND_PHASES else count
        if state.messages < least:
            why = f"the conversation has {state.messages} messages, and {least} are the least that is summarized"
            return Nothing(because=Because(why=why, ratio=state.ratio)) if state.phase == "manual" else None
        return next((decision for rule in rules if (decision := rule(state)) is not None), None)

    return guarded


def _of_another(state: State) -> Nothing | None:
    """A refusal by a model that was switched from says nothing of this one."""
    if state.refused_by is None or state.refused_by == state.model:
        return None
    return Nothing(because=Because(why=f"the refusal is of {state.refused_by}, and not of {state.model}", ratio=state.ratio))
