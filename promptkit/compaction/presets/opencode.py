"""OpenCode: when what is usable of the window is used, a quarter of it stays, and the rest is summarized behind the live request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.selection import KeepRecentTokens
from promptkit.compaction.policy.rules import compact_above, compact_on_demand, first_match, on_overflow, prune_at
from promptkit.compaction.presets.preset import Preset, split_reserve
from promptkit.compaction.presets.settings import setting
from promptkit.compaction.summarizers.defaults import make_inline_summarizer, make_fallback_factory, make_simple_summarizer

if TYPE_CHECKING:
    from promptkit.tokens.budget import ContextBudget

__all__ = ["OpenCode", "opencode"]


@attrs.frozen(kw_only=True)
class OpenCode:
    """Its settings, in tokens."""

    enabled: bool = True
    reserved: int | None = setting(None, minimum=0)
    """What is kept free beside what the model can write; None: as much again, at most 20,000."""
    preserve_recent_tokens: int | None = setting(None, minimum=0)
    """What stays; None: a quarter of what is usable, from 2,000 to 15,000."""
    prune: bool = False
    """Old tool outputs are taken out where that saves 20,000."""

    def max_tokens(self, budget: ContextBudget) -> int | None:
        """What a conversation may have."""
        if budget.window is None:
            return None
        output = min(budget.max_output_tokens or 32_000, 32_000, budget.window // 4)
        return max(1, (budget.max_input or budget.window - output) - (min(20_000, output) if self.reserved is None else self.reserved))

    def keep_recent(self, budget: ContextBudget) -> KeepRecentTokens:
        """What stays as it is."""
        usable, wanted = self.max_tokens(budget) or 60_000, self.preserve_recent_tokens
        return KeepRecentTokens(tokens=max(1, min(max(2_000, min(15_000, usable // 4)) if wanted is None else wanted, usable // 2)))


def opencode(settings: OpenCode | None = None) -> Preset:
    """The request that overflowed is said again behind the summary."""
    its = settings or OpenCode()
    rules = [compact_on_demand, on_overflow(), *([prune_at(0.0)] if its.prune else [])]
    return Preset(
        name="opencode",
        adjust_budget=split_reserve(its.max_tokens),
        policy=lambda _: first_match([*rules, compact_above(its.max_tokens, "turn_end", "before_render", inclusive=True)]),
        keep=its.keep_recent,
        summarizer=make_fallback_factory(make_inline_summarizer, make_simple_summarizer),
        prunes=its.prune,
        enabled=its.enabled,
    )
