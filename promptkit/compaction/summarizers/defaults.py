"""Who writes summaries: the chains that presets are made with, and how much a summary may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.summarizers.extractive import ExtractiveSummarizer
from promptkit.compaction.summarizers.full import FullSummarizer
from promptkit.compaction.summarizers.inline import InlineSummarizer
from promptkit.compaction.summarizers.simple import SimpleSummarizer
from promptkit.compaction.summarizers.summarizer import FallbackSummarizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.providers.model import Model
    from promptkit.tokens.budget import ContextBudget
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = [
    "UNLIMITED",
    "SummarizerContext",
    "make_fallback_factory",
    "make_default_summarizer",
    "make_extractive_summarizer",
    "make_full_summarizer",
    "make_inline_summarizer",
    "compute_max_summary_tokens",
    "make_simple_summarizer",
]

UNLIMITED = 1 << 40
"""Tokens: a budget for windows of which nothing is known."""

FULL = 0.85
"""How much of the base a request takes, at most, when its summary is begun in the background: the threshold, and what came since."""

QUESTION = 600
"""Tokens of what is asked behind it, generously."""


@attrs.frozen(kw_only=True)
class SummarizerContext:
    """What a summarizer is made for."""

    model: Model | None
    """Who is asked; None: nobody, and summaries are made of the transcript's own words."""
    budget: ContextBudget
    tokenizer: Tokenizer

    @property
    def window(self) -> int | None:
        """Input and output together, in tokens; None where that is not known."""
        return None if self.budget.limit is None else self.budget.limit + (self.budget.output_reserve or 0)


def make_inline_summarizer(writing: SummarizerContext, model: Model) -> Summarizer:
    """One that asks behind the conversation itself."""
    return InlineSummarizer(model=model, window=writing.window, tokenizer=writing.tokenizer)


def make_full_summarizer(writing: SummarizerContext, model: Model) -> Summarizer:
    """One that sends a copy of the messages."""
    return FullSummarizer(model=model, window=writing.window or UNLIMITED, tokenizer=writing.tokenizer)


def make_simple_summarizer(writing: SummarizerContext, model: Model) -> Summarizer:
    """One that writes the conversation out as text."""
    return SimpleSummarizer(model=model, window=writing.window or UNLIMITED, tokenizer=writing.tokenizer)


def make_extractive_summarizer(writing: SummarizerContext) -> Summarizer:
    """One that asks nobody."""
    return ExtractiveSummarizer(tokenizer=writing.tokenizer)


def make_fallback_factory(
    *links: Callable[[SummarizerContext, Model], Summarizer], last_resort: bool = True
) -> Callable[[SummarizerContext], Summarizer]:
    """What makes a chain of these for a conversation, with the extractive summarizer behind them; without a model, that one alone."""

    def made(writing: SummarizerContext) -> Summarizer:
        if writing.model is None:
            return make_extractive_summarizer(writing)
        asked = [link(writing, writing.model) for link in links]
        return FallbackSummarizer([*asked, make_extractive_summarizer(writing)] if last_resort or not asked else asked)

    return made


make_default_summarizer = make_fallback_factory(make_inline_summarizer, make_full_summarizer, make_simple_summarizer)
"""The live conversation first, which the prompt cache pays for; then a copy as messages, one as text, and the transcript's own facts."""


def compute_max_summary_tokens(budget: ContextBudget) -> int:
    """The most that a summary may have, in tokens: as the budget says, and no more than a nearly full window has room for.

    Else no summary could be asked for behind the live conversation, where little is kept for replies.
    """
    if budget.limit is None or budget.base is None:
        return budget.summary_tokens
    window = budget.limit + (budget.output_reserve or 0)
    return min(budget.summary_tokens, max(budget.summary_tokens // 4, window - int(budget.base * FULL) - QUESTION))
