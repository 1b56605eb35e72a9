"""Baselines for comparison: the documented rules of other libraries, reimplemented with their weaknesses.

All of them have the same limit, use the same tokenizer unless their own rule counts differently,
and keep no transcript.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from itertools import dropwhile, takewhile

from promptkit.compaction import Plan, SummarizerContext, SummaryTask
from promptkit.compaction.summarizers.defaults import make_fallback_factory, make_simple_summarizer
from promptkit.errors import SummaryError
from promptkit.lab.replay.policies.strategy import (
    PolicyRun,
    ReplayPolicy,
    ReplayTerms,
    SummaryCall,
)
from promptkit.messages import Message
from promptkit.transcript import ViewItem

TRUNCATION_STEP = 4_000
"""Tokens: prompt-poet's `truncation_step`, as in its own example."""


def drop_oldest(conversation: CountedMessages, max_tokens: int) -> Sequence[Message]:
    """Drop the oldest messages until the rest fits and starts with a user message.

    Many early chat programs have this rule. Here its requests are always valid: tool calls are
    dropped with their results, and in a long turn of tool calls the user message stays before the
    newest of them.
    """
    start = conversation.place_fitting(max_tokens)
    user_place = conversation.next_user_place(start)
    if start == 0 or user_place is not None:
        return conversation.messages[user_place or 0 :] if start else conversation.messages
    if not conversation.user_places:
        return conversation.messages[_after_results(conversation, start) :]
    user_place = conversation.user_places[-1]
    user_tokens = (
        conversation.tokens_before[user_place + 1] - conversation.tokens_before[user_place]
    )
    start = conversation.place_fitting(max_tokens - user_tokens)
    return [
        conversation.messages[user_place],
        *conversation.messages[_after_results(conversation, start) :],
    ]


def _after_results(conversation: CountedMessages, place: int) -> int:
    """Return the first place from `place` on that is not a tool result, so that no result is left without its call."""
    end = len(conversation.messages)
    return next((at for at in range(place, end) if conversation.messages[at].role != "tool"), end)


def trim_last(conversation: CountedMessages, max_tokens: int) -> Sequence[Message]:
    """Keep the newest messages that fit, starting with a user message.

    Source: LangChain, `trim_messages(strategy="last", start_on="human", include_system=True)`, as
    its documentation recommends it for chat models. If a turn has many tool calls, the newest
    messages contain no user message, and only the system messages are left.
    """
    user_place = conversation.next_user_place(conversation.place_fitting(max_tokens))
    return () if user_place is None else conversation.messages[user_place:]


def truncate_in_steps(conversation: CountedMessages, max_tokens: int) -> Sequence[Message]:
    """Drop a multiple of TRUNCATION_STEP tokens from the front, message by message, so that the prefix seldom changes.

    Source: prompt-poet (PyPI 0.0.52), `truncate`: the surplus is rounded up to the step, and the
    oldest parts are dropped until their tokens reach it. The system message and the last message
    have priority 0, and are never dropped. Parts are not aware of tool calls and results.
    """
    surplus = max(0, conversation.tokens_before[-1] - max_tokens)
    place = conversation.place_after(math.ceil(surplus / TRUNCATION_STEP) * TRUNCATION_STEP)
    return conversation.messages[min(place, len(conversation.messages) - 1) :]


class CountedMessages:
    """All messages of a conversation, with sums of tokens, so that a rule only needs to read the newest messages."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.tokens_before = [0]
        """The tokens before each message, and after the last one."""
        self.user_places: list[int] = []
        """The places of the user's messages."""

    def add(self, message: Message, tokens: int) -> None:
        """Append a message that has so many tokens."""
        if message.role == "user":
            self.user_places.append(len(self.messages))
        self.messages.append(message)
        self.tokens_before.append(self.tokens_before[-1] + tokens)

    def place_after(self, tokens: int) -> int:
        """Return the first place that has at least so many tokens before it."""
        return bisect_left(self.tokens_before, tokens) if tokens > 0 else 0

    def place_fitting(self, max_tokens: int) -> int:
        """Return the first place from which all messages to the end have at most `max_tokens` tokens."""
        return min(self.place_after(self.tokens_before[-1] - max_tokens), len(self.messages))

    def next_user_place(self, place: int) -> int | None:
        """Return the place of the first user message at or after a place, or None."""
        at = bisect_left(self.user_places, place)
        return self.user_places[at] if at < len(self.user_places) else None


