"""The use of a context window: the size of the next request by part, and the size from which the conversation is compacted."""

from __future__ import annotations

import attrs

from promptkit.compaction import (
    Compact,
    Policy,
    PolicyState,
    StartBackground,
    UsageByPart,
    UsageReading,
)
from promptkit.compaction.policy.state import Phase
from promptkit.messages import Usage
from promptkit.reprs import describe
from promptkit.tokens import ContextBudget

AUTOMATIC_PHASES: tuple[Phase, ...] = ("before_render", "rendered", "turn_end")
"""The phases of a turn in which a policy may compact because of the size alone."""

UNKNOWN_WINDOW_TOKENS = 10_000_000
"""Up to this size a threshold is looked for where the window is unknown."""


@attrs.frozen(kw_only=True)
class ContextUsage:
    """The size of the next request, by part, and the room that the context window has for it.

    All sizes are tokens.
    """

    parts: UsageByPart
    """The local count by part: what the next request has, if nothing is compacted or pruned for
    it."""
    reading: UsageReading
    """The local count beside the provider's, from which compaction is decided."""
    messages: int
    """The number of messages of the conversation that the next request shows."""
    window: int | None = None
    """The model's context window: input and output together. None: unknown."""
    limit: int | None = None
    """The most that the request may have: the window without what is reserved for the reply. None:
    unknown."""
    threshold: int | None = None
    """The size from which the conversation is compacted next, with the preset's policy. None:
    unknown, or never automatically."""
    last: Usage | None = None
    """The provider's figures for the last reply that is shown. None: it reported none."""

    def __repr__(self) -> str:
        return describe(
            self,
            tokens=self.tokens,
            limit=self.limit,
            threshold=self.threshold,
            window=self.window,
            messages=self.messages,
        )

    @property
    def tokens(self) -> int:
        """The size to decide by: the provider's last count and what came since, but never less than the local count."""
        return max(self.reading.tokens, self.parts.total)

    @property
    def free(self) -> int | None:
        """The tokens that the next request may still grow by. None: the limit is unknown."""
        return None if self.limit is None else max(0, self.limit - self.tokens)

    @property
    def cached_share(self) -> float | None:
        """The share of the last request that the provider read from its prompt cache, from 0 to 1.

        None: unknown.
        """
        return (
            self.last.cached_tokens / self.last.input_tokens
            if self.last is not None and self.last.input_tokens
            else None
        )


DUE_SHARE = 0.9
"""From this share of the threshold on, a compaction is about to come."""


def describe_room(usage: ContextUsage) -> str | None:
    """Tell the model in a sentence or two what is left of its window; None if neither the limit nor the threshold is known.

    The figures are rounded to two digits, since they are estimates.
    """
    tokens, threshold, limit = usage.tokens, usage.threshold, usage.limit
    if threshold is None:
        return (
            None
            if limit is None
            else f"{_round(tokens)} of {_round(limit)} tokens of the context window are used."
        )
    used = f"{_round(tokens)} tokens of the context window are used"
    if tokens >= DUE_SHARE * threshold:
        return (
            f"{used}, and a compaction is due: a summary is about to replace the older messages. "
            "State what must not be lost in your next reply."
        )
    return f"{used}. {_round(threshold - tokens)} are left until a summary replaces the older messages."


def _round(tokens: int) -> str:
    step = 10 ** max(0, len(str(tokens)) - 2)
    return f"{round(tokens / step) * step:,}"


def find_threshold(policy: Policy, budget: ContextBudget, *, warm: bool) -> int | None:
    """Find the smallest size from which a policy compacts, with a binary search over its decisions.

    Args:
        policy: The policy. It compacts from one size on, and not below it.
        budget: The budget of requests.
        warm: Whether the provider's prompt cache holds the start of the request.

    Returns:
        The size in tokens; None if the policy compacts at none that the window can have.
    """

    def compacts(tokens: int) -> bool:
        states = (
            PolicyState(phase=phase, budget=budget, tokens=tokens, warm=warm, messages=tokens)
            for phase in AUTOMATIC_PHASES
        )
        return any(isinstance(policy.decide(state), Compact | StartBackground) for state in states)

    low, high = 0, budget.window or budget.limit or UNKNOWN_WINDOW_TOKENS
    if not compacts(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if compacts(middle):
            high = middle
        else:
            low = middle + 1
    return high
