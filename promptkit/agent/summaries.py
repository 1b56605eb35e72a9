"""Who writes a session's summaries, unless it is told otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.compaction.extractive import ExtractiveSummarizer
from promptkit.compaction.full import FullSummarizer
from promptkit.compaction.live import LiveSummarizer
from promptkit.compaction.simple import SimpleSummarizer
from promptkit.compaction.summarizer import Chain

if TYPE_CHECKING:
    from promptkit.compaction.budget import Budget
    from promptkit.compaction.summarizer import Summarizer
    from promptkit.providers.model import Model
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["UNLIMITED", "default_summarizer", "most_summary_tokens"]

UNLIMITED = 1 << 40
"""Tokens: a budget for windows of which nothing is known."""

FULL = 0.85
"""How much of the base a request takes, at most, when its summary is begun in the background: the threshold, and what came since."""

QUESTION = 600
"""Tokens of what is asked behind it, generously."""


def most_summary_tokens(budget: Budget) -> int:
    """The most that a summary may have, in tokens: as the budget says, and no more than a nearly full window has room for.

    Else no summary could be asked for behind the live conversation, where little is kept for replies.
    """
    window = _window(budget)
    if window is None or budget.base is None:
        return budget.summary_tokens
    return min(budget.summary_tokens, max(budget.summary_tokens // 4, window - int(budget.base * FULL) - QUESTION))


def default_summarizer(model: Model, budget: Budget, tokenizer: Tokenizer) -> Summarizer:
    """The live conversation first, which the prompt cache pays for; then a copy as messages, one as text, and the transcript's own facts."""
    window = _window(budget)
    return Chain(
        [
            LiveSummarizer(model=model, window=window, tokenizer=tokenizer),
            FullSummarizer(model=model, window=window or UNLIMITED, tokenizer=tokenizer),
            SimpleSummarizer(model=model, window=window or UNLIMITED, tokenizer=tokenizer),
            ExtractiveSummarizer(tokenizer=tokenizer),
        ]
    )


def _window(budget: Budget) -> int | None:
    return None if budget.limit is None else budget.limit + (budget.reply or 0)
