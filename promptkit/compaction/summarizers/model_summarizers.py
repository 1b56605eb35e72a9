"""Summaries that a model writes: asked for at the end of the conversation, over a copy of its messages, over the conversation as text, chunk by chunk, or in two parts for a turn that is cut."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

import attrs

from promptkit.compaction.planning.blocks import is_summary
from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.planning.plan import Plan, Summary, SummaryTask
from promptkit.compaction.planning.worker import run_beside
from promptkit.compaction.summarizers.fallback import summarize_within_limits
from promptkit.compaction.summarizers.prompts import (
    COMPLAINT_TOKENS,
    SummaryOfMessages,
    SummaryOfText,
    count_missed,
    render_summary_request,
    write_complaint,
    write_instructions,
    write_newest,
)
from promptkit.compaction.summarizers.quirks import find_quirks
from promptkit.compaction.summarizers.summarizer import (
    PARTIAL,
    TEMPLATE,
    Summarizer,
    collect_dropped_items,
    collect_dropped_messages,
    find_sections,
    get_previous_summary,
    limit_output,
    sum_usage,
    summary_from_reply,
)
from promptkit.elements import UserMessage
from promptkit.elements.element import Child
from promptkit.errors import (
    ContextLengthExceededError,
    EmptyReplyError,
    ModelRequestError,
    SummaryError,
)
from promptkit.fitting.choose import split_blocks
from promptkit.messages import Message, ToolDefinition, Usage
from promptkit.providers import Model, Reply, with_options
from promptkit.rendering import Rendered, render
from promptkit.rendering.expand.sizing import Sizer
from promptkit.sizes import read_tokens
from promptkit.tokens import Tokenizer, tokenizer_for
from promptkit.transcript import ViewItem, redact_message
from promptkit.wire.parts import begin_with_user

SAFETY = 0.9
"""Share of what tool definitions leave that messages may take: tool definitions are counted less
reliably than text."""

ROUND_SHARE = 2
"""In a copy of the messages, the tool results of one round may take half of the window."""

RESULT_SHARE = 8
"""In the conversation as text, a tool result may take an eighth of the window: its first 40 % and
its last 60 %."""

CHUNK_SHARE = 0.25
"""Share of the window that a chunk of the conversation may take, if there is room for it."""


@attrs.frozen(kw_only=True)
class InlineSummarizer:
    """Asks for the summary at the end of the conversation itself, in the same request format and with the same tools.

    Tools are offered but must not be called. Leaving them out, or forbidding them by an option,
    would invalidate the provider's prompt cache. Messages that were added since the last request
    and are to be summarized stand between that request and the question. Source: VS Code's
    background summaries.
    """

    model: Model
    """The conversation's model, whose prompt cache holds the last request."""
    window: int | None = attrs.field(default=None, converter=attrs.converters.optional(read_tokens))
    """Context window of the model in tokens, input and output together. None if it is unknown."""
    tokenizer: Tokenizer | None = None
    """None: the model's tokenizer."""
    template: str | os.PathLike[str] = TEMPLATE
    """The template of the instructions."""

    async def summarize(self, task: SummaryTask) -> Summary:
        """Send the last request again, with the question after it.

        Raises:
            SummaryError: No request was sent yet, the question and the summary do not fit after the
                conversation, or the reply is not a summary.
            ModelError: The request failed.
        """
        dropped = collect_dropped_messages(task)
        if task.last_request is None:
            raise SummaryError(
                reason="no_request",
                detail="no request was sent yet that the question could follow.",
            )
        tokenizer = self.tokenizer or tokenizer_for(self.model.name)
        sent, tools = task.last_request.messages, task.last_request.tools
        # The plan's messages are redacted, so the request's messages must be redacted to be
        # compared with them.
        redacted = (
            sent
            if task.redactor is None
            else [redact_message(message, task.redactor) for message in sent]
        )
        added, question = _messages_after(redacted, dropped), await self._ask(task, tokenizer)
        messages = (*sent, *added, question, *write_complaint(task, tokenizer))
        room = None
        if self.window is not None:
            system = next((message.text for message in messages if message.role == "system"), False)
            taken = await run_beside(task.plan.dropped, _count_messages, messages, tokenizer)
            taken += tokenizer.count_overhead(tools, system=system).tokens
            room = self.window - taken
            if task.max_tokens > room:
                raise SummaryError(
                    reason="does_not_fit",
                    detail=f"the conversation, the question and the summary need {taken + task.max_tokens:,} tokens; the window has {self.window:,}.",
                )
        model = with_options(limit_output(self.model, task, room=room), cache_messages=len(sent))
        return summary_from_reply(
            await model.complete(messages, tools=tools),
            task,
            mode="live",
            model=self.model.name,
            tokenizer=tokenizer,
            require_tags=True,
            sections=find_sections(self.template),
        )

    async def _ask(self, task: SummaryTask, tokenizer: Tokenizer) -> Message:
        """Return the question, a user message."""
        question = write_instructions(
            task,
            self.template,
            say_no_tools=find_quirks(self.model.name).say_no_tools,
            live=True,
        )
        rendered = await run_beside(
            task.plan.dropped, render, UserMessage()[question], tokenizer=tokenizer
        )
        (message,) = rendered.messages
        return message


