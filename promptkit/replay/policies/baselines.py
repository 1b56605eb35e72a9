"""What others do, after their documented rules, for comparison: written anew, with the faults that the rules have.

All of them are held to the same limit, count with the same tokenizer but where their own rule counts otherwise, and keep no transcript.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import attrs

from promptkit.replay.policies.langchain import LangChainRun

if TYPE_CHECKING:
    from promptkit.messages import Message
    from promptkit.replay.policies.strategy import PolicyRun, ReplayTerms, SummaryCall

__all__ = ["NAIVE", "BaselinePolicy", "CountedMessages", "Trim", "drop_oldest", "prompt_poet", "trim_last"]

STEP = 4_000
"""Tokens: prompt-poet's `truncation_step`, as in its own example."""


class CountedMessages:
    """All that was said, with what rules ask of it: to look at the newest is enough."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.before = [0]
        """The tokens before each message, and behind the last."""
        self.asked: list[int] = []
        """The places of what the person said."""

    def add(self, message: Message, tokens: int) -> None:
        """Put a message behind the others."""
        if message.role == "user":
            self.asked.append(len(self.messages))
        self.messages.append(message)
        self.before.append(self.before[-1] + tokens)

    def cut(self, tokens: int) -> int:
        """The first place before which so many tokens stand."""
        return bisect_left(self.before, tokens) if tokens > 0 else 0

    def fitting(self, room: int) -> int:
        """The first place from which all to the end has at most so many tokens."""
        return min(self.cut(self.before[-1] - room), len(self.messages))

    def asked_from(self, place: int) -> int | None:
        """The first place of what the person said, from a place on; None where there is none."""
        at = bisect_left(self.asked, place)
        return self.asked[at] if at < len(self.asked) else None


Trim: TypeAlias = "Callable[[CountedMessages, int], Sequence[Message]]"
"""(all that was said, the tokens that messages may have) → the messages that are sent."""


def drop_oldest(said: CountedMessages, room: int) -> Sequence[Message]:
    """Drop the oldest messages until the rest fits and begins with what the person said.

    The rule of many first chat programs. It is given the benefit of requests that providers take: calls leave with their results, and
    in a long turn of tool calls what was asked stays in front of the newest of them.
    """
    start = said.fitting(room)
    asked = said.asked_from(start)
    if start == 0 or asked is not None:
        return said.messages[asked or 0 :] if start else said.messages
    if not said.asked:
        return said.messages[_behind_results(said, start) :]
    asked = said.asked[-1]
    start = said.fitting(room - (said.before[asked + 1] - said.before[asked]))
    return [said.messages[asked], *said.messages[_behind_results(said, start) :]]


def trim_last(said: CountedMessages, room: int) -> Sequence[Message]:
    """Keep the newest messages that fit, from a person's message on.

    Source: LangChain, `trim_messages(strategy="last", start_on="human", include_system=True)`, as its documentation recommends it for
    chat models. A long turn of tool calls has no person's message among the newest: then nothing is left but the system's.
    """
    asked = said.asked_from(said.fitting(room))
    return () if asked is None else said.messages[asked:]


def prompt_poet(said: CountedMessages, room: int) -> Sequence[Message]:
    """Cut a multiple of STEP tokens from the front, message by message, so that the rest moves seldom.

    Source: prompt-poet (PyPI 0.0.52), `truncate`: the surplus is rounded up to the step, and the oldest parts go until that much is
    gone. The system's message and the last one have priority 0, and are never cut. Parts know nothing of calls and results.
    """
    surplus = max(0, said.before[-1] - room)
    return said.messages[min(said.cut(math.ceil(surplus / STEP) * STEP), len(said.messages) - 1) :]


def _behind_results(said: CountedMessages, place: int) -> int:
    """The first place from one on that is no result: of a block that is cut, all of it goes."""
    while place < len(said.messages) and said.messages[place].role == "tool":
        place += 1
    return place


@attrs.frozen(kw_only=True)
class BaselinePolicy:
    """A rule of another library's. `trim` is asked anew for every request, with all that was said."""

    name: str
    trim: Trim | None = None
    """None: LangChain's summarizing middleware."""

    def start(self, terms: ReplayTerms) -> PolicyRun:
        """Begin a conversation."""
        return LangChainRun(terms) if self.trim is None else _BaselineRun(self.trim, terms)


class _BaselineRun:
    """One conversation that is trimmed for every request."""

    def __init__(self, trim: Trim, terms: ReplayTerms) -> None:
        self.checkpoints = self.waits = 0
        self.calls: list[SummaryCall] = []
        self.place: str | None = None
        self._trim = trim
        self._terms = terms
        self._said = CountedMessages()

    async def add(self, message: Message) -> None:
        """Remember it."""
        self._said.add(message, self._terms.count((message,)))

    async def request(self) -> Sequence[Message]:
        """What is left of all that was said."""
        limit = self._terms.budget.limit
        return self._said.messages if limit is None else self._trim(self._said, limit - self._terms.fixed_tokens)

    async def add_reply(self, reply: Message) -> None:
        """Remember it."""
        await self.add(reply)

    async def close(self) -> None:
        """Nothing is open."""


NAIVE = (
    BaselinePolicy(name="drop_oldest", trim=drop_oldest),
    BaselinePolicy(name="trim_last", trim=trim_last),
    BaselinePolicy(name="prompt_poet", trim=prompt_poet),
    BaselinePolicy(name="langchain"),
)
"""All of them."""