class _TrimmedRun(PolicyRun):
    """One conversation that is trimmed for every request.

    `trim` is given all messages of the conversation and the tokens that those of a request may have,
    and returns the messages that are sent.
    """

    def __init__(
        self, trim: Callable[[CountedMessages, int], Sequence[Message]], terms: ReplayTerms
    ) -> None:
        super().__init__()
        self._terms = terms
        self._trim = trim
        self._conversation = CountedMessages()

    async def add(self, message: Message) -> None:
        """Append a message."""
        self._conversation.add(message, self._terms.count((message,)))

    async def request(self) -> Sequence[Message]:
        """Return the trimmed messages."""
        limit = self._terms.budget.limit
        return (
            self._conversation.messages
            if limit is None
            else self._trim(self._conversation, limit - self._terms.fixed_tokens)
        )


THRESHOLD = 0.85
"""Share of the limit from which on LangChain's middleware summarizes a conversation."""

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


class LangChainRun(PolicyRun):
    """One conversation under LangChain's summarizing middleware, by its documented rules and with its defaults.

    Source: langchain 1.5.0, `SummarizationMiddleware`. It keeps the newest 20 messages
    (`keep=("messages", 20)`), summarizes the last 4,000 tokens of the others, starting with a user
    message (`trim_tokens_to_summarize=4000`), and counts a token for four characters. It has no
    default for the threshold: deepagents, by the same authors, sets 0.85 of the window.
    """

    def __init__(self, terms: ReplayTerms) -> None:
        super().__init__()
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
        if (
            limit is not None
            and self._tokens >= THRESHOLD * limit
            and (cut := _find_cut(self._messages))
        ):
            await self._summarize(cut)
        return tuple(self._messages)

    async def _summarize(self, cut: int) -> None:
        dropped, kept = self._messages[:cut], self._messages[cut:]
        selected = self._select_summarized(dropped)
        text = TOO_LONG
        if selected:
            text = await self._write_summary(selected)
            self.summary_calls.append(
                SummaryCall(
                    uncached_tokens=INSTRUCTION_TOKENS + self._terms.count(selected),
                    output_tokens=self._terms.counts.tokenizer.count(text),
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
        return [*dropwhile(lambda message: message.role != "user", dropped[start:])]

    async def _write_summary(self, selected: Sequence[Message]) -> str:
        """Summarize with the model. Without one, extract the summary from the messages."""
        terms = self._terms
        task = SummaryTask(
            plan=Plan(
                leaf="",
                dropped=tuple(
                    ViewItem(message=message, entry_id=str(at))
                    for at, message in enumerate(selected)
                ),
            ),
            max_tokens=max(
                1, min(terms.budget.summary_tokens, terms.count(selected) // MIN_REDUCTION)
            ),
        )
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
    results = list(takewhile(lambda message: message.role == "tool", messages[cut:]))
    ids = {result.tool_call_id for result in results}
    return next(
        (
            at
            for at in range(cut - 1, -1, -1)
            if any(call.id in ids for call in messages[at].tool_calls)
        ),
        cut + len(results),
    )


BASELINE_POLICIES = (
    ReplayPolicy(name="drop_oldest", start=partial(_TrimmedRun, drop_oldest)),
    ReplayPolicy(name="trim_last", start=partial(_TrimmedRun, trim_last)),
    ReplayPolicy(name="prompt_poet", start=partial(_TrimmedRun, truncate_in_steps)),
    ReplayPolicy(name="langchain", start=LangChainRun),
)
