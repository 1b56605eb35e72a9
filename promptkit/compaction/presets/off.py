"""No automatic compaction: a request that is too large fails."""

from __future__ import annotations

from promptkit.compaction.policy.rules import compact_on_demand, fail_on, first_match
from promptkit.compaction.presets.preset import Preset

__all__ = ["off"]


def off() -> Preset:
    """Return the preset. Only a compaction that the user asks for is done."""
    return Preset(name="off", policy=lambda _: first_match((compact_on_demand, fail_on())))
