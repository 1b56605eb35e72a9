"""promptkit's own preset: compaction when it pays, and VS Code's limits above that.

A conversation that is not compacted is read again with every request. After a compaction it is
short again, but the summary has to be written, and what follows it is in no prompt cache. How many
requests will follow is unknown. The rule is that of ski rental: pay for reading again until that
has cost as much as a compaction, and then compact. With `beta=1` it costs at most twice as much as
the best points in hindsight, and where a conversation grows steadily it finds them;
docs/economics.md has measurements.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import attrs

from promptkit.compaction.planning.plan import TARGET_SHARE, compute_target_tokens
from promptkit.compaction.planning.selection import Keep, KeepLastRound, KeepRecentTokens
from promptkit.compaction.policy.rules import Policy, Rule, Thresholds, default_policy, first_match
from promptkit.compaction.policy.state import PolicyState, Reason, StartBackground
from promptkit.compaction.presets.preset import Preset
from promptkit.compaction.presets.settings import setting
from promptkit.compaction.pruning.tool_outputs import ReduceToolResults
from promptkit.compaction.run.replacement import Replacement
from promptkit.tokens import ContextBudget, Price, PriceError, read_prices
from promptkit.tokens.models import describe_model

QUESTION_TOKENS = 600
"""Tokens of the question that requests a summary."""

PREFACE_TOKENS = 400
"""Tokens beside the text of a summary: its tags, the breadcrumb, and the user's earlier words."""

TAIL_SHARE = 24
"""The newest messages that stay take at most a twenty-fourth: in a small window they cost more than
they help."""

LEAST_SAVING = 1_000
"""Tokens that placeholders for old tool results must save."""


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
        return cls(
            output=price.output / unit,
            cached=(price.input if price.cached_input is None else price.cached_input) / unit,
            write=(price.input if price.cache_write is None else price.cache_write) / unit,
        )


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
    reads nothing from a cache, and for a request that its cache missed. A compaction costs the output tokens of the summary, the question,
    and the first request after it: the summary, the user's last message and what stays beside them.
    The summary has the tokens that the model reported for those of this conversation, its hidden
    reasoning included. Requests below the model's minimum for caching are not compacted.

    Args:
        rng: Returns a number from 0 to below 1. It is called once per check.
        beta: The factor. 1 is the cheapest for steady growth; with 2 or 3 more of the conversation
            is at hand.
        summary_tokens: Tokens of the summary aimed at, until the model has reported those of one.
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
        if (
            state.has_summary
            or state.compacted
            or state.pruned
            or state.attempts_exhausted(1, breaker, ignore_failed=True)
        ):
            return None
        summary = state.summary_tokens or min(
            summary_tokens, compute_target_tokens(state.budget.summary_tokens)
        )
        after = summary + PREFACE_TOKENS + state.request_tokens + beside_tokens(state.budget)
        if state.tokens <= max(
            state.fixed_tokens + after,
            describe_model(state.model).cache_minimum if state.model else 0,
        ):
            return None
        price = ratios or find_ratios(state.model or "")
        reread = state.rereading
        spent = reread.tokens * (1.0 if reread.cached is False else price.cached)
        spent += reread.missed * (1.0 - price.cached)
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


