"""Plays one conversation under one policy: hears what was said, and looks at each request.

Whether a provider would take a request: calls answered, results asked for, a proper beginning.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from typing import TYPE_CHECKING

import attrs

from promptkit.replay.message_counts import MessageCounts
from promptkit.replay.policies.bill import Bill
from promptkit.replay.policies.strategy import ReplayTerms
from promptkit.replay.prompt_cache import cache_for
from promptkit.replay.results import ReplayTotals, Step
from promptkit.replay.retention import Needs, Retention
from promptkit.tokens.budget import ContextBudget
from promptkit.tokens.models import tokenizer_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import Message
    from promptkit.replay.message_counts import MessageCount
    from promptkit.replay.policies.strategy import PolicyRun, ReplayPolicy
    from promptkit.replay.prompt_cache import Cache
    from promptkit.replay.recordings import Recording

__all__ = ["Played", "ReplayRules", "Simulation", "find_fault"]


def find_fault(pieces: Sequence[MessageCount], *, opening: int | None = None) -> str | None:
    """What is wrong with a request; None where nothing is. `opening` is the piece that the recording itself begins with.

    A request has a message, begins with the user's (or as the recording does), has every call answered right behind it, in any order
    and once, and no other results.
    """
    at = next((at for at, piece in enumerate(pieces) if piece.role != "system"), len(pieces))
    if at == len(pieces):
        return "it has no message but the system's"
    if pieces[at].role != "user" and pieces[at].number != opening:
        return f"it begins with a message of the role {pieces[at].role!r}"
    waiting: set[str] = set()
    for piece in pieces[at:]:
        if piece.role == "tool":
            call = piece.message.tool_call_id or ""
            if call not in waiting:
                return f"the result of {call!r} answers no call before it"
            waiting.remove(call)
        elif waiting:
            return f"the call {min(waiting)!r} is not answered"
        elif piece.calls:
            waiting = set(piece.calls)
    return f"the call {min(waiting)!r} is not answered" if waiting else None


@attrs.frozen(kw_only=True)
class ReplayRules:
    """What is the same for all conversations and policies of a replay."""

    model: str
    """Whose tokens, window and cache are meant."""
    window: int
    """Tokens of input and output together."""
    cache: str
    """The provider's rule, one of CACHES."""
    life: float | None = None
    """Seconds that the cache remembers what is not used; None: as the rule says."""


@attrs.frozen(kw_only=True)
class Played:
    """What came of one conversation under one policy."""

    tally: ReplayTotals
    steps: tuple[Step, ...]


class Simulation:
    """One conversation, ready to be played under any number of policies: what is counted for one is not counted for the next.

    Raises ToolsFillBudgetError where its tools leave nothing of the window.
    """

    def __init__(self, recording: Recording, rules: ReplayRules) -> None:
        self._recording = recording
        self._rules = rules
        self._tokenizer = tokenizer_for(rules.model)
        self._pieces = MessageCounts(self._tokenizer)
        budget = ContextBudget.for_model(rules.model, tokenizer=self._tokenizer, tools=recording.tools, window=rules.window)
        self._budget = attrs.evolve(
            budget, reserved_output_tokens=budget.output_reserve
        )  # said aloud: presets leave what is kept for the reply alone then
        self._needs = Needs(recording, self._pieces)
        system = recording.system[0].text if recording.system else False
        self._beside = self._tokenizer.count_overhead(recording.tools, system=system).tokens

    def play(self, contender: ReplayPolicy, *, seed: str, model: bool = False) -> Played:
        """Play it under a policy. `seed` makes the chance of the policy's thresholds: the same one gives the same result.

        `model`: summaries are written by the model, over OpenAI's interface.
        """
        digest = hashlib.sha256(f"{seed}\0{contender.name}".encode()).digest()
        terms = ReplayTerms(
            budget=self._budget,
            tokenizer=self._tokenizer,
            counts=self._pieces,
            tools=self._recording.tools,
            system=self._recording.system,
            request_tokens=self._beside,
            rng=random.Random(digest).random,  # noqa: S311  # jitter that has to be the same in every run, no secret
        )
        return asyncio.run(self._written(contender, terms) if model else self._played(contender, terms))

    async def _written(self, contender: ReplayPolicy, terms: ReplayTerms) -> Played:
        from promptkit.providers.openai.client import OpenAIModel

        # Other servers that speak OpenAI's protocol mostly have the older of its two endpoints.
        model = OpenAIModel(self._rules.model, api="chat" if os.environ.get("OPENAI_BASE_URL") else "responses")
        try:
            return await self._played(contender, attrs.evolve(terms, model=model))
        finally:
            await model.aclose()

    async def _played(self, contender: ReplayPolicy, terms: ReplayTerms) -> Played:
        player = contender.start(terms)
        watch = _Watch(player, terms, cache=cache_for(self._rules.cache, self._rules.life), needs=self._needs)
        try:
            for at, message in enumerate(self._recording.messages):
                watch.clock(self._recording.times[at])
                if message.role != "assistant" or at == 0:
                    await player.add(message)
                    continue
                watch.request(await player.request(), answer=at)
                await player.add_reply(message)
                watch.summarized()
        finally:
            await player.close()
        return Played(tally=watch.tally, steps=tuple(watch.steps))


