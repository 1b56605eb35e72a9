"""The summary that the prompt cache pays for: the last request once more, byte for byte, with one message behind it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.summarizers.prompts import TEMPLATE, SummaryInstructions, suggest_word_count
from promptkit.compaction.summarizers.quirks import find_quirks
from promptkit.compaction.summarizers.summarizer import collect_dropped_messages, summary_from_reply
from promptkit.elements.chat import UserMessage
from promptkit.errors import SummaryError
from promptkit.providers.model import with_options
from promptkit.rendering.renderer import render_async
from promptkit.rendering.sizing import Sizer
from promptkit.tokens.models import tokenizer_for
from promptkit.transcript.redaction import redact_message

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from promptkit.compaction.planning.plan import Summary, SummaryTask
    from promptkit.messages import Message
    from promptkit.providers.model import Model
    from promptkit.tokens.tokenizer import Tokenizer

__all__ = ["InlineSummarizer"]


@attrs.frozen(kw_only=True)
class InlineSummarizer:
    """Asks for the summary behind the conversation itself, in the same request form with the same tools.

    Tools are offered but must not be called: to leave them out, or to forbid them by an option, would change what the provider has
    cached. What was said since the last request, and is to be summarized, stands between the two. Source: VS Code's background summaries.
    """

    model: Model
    window: int | None = None
    """The most tokens of input and output together; None where that is not known."""
    tokenizer: Tokenizer | None = None
    """None: the model's."""
    template: str | os.PathLike[str] = TEMPLATE

    async def summarize(self, task: SummaryTask) -> Summary:
        """The summary. Raises SummaryError where there was no request yet, or where it has no room for what is asked behind it."""
        dropped = collect_dropped_messages(task)
        if task.last_request is None:
            raise SummaryError(reason="no_request", detail="no request was sent that a summary could be asked for behind.")
        tokenizer = self.tokenizer or tokenizer_for(self.model.name)
        sent = task.last_request.messages
        seen = sent if task.redactor is None else [redact_message(message, task.redactor) for message in sent]  # as the plan has them
        messages = (*sent, *_since(seen, dropped), await self._question(task, tokenizer))
        tools = task.last_request.tools
        if self.window is not None:
            system = next((message.text for message in messages if message.role == "system"), False)
            needed = sum(map(Sizer(tokenizer).count_message, messages)) + tokenizer.request(tools, system=system).tokens + task.max_tokens
            if needed > self.window:
                detail = f"the conversation with the question and room for the summary needs {needed:,} of {self.window:,} tokens."
                raise SummaryError(reason="does_not_fit", detail=detail)
        reply = await with_options(self.model, temperature=0).complete(messages, tools=tools)
        return summary_from_reply(reply, task, mode="live", model=self.model.name, tokenizer=tokenizer, require_tags=True)

    async def _question(self, task: SummaryTask, tokenizer: Tokenizer) -> Message:
        quirks = find_quirks(self.model.name)
        asked = SummaryInstructions(
            instructions=task.instructions, live=True, words=suggest_word_count(task), say_no_tools=quirks.say_no_tools, template=self.template
        )
        (message,) = (await render_async(UserMessage()[asked], tokenizer=tokenizer)).messages
        return message


def _since(sent: Sequence[Message], dropped: Sequence[Message]) -> Sequence[Message]:
    """What was said behind a request, from the model's answer on; nothing where none of it was in the request, as a prompt may reword."""
    calls = {call.id for message in sent for call in message.tool_calls}
    texts = Counter((message.role, message.text) for message in sent if not message.tool_calls)
    last: int | None = None
    for at, message in enumerate(dropped):
        key = (message.role, message.text)
        if any(call.id in calls for call in message.tool_calls) or (not message.tool_calls and texts[key] > 0):
            last = at
            texts[key] -= 1
    behind = () if last is None else dropped[last + 1 :]
    first = next((at for at, message in enumerate(behind) if message.role == "assistant"), len(behind))
    return behind[first:]
