"""LangChain's summarizing middleware, by its documented rules and with its defaults.

Source: langchain 1.5.0, `SummarizationMiddleware`. It keeps the newest 20 messages
(`keep=("messages", 20)`), summarizes the last 4,000 tokens of the others, starting with a user
message (`trim_tokens_to_summarize=4000`), and counts a token for four characters. It has no default
for the threshold: deepagents, by the same authors, sets 0.85 of the window.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from promptkit.compaction.planning.plan import Plan, SummaryTask
from promptkit.compaction.summarizers.defaults import (
    SummarizerContext,
    make_fallback_factory,
    make_simple_summarizer,
)
from promptkit.errors import SummaryError
from promptkit.lab.replay.policies.strategy import ReplayTerms, SummaryCall
from promptkit.messages import Message, Usage
from promptkit.transcript.log.view import ViewItem

if TYPE_CHECKING:
    from collections.abc import Sequence


THRESHOLD = 0.85
"""Share of the limit from which on the conversation is summarized."""

KEPT_MESSAGES = 20
SUMMARIZED_TOKENS = 4_000
INSTRUCTION_TOKENS = 400
"""Approximate tokens of the middleware's own instructions."""

CHARACTERS_PER_TOKEN = 4
FRAMING = 3
"""Tokens around a message. Both numbers are those of `count_tokens_approximately`."""

MIN_REDUCTION = 2
"""An extracted summary has at most 1/MIN_REDUCTION of the tokens of its messages."""

TOO_LONG = "Previous conversation was too long to summarize."
OPENING = "Here is a summary of the conversation to date:\n\n"


class LangChainRun:
    """One conversation under the middleware."""

    def __init__(self, terms: ReplayTerms) -> None:
        self.checkpoints = self.waits = 0
        self.summary_calls: list[SummaryCall] = []
        self.transcript_path: str | None = None
        self._terms = terms
        self._messages: list[Message] = []
        self._tokens = sum(map(_approximate_tokens, terms.system))
        """Tokens of the messages, as the middleware counts them."""

    async def add(self, message: Message) -> None:
        """Append a message."""
        self._messages.append(message)
        self._tokens += _approximate_tokens(message)

    async def request(self) -> Sequence[Message]:
        """Return the conversation, after summarizing it if it exceeds the threshold."""
        limit = self._terms.budget.limit
        if limit is not None and self._tokens >= THRESHOLD * limit:
            cut = _find_cut(self._messages)
            if cut > 0:
                await self._summarize(cut)
        return tuple(self._messages)

    async def add_reply(self, reply: Message, usage: Usage | None) -> None:  # noqa: ARG002  # this policy counts itself
        """Append the reply."""
        await self.add(reply)

    async def close(self) -> None:
        """Do nothing: nothing runs in the background."""

    async def _summarize(self, cut: int) -> None:
        dropped, kept = self._messages[:cut], self._messages[cut:]
        selected = self._select_summarized(dropped)
        text = TOO_LONG
        if selected:
            text = await self._write_summary(selected)
            output = self._terms.tokenizer.count(text)
            self.summary_calls.append(
                SummaryCall(
                    uncached_tokens=INSTRUCTION_TOKENS + self._terms.count(selected),
                    output_tokens=output,
                )
            )
        self._messages = [Message(role="user", content=(OPENING + text,)), *kept]
        self._tokens = sum(map(_approximate_tokens, (*self._terms.system, *self._messages)))
        self.checkpoints += 1
        self.waits += 1

    def _select_summarized(self, dropped: Sequence[Message]) -> Sequence[Message]:
        """Return the newest of the dropped messages, starting with a user message: the summarizing model gets these."""
        left, start = SUMMARIZED_TOKENS, len(dropped)
        while start > 0 and (size := _approximate_tokens(dropped[start - 1])) <= left:
            start -= 1
            left -= size
        while start < len(dropped) and dropped[start].role != "user":
            start += 1
        return dropped[start:]

    async def _write_summary(self, selected: Sequence[Message]) -> str:
        """Summarize with the model. Without one, extract the summary from the messages."""
        max_tokens = max(
            1, min(self._terms.budget.summary_tokens, self._terms.count(selected) // MIN_REDUCTION)
        )
        plan = Plan(
            leaf="",
            dropped=tuple(
                ViewItem(message=message, entry_id=str(at)) for at, message in enumerate(selected)
            ),
        )
        task = SummaryTask(plan=plan, max_tokens=max_tokens)
        terms = self._terms
        summarizer = make_fallback_factory(make_simple_summarizer)(
            SummarizerContext(model=terms.model, budget=terms.budget, tokenizer=terms.tokenizer)
        )
        try:
            return (await summarizer.summarize(task)).text
        except SummaryError as error:
            return f"Error generating summary: {error}"


def _approximate_tokens(message: Message) -> int:
    """Count the tokens of a message as the middleware does."""
    characters = len(message.text) + sum(
        len(call.name) + len(call.arguments) for call in message.tool_calls
    )
    return math.ceil(characters / CHARACTERS_PER_TOKEN) + FRAMING


def _find_cut(messages: Sequence[Message]) -> int:
    """Return the place of the oldest message that is kept: KEPT_MESSAGES from the end, or before, at the call of a tool result there."""
    if len(messages) <= KEPT_MESSAGES:
        return 0
    cut = len(messages) - KEPT_MESSAGES
    if messages[cut].role != "tool":
        return cut
    results: set[str | None] = set()
    end = cut
    while end < len(messages) and messages[end].role == "tool":
        results.add(messages[end].tool_call_id)
        end += 1
    for at in range(cut - 1, -1, -1):
        if any(call.id in results for call in messages[at].tool_calls):
            return at
    return end
