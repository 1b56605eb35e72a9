"""Claude Code: near the end of the context window the live conversation is summarized, and only the summary stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.selection import KeepNothing
from promptkit.compaction.policy.rules import (
    compact_above,
    compact_on_demand,
    first_match,
    on_overflow,
)
from promptkit.compaction.presets.preset import Preset, split_reserve
from promptkit.compaction.presets.settings import disables, percent, setting
from promptkit.compaction.pruning.processors import clear_results
from promptkit.compaction.summarizers.defaults import (
    make_fallback_factory,
    make_inline_summarizer,
    make_simple_summarizer,
)

if TYPE_CHECKING:
    from promptkit.tokens import ContextBudget


@attrs.frozen(kw_only=True)
class ClaudeCode:
    """The settings of the preset."""

    enabled: bool = setting(
        default=True,
        names=(disables("DISABLE_AUTO_COMPACT"), disables("DISABLE_COMPACT"), "autoCompactEnabled"),
    )
    """Whether automatic compaction is on."""
    output_tokens: int = setting(20_000, minimum=0)
    """Maximum of the tokens that are kept free for the model's output."""
    margin_tokens: int = setting(13_000, minimum=0)
    """Tokens that are kept free besides the output."""
    threshold: float | None = setting(
        None, names=(percent("CLAUDE_AUTOCOMPACT_PCT_OVERRIDE"),), minimum=0.01, maximum=1
    )
    """Share of what the output leaves of the window, from which the conversation is compacted. None:
    the margin alone."""
    keep_results: int | None = setting(None, minimum=0)
    """Number of the newest tool results that requests contain; older ones are cleared. None:
    all."""
    breaker: int = setting(3, minimum=1)
    """Number of failures in a row after which nothing is tried any more."""

    def max_tokens(self, budget: ContextBudget) -> int | None:
        """Return the size from which the conversation is compacted, in tokens: four fifths of a window too small for the reserves.

        That is about 95 % of what the output leaves: 0.93 of 180,000 tokens in a window of 200,000,
        and 0.99 of 980,000 in one of a million.
        """
        if budget.window is None:
            return None
        left = budget.window - min(
            budget.max_output_tokens or self.output_tokens, self.output_tokens
        )
        limit = left - self.margin_tokens
        if limit <= budget.window // 2:
            left = limit = budget.window * 4 // 5
        return limit if self.threshold is None else max(1, int(left * self.threshold))


def claude_code(settings: ClaudeCode | None = None) -> Preset:
    """Return the preset. The summary and what every preset carries replace all messages."""
    chosen = settings or ClaudeCode()
    above = compact_above(
        chosen.max_tokens,
        "before_render",
        inclusive=True,
        attempts=chosen.breaker,
        breaker=chosen.breaker,
    )
    return Preset(
        name="claude_code",
        follows="Claude Code, as third parties describe it in November 2026; its source is not public",
        adjust_budget=split_reserve(chosen.max_tokens),
        policy=lambda _: first_match(
            (compact_on_demand, on_overflow(attempts=chosen.breaker, breaker=chosen.breaker), above)
        ),
        keep=lambda _: KeepNothing(),
        summarizer=make_fallback_factory(make_inline_summarizer, make_simple_summarizer),
        processors=()
        if chosen.keep_results is None
        else (clear_results(chosen.keep_results, step=8),),
        enabled=chosen.enabled,
    )
