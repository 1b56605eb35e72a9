"""A summary that the prompt cache pays for: the last request again, byte for byte, and one more message."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.summarizers.prompts import SummaryInstructions, suggest_word_count
from promptkit.compaction.summarizers.quirks import find_quirks
from promptkit.compaction.summarizers.sections import TEMPLATE, find_sections
from promptkit.compaction.summarizers.summarizer import (
    collect_dropped_messages,
    limit_output,
    summary_from_reply,
)
from promptkit.elements.chat import UserMessage
from promptkit.errors import SummaryError
from promptkit.rendering.expand.sizing import Sizer
from promptkit.rendering.renderer import render_async
from promptkit.tokens.models import tokenizer_for
from promptkit.transcript.log.redaction import redact_message

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from promptkit.compaction.planning.plan import Summary, SummaryTask
    from promptkit.messages import Message
    from promptkit.providers.model import Model
    from promptkit.tokens.tokenizer import Tokenizer


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
        sent = task.last_request.messages
        # The plan's messages are redacted, so the request's messages must be redacted to be
        # compared with them.
        redacted = (
            sent
            if task.redactor is None
            else [redact_message(message, task.redactor) for message in sent]
        )
        messages = (
            *sent,
            *_messages_after(redacted, dropped),
            await self._question(task, tokenizer),
        )
        tools = task.last_request.tools
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
        sections = find_sections(self.template)
        return summary_from_reply(
            reply,
            task,
            mode="live",
            model=self.model.name,
            tokenizer=tokenizer,
            require_tags=True,
            sections=sections,
        )

    async def _question(self, task: SummaryTask, tokenizer: Tokenizer) -> Message:
        quirks = find_quirks(self.model.name)
        question = SummaryInstructions(
            instructions=task.instructions,
            live=True,
            words=suggest_word_count(task),
            memories=task.memories,
            say_no_tools=quirks.say_no_tools,
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
