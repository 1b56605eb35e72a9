"""Record the cost of summaries: the tokens that a model was billed for, or would have been."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.summarizers.extractive import ExtractiveSummarizer
from promptkit.compaction.summarizers.fallback import FallbackSummarizer
from promptkit.lab.replay.policies.strategy import SummaryCall
from promptkit.messages import Message, Usage
from promptkit.providers.model import Reply
from promptkit.providers.openai.compact import CompactedInput
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens.prices import BilledTokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit.compaction.planning.plan import LastRequest, Summary, SummaryTask
    from promptkit.compaction.presets.preset import Preset
    from promptkit.compaction.summarizers.defaults import SummarizerContext
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.lab.replay.policies.strategy import ReplayTerms
    from promptkit.messages import ToolDefinition
    from promptkit.tokens.tokenizer import Tokenizer


def make_metered_summarizer(
    preset: Preset,
    context: SummarizerContext,
    *,
    terms: ReplayTerms,
    calls: list[SummaryCall],
    restore: Callable[[Sequence[Message]], Sequence[Message]],
) -> Summarizer:
    """Make a preset's summarizer, with a record of the cost of each of its requests in `calls`.

    Without a model, the summaries are extracted from the conversation. The preset's summarizers
    build their requests all the same, and these are counted as if a model had answered them with
    the extracted text.

    Args:
        preset: The preset.
        context: What the preset's summarizer is made of.
        terms: The settings of the conversation.
        calls: The requests for summaries.
        restore: Returns the recorded messages behind those of the last request, which are found in
            the simulated prompt cache.
    """
    if context.model is not None:
        return _BilledSummarizer(summarizer=preset.summarizer(context), calls=calls)
    meter = _Meter(tokenizer=terms.tokenizer, calls=calls, restore=restore)
    model = _CountingModel(name=terms.budget.model or "", meter=meter)
    return _SimulatedSummarizer(
        summarizer=_simulate_model(preset.summarizer(attrs.evolve(context, model=model)), model)
    )


@attrs.frozen(kw_only=True)
class _BilledSummarizer:
    """A summarizer with a real model, which reports its own figures."""

    summarizer: Summarizer
    calls: list[SummaryCall]

    async def summarize(self, task: SummaryTask) -> Summary:
        summary = await self.summarizer.summarize(task)
        if (usage := summary.usage) is not None:
            billed = BilledTokens(
                input_tokens=usage.input_tokens,
                cached_tokens=usage.cached_tokens,
                written_tokens=usage.written_tokens,
                output_tokens=usage.output_tokens,
            )
            self.calls.append(SummaryCall(billed=billed))
        return summary


@attrs.frozen(kw_only=True)
class _SimulatedSummarizer:
    """A summarizer whose models are simulated.

    They answer at once, so that no time limit applies: the same file has the same figures.
    """

    summarizer: Summarizer

    async def summarize(self, task: SummaryTask) -> Summary:
        return await self.summarizer.summarize(attrs.evolve(task, seconds=None))


@attrs.frozen(kw_only=True)
class _Meter:
    """Counts requests for summaries."""

    tokenizer: Tokenizer
    calls: list[SummaryCall]
    restore: Callable[[Sequence[Message]], Sequence[Message]]

    def record(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolDefinition],
        last_request: LastRequest | None,
        *,
        output_tokens: int,
    ) -> None:
        """Record a request. The prompt cache holds the last request, if this one begins with it."""
        sent = () if last_request is None else last_request.messages
        is_live = bool(sent) and len(messages) > len(sent) and all(map(_is_same, messages, sent))
        new = messages[len(sent) :] if is_live else messages
        tokens = sum(map(Sizer(self.tokenizer).count_message, new))
        if not is_live:
            system = next((message.text for message in messages if message.role == "system"), False)
            tokens += self.tokenizer.count_overhead(tools, system=system).tokens
        request = tuple(self.restore(sent)) if is_live else ()
        self.calls.append(
            SummaryCall(request=request, uncached_tokens=tokens, output_tokens=output_tokens)
        )


def _is_same(message: Message, other: Message) -> bool:
    return message is other


@attrs.frozen(kw_only=True)
class _CountingModel:
    """A model whose requests are counted. It answers each with the same text."""

    name: str
    meter: _Meter
    answer: str = "Done."
    last_request: LastRequest | None = None

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        """Count a request."""
        self._record(messages, tools)
        text = f"<summary>{self.answer}</summary>"
        return Reply(
            message=Message(role="assistant", content=(text,)),
            usage=Usage(input_tokens=0),
            finish="stop",
        )

    async def compact(self, messages: Sequence[Message]) -> CompactedInput:
        """Count a request for the provider's own compaction: a copy of the messages."""
        self._record(messages, ())
        return CompactedInput(
            messages=(Message(role="user", content=(self.answer,)),), usage=Usage(input_tokens=0)
        )

    def _record(self, messages: Sequence[Message], tools: Sequence[ToolDefinition]) -> None:
        self.meter.record(
            messages,
            tools,
            self.last_request,
            output_tokens=self.meter.tokenizer.count(self.answer),
        )


def _simulate_model(summarizer: Summarizer, model: _CountingModel) -> Summarizer:
    """Return a preset's summarizer with extracted texts in place of those of the model.

    Its other summarizers stay as they are.
    """
    if isinstance(summarizer, FallbackSummarizer):
        return FallbackSummarizer([_simulate_model(each, model) for each in summarizer.summarizers])
    if not attrs.has(type(summarizer)):
        return summarizer
    if getattr(summarizer, "model", None) is model:
        return _ExtractedAnswer(summarizer=summarizer, model=model)
    inner = {
        name: each
        for name in ("summarizer",)
        if (each := getattr(summarizer, name, None)) is not None
    }
    if not inner:
        return summarizer
    simulated = {name: _simulate_model(each, model) for name, each in inner.items()}
    return attrs.evolve(summarizer, **simulated)  # type: ignore[misc]  # an attrs class, as was found above


@attrs.frozen(kw_only=True)
class _ExtractedAnswer:
    """A summarizer that asks a simulated model.

    The model's answer is extracted from the messages that the summarizer is given.
    """

    summarizer: Summarizer
    model: _CountingModel

    async def summarize(self, task: SummaryTask) -> Summary:
        """Have the summarizer build and send its requests, and return the extracted summary."""
        summary = await ExtractiveSummarizer(tokenizer=self.model.meter.tokenizer).summarize(task)
        model = attrs.evolve(self.model, answer=summary.text, last_request=task.last_request)
        # The answer has the headings of another template, and what is checked is the summary that
        # is returned.
        asked = attrs.evolve(task, headings=False, check=None, report=None, observe=None)
        await attrs.evolve(self.summarizer, model=model).summarize(asked)  # type: ignore[misc]  # an attrs class: `_simulate_model` takes no other
        return summary
