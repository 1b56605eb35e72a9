"""Amp: nothing is summarized by itself. A person forks, hands off to a new conversation with a goal, or reads another one."""

from __future__ import annotations

from promptkit.compaction.policy.rules import fail_on, first_match, manual
from promptkit.compaction.presets.preset import Preset

__all__ = ["amp"]


def amp() -> Preset:
    """A request that is too large fails: `hand_off` and `fork` are what a person does then, before it comes to that."""
    return Preset(name="amp", policy=lambda _: first_match((manual, fail_on())))
