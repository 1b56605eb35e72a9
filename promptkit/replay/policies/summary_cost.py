"""What summaries cost: what was asked of a model, or what would have been."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.summarizers.inline import InlineSummarizer
from promptkit.compaction.summarizers.prompts import SummaryInstructions
from promptkit.compaction.summarizers.quirks import find_quirks
from promptkit.compaction.summarizers.summarizer import FallbackSummarizer
from promptkit.elements.chat import UserMessage
from promptkit.rendering.renderer import render
from promptkit.replay.policies.bill import Bill
from promptkit.replay.policies.strategy import SummaryCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.compaction.planning.plan import Summary, SummaryTask
    from promptkit.compaction.presets.preset import Preset
    from promptkit.compaction.summarizers.defaults import SummarizerContext
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.messages import Message, ToolDefinition
    from promptkit.providers.model import Reply
    from promptkit.replay.policies.strategy import ReplayTerms
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["MeteredSummarizer", "asks_inline", "question_tokens"]


class MeteredSummarizer:
    """A summarizer whose summaries are noted with what they cost.

    A summary that no model wrote is noted as the model's would have been: with `live` asked behind the last request where that shows all
    that is dropped and has room for it, else for a copy of what is dropped; and as long as the summary is.
    """

    def __init__(self, summarizer: Summarizer, *, inline: bool, terms: ReplayTerms, calls: list[SummaryCall]) -> None:
        self._summarizer = summarizer
        self._inline = inline
        self._terms = terms
        self._calls = calls

    async def summarize(self, task: SummaryTask) -> Summary:
        """The summary, noted. Raises what the summarizer raises."""
        summary = await self._summarizer.summarize(task)
        usage = summary.usage
        if usage is None:
            self._calls.append(self._call(task, summary))
        else:
            bill = Bill(input_tokens=usage.input_tokens, cached_tokens=usage.cached_tokens, output_tokens=usage.output_tokens)
            self._calls.append(SummaryCall(bill=bill))
        return summary

    @cached_property
    def _question(self) -> int:
        return question_tokens(self._terms.tokenizer, self._terms.budget.model)

    def _call(self, task: SummaryTask, summary: Summary) -> SummaryCall:
        terms = self._terms
        question = self._question
        output = terms.tokenizer.count(summary.text)
        window = terms.budget.window
        room = None if window is None else window - question - task.max_tokens
        request = task.last_request
        if self._inline and request is not None and (room is None or terms.request_tokens + terms.count(request.messages) <= room):
            return SummaryCall(behind=request.messages, extra=question, output=output)
        copied = terms.request_tokens + terms.count([item.message for item in (*task.plan.dropped, *task.plan.prefix)])
        return SummaryCall(extra=question + (copied if room is None else min(copied, room)), output=output)


def asks_inline(preset: Preset, writing: SummarizerContext) -> bool:
    """Whether a preset's summaries are asked behind the live request, where a model writes them."""
    link: object = preset.summarizer(attrs.evolve(writing, model=_Nobody()))
    while not isinstance(link, InlineSummarizer):
        link = next(iter(link.summarizers), None) if isinstance(link, FallbackSummarizer) else getattr(link, "summarizer", None)
        if link is None:
            return False
    return True


class _Nobody:
    """A model that is never asked: to see what a preset would ask one with."""

    name = ""

    async def complete(self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()) -> Reply:
        raise NotImplementedError


def question_tokens(tokenizer: Tokenizer, model: str | None) -> int:
    """The tokens of the question that a live summary is asked with."""
    asked = SummaryInstructions(live=True, say_no_tools=find_quirks(model).say_no_tools)
    return render(UserMessage()[asked], tokenizer=tokenizer).tokens
