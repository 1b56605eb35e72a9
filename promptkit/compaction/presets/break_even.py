"""promptkit's own preset: compaction when reading the conversation again has cost more than a summary, and VS Code's limits above that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.plan import TARGET_SHARE
from promptkit.compaction.planning.selection import Keep, KeepLastRound, KeepRecentTokens
from promptkit.compaction.policy.break_even import PriceRatios, compact_at_break_even
from promptkit.compaction.policy.rules import Policy, Thresholds, default_policy, first_match
from promptkit.compaction.presets.preset import Preset
from promptkit.compaction.presets.settings import setting
from promptkit.compaction.run.replacement import Replacement

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit.tokens import ContextBudget


@attrs.frozen(kw_only=True)
class BreakEven:
    """The settings of the preset."""

    enabled: bool = True
    """Whether automatic compaction is on."""
    beta: float = setting(2.0, minimum=0)
    """How many times the price of a compaction reading again may cost. 1 is the cheapest; with
    more, more of the conversation is at hand."""
    tail_tokens: int = setting(0, minimum=0)
    """Tokens of the newest messages that stay. 0: the newest round stays."""
    names_tokens: int = setting(2_000, minimum=0)
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
        given = {
            "output": self.output_ratio,
            "cached": self.cached_ratio,
            "write": self.write_ratio,
        }
        known = {name: ratio for name, ratio in given.items() if ratio is not None}
        return PriceRatios(**known) if known else None

    def keep(self, budget: ContextBudget) -> Keep:
        """Return which messages stay at a compaction."""
        _ = budget
        return KeepRecentTokens(tokens=self.tail_tokens) if self.tail_tokens else KeepLastRound()

    def make_policy(self, rng: Callable[[], float]) -> Policy:
        """Make the policy.

        A ready summary is put in place at any size, since it was started because it pays.
        """
        limits = Thresholds(
            warm=self.warm,
            jitter=self.jitter,
            cold=self.cold,
            apply=0.0,
            wait_seconds=self.wait_seconds,
        )
        rule = compact_at_break_even(
            rng=rng,
            beta=self.beta,
            summary_tokens=self.summary_tokens,
            beside_tokens=self.count_beside,
            ratios=self.ratios,
            jitter=self.jitter,
        )
        return first_match((rule, default_policy(rng=rng, thresholds=limits).decide))

    def count_beside(self, budget: ContextBudget) -> int:
        """Return the tokens that stay beside a summary: the newest messages, and the list of names."""
        return (
            self.tail_tokens
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
        max_summary_tokens=TARGET_SHARE * chosen.summary_tokens,
        summary_model=chosen.summary_model,
        enabled=chosen.enabled,
    )
