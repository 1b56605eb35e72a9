"""The summary of a copy of the conversation, message by message, with the instructions before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.summarizers.prompts import TEMPLATE, SummaryOfMessages, render_summary_request
from promptkit.compaction.summarizers.quirks import find_quirks
from promptkit.compaction.summarizers.summarizer import summary_from_reply
from promptkit.errors import ModelRequestError
from promptkit.providers.model import with_options
from promptkit.tokens.models import tokenizer_for

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from promptkit.compaction.planning.plan import Summary, SummaryTask
    from promptkit.element import Child
    from promptkit.messages import ToolDefinition
    from promptkit.providers.model import Model, Reply
    from promptkit.rendering.result import Rendered
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["FullSummarizer"]

SAFETY = 0.9
"""The share of what tools leave that messages may have: definitions are counted less surely than text."""

RESULT_SHARE = 2
"""A tool result has at most half of the window."""


@attrs.frozen(kw_only=True)
class FullSummarizer:
    """Sends what is dropped as real messages; what the window has no room for leaves from the oldest on.

    The tools of the conversation are named, since some providers refuse calls without them, and may not be called.
    """

    model: Model
    window: int
    """The most tokens of input and output together."""
    tokenizer: Tokenizer | None = None
    """None: the model's."""
    template: str | os.PathLike[str] = TEMPLATE
    prompt: Callable[[SummaryTask], Child] | None = None
    """Another prompt than SummaryOfMessages."""

    async def summarize(self, task: SummaryTask) -> Summary:
        """The summary. Raises SummaryError if not even one message fits, and what the model's provider raises."""
        tokenizer = self.tokenizer or tokenizer_for(self.model.name)
        tools = tuple(task.tools) or (task.last_request.tools if task.last_request else ())
        reply = await self._ask(await self._rendered(task, tools, tokenizer), tools)
        return summary_from_reply(reply, task, mode="full", model=self.model.name, tokenizer=tokenizer, require_tags=False)

    async def _rendered(self, task: SummaryTask, tools: tuple[ToolDefinition, ...], tokenizer: Tokenizer) -> Rendered:
        prompt = SummaryOfMessages(
            task=task, quirks=find_quirks(self.model.name), max_result_tokens=max(1, self.window // RESULT_SHARE), template=self.template
        )
        taken = tokenizer.request(tools, system=True).tokens if tools else 0
        budget = taken + int((self.window - taken) * SAFETY) if tools else self.window
        shown = prompt if self.prompt is None else self.prompt(task)
        return await render_summary_request(shown, budget, tools=tools, tokenizer=tokenizer, marks_new=self.prompt is None)

    async def _ask(self, rendered: Rendered, tools: tuple[ToolDefinition, ...]) -> Reply:
        model = with_options(self.model, temperature=0)
        if not tools:
            return await model.complete(rendered.messages)
        try:
            return await with_options(model, tool_choice="none").complete(rendered.messages, tools=tools)
        except ModelRequestError as error:
            if error.param != "tool_choice":
                raise
            return await model.complete(rendered.messages, tools=tools)
