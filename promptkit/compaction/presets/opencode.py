"""OpenCode: when the usable part of the context window is full, a quarter of it stays, and the live conversation summarizes the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.selection import (
    Keep,
    KeepLastTurns,
    KeepNothing,
    KeepRecentTokens,
)
from promptkit.compaction.policy.rules import (
    compact_above,
    compact_on_demand,
    first_match,
    on_overflow,
)
from promptkit.compaction.presets.preset import Preset, split_reserve
from promptkit.compaction.presets.settings import disables, setting
from promptkit.compaction.pruning.tool_outputs import ReduceToolResults
from promptkit.compaction.summarizers.defaults import (
    make_fallback_factory,
    make_inline_summarizer,
    make_simple_summarizer,
)

if TYPE_CHECKING:
    from promptkit.tokens import ContextBudget


@attrs.frozen(kw_only=True)
class OpenCode:
    """The settings of the preset."""

    enabled: bool = setting(
        default=True, names=(disables("OPENCODE_DISABLE_AUTOCOMPACT"), "compaction.auto")
    )
    """Whether automatic compaction is on."""
    reserved: int | None = setting(None, names=("compaction.reserved",), minimum=0)
    """Tokens that are kept free besides the model's output. None: as many as the output, at most
    20,000."""
    second_reserve: bool = True
    """Whether `reserved` is kept free besides the output where only the window is known. False:
    only the output, as in earlier versions."""
    preserve_recent_tokens: int | None = setting(
        None, names=("compaction.preserve_recent_tokens",), minimum=0
    )
    """Tokens of the newest messages that stay. None: a quarter of the usable tokens, from 2,000 to
    15,000."""
    tail_turns: int | None = setting(None, names=("compaction.tail_turns",))
    """Number of the newest turns of which messages stay, within these tokens. None: any number. 0
    or less: nothing stays."""
    auto_continue: bool = True
    """Whether the model is asked to go on after a compaction at the end of a turn."""
    prune: bool = setting(
        default=False, names=(disables("OPENCODE_DISABLE_PRUNE"), "compaction.prune")
    )
    """Whether old tool outputs are pruned if that saves 20,000 tokens."""

    def max_tokens(self, budget: ContextBudget) -> int | None:
        """Return the size from which the conversation is compacted, in tokens."""
        if budget.window is None:
            return None
        output = min(budget.max_output_tokens or 32_000, 32_000, budget.window // 4)
        reserved = min(20_000, output) if self.reserved is None else self.reserved
        if budget.max_input is not None:
            return max(1, budget.max_input - reserved)
        return max(1, budget.window - output - (reserved if self.second_reserve else 0))

    def keep_recent(self, budget: ContextBudget) -> Keep:
        """Return which messages stay."""
        if self.tail_turns is not None and self.tail_turns <= 0:
            return KeepNothing()
        usable, tokens = self.max_tokens(budget) or 60_000, self.preserve_recent_tokens
        if tokens is None:
            tokens = max(2_000, min(15_000, usable // 4))
        tokens = max(1, min(tokens, usable // 2))
        return (
            KeepRecentTokens(tokens=tokens)
            if self.tail_turns is None
            else KeepLastTurns(count=self.tail_turns, max_tokens=tokens)
        )


def opencode(settings: OpenCode | None = None) -> Preset:
    """Return the preset. The user request that overflowed is repeated after the summary."""
    chosen = settings or OpenCode()
    rules = [compact_on_demand, on_overflow()]
    return Preset(
        name="opencode",
        follows="OpenCode, packages/opencode of sst/opencode 31e22f6, second half of 2026",
        adjust_budget=split_reserve(chosen.max_tokens),
        policy=lambda _: first_match(
            [*rules, compact_above(chosen.max_tokens, "turn_end", "before_render", inclusive=True)]
        ),
        keep=chosen.keep_recent,
        max_summary_tokens=4_096,
        summarizer=make_fallback_factory(make_inline_summarizer, make_simple_summarizer),
        reduce=ReduceToolResults(superseded=False, warm_ratio=0.0) if chosen.prune else None,
        auto_continue=chosen.auto_continue,
        enabled=chosen.enabled,
    )
