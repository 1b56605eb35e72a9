"""oh-my-pi: pi with more triggers, a larger model first, and old tool outputs taken out before anything is summarized."""

from __future__ import annotations

import attrs

from promptkit.compaction.planning.selection import KeepRecentTokens
from promptkit.compaction.policy.rules import (
    compact_above,
    compact_on,
    compact_on_demand,
    compact_when_idle,
    first_match,
    on_overflow,
    promote,
    prune_at,
)
from promptkit.compaction.presets.pi import file_list_summarizer
from promptkit.compaction.presets.preset import Preset, limit_kept_tokens, split_reserve
from promptkit.compaction.presets.settings import setting
from promptkit.compaction.pruning.processors import remove_images
from promptkit.tokens.budget import ContextBudget, resolve_threshold

__all__ = ["OhMyPi", "oh_my_pi"]

SHARE = 0.15


@attrs.frozen(kw_only=True)
class OhMyPi:
    """Its settings. Figures are tokens, shares and seconds."""

    enabled: bool = True
    threshold: float | None = setting(None, threshold=True)
    """None: the window without its reserve, and without 15 % of it where those are more."""
    reserve_tokens: int = setting(16_384, minimum=0)
    keep_recent_tokens: int = setting(20_000, minimum=1)
    idle_enabled: bool = False
    idle_tokens: int = setting(200_000, minimum=1)
    idle_seconds: float = setting(300.0, minimum=0)
    promote: bool = True

    def max_tokens(self, budget: ContextBudget) -> float | None:
        """The most that a conversation may have."""
        if budget.window is None or self.threshold is not None:
            most = resolve_threshold(self.threshold, budget.window)
            return most if most is None or budget.window is None else min(max(most, 1), budget.window - 1)
        reserve = max(int(budget.window * SHARE), self.reserve_tokens)
        return budget.window - (reserve if reserve < budget.window else max(1, int(budget.window * SHARE)))


def oh_my_pi(settings: OhMyPi | None = None) -> Preset:
    """Also between calls of tools, when nothing was said for long, and where the model's text was cut off."""
    its = settings or OhMyPi()
    above = compact_above(its.max_tokens, "turn_end", "before_render")
    rules = [compact_on_demand, *([promote()] if its.promote else []), on_overflow(), compact_on("incomplete"), prune_at(0.5), above]
    return Preset(
        name="oh_my_pi",
        adjust_budget=split_reserve(its.max_tokens),
        policy=lambda _: first_match([*rules, *([compact_when_idle(its.idle_tokens, seconds=its.idle_seconds)] if its.idle_enabled else [])]),
        keep=lambda budget: KeepRecentTokens(tokens=limit_kept_tokens(its.keep_recent_tokens, its.max_tokens(budget))),
        split=True,
        summarizer=file_list_summarizer,
        processors=(remove_images(),),
        prunes=True,
        enabled=its.enabled,
    )
