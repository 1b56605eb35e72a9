"""Nothing is done: a request that is too large fails, and says so."""

from __future__ import annotations

from promptkit.compaction.policy.rules import fail_on, first_match, manual
from promptkit.compaction.presets.preset import Preset

__all__ = ["off"]


def off() -> Preset:
    """Only what somebody asks for is summarized."""
    return Preset(name="off", policy=lambda _: first_match((manual, fail_on())))
