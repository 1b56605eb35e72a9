"""oh-my-pi: pi with more triggers, a larger model first, and old tool outputs taken out before anything is summarized."""

from __future__ import annotations

import attrs

from promptkit.compaction.budget import Budget, resolve_threshold
from promptkit.compaction.planning.selection import KeepRecentTokens
from promptkit.compaction.policy.rules import compact_above, compact_on, first_match, idle_at, manual, on_overflow, promote, prune_at
from promptkit.compaction.presets.pi import with_files
from promptkit.compaction.presets.preset import Preset, reaching, within
from promptkit.compaction.presets.settings import setting
from promptkit.compaction.pruning.processors import without_images

__all__ = ["OhMyPi", "oh_my_pi"]

SHARE = 0.15


@attrs.frozen(kw_only=True)
class OhMyPi:
    """Its settings. Figures are tokens, shares and seconds."""

    enabled: bool = True
    threshold: float | None = setting(None, threshold=True)
    """None: the window without its reserve, and without 15 % of it where those are more."""
    reserve_tokens: int = setting(16_384, least=0)
    keep_recent_tokens: int = setting(20_000, least=1)
    idle_enabled: bool = False
    idle_tokens: int = setting(200_000, least=1)
    idle_seconds: float = setting(300.0, least=0)
    promote: bool = True

    def most(self, budget: Budget) -> float | None:
        """The most that a conversation may have."""
        if budget.window is None or self.threshold is not None:
            most = resolve_threshold(self.threshold, budget.window)
            return most if most is None or budget.window is None else min(max(most, 1), budget.window - 1)
        reserve = max(int(budget.window * SHARE), self.reserve_tokens)
        return budget.window - (reserve if reserve < budget.window else max(1, int(budget.window * SHARE)))


def oh_my_pi(settings: OhMyPi | None = None) -> Preset:
    """Also between calls of tools, when nothing was said for long, and where the model's text was cut off."""
    its = settings or OhMyPi()
    above = compact_above(its.most, "turn_end", "before_render")
    rules = [manual, *([promote()] if its.promote else []), on_overflow(), compact_on("incomplete"), prune_at(0.5), above]
    return Preset(
        name="oh_my_pi",
        figures=reaching(its.most),
        policy=lambda _: first_match([*rules, *([idle_at(its.idle_tokens, seconds=its.idle_seconds)] if its.idle_enabled else [])]),
        keep=lambda budget: KeepRecentTokens(tokens=within(its.keep_recent_tokens, its.most(budget))),
        split=True,
        summarizer=with_files,
        processors=(without_images(),),
        prunes=True,
        enabled=its.enabled,
    )
