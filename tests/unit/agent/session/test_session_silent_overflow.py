"""A provider that cuts a request which is too large, and answers as if nothing had happened."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from promptkit import AgentSession, ContextBudget
from promptkit.compaction import PRESETS, CompactionCommitted, DecisionMade, Event, Events
from promptkit.messages import Message, Usage
from promptkit.providers.openai.client import OpenAIModel
from promptkit.testing import WordTokenizer
from promptkit.testing.server import ScriptedReply, serve
from tests.conversations import words
from tests.unit.compaction.summarizers.writers import Writer
from tests.unit.providers.openai.asking import client

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit.testing.server import Exchange

WINDOW = 10_000


def talk(
    preset: str, report: Callable[[int], int], *, turns: int = 8
) -> tuple[list[Event], list[int]]:
    """Talk over HTTP with a provider that says it read `report(number)` tokens; the events, and the sizes of the requests."""
    told: list[Event] = []
    sizes: list[int] = []

    def answer(exchange: Exchange) -> ScriptedReply:
        sizes.append(len(exchange.raw))
        usage = Usage(input_tokens=report(len(sizes)), output_tokens=5)
        return ScriptedReply(
            message=Message(role="assistant", content=words(800, "reply")), usage=usage
        )

    async def run(url: str) -> None:
        async with (
            client(url) as provider,
            AgentSession(
                model=OpenAIModel("gpt-4.1", client=provider),
                budget=ContextBudget(window=WINDOW, reserved_output_tokens=500),
                tokenizer=WordTokenizer(),
                preset=preset,
                summarizer=Writer(text=words(200, "summary")),
                events=Events(told.append),
            ) as session,
        ):
            for turn in range(turns):
                await session.run(words(100, f"ask{turn}"))

    with serve(after=answer) as server:
        asyncio.run(run(server.url))
    return told, sizes


@pytest.mark.spec("E38")
@pytest.mark.parametrize(
    "preset", [name for name in PRESETS if name not in {"amp", "off", "truncate_only"}]
)
def test_an_answer_to_a_request_that_the_provider_counted_above_the_window_is_followed_by_a_summary(
    preset: str,
) -> None:
    at = 4 if preset == "opencode" else 7  # OpenCode compacts by itself at half of this window
    told, sizes = talk(preset, lambda number: 10_500 if number == at else 1_000)
    assert [type(event) for event in told].count(CompactionCommitted) >= 1
    assert sizes[at] < sizes[at - 1]  # the next request


@pytest.mark.parametrize("preset", ["vscode", "pi", "claude_code"])
def test_a_provider_whose_counts_are_always_above_the_window_does_not_compact_again_and_again(
    preset: str,
) -> None:
    told, sizes = talk(preset, lambda _: 10_500)
    assert len(sizes) == 8
    assert [type(event) for event in told].count(CompactionCommitted) <= 1


@pytest.mark.parametrize("preset", ["amp", "off", "truncate_only"])
def test_a_preset_without_summaries_goes_on_with_requests_that_fit_as_counted_here(
    preset: str,
) -> None:
    told, sizes = talk(preset, lambda _: 10_500)
    assert len(sizes) == 8
    asked = [
        event.reason
        for event in told
        if isinstance(event, DecisionMade) and "too large" in event.reason
    ]
    assert len(asked) <= 8  # once for each reply
