"""pi: keeps a reserve of the context window free, checked between turns.

The newest messages stay, turns may be split, files are listed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

import attrs

from promptkit.compaction.planning.selection import KeepRecentTokens
from promptkit.compaction.policy.rules import (
    compact_above,
    compact_on_demand,
    first_match,
    on_overflow,
    only_before_turns,
)
from promptkit.compaction.presets.preset import Preset, limit_kept_tokens, split_reserve
from promptkit.compaction.presets.settings import setting
from promptkit.compaction.summarizers.defaults import (
    SummarizerContext,
    make_fallback_factory,
    make_simple_summarizer,
)
from promptkit.compaction.summarizers.file_lists import FileListSummarizer
from promptkit.compaction.summarizers.split_turn import SplitTurnSummarizer
from promptkit.tokens.budget import fit_reserve

if TYPE_CHECKING:
    from promptkit.tokens import ContextBudget


@attrs.frozen(kw_only=True)
class Pi:
    """The settings of the preset."""

    LEFT_ASIDE: ClassVar[tuple[str, ...]] = ("branchSummary",)

    enabled: bool = setting(default=True, names=("compaction.enabled",))
    """Whether automatic compaction is on."""
    reserve_tokens: int = setting(16_384, names=("compaction.reserveTokens",), minimum=0)
    """Tokens of the context window that are kept free."""
    keep_recent_tokens: int = setting(20_000, names=("compaction.keepRecentTokens",), minimum=1)
    """Tokens of the newest messages that stay."""


def file_list_summarizer(context: SummarizerContext) -> FileListSummarizer:
    """Make a summarizer of the conversation as text, in two parts where a turn is split.

    It lists the files that were read and changed.
    """
    summarizer = SplitTurnSummarizer(
        summarizer=make_fallback_factory(make_simple_summarizer)(context),
        tokenizer=context.tokenizer,
    )
    return FileListSummarizer(summarizer=summarizer, tokenizer=context.tokenizer)


def subtract_reserve(budget: ContextBudget, *, reserve: int) -> int | None:
    """Return the size above which the conversation is compacted, in tokens.

    Of a window smaller than the reserve, 15 % are kept free.
    """
    return None if budget.window is None else budget.window - fit_reserve(budget.window, reserve)


def limit_summary(reserve: int) -> int | None:
    """Return the most tokens of a summary: four fifths of the reserve.

    None, which is promptkit's own limit, if nothing is reserved.
    """
    return reserve * 4 // 5 or None


def pi(settings: Pi | None = None) -> Preset:
    """Return the preset.

    It compacts after a turn, before the next one, and once where the provider refuses a request.
    """
    chosen = settings or Pi()
    max_tokens = partial(subtract_reserve, reserve=chosen.reserve_tokens)
    above = compact_above(max_tokens, "turn_end", "before_render")
    return Preset(
        name="pi",
        follows="pi, badlogic/pi-mono 83378aa of 2026-03-15",
        adjust_budget=split_reserve(max_tokens),
        policy=lambda _: first_match((compact_on_demand, on_overflow(), only_before_turns(above))),
        keep=lambda budget: KeepRecentTokens(
            tokens=limit_kept_tokens(chosen.keep_recent_tokens, max_tokens(budget)), at_least=True
        ),
        split=True,
        summarizer=file_list_summarizer,
        max_summary_tokens=limit_summary(chosen.reserve_tokens),
        enabled=chosen.enabled,
    )