@attrs.frozen(kw_only=True)
class BreakEven:
    """The settings of the preset."""

    enabled: bool = True
    """Whether automatic compaction is on."""
    beta: float = setting(2.0, minimum=0)
    """How many times the price of a compaction reading again may cost. 1 is the cheapest; with
    more, more of the conversation is at hand."""
    tail_tokens: int = setting(4_000, minimum=0)
    """Tokens of the newest messages that stay, and at most a twenty-fourth of what a conversation may
    have. 0: the newest round stays, which is cheaper, and less of what later answers quote is at
    hand."""
    result_tokens: int = setting(2_000, minimum=0)
    """Tokens of the newest tool results that stay where the prompt cache is cold: older results are
    replaced by a placeholder then, since they would be read again at the full price."""
    names_tokens: int = setting(1_000, minimum=0)
    """The most tokens of the list of names beside the summary, and a forty-eighth of what a
    conversation may have. 0: there is none."""
    summary_tokens: int = setting(1_000, minimum=500, maximum=2_000)
    """Tokens of a summary that are aimed at."""
    output_ratio: float | None = setting(None, minimum=0)
    """The price of an output token, as a multiple of that of an input token. None: by the model's
    name."""
    cached_ratio: float | None = setting(None, minimum=0)
    """The price of an input token that is read from the prompt cache, as such a multiple. None: by
    the model's name."""
    write_ratio: float | None = setting(None, minimum=0)
    """The price of an input token that is written to the prompt cache, as such a multiple. None: by
    the model's name."""
    warm: float = setting(0.78, minimum=0, maximum=1)
    """Lowest ratio at which a background summary starts in any case, with a warm prompt cache."""
    jitter: float = setting(0.04, minimum=0, maximum=1)
    """Width of the random range above `warm`, and around `beta` as a share of it."""
    cold: float = setting(0.90, minimum=0, maximum=1)
    """Ratio at which a background summary starts in any case, with a cold prompt cache."""
    wait_seconds: float = setting(60.0, minimum=0)
    """Longest wait of a request for the background summary, and then for each summarizer that is
    asked, in seconds."""
    summary_model: str | None = None
    """The name of the model that writes summaries. None: the model that answers."""

    @property
    def ratios(self) -> PriceRatios | None:
        """The prices that are set, with the usual ones for the rest; None: those of the model."""
        known = {
            name: ratio
            for name, ratio in (
                ("output", self.output_ratio),
                ("cached", self.cached_ratio),
                ("write", self.write_ratio),
            )
            if ratio is not None
        }
        return PriceRatios(**known) if known else None

    def keep(self, budget: ContextBudget) -> Keep:
        """Return which messages stay at a compaction."""
        tokens = self.count_tail(budget)
        return KeepRecentTokens(tokens=tokens) if tokens else KeepLastRound()

    def count_tail(self, budget: ContextBudget) -> int:
        """Return the tokens of the newest messages that stay."""
        return (
            self.tail_tokens
            if budget.base is None
            else min(self.tail_tokens, budget.base // TAIL_SHARE)
        )

    def make_policy(self, rng: Callable[[], float]) -> Policy:
        """Make the policy.

        A ready summary is put in place at any size, since it was started because it pays.
        """
        return first_match(
            (
                compact_at_break_even(
                    rng=rng,
                    beta=self.beta,
                    summary_tokens=self.summary_tokens,
                    beside_tokens=self.count_beside,
                    ratios=self.ratios,
                    jitter=self.jitter,
                ),
                default_policy(
                    rng=rng,
                    thresholds=Thresholds(
                        warm=self.warm,
                        jitter=self.jitter,
                        cold=self.cold,
                        apply=0.0,
                        wait_seconds=self.wait_seconds,
                    ),
                ).decide,
            )
        )

    def count_beside(self, budget: ContextBudget) -> int:
        """Return the tokens that stay beside a summary: the newest messages, and the list of names."""
        return (
            self.count_tail(budget)
            + Replacement(names_tokens=self.names_tokens).limited_to(budget.base).names_tokens
        )


def break_even(settings: BreakEven | None = None) -> Preset:
    """Return the preset.

    It is cheaper than the default in windows above 32k, where compacting at a share of the window
    is too seldom.
    """
    chosen = settings or BreakEven()
    return Preset(
        name="break_even",
        policy=chosen.make_policy,
        keep=chosen.keep,
        replacement=Replacement(names_tokens=chosen.names_tokens),
        reduce=ReduceToolResults(
            protect_tokens=chosen.result_tokens, least_saving=LEAST_SAVING, warm_ratio=1.0
        ),
        max_summary_tokens=TARGET_SHARE * chosen.summary_tokens,
        summary_model=chosen.summary_model,
        enabled=chosen.enabled,
    )
