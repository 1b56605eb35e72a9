"""No summaries: what does not fit is dropped, the oldest rounds first."""

from __future__ import annotations

from promptkit.compaction.policy.rules import compact_on_demand, first_match, render_pruned_on
from promptkit.compaction.presets.preset import Preset
from promptkit.compaction.pruning.processors import truncate_history

__all__ = ["truncate_only"]


def truncate_only() -> Preset:
    """Return the preset: Copilot CLI's truncator, with a quarter of the limit left free so that the next requests drop the same messages."""
    return Preset(
        name="truncate_only", policy=lambda _: first_match((compact_on_demand, render_pruned_on())), processors=(truncate_history(0.25),)
    )
