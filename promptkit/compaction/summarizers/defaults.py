"""Factories of the summarizers that presets use, and the limit for the size of a summary."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from promptkit.compaction.summarizers.extractive import ExtractiveSummarizer
from promptkit.compaction.summarizers.fallback import FallbackSummarizer
from promptkit.compaction.summarizers.model_summarizers import (
    FullSummarizer,
    InlineSummarizer,
    SimpleSummarizer,
)
from promptkit.compaction.summarizers.summarizer import Summarizer
from promptkit.providers import Model
from promptkit.tokens import ContextBudget, Tokenizer
from promptkit.tokens.models import find_model

UNLIMITED = 1 << 40
"""Context window in tokens for models whose window is unknown."""


MAX_FILL = 0.85
"""Highest expected share of the base that a request takes when its summary is started in the
background: the threshold, and what was added since."""


QUESTION_TOKENS = 600
"""Generous estimate of the tokens of the question that is put after the conversation."""


@attrs.frozen(kw_only=True)
class SummarizerContext:
    """What a summarizer factory needs to know about a conversation."""

    model: Model | None
    """The summarizing model. None: use the extractive summarizer only."""
    budget: ContextBudget
    tokenizer: Tokenizer
    answering_model: str | None = None
    """The name of the model that answers. None: the same model."""

    @property
    def has_other_model(self) -> bool:
        """Whether another model than the one that answers writes the summaries.

        No prompt cache of its own holds the conversation.
        """
        return self.model is not None and self.answering_model not in {None, self.model.name}

    @property
    def window(self) -> int | None:
        """The summarizing model's input and output together, in tokens.

        None where the window is unknown.
        """
        if self.model is not None and self.has_other_model:
            known = find_model(self.model.name)
            if known is not None:
                return known.window
        return (
            None
            if self.budget.limit is None
            else self.budget.limit + (self.budget.output_reserve or 0)
        )


def make_fallback_factory(
    *factories: Callable[[SummarizerContext, Model], Summarizer], last_resort: bool = True
) -> Callable[[SummarizerContext], Summarizer]:
    """Combine factories into a factory of a `FallbackSummarizer`.

    Args:
        factories: Factories of summarizers that need a model, in the order in which they are tried.
        last_resort: Try the extractive summarizer last. Without `factories` it is used in any case.

    Returns:
        A factory for one conversation. If the conversation has no summarizing model, it makes the
        extractive summarizer alone.

    >>> attrs.evolve(PRESETS["pi"](), summarizer=make_fallback_factory(make_simple_summarizer))
    """

    def make(context: SummarizerContext) -> Summarizer:
        if context.model is None:
            return make_extractive_summarizer(context)
        summarizers = [factory(context, context.model) for factory in factories]
        return FallbackSummarizer(
            [*summarizers, make_extractive_summarizer(context)]
            if last_resort or not summarizers
            else summarizers
        )

    return make


def make_inline_summarizer(context: SummarizerContext, model: Model) -> Summarizer:
    """Make a summarizer that asks at the end of the conversation itself."""
    return InlineSummarizer(model=model, window=context.window, tokenizer=context.tokenizer)


def make_full_summarizer(context: SummarizerContext, model: Model) -> Summarizer:
    """Make a summarizer that sends a copy of the messages."""
    return FullSummarizer(
        model=model, window=context.window or UNLIMITED, tokenizer=context.tokenizer
    )


def make_simple_summarizer(context: SummarizerContext, model: Model) -> Summarizer:
    """Make a summarizer that sends the conversation as text."""
    return SimpleSummarizer(
        model=model, window=context.window or UNLIMITED, tokenizer=context.tokenizer
    )


def make_extractive_summarizer(context: SummarizerContext) -> Summarizer:
    """Make a summarizer that needs no model."""
    return ExtractiveSummarizer(tokenizer=context.tokenizer)


make_default_summarizer = make_fallback_factory(
    make_inline_summarizer, make_full_summarizer, make_simple_summarizer
)
"""The inline summarizer first, because the prompt cache pays for it. Then a copy as messages, a
copy as text, and the extractive summarizer."""


def compute_max_summary_tokens(budget: ContextBudget) -> int:
    """Return the size limit of a summary in tokens: the budget's limit, or less where a nearly full window has no room for it.

    A larger limit would leave no room to ask for a summary at the end of the conversation if few
    tokens are reserved for replies.
    """
    if budget.limit is None or budget.base is None:
        return budget.summary_tokens
    window = budget.limit + (budget.output_reserve or 0)
    return min(
        budget.summary_tokens,
        max(budget.summary_tokens // 4, window - int(budget.base * MAX_FILL) - QUESTION_TOKENS),
    )