class _Watch:
    """Looks at the requests of one policy and counts."""

    def __init__(self, player: PolicyRun, terms: ReplayTerms, *, cache: Cache, needs: Needs) -> None:
        self.tally = ReplayTotals()
        self.steps: list[Step] = []
        self._player = player
        self._terms = terms
        self._cache = cache
        self._needs = needs
        self._retention = Retention(needs, place=player.place)
        self._system = terms.counts.of(terms.system)
        self._opening = needs.said[0].number if needs.said else None
        self._before: list[MessageCount] = []
        self._checkpoints = self._paid = 0
        self._now = self._last = 0.0

    def clock(self, time: float | None) -> None:
        """A message was written at this time. The request after it was sent then; the answer's own time is that of its end."""
        self._now, self._last = self._last, self._last if time is None else max(self._last, time)

    def request(self, messages: Sequence[Message], *, answer: int) -> None:
        """Count a request that the message at a place of the recording answered."""
        self._pay()  # summaries that it waited for were asked before it
        terms, player = self._terms, self._player
        pieces = [*self._system, *terms.counts.of(messages)]
        sent = self._cache.send(terms.request_tokens, pieces, self._now)
        limit = terms.budget.limit
        wrong = find_fault(pieces, opening=self._opening)
        before, self._before = self._before, pieces
        self._retention.request(pieces, answer)
        self.tally += ReplayTotals(
            requests=1,
            checkpoints=player.checkpoints - self.tally.checkpoints,
            foreground_waits=player.waits - self.tally.foreground_waits,
            overflows=limit is not None and sent.input_tokens > limit,
            invalid_requests=wrong is not None,
            cuts=pieces[: len(before)] != before,
            longest_request=sent.input_tokens,
            bill=attrs.evolve(sent, output_tokens=self._needs.said[answer].tokens),
            faults=() if wrong is None else (wrong,),
        )
        self.tally = attrs.evolve(self.tally, kept=self._retention.kept)
        self.steps.append(Step(tokens=sent.input_tokens, cached=sent.cached_tokens, checkpoint=player.checkpoints > self._checkpoints))
        self._checkpoints = player.checkpoints

    def summarized(self) -> None:
        """The answer was heard; summaries that were begun for it are done."""
        self._now = self._last
        self._pay()

    def _pay(self) -> None:
        """Bill the summaries that were made since the last time."""
        calls = self._player.calls
        for call in calls[self._paid :]:
            bill = call.bill
            if bill is None:
                behind = self._terms.counts.of(call.behind)
                bill = self._cache.send(self._terms.request_tokens, behind, self._now) if behind else Bill()
                bill = attrs.evolve(bill, input_tokens=bill.input_tokens + call.extra, output_tokens=call.output)
            self.tally = attrs.evolve(self.tally, summaries=self.tally.summaries + bill)
        self._paid = len(calls)
