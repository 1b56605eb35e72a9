"""Summaries fail for a whole conversation: with every preset that summarizes, requests leave nothing out in silence."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import pytest

from promptkit import AgentSession, ContextBudget, Tool, ToolDefinition
from promptkit.compaction import PRESETS, CompactionCommitted, Event, Events, RequestPruned
from promptkit.errors import ContextWindowFullError, RateLimitedError
from promptkit.messages import Message, ToolCall
from promptkit.providers.model import COMPACTION
from promptkit.testing import ScriptedModel, WordTokenizer
from tests.conversations import words

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit.testing.scripted_model import Answer, Request

BY_DESIGN = {"off", "amp", "gsv_process"}
"""The presets that stop where a request does not fit, or are off."""

SUMMARIZING = sorted(set(PRESETS) - BY_DESIGN - {"truncate_only"})


def open_session(
    preset: str, failing: Callable[[], Answer], answer: Callable[[Request], Answer]
) -> tuple[AgentSession, ScriptedModel, list[Event]]:
    def step(request: Request) -> Answer:
        return failing() if request.options.get("purpose") == COMPACTION else answer(request)

    events: list[Event] = []
    model = ScriptedModel([step] * 2_000)
    session = AgentSession(
        model=model,
        preset=preset,
        tools=[Tool(definition=ToolDefinition(name="read"), run=lambda _: words(300, "r"))],
        tokenizer=WordTokenizer(),
        budget=ContextBudget(window=6_000, reserved_output_tokens=500),
        events=Events(events.append),
    )
    return session, model, events


FAILING: dict[str, Callable[[], Answer]] = {
    "down": lambda: RateLimitedError("429"),
    "weak": lambda: "We talked, and the work goes on. " * 3,
}


def is_marked(message: Message) -> bool:
    return message.text.endswith("omitted]") and message.text.startswith("[")


@pytest.mark.parametrize("kind", FAILING)
@pytest.mark.parametrize("preset", SUMMARIZING)
def test_the_extract_is_taken_at_the_overflow_and_nothing_is_left_out(
    preset: str, kind: str
) -> None:
    session, _, events = open_session(preset, FAILING[kind], lambda _: words(150, "answer"))

    async def talk() -> None:
        for turn in range(25):
            await session.run(f"question {turn} {words(150)}")
            assert session.last_omitted == ()

    asyncio.run(talk())
    committed = [event for event in events if isinstance(event, CompactionCommitted)]
    assert committed
    assert {event.mode for event in committed} == {"extractive"}
    assert not any(isinstance(event, RequestPruned) for event in events)


@pytest.mark.parametrize("preset", SUMMARIZING)
def test_one_long_turn_leaves_nothing_out_without_an_event_and_a_marker(preset: str) -> None:
    numbers = iter(range(40))

    def answer(_: Request) -> Answer:
        number = next(numbers, None)
        if number is None:
            return "Done."
        return ToolCall(id=f"c{number}", name="read", arguments="{}")

    session, model, events = open_session(preset, FAILING["down"], answer)
    asyncio.run(session.run("Read everything."))
    pruned = sum(isinstance(event, RequestPruned) for event in events)
    sent = [request for request in model.requests if request.options.get("purpose") != COMPACTION]
    marked = sum(any(map(is_marked, request.messages)) for request in sent)
    committed = sum(isinstance(event, CompactionCommitted) for event in events)
    # break_even replaces the older results of the same call, so that nothing has to leave
    assert committed or preset == "break_even"
    assert marked <= pruned
    if session.last_omitted:
        assert marked


def test_where_not_even_the_extract_helps_a_pruned_request_shows_no_request_without_its_answer() -> (
    None
):
    session, model, events = open_session(
        "truncate_only", FAILING["down"], lambda _: words(150, "answer")
    )

    async def talk() -> None:
        for turn in range(40):
            await session.run(f"question{turn} {words(150)}")

    asyncio.run(talk())
    assert session.last_omitted
    assert any(isinstance(event, RequestPruned) for event in events)
    last = [message for message in model.requests[-1].messages if message.role != "system"]
    assert sum(map(is_marked, last)) == 1
    for message, following in itertools.pairwise(last):
        if message.role == "user" and not is_marked(message):
            assert following.role == "assistant"


@pytest.mark.parametrize("preset", sorted(BY_DESIGN - {"off"}))
def test_presets_that_stop_by_design_say_so(preset: str) -> None:
    session, _, _ = open_session(preset, FAILING["down"], lambda _: words(150, "answer"))

    async def talk() -> None:
        for turn in range(40):
            await session.run(f"question {turn} {words(150)}")

    with pytest.raises(ContextWindowFullError):
        asyncio.run(talk())
