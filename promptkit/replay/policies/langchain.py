"""LangChain's summarizing middleware, after its documented rules and with its defaults.

Source: langchain 1.5.0, `SummarizationMiddleware`: the newest 20 messages are kept (`keep=("messages", 20)`), the summary is made of the
last 4,000 tokens of the others from a person's message on (`trim_tokens_to_summarize=4000`), and tokens are a quarter of the
characters. It has no default for when: 0.85 of the window is what deepagents, by the same authors, sets.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from promptkit.compaction.planning.plan import Plan, SummaryTask
from promptkit.compaction.summarizers.defaults import SummarizerContext, make_fallback_factory, make_simple_summarizer
from promptkit.errors import SummaryError
from promptkit.messages import Message
from promptkit.replay.policies.strategy import SummaryCall
from promptkit.transcript.view import ViewItem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.replay.policies.strategy import ReplayTerms

__all__ = ["LangChainRun"]

TRIGGER = 0.85
KEEP = 20
SEEN = 4_000
PROMPT = 400
"""Tokens of the middleware's own instructions, about."""

CHARACTERS = 4
FRAMING = 3
"""Characters for a token, and tokens around a message, as `count_tokens_approximately` has them."""

GAIN = 2
"""A summary that no model writes has at most half of what it was made of."""

TOO_LONG = "Previous conversation was too long to summarize."
OPENING = "Here is a summary of the conversation to date:\n\n"


class LangChainRun:
    """One conversation under the middleware."""

    def __init__(self, terms: ReplayTerms) -> None:
        self.checkpoints = self.waits = 0
        self.calls: list[SummaryCall] = []
        self.place: str | None = None
        self._terms = terms
        self._messages: list[Message] = []
        self._tokens = sum(map(_about, terms.system))
        """Of the messages, as the middleware counts."""

    async def add(self, message: Message) -> None:
        """Remember it."""
        self._messages.append(message)
        self._tokens += _about(message)

    async def request(self) -> Sequence[Message]:
        """The conversation, summarized first where it is too long."""
        limit = self._terms.budget.limit
        if limit is not None and self._tokens >= TRIGGER * limit:
            cut = _safe_cut(self._messages)
            if cut > 0:
                await self._summarize(cut)
        return tuple(self._messages)

    async def add_reply(self, reply: Message) -> None:
        """Remember it."""
        await self.add(reply)

    async def close(self) -> None:
        """Nothing is open."""

    async def _summarize(self, cut: int) -> None:
        dropped, kept = self._messages[:cut], self._messages[cut:]
        seen = self._seen(dropped)
        text = TOO_LONG
        if seen:
            text = await self._written(seen)
            output = self._terms.tokenizer.count(text)
            self.calls.append(SummaryCall(extra=PROMPT + self._terms.count(seen), output=output))
        self._messages = [Message(role="user", content=(OPENING + text,)), *kept]
        self._tokens = sum(map(_about, (*self._terms.system, *self._messages)))
        self.checkpoints += 1
        self.waits += 1

    def _seen(self, dropped: Sequence[Message]) -> Sequence[Message]:
        """What the summarizing model is shown: the newest of it, from a person's message on."""
        left, start = SEEN, len(dropped)
        while start > 0 and (size := _about(dropped[start - 1])) <= left:
            start -= 1
            left -= size
        while start < len(dropped) and dropped[start].role != "user":
            start += 1
        return dropped[start:]

    async def _written(self, seen: Sequence[Message]) -> str:
        """What a model would make of it: here its own words, as in all replays without a model."""
        most = max(1, min(self._terms.budget.summary_tokens, self._terms.count(seen) // GAIN))
        plan = Plan(leaf="", dropped=tuple(ViewItem(message=message, entry_id=str(at)) for at, message in enumerate(seen)))
        task = SummaryTask(plan=plan, max_tokens=most)
        terms = self._terms
        summarizer = make_fallback_factory(make_simple_summarizer)(SummarizerContext(model=terms.model, budget=terms.budget, tokenizer=terms.tokenizer))
        try:
            return (await summarizer.summarize(task)).text
        except SummaryError as error:
            return f"Error generating summary: {error}"


def _about(message: Message) -> int:
    """The tokens of a message as the middleware counts them."""
    characters = len(message.text) + sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    return math.ceil(characters / CHARACTERS) + FRAMING


def _safe_cut(messages: Sequence[Message]) -> int:
    """Where it cuts: so that the newest KEEP stay, further back where that would part a call from its results."""
    if len(messages) <= KEEP:
        return 0
    cut = len(messages) - KEEP
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
