"""GSV as of August 2026: compacts at a share of the context window, at most once per turn.

The newest messages stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from promptkit.compaction.planning.selection import KeepLastMessages
from promptkit.compaction.policy.rules import (
    compact_above,
    compact_on,
    compact_on_demand,
    fail_on,
    first_match,
    once_per_turn,
)
from promptkit.compaction.presets.preset import Preset, without_safety_share
from promptkit.compaction.presets.settings import setting
from promptkit.compaction.summarizers.defaults import make_fallback_factory, make_simple_summarizer

if TYPE_CHECKING:
    from promptkit.tokens import ContextBudget


@attrs.frozen(kw_only=True)
class GSVProcess:
    """The settings of the preset."""

    mode: Literal["auto-compact", "fail"] = setting("auto-compact", names=("overflow",))
    """The reaction at the threshold: the conversation is compacted. `fail`: a request that is too
    large fails."""
    compact_at_pressure: float = setting(0.9, names=("compactAtPressure",), minimum=0, maximum=1)
    """Share of the context window, without the model's longest output, at which the conversation is
    compacted."""
    keep_last: int = setting(80, names=("keepLast",), minimum=1)
    """Number of messages that stay, and the rest of a block that the cut would split."""

    def max_tokens(self, budget: ContextBudget) -> float | None:
        """Return the size from which the conversation is compacted, in tokens.

        None: the window is unknown.
        """
        if budget.window is None:
            return None
        output = (
            budget.max_output_tokens
            if budget.max_output_tokens is not None and budget.max_output_tokens < budget.window
            else budget.output_reserve
        )
        return round(self.compact_at_pressure * max(1, budget.window - (output or 0)), 6)


def gsv_process(settings: GSVProcess | None = None) -> Preset:
    """Return the preset. If no summary can be made, the turn fails.

    GSV puts the summary into a system message. Here it is a user message, as some providers refuse
    a conversation that begins with a reply.
    """
    chosen = settings or GSVProcess()
    once = (
        compact_above(chosen.max_tokens, "before_render", inclusive=True),
        compact_on("overflow", "rejected"),
    )
    rules = tuple(map(once_per_turn, once)) if chosen.mode == "auto-compact" else ()
    return Preset(
        name="gsv_process",
        follows="GSV, deathbyknowledge/gsv fa39786 of 2026-08-04",
        adjust_budget=without_safety_share,
        policy=lambda _: first_match((compact_on_demand, *rules, fail_on())),
        keep=lambda _: KeepLastMessages(count=chosen.keep_last),
        max_summary_tokens=768,
        summarizer=make_fallback_factory(make_simple_summarizer),
    )
