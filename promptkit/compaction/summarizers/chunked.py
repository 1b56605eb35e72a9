"""The summary of what no window can hold at once: stretch by stretch, each with the summary of those before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.blocks import block_spans
from promptkit.compaction.planning.plan import Plan, Summary
from promptkit.compaction.summarizers.prompts import TEMPLATE, SummaryOfText, serialize_message, render_summary_request
from promptkit.compaction.summarizers.quirks import find_quirks
from promptkit.compaction.summarizers.simple import RESULT_SHARE, SimpleSummarizer
from promptkit.compaction.summarizers.summarizer import collect_dropped_items, get_previous_summary, sum_usage, updated_facts
from promptkit.errors import CarriedUsage, ContextLengthExceededError, EmptyReplyError, SummaryError
from promptkit.tokens.models import tokenizer_for

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from promptkit.compaction.planning.plan import SummaryTask
    from promptkit.providers.model import Model
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.view import ViewItem

__all__ = ["ChunkedSummarizer"]


@attrs.frozen(kw_only=True)
class ChunkedSummarizer:
    """Summarizes stretch by stretch, oldest first; every request brings the summary so far, and the last one's answer is the summary.

    Nothing is left out but the middle of long results, at the price of as many requests as there are stretches. A stretch of which the
    model gives no summary is named in what follows by its size; a provider that cannot be reached ends it all, and nothing is asked twice.
    """

    model: Model
    window: int
    """The most tokens of input and output together."""
    chunk_share: float = 0.25
    """Of the window: how much of the conversation one stretch may hold, if there is room for it."""
    max_chunk_share: float | None = None
    """Of the window: a stretch that is larger is named by its size, and nobody is asked for it. None: what does not fit of it is left out.

    Three tiers (GSV): a Chain of one without this, one with 0.5, and a PlaceholderSummarizer.
    """
    tokenizer: Tokenizer | None = None
    """None: the model's."""
    template: str | os.PathLike[str] = TEMPLATE

    async def summarize(self, task: SummaryTask) -> Summary:
        """The summary. Raises SummaryError if no stretch could be summarized, and what the model's provider raises."""
        tokenizer = self.tokenizer or tokenizer_for(self.model.name)
        writer = SimpleSummarizer(model=self.model, window=self.window, tokenizer=tokenizer, template=self.template)
        summary = get_previous_summary(task)
        usages: list[CarriedUsage | None] = []
        failures: list[str] = []
        done = 0
        for stretch, tokens in self._stretches(task, await self._room(task, tokenizer), tokenizer):
            if self.max_chunk_share is not None and tokens > self.window * self.max_chunk_share:
                failures.append(f"a stretch of {tokens:,} tokens is too large.")
                summary = _noted(summary, f"[{_messages(stretch)} of about {tokens:,} tokens followed, too large to be summarized]")
                continue
            plan = Plan(leaf=task.plan.leaf, previous=summary, dropped=stretch)
            try:
                part = await writer.summarize(attrs.evolve(task, plan=plan, facts={}))
            except (SummaryError, ContextLengthExceededError, EmptyReplyError) as error:
                failures.append(str(error))
                usages.append(error.usage if not isinstance(error, ContextLengthExceededError) else None)
                summary = _noted(summary, f"[{_messages(stretch)} that followed could not be summarized]")
                continue
            done += 1
            usages.append(part.usage)
            summary = part.text
        if summary is None or not done:
            raise SummaryError(reason="every", detail="; ".join(failures), usage=sum_usage(usages))
        if tokenizer.count(summary) > task.max_tokens:
            detail = f"with what could not be summarized it has more than {task.max_tokens:,} tokens."
            raise SummaryError(reason="too_large", detail=detail, usage=sum_usage(usages))
        return Summary(text=summary, mode="chunked", model=self.model.name, usage=sum_usage(usages), facts=updated_facts(task))

    async def _room(self, task: SummaryTask, tokenizer: Tokenizer) -> int:
        """The tokens that a stretch may have: less than its share where the summary so far needs them. Raises SummaryError for none."""
        first = tuple(collect_dropped_items(task)[:1])
        plan = Plan(leaf=task.plan.leaf, dropped=first)
        bare = SummaryOfText(task=attrs.evolve(task, plan=plan), quirks=find_quirks(self.model.name), max_result_tokens=1, template=self.template)
        rendered = await render_summary_request(bare, self.window, tokenizer=tokenizer, marks_new=True)
        before = max(task.max_tokens, tokenizer.count(get_previous_summary(task) or ""))
        room = self.window - rendered.tokens - rendered.reserved - before
        if room <= 0:
            detail = f"{self.window:,} tokens hold no summary of {task.max_tokens:,} twice, before and after, beside the instructions."
            raise SummaryError(reason="does_not_fit", detail=detail)
        return min(max(1, int(self.window * self.chunk_share)), room)

    def _stretches(self, task: SummaryTask, most: int, tokenizer: Tokenizer) -> Iterator[tuple[tuple[ViewItem, ...], int]]:
        """What is to be summarized in stretches of at most `most` tokens, and their tokens; a call with its results, or one message, may be more."""
        items = collect_dropped_items(task)
        stretch: list[ViewItem] = []
        filled = 0
        for start, end in block_spans([item.message for item in items]):
            tokens = self._written(items[start:end], tokenizer)
            if stretch and filled + tokens > most:
                yield tuple(stretch), filled
                stretch, filled = [], 0
            stretch.extend(items[start:end])
            filled += tokens
        if stretch:
            yield tuple(stretch), filled

    def _written(self, items: Sequence[ViewItem], tokenizer: Tokenizer) -> int:
        """What a block takes when it is written out."""
        longest = max(1, self.window // RESULT_SHARE)
        names = {call.id: call.name for item in items for call in item.message.tool_calls}
        tokens = 0
        for item in items:
            for tag, attributes, text in serialize_message(item.message, names):
                told = "".join(f' {name}="{value}"' for name, value in attributes.items())
                size = tokenizer.count(text)
                tokens += min(longest, size) if tag == "result" else size
                tokens += tokenizer.count(f"<{tag}{told}>\n") + tokenizer.count(f"\n</{tag}>\n")
        return tokens


def _noted(summary: str | None, note: str) -> str:
    return note if summary is None else f"{summary}\n\n{note}"


def _messages(stretch: Sequence[ViewItem]) -> str:
    return f"{len(stretch):,} message{'' if len(stretch) == 1 else 's'}"
