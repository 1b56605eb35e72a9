"""GSV: pressure on the window decides, the newest messages stay, and one compaction in a turn must do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from promptkit.compaction.planning.selection import KeepLastMessages
from promptkit.compaction.policy.rules import compact_above, compact_on, fail_on, first_match, manual, once_a_turn
from promptkit.compaction.presets.preset import Preset, exact
from promptkit.compaction.presets.settings import setting
from promptkit.compaction.summarizers.defaults import chain_of, simple

if TYPE_CHECKING:
    from promptkit.compaction.budget import Budget

__all__ = ["GSV", "gsv"]


@attrs.frozen(kw_only=True)
class GSV:
    """Its settings, in shares and messages."""

    mode: Literal["auto-compact", "fail"] = "auto-compact"
    compact_at_pressure: float = setting(0.9, least=0, most=1)
    keep_last: int = setting(80, least=1)
    """Messages, and the rest of the block that the cut would go through."""

    def most(self, budget: Budget) -> float | None:
        """The most that a conversation may have, of what the model's longest output leaves; None: the pressure is not known."""
        if budget.window is None:
            return None
        output = budget.max_output if budget.max_output is not None and budget.max_output < budget.window else budget.reply
        return round(self.compact_at_pressure * max(1, budget.window - (output or 0)), 6)


def gsv(settings: GSV | None = None) -> Preset:
    """No summary without content: where no model writes one, and the transcript's own words do not, the turn fails.

    GSV says the summary as a system message. Here the person does: some providers refuse a conversation that begins with an answer.
    """
    its = settings or GSV()
    once = (compact_above(its.most, "before_render", inclusive=True), compact_on("overflow", "rejected"))
    rules = tuple(map(once_a_turn, once)) if its.mode == "auto-compact" else ()
    return Preset(
        name="gsv",
        figures=exact,
        policy=lambda _: first_match((manual, *rules, fail_on())),
        keep=lambda _: KeepLastMessages(count=its.keep_last),
        summarizer=chain_of(simple),
    )
