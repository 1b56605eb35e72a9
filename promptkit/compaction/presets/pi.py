"""pi: a reserve of the window, checked between turns; the newest tokens stay, turns may be cut in two, files are listed."""

from __future__ import annotations

from functools import partial

import attrs

from promptkit.compaction.planning.selection import KeepRecentTokens
from promptkit.compaction.policy.rules import compact_above, compact_on_demand, first_match, on_overflow, only_before_turns
from promptkit.compaction.presets.preset import Preset, limit_kept_tokens, split_reserve
from promptkit.compaction.presets.settings import setting
from promptkit.compaction.summarizers.defaults import SummarizerContext, make_fallback_factory, make_simple_summarizer
from promptkit.compaction.summarizers.file_lists import FileListSummarizer
from promptkit.compaction.summarizers.split_turn import SplitTurnSummarizer
from promptkit.tokens.budget import ContextBudget, fit_reserve

__all__ = ["Pi", "pi", "file_list_summarizer", "subtract_reserve"]


@attrs.frozen(kw_only=True)
class Pi:
    """Its settings, in tokens."""

    enabled: bool = True
    reserve_tokens: int = setting(16_384, minimum=0)
    keep_recent_tokens: int = setting(20_000, minimum=1)


def file_list_summarizer(writing: SummarizerContext) -> FileListSummarizer:
    """The conversation written out and summarized, in two parts where a turn is cut; the files that were read and changed behind it."""
    written = SplitTurnSummarizer(summarizer=make_fallback_factory(make_simple_summarizer)(writing), tokenizer=writing.tokenizer)
    return FileListSummarizer(summarizer=written, tokenizer=writing.tokenizer)


def subtract_reserve(budget: ContextBudget, *, reserve: int) -> int | None:
    """The most that a conversation may have; 15 % of a window that has no room for the reserve are kept free."""
    return None if budget.window is None else budget.window - fit_reserve(budget.window, reserve)


def pi(settings: Pi | None = None) -> Preset:
    """Compacts when the model is done, and before the next request of the person; once where the provider refuses a request."""
    its = settings or Pi()
    most = partial(subtract_reserve, reserve=its.reserve_tokens)
    above = compact_above(most, "turn_end", "before_render")
    return Preset(
        name="pi",
        adjust_budget=split_reserve(most),
        policy=lambda _: first_match((compact_on_demand, on_overflow(), only_before_turns(above))),
        keep=lambda budget: KeepRecentTokens(tokens=limit_kept_tokens(its.keep_recent_tokens, most(budget))),
        split=True,
        summarizer=file_list_summarizer,
        enabled=its.enabled,
    )
