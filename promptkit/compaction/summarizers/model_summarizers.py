"""Summaries that a model writes: asked for at the end of the conversation, over a copy of its messages, or over the conversation as text."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.summarizers.prompts import (
    SummaryInstructions,
    SummaryOfMessages,
    SummaryOfText,
    render_summary_request,
    suggest_word_count,
)
from promptkit.compaction.summarizers.quirks import find_quirks
from promptkit.compaction.summarizers.sections import TEMPLATE, find_sections
from promptkit.compaction.summarizers.summarizer import (
    collect_dropped_messages,
    limit_output,
    summary_from_reply,
)
from promptkit.elements.chat import UserMessage
from promptkit.errors import ModelRequestError, SummaryError
from promptkit.providers.model import with_options
from promptkit.rendering.expand.sizing import Sizer
from promptkit.rendering.renderer import render_async
from promptkit.tokens.models import tokenizer_for
from promptkit.transcript.log.redaction import redact_message

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from promptkit.compaction.planning.plan import Summary, SummaryTask
    from promptkit.elements.element import Child
    from promptkit.messages import Message, ToolDefinition
    from promptkit.providers.model import Model, Reply
    from promptkit.rendering.result.rendered import Rendered
    from promptkit.tokens.tokenizer import Tokenizer

SAFETY = 0.9
"""Share of what tool definitions leave that messages may take: tool definitions are counted less
reliably than text."""

ROUND_SHARE = 2
"""In a copy of the messages, the tool results of one round may take half of the window."""

RESULT_SHARE = 8
"""In the conversation as text, a tool result may take an eighth of the window: its first 40 % and
its last 60 %."""


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
    window: int | None = None
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
        messages = (*sent, *added, question)
        room = None
        if self.window is not None:
            system = next((message.text for message in messages if message.role == "system"), False)
            taken = (
                sum(map(Sizer(tokenizer).count_message, messages))
                + tokenizer.count_overhead(tools, system=system).tokens
            )
            room = self.window - taken
            if task.max_tokens > room:
                needed = taken + task.max_tokens
                detail = f"the conversation, the question and the summary need {needed:,} tokens; the window has {self.window:,}."
                raise SummaryError(reason="does_not_fit", detail=detail)
        reply = await limit_output(self.model, task, room=room).complete(messages, tools=tools)
        return summary_from_reply(
            reply,
            task,
            mode="live",
            model=self.model.name,
            tokenizer=tokenizer,
            require_tags=True,
            sections=find_sections(self.template),
        )

    async def _ask(self, task: SummaryTask, tokenizer: Tokenizer) -> Message:
        """Return the question, a user message."""
        question = SummaryInstructions(
            instructions=task.instructions,
            live=True,
            words=suggest_word_count(task),
            memories=task.memories,
            say_no_tools=find_quirks(self.model.name).say_no_tools,
            template=self.template,
        )
        (message,) = (await render_async(UserMessage()[question], tokenizer=tokenizer)).messages
        return message


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
    window: int
    """Context window of the model in tokens, input and output together."""
    tokenizer: Tokenizer | None = None
    """None: the model's tokenizer."""
    template: str | os.PathLike[str] = TEMPLATE
    """The template of the instructions."""
    prompt: Callable[[SummaryTask], Child] | None = None
    """Makes another prompt than promptkit's own."""

    async def _render(
        self,
        own: Child,
        task: SummaryTask,
        tokenizer: Tokenizer,
        tools: Sequence[ToolDefinition] = (),
    ) -> Rendered:
        """Render the request with the prompt `own`, or with the one that the program makes."""
        tool_tokens = tokenizer.count_overhead(tools, system=True).tokens if tools else 0
        budget = tool_tokens + int((self.window - tool_tokens) * SAFETY) if tools else self.window
        return await render_summary_request(
            own if self.prompt is None else self.prompt(task),
            budget,
            tools=tools,
            tokenizer=tokenizer,
            marks_new=self.prompt is None,
        )

    def _read(self, reply: Reply, task: SummaryTask, tokenizer: Tokenizer, mode: str) -> Summary:
        """Return the summary in a reply. Raises SummaryError."""
        sections = find_sections(self.template) if self.prompt is None else ()
        return summary_from_reply(
            reply,
            task,
            mode=mode,
            model=self.model.name,
            tokenizer=tokenizer,
            require_tags=bool(sections),
            sections=sections,
        )


@attrs.frozen(kw_only=True)
class FullSummarizer(_CopySummarizer):
    """Sends the dropped messages as real messages.

    If they do not fit the window, the oldest are removed.

    The request contains the conversation's tools, because some providers refuse tool calls without
    their definitions. It forbids calling them.
    """

    async def summarize(self, task: SummaryTask) -> Summary:
        """Ask the model for the summary.

        Raises:
            SummaryError: There is nothing to summarize, not one message fits the window, or the
                reply is not a summary.
            ModelError: The request failed.
        """
        tokenizer = self.tokenizer or tokenizer_for(self.model.name)
        tools = tuple(task.tools) or (task.last_request.tools if task.last_request else ())
        prompt = SummaryOfMessages(
            task=task,
            quirks=find_quirks(self.model.name),
            max_result_tokens=max(1, self.window // ROUND_SHARE),
            template=self.template,
        )
        rendered = await self._render(prompt, task, tokenizer, tools)
        model = limit_output(self.model, task, room=self.window - rendered.tokens)
        forbidding = with_options(model, tool_choice="none") if tools else model
        try:
            reply = await forbidding.complete(rendered.messages, tools=tools)
        except ModelRequestError as error:
            if error.param != "tool_choice" or not tools:
                raise
            reply = await model.complete(rendered.messages, tools=tools)
        return self._read(reply, task, tokenizer, "full")


@attrs.frozen(kw_only=True)
class SimpleSummarizer(_CopySummarizer):
    """Sends the conversation as text and asks for its summary: for any model and any window, and after other summarizers have failed.

    The request has no tools and no pictures, so no provider can refuse it.
    """

    async def summarize(self, task: SummaryTask) -> Summary:
        """Ask the model for the summary.

        Raises:
            SummaryError: There is nothing to summarize, no message fits the window, or the reply is
                not a summary.
            ModelError: The request failed.
        """
        tokenizer = self.tokenizer or tokenizer_for(self.model.name)
        prompt = SummaryOfText(
            task=task,
            quirks=find_quirks(self.model.name),
            max_result_tokens=max(1, self.window // RESULT_SHARE),
            template=self.template,
        )
        rendered = await self._render(prompt, task, tokenizer)
        model = limit_output(self.model, task, room=self.window - rendered.tokens)
        return self._read(await model.complete(rendered.messages), task, tokenizer, "simple")
