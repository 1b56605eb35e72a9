"""Presets that never summarize on their own: a request that is too large fails, or loses its oldest rounds."""

from __future__ import annotations

from promptkit.compaction.policy.rules import (
    compact_on_demand,
    fail_on,
    first_match,
    render_pruned_on,
)
from promptkit.compaction.presets.preset import Preset
from promptkit.compaction.pruning.processors import truncate_history


def off() -> Preset:
    """Return the preset without automatic compaction: only a compaction that the user asks for is done."""
    return Preset(name="off", policy=lambda _: first_match((compact_on_demand, fail_on())))


def amp() -> Preset:
    """Return Amp's preset.

    A request that is too large fails; `handoff` and `fork` are what the user does before that.
    """
    follows = "Amp, as described in November 2026; the version is not known"
    return Preset(
        name="amp", follows=follows, policy=lambda _: first_match((compact_on_demand, fail_on()))
    )


def truncate_only() -> Preset:
    """Return the preset: the oldest messages that do not fit are dropped, half of the limit at once, so that the prompt cache holds longer."""
    return Preset(
        name="truncate_only",
        policy=lambda _: first_match((compact_on_demand, render_pruned_on())),
        processors=(truncate_history(0.5),),
    )
