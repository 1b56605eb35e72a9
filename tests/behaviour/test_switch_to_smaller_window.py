"""A switch to a smaller model: the model that holds the conversation summarizes it, and a summary says how much of it its writer was shown."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit import AgentSession, ContextBudget, Tool, ToolDefinition
from promptkit.compaction import CompactionCommitted, Event, Events
from promptkit.compaction.presets.coding_agents import VSCode, vscode
from promptkit.messages import ToolCall
from promptkit.providers.openai.client import OpenAIModel
from promptkit.testing.server import api_error, serve
from promptkit.transcript import Checkpoint
from tests.conversations import summary_reply, words
from tests.unit.providers.openai.asking import client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from promptkit.compaction import Preset
    from promptkit.testing.server import Exchange
    from promptkit.testing.server.journal import Answer

TURNS = 16
SMALL = ContextBudget(window=16_000, reserved_output_tokens=1_500, safety=1)
LARGE = {"gpt-4.1": 1_000_000, "small": 16_000}


@attrs.define
class Switched:
    """What came of a talk with a large model that was continued with a small one."""

    session: AgentSession
    events: list[Event]
    requests: list[Exchange]

    @property
    def summaries(self) -> list[Exchange]:
        return [request for request in self.requests if request.purpose == "compaction"]

    @property
    def committed(self) -> list[CompactionCommitted]:
        return [event for event in self.events if isinstance(event, CompactionCommitted)]


def switch(
    then: Callable[[AgentSession, OpenAIModel, OpenAIModel], Awaitable[None]],
    *,
    preset: str | Preset = "vscode",
    turns: int = TURNS,
    down: str | None = None,
) -> Switched:
    """Talk, and switch; the model `down` writes no summaries."""

    def answer(exchange: Exchange) -> Answer:
        if exchange.purpose == "compaction":
            is_down = exchange.body["model"] == down
            gone = api_error(404, "The model does not exist.", code="model_not_found")
            return gone if is_down else summary_reply(words(60))
        if exchange.messages[-1]["role"] == "user":
            return [ToolCall(id=f"c{exchange.number}", name="read", arguments="{}")]
        return "Read."

    count = iter(range(10_000))

    def read(_: Mapping[str, object]) -> str:
        return f"{words(550)} NEEDLE{next(count):03} {words(550)}"

    async def run(url: str) -> tuple[AgentSession, list[Event]]:
        events: list[Event] = []
        async with client(url) as provider:
            large, small = (OpenAIModel(name, api="chat", client=provider) for name in LARGE)
            async with AgentSession(
                model=large,
                tools=[Tool(definition=ToolDefinition(name="read"), run=read)],
                preset=preset,
                events=Events(events.append),
            ) as session:
                for turn in range(turns):
                    await session.run(f"Step {turn}")
                events.clear()
                await then(session, large, small)
        return session, events

    with serve(after=answer, window=LARGE) as server:
        session, events = asyncio.run(run(server.url))
        return Switched(session, events, list(server.requests))


async def go_on(session: AgentSession, _: OpenAIModel, small: OpenAIModel) -> None:
    session.set_model(small, budget=SMALL)
    await session.run("Go on.")
    await session.run("And then?")


def count_needles(request: Exchange) -> int:
    return len(set(re.findall(r"NEEDLE\d{3}", str(request.body))))


@pytest.mark.long
@pytest.mark.parametrize(
    "preset", ["vscode", "copilot_cli", "codex", "pi", "opencode", "claude_code", "gsv"]
)
def test_the_model_that_holds_the_conversation_summarizes_it_and_sees_all_of_it(
    preset: str,
) -> None:
    done = switch(go_on, preset=preset)
    committed, usage = done.committed[0], done.summaries[0].usage
    assert all(request.body["model"] == "gpt-4.1" for request in done.summaries)
    assert committed.dropped == committed.shown > TURNS
    # a turn has four messages, and its needle is in the third
    assert sum(map(count_needles, done.summaries)) >= committed.dropped // 4
    assert committed.model == "gpt-4.1"
    if preset in {"vscode", "copilot_cli"}:
        assert usage is not None
        assert usage.cached_tokens > 0.95 * usage.input_tokens  # its last request is warm
        assert committed.mode == "live"
    assert done.session.window.model.name == "small"  # type: ignore[union-attr]  # a model object


@pytest.mark.long
def test_where_it_cannot_be_asked_the_new_one_reads_all_of_it_in_chunks() -> None:
    done = switch(go_on, down="gpt-4.1")
    (committed,) = done.committed
    assert (committed.mode, committed.model) == ("chunked", "small")
    assert committed.shown == committed.dropped
    chunks = [request for request in done.summaries if request.body["model"] == "small"]
    assert sum(map(count_needles, chunks)) >= TURNS - 1


@pytest.mark.long
def test_later_summaries_are_the_new_models_own() -> None:
    async def work(session: AgentSession, _: OpenAIModel, small: OpenAIModel) -> None:
        session.set_model(small, budget=SMALL)
        for turn in range(30):
            await session.run(f"Step {turn}")

    done = switch(work)
    assert [event.model for event in done.committed][:2] == ["gpt-4.1", "small"]


def test_a_conversation_that_fits_is_not_summarized() -> None:
    async def work(session: AgentSession, large: OpenAIModel, small: OpenAIModel) -> None:
        session.set_model(small, budget=SMALL)
        await session.run("Go on.")
        await session.compact()
        session.set_model(large)
        session.set_model(small, budget=SMALL)
        session.set_model(large)
        await session.run("And back.")

    done = switch(work, turns=3)
    assert [event.model for event in done.committed] == ["small"]
    assert done.requests[-1].body["model"] == "gpt-4.1"


@pytest.mark.long
def test_a_compaction_on_request_before_the_next_message_is_the_holders_too() -> None:
    async def work(session: AgentSession, _: OpenAIModel, small: OpenAIModel) -> None:
        session.set_model(small, budget=SMALL)
        await session.compact()
        await session.run("Go on.")

    done = switch(work)
    assert [(event.model, event.mode) for event in done.committed] == [("gpt-4.1", "live")]


@pytest.mark.long
def test_a_summary_of_less_is_partial_and_says_of_how_much() -> None:
    async def work(session: AgentSession, _: OpenAIModel, small: OpenAIModel) -> None:
        session.set_model(small, budget=SMALL)
        for turn in range(40):
            await session.run(f"{words(4_000)} {turn}" if turn % 5 == 4 else f"Step {turn}")

    done = switch(work, preset=vscode(VSCode(mode="full")), turns=1)
    partial = [event for event in done.committed if event.mode == "partial"]
    full = [event for event in done.committed if event.mode == "full"]
    assert partial
    assert all(0 < event.shown < event.dropped for event in partial)
    assert all(event.shown == event.dropped for event in full)
    event = partial[-1]
    payload = done.session.transcript.get(event.checkpoint).payload
    assert isinstance(payload, Checkpoint)
    assert (payload.dropped, payload.shown) == (event.dropped, event.shown)
