"""Compaction when it pays: when reading the conversation again has cost as much as a summary of it would.

A conversation that is not compacted is read again with every request. After a compaction it is short again, but the summary has to be
written, and what follows it is not in the prompt cache. Nobody knows how many requests will follow. The rule is that of ski rental: pay for
reading again until that has cost as much as a compaction, then compact. It never costs more than twice what the best points in hindsight
would have cost, and where a conversation grows steadily it finds them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.policy.decisions import NoAction, Reason, StartBackground
from promptkit.tokens.prices import PriceError, read_prices

if TYPE_CHECKING:
    from promptkit.compaction.policy.rules import Rule
    from promptkit.compaction.policy.state import PolicyState
    from promptkit.tokens.prices import Price

__all__ = ["PriceRatios", "break_even", "ratios_for_model"]

QUESTION_TOKENS = 600
"""Tokens of the question that requests a summary."""

PREFACE_TOKENS = 400
"""Tokens beside a summary: its tags, the breadcrumb, and the user's earlier words."""


@attrs.frozen(kw_only=True)
class PriceRatios:
    """The prices of a model, relative to that of an input token which is neither read from the prompt cache nor written to it."""

    output: float = 5.0
    """An output token."""
    cached: float = 0.1
    """An input token that is read from the prompt cache."""
    write: float = 1.0
    """An input token that is written to the prompt cache."""


def ratios_from_price(price: Price) -> PriceRatios:
    """Return the ratios of a model's prices."""
    cached = price.input if price.cached_input is None else price.cached_input
    write = price.input if price.cache_write is None else price.cache_write
    return PriceRatios(output=price.output / price.input, cached=cached / price.input, write=write / price.input)


@cache
def ratios_for_model(model: str) -> PriceRatios:
    """Return the ratios of a model's prices by the packaged table; for a model without a price, those of `PriceRatios()`."""
    try:
        return ratios_from_price(read_prices().for_model(model))
    except PriceError:
        return PriceRatios()


def break_even(  # noqa: PLR0913  # the figures of the rule
    *,
    rng: Callable[[], float],
    beta: float = 1.0,
    summary_tokens: int = 1_000,
    tail_tokens: Callable[[PolicyState], int] = lambda _: 0,
    ratios: PriceRatios | None = None,
    jitter: float = 0.05,
    breaker: int = 3,
) -> Rule:
    def rule(state: PolicyState) -> StartBackground | NoAction | None:
        if state.phase != "rendered" or state.tokens is None:
            return None
        prices = ratios or ratios_for_model(state.model or "")
        spread = 1 + (rng() - 0.5) * jitter
        if not state.enabled or state.compacted or state.pruned or state.background in {"running", "ready"}:
            return None
        tail = tail_tokens(state)
        after = summary_tokens + PREFACE_TOKENS + state.request_tokens + tail
        if state.tokens - state.fixed_tokens <= after:
            return None
        price = summary_tokens * prices.output + QUESTION_TOKENS + after * prices.write
        cached = prices.cached
        spent = state.reread_tokens * cached
        if spent < beta * spread * price:
            return None
        why = state.attempts_exhausted(1, breaker, ignore_failed=True)
        if why:
            return NoAction(reason=Reason(why=why, ratio=state.ratio))
        return StartBackground(reason=Reason(why="reading the conversation again has cost as much as a summary", ratio=state.ratio))

    return rule
