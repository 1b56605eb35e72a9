"""OpenCode: when what is usable of the window is used, a quarter of it stays, and the rest is summarized behind the live request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.selection import KeepRecentTokens
from promptkit.compaction.policy.rules import compact_above, first_match, manual, on_overflow, prune_at
from promptkit.compaction.presets.preset import Preset, reaching
from promptkit.compaction.presets.settings import setting
from promptkit.compaction.summarizers.defaults import chain_of, inline, simple

if TYPE_CHECKING:
    from promptkit.compaction.budget import Budget

__all__ = ["OpenCode", "opencode"]


@attrs.frozen(kw_only=True)
class OpenCode:
    """Its settings, in tokens."""

    enabled: bool = True
    reserved: int | None = setting(None, least=0)
    """What is kept free beside what the model can write; None: as much again, at most 20,000."""
    preserve_recent_tokens: int | None = setting(None, least=0)
    """What stays; None: a quarter of what is usable, from 2,000 to 15,000."""
    prune: bool = False
    """Old tool outputs are taken out where that saves 20,000."""

    def usable(self, budget: Budget) -> int | None:
        """What a conversation may have."""
        if budget.window is None:
            return None
        output = min(budget.max_output or 32_000, 32_000, budget.window // 4)
        return max(1, (budget.max_input or budget.window - output) - (min(20_000, output) if self.reserved is None else self.reserved))

    def kept(self, budget: Budget) -> KeepRecentTokens:
        """What stays as it is."""
        usable, wanted = self.usable(budget) or 60_000, self.preserve_recent_tokens
        return KeepRecentTokens(tokens=max(1, min(max(2_000, min(15_000, usable // 4)) if wanted is None else wanted, usable // 2)))


def opencode(settings: OpenCode | None = None) -> Preset:
    """The request that overflowed is said again behind the summary."""
    its = settings or OpenCode()
    rules = [manual, on_overflow(), *([prune_at(0.0)] if its.prune else [])]
    return Preset(
        name="opencode",
        figures=reaching(its.usable),
        policy=lambda _: first_match([*rules, compact_above(its.usable, "turn_end", "before_render", inclusive=True)]),
        keep=its.kept,
        summarizer=chain_of(inline, simple),
        prunes=its.prune,
        enabled=its.enabled,
    )
