"""The preset `break_even` in a window: it compacts when that pays, at any size, and shows the names that may be used again."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit import ContextWindow, Message, ToolCall, Transcript, Usage
from promptkit.compaction import DecisionMade, Event, Events
from promptkit.compaction.presets.break_even import BreakEven, break_even
from promptkit.testing import WordTokenizer
from promptkit.tokens import ContextBudget
from promptkit.transcript import Checkpoint, InMemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

BUDGET = ContextBudget(window=200_000, reserved_output_tokens=20_000)
ROUND = 4_000
"""Tokens of a tool result."""


class Talk:
    """A conversation in a window of 200,000 tokens: rounds of tool calls, with a bill for each request."""

    def __init__(
        self,
        settings: BreakEven,
        store: InMemoryStore,
        *,
        cached: float | None = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.decisions: list[str] = []
        self.cached = cached
        self.window = ContextWindow(
            model="some-model",
            transcript=Transcript(store),
            budget=BUDGET,
            tokenizer=WordTokenizer(),
            preset=break_even(settings),
            rng=lambda: 0.5,
            clock=clock,
            events=Events(self._on_event),
        )
        self.rounds = len(self.window.transcript)
        if not self.rounds:
            self.window.add(Message(role="user", content=("mend it",)))

    async def add_round(self) -> None:
        request = await self.window.request()
        self.rounds += 1
        name = f"src/part_{self.rounds}.py"
        call = ToolCall(id=f"c{self.rounds}", name="read", arguments=f'{{"path": "{name}"}}')
        usage = None
        if self.cached is not None:
            usage = Usage(
                input_tokens=request.tokens,
                output_tokens=10,
                cached_tokens=int(request.tokens * self.cached),
            )
        self.window.add_reply(Message(role="assistant", tool_calls=(call,)), usage=usage)
        await self.window.wait_idle()
        self.window.add(
            Message(
                role="tool",
                tool_call_id=call.id,
                content=(f"load_row_{self.rounds - 1} load_row_{self.rounds} " + "word " * ROUND,),
            )
        )

    @property
    def checkpoints(self) -> list[Checkpoint]:
        return [
            entry.payload
            for entry in self.window.transcript.path()
            if isinstance(entry.payload, Checkpoint)
        ]

    def _on_event(self, event: Event) -> None:
        if isinstance(event, DecisionMade):
            self.decisions.append(event.reason)


def count_rounds(settings: BreakEven, *, cached: float | None = 1.0) -> int:
    """The number of rounds until the conversation is compacted."""

    async def main() -> int:
        talk = Talk(settings, InMemoryStore(), cached=cached)
        while not talk.checkpoints:
            await talk.add_round()
        await talk.window.close()
        return talk.rounds

    return asyncio.run(main())


def test_it_compacts_long_before_the_window_is_full_and_later_with_a_higher_beta() -> None:
    early, late = count_rounds(BreakEven(beta=1.0)), count_rounds(BreakEven(beta=3.0))
    assert early < late
    assert late * ROUND < 0.5 * 180_000


def test_it_compacts_earlier_where_the_provider_reads_nothing_from_a_cache() -> None:
    assert count_rounds(BreakEven(), cached=0.0) < count_rounds(BreakEven(), cached=1.0)
    assert count_rounds(BreakEven(), cached=None) == count_rounds(BreakEven(), cached=1.0)


def test_expensive_summaries_are_made_less_often() -> None:
    assert count_rounds(BreakEven(output_ratio=2.0)) < count_rounds(BreakEven(output_ratio=20.0))


def test_a_window_that_fills_up_is_compacted_at_the_usual_threshold_whatever_beta_is() -> None:
    assert count_rounds(BreakEven(beta=1_000.0)) * ROUND < 0.82 * 180_000 + 2 * ROUND


def test_a_conversation_that_is_opened_again_goes_on_with_what_it_has_read() -> None:
    settings = BreakEven(beta=3.0, result_tokens=200_000)  # old results stay
    whole = count_rounds(settings)

    async def main() -> int:
        store = InMemoryStore()
        talk = Talk(settings, store)
        for _ in range(whole // 2):
            await talk.add_round()
        await talk.window.close()
        again = Talk(settings, store)
        again.rounds = whole // 2
        while not again.checkpoints:
            await again.add_round()
        await again.window.close()
        return again.rounds

    assert asyncio.run(main()) == whole


@pytest.mark.parametrize("names_tokens", [0, 40, 1_000])
def test_names_that_were_seen_stand_beside_the_summary_within_their_tokens(
    names_tokens: int,
) -> None:
    async def main() -> str:
        talk = Talk(attrs.evolve(BreakEven(beta=1.0), names_tokens=names_tokens), InMemoryStore())
        while not talk.checkpoints:
            await talk.add_round()
        message = (await talk.window.request()).messages[0]
        await talk.window.close()
        return message.text

    text = asyncio.run(main())
    assert ("<names-seen>" in text) == bool(names_tokens)
    if names_tokens:
        title, line = text.partition("<names-seen>\n")[2].splitlines()[:2]
        assert "Look one up before you rely on what it stands for" in title
        names = line.split(", ")
        assert 0 < len(names) <= names_tokens
        assert all(text.count(name) == 1 for name in names)  # what the summary says is not repeated
        assert "load_row_1" not in names  # a tool printed it long ago


def test_old_tool_results_leave_where_the_prompt_cache_is_cold_and_only_there() -> None:
    async def count_results(pause: float) -> int:
        now = [0.0]
        talk = Talk(BreakEven(beta=1_000.0), InMemoryStore(), clock=lambda: now[0])
        for _ in range(8):
            now[0] += 10.0
            await talk.add_round()
        now[0] += pause
        request = await talk.window.request()
        await talk.window.close()
        return sum("word word" in message.text for message in request.messages)

    assert asyncio.run(count_results(10.0)) == 8
    assert asyncio.run(count_results(1_000.0)) == 1


def test_one_request_that_the_cache_did_not_hold_makes_the_next_one_no_cold_one() -> None:
    async def main() -> int:
        talk = Talk(BreakEven(beta=1_000.0), InMemoryStore(), clock=lambda: 0.0)
        for cached in (1.0, 1.0, 1.0, 0.0):
            talk.cached = cached
            await talk.add_round()
        request = await talk.window.request()
        await talk.window.close()
        return sum("word word" in message.text for message in request.messages)

    assert asyncio.run(main()) == 4
