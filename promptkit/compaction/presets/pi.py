"""pi: a reserve of the window, checked between turns; the newest tokens stay, turns may be cut in two, files are listed."""

from __future__ import annotations

from functools import partial

import attrs

from promptkit.compaction.budget import Budget, default_reserve
from promptkit.compaction.planning.selection import KeepRecentTokens
from promptkit.compaction.policy.rules import before_turns, compact_above, first_match, manual, on_overflow
from promptkit.compaction.presets.preset import Preset, reaching, within
from promptkit.compaction.presets.settings import setting
from promptkit.compaction.summarizers.defaults import SummarizerContext, chain_of, simple
from promptkit.compaction.summarizers.file_lists import FileListSummarizer
from promptkit.compaction.summarizers.split_turn import SplitTurnSummarizer

__all__ = ["Pi", "pi", "with_files", "within_reserve"]


@attrs.frozen(kw_only=True)
class Pi:
    """Its settings, in tokens."""

    enabled: bool = True
    reserve_tokens: int = setting(16_384, least=0)
    keep_recent_tokens: int = setting(20_000, least=1)


def with_files(writing: SummarizerContext) -> FileListSummarizer:
    """The conversation written out and summarized, in two parts where a turn is cut; the files that were read and changed behind it."""
    written = SplitTurnSummarizer(summarizer=chain_of(simple)(writing), tokenizer=writing.tokenizer)
    return FileListSummarizer(summarizer=written, tokenizer=writing.tokenizer)


def within_reserve(budget: Budget, *, reserve: int) -> int | None:
    """The most that a conversation may have; 15 % of a window that has no room for the reserve are kept free."""
    return None if budget.window is None else budget.window - default_reserve(budget.window, reserve)


def pi(settings: Pi | None = None) -> Preset:
    """Compacts when the model is done, and before the next request of the person; once where the provider refuses a request."""
    its = settings or Pi()
    most = partial(within_reserve, reserve=its.reserve_tokens)
    above = compact_above(most, "turn_end", "before_render")
    return Preset(
        name="pi",
        figures=reaching(most),
        policy=lambda _: first_match((manual, on_overflow(), before_turns(above))),
        keep=lambda budget: KeepRecentTokens(tokens=within(its.keep_recent_tokens, most(budget))),
        split=True,
        summarizer=with_files,
        enabled=its.enabled,
    )
