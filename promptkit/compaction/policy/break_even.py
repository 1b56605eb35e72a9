"""Compaction when it pays: when reading the conversation again has cost as much as a compaction would.

A conversation that is not compacted is read again with every request. After a compaction it is
short again, but the summary has to be written, and what follows it is in no prompt cache. How many
requests will follow is unknown. The rule is that of ski rental: pay for reading again until that
has cost as much as a compaction, and then compact. With `beta=1` it costs at most twice as much as
the best points in hindsight, and where a conversation grows steadily it finds them;
docs/economics.md has measurements.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.plan import compute_target_tokens
from promptkit.compaction.policy.decisions import Reason, StartBackground
from promptkit.tokens import Price, PriceError, read_prices

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit.compaction.policy.rules import Rule
    from promptkit.compaction.policy.state import PolicyState
    from promptkit.tokens import ContextBudget

QUESTION_TOKENS = 600
"""Tokens of the question that requests a summary."""

PREFACE_TOKENS = 400
"""Tokens beside the text of a summary: its tags, the breadcrumb, and the user's earlier words."""


@attrs.frozen(kw_only=True)
class PriceRatios:
    """The prices of a model, as multiples of the price of an input token that no prompt cache holds.

    The defaults suit most models.
    """

    output: float = 5.0
    """An output token."""
    cached: float = 0.1
    """An input token that is read from the prompt cache."""
    write: float = 1.0
    """An input token that is written to the prompt cache."""

    @classmethod
    def from_price(cls, price: Price) -> PriceRatios:
        """Compute the ratios of a model's prices.

        A price that is not known is that of input; input that costs nothing counts as 1.
        """
        unit = price.input or 1.0
        cached = price.input if price.cached_input is None else price.cached_input
        write = price.input if price.cache_write is None else price.cache_write
        return cls(output=price.output / unit, cached=cached / unit, write=write / unit)


@cache
def find_ratios(model: str) -> PriceRatios:
    """Return the ratios of a model's prices in the packaged table, or `PriceRatios()` for a model that it does not have."""
    try:
        return PriceRatios.from_price(read_prices().for_model(model))
    except PriceError:
        return PriceRatios()


def compact_at_break_even(  # noqa: PLR0913  # the figures of the rule
    *,
    rng: Callable[[], float],
    beta: float = 1.0,
    summary_tokens: int = 1_000,
    beside_tokens: Callable[[ContextBudget], int] = lambda _: 0,
    ratios: PriceRatios | None = None,
    jitter: float = 0.05,
    breaker: int = 3,
) -> Rule:
    """Make a rule for after a reply: start a background summary when reading again has cost `beta` times as much as a compaction.

    Reading again costs, for each request since the last compaction, the cached price of the tokens
    by which it was larger than the first of them; the full price where the provider reports that it
    reads nothing from a cache. A compaction costs the output tokens of the summary, the question,
    and the first request after it: the summary, the user's last message and what stays beside them.

    Args:
        rng: Returns a number from 0 to below 1. It is called once per check.
        beta: The factor. 1 is the cheapest for steady growth; with 2 or 3 more of the conversation
            is at hand.
        summary_tokens: Tokens of the summary aimed at.
        beside_tokens: Returns the tokens that stay beside the summary, such as the newest messages.
        ratios: The prices of the model. None: those in the packaged table, by the model's name.
        jitter: Width of the random range around `beta`, as a share of it, so that not all
            conversations of a program compact together.
        breaker: Consecutive attempts without progress after which no summary is started.

    Returns:
        The rule. Where a compaction does not pay it decides nothing, so that a rule after it can
        limit the size of requests.
    """

    def rule(state: PolicyState) -> StartBackground | None:
        if state.phase != "rendered" or state.tokens is None:
            return None
        factor = beta * (1 + (rng() - 0.5) * jitter)
        busy = state.background in {"running", "ready"} or state.compacted or state.pruned
        if busy or state.attempts_exhausted(1, breaker, ignore_failed=True):
            return None
        summary = min(summary_tokens, compute_target_tokens(state.budget.summary_tokens))
        after = summary + PREFACE_TOKENS + state.request_tokens + beside_tokens(state.budget)
        if state.tokens <= state.fixed_tokens + after:
            return None
        price = ratios or find_ratios(state.model or "")
        spent = state.rereading.tokens * (1.0 if state.rereading.cached is False else price.cached)
        if spent < factor * (summary * price.output + QUESTION_TOKENS + after * price.write):
            return None
        return StartBackground(
            reason=Reason(
                why="reading again has cost as much as a summary",
                ratio=state.ratio,
                warm=state.warm,
            )
        )

    return rule
