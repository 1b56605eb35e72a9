"""Amp: no automatic compaction. The user forks, hands off to a new conversation with a goal, or reads another conversation."""

from __future__ import annotations

from promptkit.compaction.policy.rules import compact_on_demand, fail_on, first_match
from promptkit.compaction.presets.preset import Preset

__all__ = ["amp"]


def amp() -> Preset:
    """Return the preset. A request that is too large fails; `handoff` and `fork` are what the user does before that."""
    return Preset(name="amp", policy=lambda _: first_match((compact_on_demand, fail_on())))
