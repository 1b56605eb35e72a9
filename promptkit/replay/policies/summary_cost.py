"""Record the cost of summaries: the tokens that a model was billed for, or would have been."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.summarizers.fallback import FallbackSummarizer
from promptkit.compaction.summarizers.inline import InlineSummarizer
from promptkit.compaction.summarizers.prompts import SummaryInstructions
from promptkit.compaction.summarizers.quirks import find_quirks
from promptkit.elements.chat import UserMessage
from promptkit.rendering.renderer import render
from promptkit.replay.policies.strategy import SummaryCall
from promptkit.tokens.prices import BilledTokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit.compaction.planning.plan import Summary, SummaryTask
    from promptkit.compaction.presets.preset import Preset
    from promptkit.compaction.summarizers.defaults import SummarizerContext
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.messages import Message, ToolDefinition
    from promptkit.providers.model import Reply
    from promptkit.replay.policies.strategy import ReplayTerms
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["MeteredSummarizer", "asks_inline", "count_question"]


class MeteredSummarizer:
    """A summarizer that records the cost of each summary in `calls`.

    A summary that no model wrote is recorded as if one had written it, with the same length. With `inline`, the model is asked at the end of
    the last request, if that request leaves room for the summary. Otherwise the model gets a copy of the dropped messages.
    """

    def __init__(
        self,
        summarizer: Summarizer,
        *,
        inline: bool,
        terms: ReplayTerms,
        calls: list[SummaryCall],
        restore: Callable[[Sequence[Message]], Sequence[Message]],
    ) -> None:
        """Record the calls of a summarizer. `restore` returns the recorded messages behind those of the last request."""
        self._summarizer = summarizer
        self._restore = restore
        self._inline = inline
        self._terms = terms
        self._calls = calls

    async def summarize(self, task: SummaryTask) -> Summary:
        """Summarize, and record the cost. Raises what the summarizer raises."""
        summary = await self._summarizer.summarize(task)
        usage = summary.usage
        if usage is None:
            self._calls.append(self._estimate_call(task, summary))
        else:
            billed = BilledTokens(
                input_tokens=usage.input_tokens,
                cached_tokens=usage.cached_tokens,
                written_tokens=usage.written_tokens,
                output_tokens=usage.output_tokens,
            )
            self._calls.append(SummaryCall(billed=billed))
        return summary

    @cached_property
    def _question_tokens(self) -> int:
        return count_question(self._terms.tokenizer, self._terms.budget.model)

    def _estimate_call(self, task: SummaryTask, summary: Summary) -> SummaryCall:
        terms = self._terms
        question = self._question_tokens
        output = terms.tokenizer.count(summary.text)
        window = terms.budget.window
        room = None if window is None else window - question - task.max_tokens
        request = () if task.last_request is None else tuple(self._restore(task.last_request.messages))
        if self._inline and task.last_request is not None and (room is None or terms.request_tokens + terms.count(request) <= room):
            return SummaryCall(request=request, uncached_tokens=question, output_tokens=output)
        copied = terms.request_tokens + terms.count([item.message for item in (*task.plan.dropped, *task.plan.prefix)])
        return SummaryCall(uncached_tokens=question + (copied if room is None else min(copied, room)), output_tokens=output)


def asks_inline(preset: Preset, context: SummarizerContext) -> bool:
    """Return whether a preset's summaries are requested at the end of the last request, when a model writes them."""
    summarizer: object = preset.summarizer(attrs.evolve(context, model=_UncalledModel()))
    while not isinstance(summarizer, InlineSummarizer):
        if isinstance(summarizer, FallbackSummarizer):
            summarizer = next(iter(summarizer.summarizers), None)
        else:
            summarizer = getattr(summarizer, "summarizer", None)
        if summarizer is None:
            return False
    return True


class _UncalledModel:
    """A model that is never called. It makes a preset return its summarizer for a model."""

    name = ""

    async def complete(self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()) -> Reply:
        raise NotImplementedError


def count_question(tokenizer: Tokenizer, model: str | None) -> int:
    """Count the tokens of the instructions that request an inline summary."""
    instructions = SummaryInstructions(live=True, say_no_tools=find_quirks(model).say_no_tools)
    return render(UserMessage()[instructions], tokenizer=tokenizer).tokens
