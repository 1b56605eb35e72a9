"""A summary of a copy of the conversation, message by message, after the instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.summarizers.prompts import SummaryOfMessages, render_summary_request
from promptkit.compaction.summarizers.quirks import find_quirks
from promptkit.compaction.summarizers.sections import TEMPLATE, find_sections
from promptkit.compaction.summarizers.summarizer import limit_output, summary_from_reply
from promptkit.errors import ModelRequestError
from promptkit.providers.model import with_options
from promptkit.tokens.models import tokenizer_for

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from promptkit.compaction.planning.plan import Summary, SummaryTask
    from promptkit.elements.element import Child
    from promptkit.messages import ToolDefinition
    from promptkit.providers.model import Model, Reply
    from promptkit.rendering.result.rendered import Rendered
    from promptkit.tokens.tokenizer import Tokenizer

SAFETY = 0.9
"""Share of what tool definitions leave that messages may take: tool definitions are counted less
reliably than text."""

RESULT_SHARE = 2
"""The tool results of one round may take half of the window."""


@attrs.frozen(kw_only=True)
class FullSummarizer:
    """Sends the dropped messages as real messages.

    If they do not fit the window, the oldest are removed.

    The request contains the conversation's tools, because some providers refuse tool calls without
    their definitions. It forbids calling them.
    """

    model: Model
    """The summarizing model."""
    window: int
    """Context window of the model in tokens, input and output together."""
    tokenizer: Tokenizer | None = None
    """None: the model's tokenizer."""
    template: str | os.PathLike[str] = TEMPLATE
    """The template of the instructions."""
    prompt: Callable[[SummaryTask], Child] | None = None
    """Makes another prompt than `SummaryOfMessages`."""

    async def summarize(self, task: SummaryTask) -> Summary:
        """Ask the model for the summary.

        Raises:
            SummaryError: There is nothing to summarize, not one message fits the window, or the
                reply is not a summary.
            ModelError: The request failed.
        """
        tokenizer = self.tokenizer or tokenizer_for(self.model.name)
        tools = tuple(task.tools) or (task.last_request.tools if task.last_request else ())
        reply = await self._send(task, await self._render(task, tools, tokenizer), tools)
        sections = find_sections(self.template) if self.prompt is None else ()
        return summary_from_reply(
            reply,
            task,
            mode="full",
            model=self.model.name,
            tokenizer=tokenizer,
            require_tags=bool(sections),
            sections=sections,
        )

    async def _render(
        self, task: SummaryTask, tools: tuple[ToolDefinition, ...], tokenizer: Tokenizer
    ) -> Rendered:
        prompt = SummaryOfMessages(
            task=task,
            quirks=find_quirks(self.model.name),
            max_result_tokens=max(1, self.window // RESULT_SHARE),
            template=self.template,
        )
        tool_tokens = tokenizer.count_overhead(tools, system=True).tokens if tools else 0
        budget = tool_tokens + int((self.window - tool_tokens) * SAFETY) if tools else self.window
        request = prompt if self.prompt is None else self.prompt(task)
        return await render_summary_request(
            request, budget, tools=tools, tokenizer=tokenizer, marks_new=self.prompt is None
        )

    async def _send(
        self, task: SummaryTask, rendered: Rendered, tools: tuple[ToolDefinition, ...]
    ) -> Reply:
        model = limit_output(self.model, task, room=self.window - rendered.tokens)
        if not tools:
            return await model.complete(rendered.messages)
        try:
            return await with_options(model, tool_choice="none").complete(
                rendered.messages, tools=tools
            )
        except ModelRequestError as error:
            if error.param != "tool_choice":
                raise
            return await model.complete(rendered.messages, tools=tools)
