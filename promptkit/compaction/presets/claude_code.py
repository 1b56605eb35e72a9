"""Claude Code: near the end of the window the live conversation is asked for its summary, and nothing but that goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.selection import KeepNothing
from promptkit.compaction.policy.rules import compact_above, compact_on_demand, first_match, on_overflow
from promptkit.compaction.presets.preset import Preset, split_reserve
from promptkit.compaction.presets.settings import setting
from promptkit.compaction.pruning.processors import clear_results
from promptkit.compaction.replacement import Replacement, carried_over
from promptkit.compaction.summarizers.defaults import make_inline_summarizer, make_fallback_factory, make_simple_summarizer

if TYPE_CHECKING:
    from promptkit.tokens.budget import ContextBudget

__all__ = ["ClaudeCode", "claude_code"]


@attrs.frozen(kw_only=True)
class ClaudeCode:
    """Its settings, in tokens and results."""

    enabled: bool = True
    output_tokens: int = setting(20_000, minimum=0)
    """What is kept free for the model's output, at most."""
    margin_tokens: int = setting(13_000, minimum=0)
    keep_results: int | None = setting(None, minimum=0)
    """How many tool results stay as they are, in requests; None: all of them do."""
    breaker: int = setting(3, minimum=1)
    """So many failures in a row, and nothing is tried any more."""

    def max_tokens(self, budget: ContextBudget) -> int | None:
        """The most that a conversation may have; of a window too small for these reserves, four fifths."""
        if budget.window is None:
            return None
        most = budget.window - min(budget.max_output_tokens or self.output_tokens, self.output_tokens) - self.margin_tokens
        return most if most > budget.window // 2 else budget.window * 4 // 5


def claude_code(settings: ClaudeCode | None = None) -> Preset:
    """The summary, todos and skills stand for everything; `keep_results` clears older tool results from requests."""
    its = settings or ClaudeCode()
    above = compact_above(its.max_tokens, "before_render", inclusive=True, attempts=its.breaker, breaker=its.breaker)
    return Preset(
        name="claude_code",
        adjust_budget=split_reserve(its.max_tokens),
        policy=lambda _: first_match((compact_on_demand, on_overflow(attempts=its.breaker, breaker=its.breaker), above)),
        keep=lambda _: KeepNothing(),
        replacement=Replacement(carry=carried_over),
        summarizer=make_fallback_factory(make_inline_summarizer, make_simple_summarizer),
        processors=() if its.keep_results is None else (clear_results(its.keep_results, step=8),),
        enabled=its.enabled,
    )
