"""Claude Code: near the end of the window the live conversation is asked for its summary, and nothing but that goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.selection import KeepNothing
from promptkit.compaction.policy.rules import compact_above, first_match, manual, on_overflow
from promptkit.compaction.presets.preset import Preset, reaching
from promptkit.compaction.presets.settings import setting
from promptkit.compaction.pruning.processors import clear_results
from promptkit.compaction.replacement import Replacement, carried_over
from promptkit.compaction.summarizers.defaults import chain_of, inline, simple

if TYPE_CHECKING:
    from promptkit.compaction.budget import Budget

__all__ = ["ClaudeCode", "claude_code"]


@attrs.frozen(kw_only=True)
class ClaudeCode:
    """Its settings, in tokens and results."""

    enabled: bool = True
    output_tokens: int = setting(20_000, least=0)
    """What is kept free for the model's output, at most."""
    margin_tokens: int = setting(13_000, least=0)
    keep_results: int | None = setting(None, least=0)
    """How many tool results stay as they are, in requests; None: all of them do."""
    breaker: int = setting(3, least=1)
    """So many failures in a row, and nothing is tried any more."""

    def most(self, budget: Budget) -> int | None:
        """The most that a conversation may have; of a window too small for these reserves, four fifths."""
        if budget.window is None:
            return None
        most = budget.window - min(budget.max_output or self.output_tokens, self.output_tokens) - self.margin_tokens
        return most if most > budget.window // 2 else budget.window * 4 // 5


def claude_code(settings: ClaudeCode | None = None) -> Preset:
    """The summary, todos and skills stand for everything; `keep_results` clears older tool results from requests."""
    its = settings or ClaudeCode()
    above = compact_above(its.most, "before_render", inclusive=True, attempts=its.breaker, breaker=its.breaker)
    return Preset(
        name="claude_code",
        figures=reaching(its.most),
        policy=lambda _: first_match((manual, on_overflow(attempts=its.breaker, breaker=its.breaker), above)),
        keep=lambda _: KeepNothing(),
        replacement=Replacement(carry=carried_over),
        summarizer=chain_of(inline, simple),
        processors=() if its.keep_results is None else (clear_results(its.keep_results, step=8),),
        enabled=its.enabled,
    )