def _count_messages(messages: Iterable[Message], tokenizer: Tokenizer) -> int:
    return sum(map(Sizer(tokenizer).count_message, messages))


def _messages_after(sent: Sequence[Message], dropped: Sequence[Message]) -> Sequence[Message]:
    """Return the dropped messages after a request, from the model's reply on.

    Returns nothing if none of the dropped messages was in the request, since a prompt may reword
    them.
    """
    calls = {call.id for message in sent for call in message.tool_calls}
    texts = Counter((message.role, message.text) for message in sent if not message.tool_calls)
    last: int | None = None
    for at, message in enumerate(dropped):
        key = (message.role, message.text)
        if any(call.id in calls for call in message.tool_calls) or (
            not message.tool_calls and texts[key] > 0
        ):
            last = at
            texts[key] -= 1
    after = () if last is None else dropped[last + 1 :]
    first = next(
        (at for at, message in enumerate(after) if message.role == "assistant"), len(after)
    )
    return after[first:]


@attrs.frozen(kw_only=True)
class _CopySummarizer:
    """A summarizer whose request has a copy of the conversation."""

    model: Model
    """The summarizing model."""
    window: int = attrs.field(converter=read_tokens)
    """Context window of the model in tokens, input and output together."""
    tokenizer: Tokenizer | None = None
    """None: the model's tokenizer."""
    template: str | os.PathLike[str] = TEMPLATE
    """The template of the instructions."""
    prompt: Callable[[SummaryTask], Child] | None = None
    """Makes another prompt than promptkit's own."""

    async def _prepare(
        self, own: Child, task: SummaryTask, tools: Sequence[ToolDefinition] = ()
    ) -> tuple[Rendered, list[Message], Model]:
        """Return the request with the prompt `own`, or with the one that the program makes, the complaint that follows it, and the model with its limit.

        A request whose reply was rejected is sent again as it was.
        """
        tokenizer = self.tokenizer or tokenizer_for(self.model.name)
        rendered = task.asked.find(self, task)
        if rendered is None:
            tool_tokens = tokenizer.count_overhead(tools, system=True).tokens if tools else 0
            budget = (
                tool_tokens + int((self.window - tool_tokens) * SAFETY) if tools else self.window
            )
            if self.prompt is not None:  # promptkit's own prompts leave room for a complaint
                budget = max(1, budget - COMPLAINT_TOKENS)
            rendered = await render_summary_request(
                own if self.prompt is None else self.prompt(task),
                budget,
                tools=tools,
                tokenizer=tokenizer,
                marks_new=self.prompt is None,
                items=(*task.plan.dropped, *task.plan.prefix),
            )
            task.asked.keep(self, task, rendered)
        complaint = write_complaint(task, tokenizer)
        taken = rendered.tokens + _count_messages(complaint, tokenizer)
        return rendered, complaint, limit_output(self.model, task, room=self.window - taken)

    def _read(self, reply: Reply, task: SummaryTask, rendered: Rendered, mode: str) -> Summary:
        """Return the summary in the reply to a request. Raises SummaryError."""
        sections = find_sections(self.template) if self.prompt is None else ()
        return summary_from_reply(
            reply,
            task,
            mode=mode,
            model=self.model.name,
            tokenizer=self.tokenizer or tokenizer_for(self.model.name),
            require_tags=bool(sections),
            sections=sections,
            missed=count_missed(rendered),
        )


