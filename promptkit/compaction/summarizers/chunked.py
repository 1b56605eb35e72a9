"""A summary of a conversation that is larger than the window: chunk by chunk, each with the summary of the chunks before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from promptkit.compaction.planning.plan import Plan, Summary
from promptkit.compaction.summarizers.fallback import summarize_within_limits
from promptkit.compaction.summarizers.model_summarizers import RESULT_SHARE, SimpleSummarizer
from promptkit.compaction.summarizers.prompts import (
    SummaryOfText,
    render_summary_request,
    serialize_message,
)
from promptkit.compaction.summarizers.quirks import find_quirks
from promptkit.compaction.summarizers.sections import TEMPLATE
from promptkit.compaction.summarizers.summarizer import (
    MEMORIES,
    collect_dropped_items,
    get_previous_summary,
    sum_usage,
)
from promptkit.errors import ContextLengthExceededError, EmptyReplyError, SummaryError
from promptkit.fitting.choose import split_blocks
from promptkit.messages import Message
from promptkit.tokens.models import tokenizer_for

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from promptkit.compaction.planning.plan import SummaryTask
    from promptkit.messages import Json, Usage
    from promptkit.providers.model import Model
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.log.view import ViewItem


CHUNK_SHARE = 0.25
"""Share of the window that a chunk of the conversation may take, if there is room for it."""


@attrs.frozen(kw_only=True)
class ChunkedSummarizer:
    """Summarizes chunk by chunk, oldest first.

    Each request contains the summary so far; the last reply is the summary.

    Nothing is omitted except the middle of long tool results, at the price of one request for each
    chunk. A chunk that the model does not summarize is replaced by a note of its size. If the
    provider is not reachable, the summarizer gives up. It makes no retries.
    """

    limits_time: ClassVar[bool] = True
    """The task's time limit is that of each request."""

    model: Model
    """The summarizing model."""
    window: int
    """Context window of the model in tokens, input and output together."""
    max_chunk_share: float | None = None
    """Share of the window. A larger chunk is replaced by a note of its size, without a request.
    None: what does not fit of such a chunk is omitted from its request.

    GSV's three tiers are a `FallbackSummarizer` of one without this limit, one with 0.5, and a
    `PlaceholderSummarizer`."""
    memories: bool = False
    """Whether each answer also lists memories, as GSV's do. Together they become the fact
    `memories` of the summary."""
    tokenizer: Tokenizer | None = None
    """None: the model's tokenizer."""
    template: str | os.PathLike[str] = TEMPLATE
    """The template of the instructions."""

    async def summarize(self, task: SummaryTask) -> Summary:
        """Summarize all chunks.

        Raises:
            SummaryError: No chunk was summarized, or the summary with its notes is too large.
            ModelError: The provider is not reachable or refuses the request.
        """
        tokenizer = self.tokenizer or tokenizer_for(self.model.name)
        writer = SimpleSummarizer(
            model=self.model, window=self.window, tokenizer=tokenizer, template=self.template
        )
        task = attrs.evolve(task, memories=self.memories or task.memories)
        summary = get_previous_summary(task)
        memories: list[str] = []
        usages: list[Usage | None] = []
        failures: list[str] = []
        done = 0
        for chunk, tokens in self._split(
            task, await self._compute_chunk_limit(task, tokenizer), tokenizer
        ):
            if self.max_chunk_share is not None and tokens > self.window * self.max_chunk_share:
                failures.append(f"a chunk of {tokens:,} tokens is too large.")
                summary = _append_note(
                    summary,
                    chunk,
                    f"of about {tokens:,} tokens followed, too large to be summarized",
                )
                continue
            plan = Plan(leaf=task.plan.leaf, previous=summary, dropped=chunk)
            try:
                part = await summarize_within_limits(
                    writer, attrs.evolve(task, plan=plan, facts={}, check=None)
                )
            except (SummaryError, ContextLengthExceededError, EmptyReplyError) as error:
                failures.append(str(error))
                usages.append(getattr(error, "usage", None))
                summary = _append_note(summary, chunk, "that followed could not be summarized")
                continue
            done += 1
            usages.append(part.usage)
            summary = part.text
            memories.append(str(part.facts.get(MEMORIES, "")))
        if summary is None or not done:
            raise SummaryError(reason="every", detail="; ".join(failures), usage=sum_usage(usages))
        if tokenizer.count(summary) > task.max_tokens:
            detail = f"with its notes the summary has more than {task.max_tokens:,} tokens."
            raise SummaryError(reason="too_large", detail=detail, usage=sum_usage(usages))
        facts: Mapping[str, Json] = (
            {MEMORIES: "\n".join(filter(None, memories))} if task.memories else {}
        )
        return Summary(
            text=summary,
            mode="chunked",
            model=self.model.name,
            usage=sum_usage(usages),
            facts=facts,
        )

    async def _compute_chunk_limit(self, task: SummaryTask, tokenizer: Tokenizer) -> int:
        """Return the token limit of a chunk: its share of the window, or less if the summary so far needs the room.

        Raises SummaryError if none is left.
        """
        sample = attrs.evolve(
            collect_dropped_items(task)[0], message=Message(role="user", content=(".",))
        )  # the rest of the request is measured with it
        plan = Plan(leaf=task.plan.leaf, dropped=(sample,))
        request = SummaryOfText(
            task=attrs.evolve(task, plan=plan),
            quirks=find_quirks(self.model.name),
            max_result_tokens=1,
            template=self.template,
        )
        rendered = await render_summary_request(
            request, self.window, tokenizer=tokenizer, marks_new=True
        )
        before = max(task.max_tokens, tokenizer.count(get_previous_summary(task) or ""))
        room = self.window - rendered.tokens - rendered.reserved - before
        if room <= 0:
            detail = f"{self.window:,} tokens cannot hold the instructions and two summaries of {task.max_tokens:,} tokens."
            raise SummaryError(reason="does_not_fit", detail=detail)
        return min(max(1, int(self.window * CHUNK_SHARE)), room)

    def _split(
        self, task: SummaryTask, limit: int, tokenizer: Tokenizer
    ) -> Iterator[tuple[tuple[ViewItem, ...], int]]:
        """Yield chunks of at most `limit` tokens, each with its tokens.

        A call with its results, or a single message, may be larger.
        """
        items = collect_dropped_items(task)
        chunk: list[ViewItem] = []
        chunk_tokens = 0
        for start, end in split_blocks([item.message for item in items]):
            tokens = self._count_serialized(items[start:end], tokenizer)
            if chunk and chunk_tokens + tokens > limit:
                yield tuple(chunk), chunk_tokens
                chunk, chunk_tokens = [], 0
            chunk.extend(items[start:end])
            chunk_tokens += tokens
        if chunk:
            yield tuple(chunk), chunk_tokens

    def _count_serialized(self, items: Sequence[ViewItem], tokenizer: Tokenizer) -> int:
        """Count the tokens of a block as text."""
        result_limit = max(1, self.window // RESULT_SHARE)
        names = {call.id: call.name for item in items for call in item.message.tool_calls}
        tokens = 0
        for item in items:
            for tag, attributes, text in serialize_message(item.message, names):
                attribute_text = "".join(f' {name}="{value}"' for name, value in attributes.items())
                size = tokenizer.count(text)
                tokens += min(result_limit, size) if tag == "result" else size
                tokens += tokenizer.count(f"<{tag}{attribute_text}>\n") + tokenizer.count(
                    f"\n</{tag}>\n"
                )
        return tokens


def _append_note(summary: str | None, chunk: Sequence[ViewItem], what: str) -> str:
    note = f"[{len(chunk):,} message{'' if len(chunk) == 1 else 's'} {what}]"
    return note if summary is None else f"{summary}\n\n{note}"
