"""GSV: pressure on the window decides, the newest messages stay, and one compaction in a turn must do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from promptkit.compaction.planning.selection import KeepLastMessages
from promptkit.compaction.policy.rules import compact_above, compact_on, compact_on_demand, fail_on, first_match, once_per_turn
from promptkit.compaction.presets.preset import Preset, without_safety_share
from promptkit.compaction.presets.settings import setting
from promptkit.compaction.summarizers.defaults import make_fallback_factory, make_simple_summarizer

if TYPE_CHECKING:
    from promptkit.tokens.budget import ContextBudget

__all__ = ["GSV", "gsv"]


@attrs.frozen(kw_only=True)
class GSV:
    """Its settings, in shares and messages."""

    mode: Literal["auto-compact", "fail"] = "auto-compact"
    compact_at_pressure: float = setting(0.9, minimum=0, maximum=1)
    keep_last: int = setting(80, minimum=1)
    """Messages, and the rest of the block that the cut would go through."""

    def max_tokens(self, budget: ContextBudget) -> float | None:
        """The most that a conversation may have, of what the model's longest output leaves; None: the pressure is not known."""
        if budget.window is None:
            return None
        output = budget.max_output_tokens if budget.max_output_tokens is not None and budget.max_output_tokens < budget.window else budget.output_reserve
        return round(self.compact_at_pressure * max(1, budget.window - (output or 0)), 6)


def gsv(settings: GSV | None = None) -> Preset:
    """No summary without content: where no model writes one, and the transcript's own words do not, the turn fails.

    GSV says the summary as a system message. Here the person does: some providers refuse a conversation that begins with an answer.
    """
    its = settings or GSV()
    once = (compact_above(its.max_tokens, "before_render", inclusive=True), compact_on("overflow", "rejected"))
    rules = tuple(map(once_per_turn, once)) if its.mode == "auto-compact" else ()
    return Preset(
        name="gsv",
        adjust_budget=without_safety_share,
        policy=lambda _: first_match((compact_on_demand, *rules, fail_on())),
        keep=lambda _: KeepLastMessages(count=its.keep_last),
        summarizer=make_fallback_factory(make_simple_summarizer),
    )