@attrs.frozen(kw_only=True)
class FullSummarizer(_CopySummarizer):
    """Sends the dropped messages as real messages.

    If they do not fit the window, the oldest are removed.

    The request contains the conversation's tools, because some providers refuse tool calls without
    their definitions. It forbids calling them.
    """

    yields_when_too_long: ClassVar[bool] = True
    """After a summary that is too long a summarizer of the conversation as text is asked, if one
    follows."""

    async def summarize(self, task: SummaryTask) -> Summary:
        """Ask the model for the summary.

        Raises:
            SummaryError: There is nothing to summarize, not one message fits the window, or the
                reply is not a summary.
            ModelError: The request failed.
        """
        tools = tuple(task.tools) or (task.last_request.tools if task.last_request else ())
        prompt = SummaryOfMessages(
            task=task,
            quirks=find_quirks(self.model.name),
            max_result_tokens=max(1, self.window // ROUND_SHARE),
            template=self.template,
        )
        rendered, complaint, model = await self._prepare(prompt, task, tools)
        forbidding = with_options(model, tool_choice="none") if tools else model
        messages = (*begin_with_user(rendered.messages), *complaint)
        try:
            reply = await forbidding.complete(messages, tools=tools)
        except ModelRequestError as error:
            if error.param != "tool_choice" or not tools:
                raise
            reply = await model.complete(messages, tools=tools)
        return self._read(reply, task, rendered, "full")


@attrs.frozen(kw_only=True)
class SimpleSummarizer(_CopySummarizer):
    """Sends the conversation as text and asks for its summary.

    For any model and any window, and after other summarizers have failed. The request has no tools and no pictures, so no provider can refuse it.
    """

    async def summarize(self, task: SummaryTask) -> Summary:
        """Ask the model for the summary.

        Raises:
            SummaryError: There is nothing to summarize, no message fits the window, or the reply is
                not a summary.
            ModelError: The request failed.
        """
        prompt = SummaryOfText(
            task=task,
            quirks=find_quirks(self.model.name),
            max_result_tokens=max(1, self.window // RESULT_SHARE),
            template=self.template,
        )
        rendered, complaint, model = await self._prepare(prompt, task)
        reply = await model.complete((*rendered.messages, *complaint))
        return self._read(reply, task, rendered, "simple")


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
    window: int = attrs.field(converter=read_tokens)
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
        done = missed = 0
        for chunk, tokens in self._split(
            task, await self._compute_chunk_limit(task, tokenizer), tokenizer
        ):
            if self.max_chunk_share is not None and tokens > self.window * self.max_chunk_share:
                failures.append(f"a chunk of {tokens:,} tokens is too large.")
                missed += len(chunk)
                summary = _append_note(
                    summary,
                    chunk,
                    f"of about {tokens:,} tokens followed, too large to be summarized",
                )
                continue
            plan = Plan(leaf=task.plan.leaf, previous=summary, dropped=chunk)
            try:
                part = await summarize_within_limits(
                    writer,
                    attrs.evolve(
                        task,
                        plan=plan,
                        facts=Facts(),
                        check=None,
                        known_memories=(*task.known_memories, *memories),
                    ),
                )
            except (SummaryError, ContextLengthExceededError, EmptyReplyError) as error:
                failures.append(str(error))
                missed += len(chunk)
                usages.append(getattr(error, "usage", None))
                summary = _append_note(summary, chunk, "that followed could not be summarized")
                continue
            done += 1
            missed += part.missed
            usages.append(part.usage)
            summary = part.text
            memories += filter(None, [part.facts.memories])
        if summary is None or not done:
            raise SummaryError(reason="every", detail="; ".join(failures), usage=sum_usage(usages))
        if tokenizer.count(summary) > task.max_tokens:
            raise SummaryError(
                reason="too_large",
                detail=f"with its notes the summary has more than {task.max_tokens:,} tokens.",
                usage=sum_usage(usages),
            )
        return Summary(
            text=summary,
            mode=PARTIAL if missed else "chunked",
            model=self.model.name,
            usage=sum_usage(usages),
            facts=Facts(memories="\n".join(memories) if task.memories else None),
            missed=missed,
        )

    async def _compute_chunk_limit(self, task: SummaryTask, tokenizer: Tokenizer) -> int:
        """Return the token limit of a chunk: its share of the window, or less if the summary so far needs the room.

        Raises SummaryError if none is left.
        """
        sample = attrs.evolve(
            collect_dropped_items(task)[0], message=Message(role="user", content=(".",))
        )  # the rest of the request is measured with it
        request = SummaryOfText(
            task=attrs.evolve(task, plan=Plan(leaf=task.plan.leaf, dropped=(sample,))),
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
            raise SummaryError(
                reason="does_not_fit",
                detail=f"{self.window:,} tokens cannot hold the instructions and two summaries of {task.max_tokens:,} tokens.",
            )
        return min(max(1, int(self.window * CHUNK_SHARE)), room)

    def _split(
        self, task: SummaryTask, limit: int, tokenizer: Tokenizer
    ) -> Iterator[tuple[tuple[ViewItem, ...], int]]:
        """Yield chunks of at most `limit` tokens, each with its tokens.

        A call with its results, or a single message, may be larger.
        """
        items = collect_dropped_items(task)
        result_limit = max(1, self.window // RESULT_SHARE)
        chunk: list[ViewItem] = []
        chunk_tokens = 0
        for start, end in split_blocks([item.message for item in items]):
            block = [item.message for item in items[start:end]]
            entries = write_newest(block, result_limit, tokenizer, sys.maxsize)
            tokens = tokenizer.scale(sum(entry.tokens for entry in entries))
            if chunk and chunk_tokens + tokens > limit:
                yield tuple(chunk), chunk_tokens
                chunk, chunk_tokens = [], 0
            chunk.extend(items[start:end])
            chunk_tokens += tokens
        if chunk:
            yield tuple(chunk), chunk_tokens


def _append_note(summary: str | None, chunk: Sequence[ViewItem], what: str) -> str:
    note = f"[{len(chunk):,} message{'' if len(chunk) == 1 else 's'} {what}]"
    return note if summary is None else f"{summary}\n\n{note}"


PREFIX_SHARE = 5 / 13
"""Share of the task's tokens for the first part of the turn. Source: pi, 0.5 of its reserve beside
0.8."""

NO_HISTORY = "No prior history."
TURN_HEADING = "\n\n---\n\n**The turn that is cut in two, up to where it goes on below:**\n\n"
PREFIX_INSTRUCTIONS = (
    "This is the beginning of a turn whose rest stays as it is behind your summary. Tell three things, and nothing else: what was asked "
    "at its beginning; what was done and found so far; what the rest cannot be understood without."
)


@attrs.frozen(kw_only=True)
class SplitTurnSummarizer:
    """Summarizes the history before a cut turn and the turn's first part concurrently, and joins both summaries.

    If no turn is cut, it delegates to the summarizer. If there are no new messages before the turn,
    no model is asked for the history: the previous summary is kept, or a fixed text says that there
    is none. For plans of `select(split=True)`. Source: pi.
    """

    summarizer: Summarizer
    """Writes both summaries."""
    tokenizer: Tokenizer

    async def summarize(self, task: SummaryTask) -> Summary:
        """Summarize both parts.

        Raises:
            SummaryError: One of the two summaries failed; the other is cancelled. Or there is no
                room for two summaries.
        """
        if not task.plan.prefix:
            return await self.summarizer.summarize(task)
        room = task.max_tokens - self.tokenizer.count(TURN_HEADING)
        prefix_tokens = int(room * PREFIX_SHARE)
        history_tokens = room - prefix_tokens
        kept = self._keep_history(task)
        if kept is not None and self.tokenizer.count(kept) > history_tokens:
            # The previous summary leaves no room for a second one, so both parts get one summary.
            merged = attrs.evolve(
                task.plan, dropped=(*task.plan.dropped, *task.plan.prefix), prefix=()
            )
            return await self.summarizer.summarize(attrs.evolve(task, plan=merged))
        if prefix_tokens < 1:
            raise SummaryError(
                reason="does_not_fit",
                detail=f"{task.max_tokens:,} tokens are too few for a summary in two parts.",
            )
        first = asyncio.ensure_future(self._summarize_history(task, history_tokens))
        second = asyncio.ensure_future(self._summarize_prefix(task, prefix_tokens))
        try:
            history, prefix = await asyncio.gather(first, second)
        finally:
            for future in (first, second):
                future.cancel()
            await asyncio.gather(first, second, return_exceptions=True)
        return Summary(
            text=f"{history.text}{TURN_HEADING}{prefix.text}",
            mode=PARTIAL if PARTIAL in {history.mode, prefix.mode} else prefix.mode,
            model=prefix.model or history.model,
            author=prefix.author,
            usage=sum_usage([history.usage, prefix.usage]),
            missed=history.missed + prefix.missed,
        )

    async def _summarize_history(self, task: SummaryTask, tokens: int) -> Summary:
        kept = self._keep_history(task)
        if kept is not None:
            return Summary(text=kept, mode="kept")
        # Without the last request: it shows the whole conversation, so a summary asked for after it
        # would cover both parts.
        return await self.summarizer.summarize(
            attrs.evolve(
                task,
                plan=attrs.evolve(task.plan, prefix=()),
                max_tokens=tokens,
                last_request=None,
                check=None,
            )
        )

    def _keep_history(self, task: SummaryTask) -> str | None:
        """Return the summary before the turn if there is nothing new before it, else None."""
        return (
            get_previous_summary(task) or NO_HISTORY
            if all(map(is_summary, task.plan.dropped))
            else None
        )

    async def _summarize_prefix(self, task: SummaryTask, tokens: int) -> Summary:
        return await self.summarizer.summarize(
            attrs.evolve(
                task,
                plan=Plan(leaf=task.plan.leaf, dropped=task.plan.prefix, kept=task.plan.kept),
                max_tokens=tokens,
                instructions="\n\n".join(filter(None, (PREFIX_INSTRUCTIONS, task.instructions))),
                headings=False,
                last_request=None,
                facts=Facts(),
                check=None,
            )
        )
