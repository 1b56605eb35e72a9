"""Nothing is summarized: what does not fit is left out, oldest rounds first."""

from __future__ import annotations

from promptkit.compaction.policy.rules import first_match, manual, prune_on
from promptkit.compaction.presets.preset import Preset
from promptkit.compaction.pruning.processors import truncator

__all__ = ["truncate_only"]


def truncate_only() -> Preset:
    """The two passes of Copilot CLI's truncator, with room left so that not every request leaves out something else."""
    return Preset(name="truncate_only", policy=lambda _: first_match((manual, prune_on())), processors=(truncator(0.25),))
