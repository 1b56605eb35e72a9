"""Sessions over real HTTP against a server that fails in every way it can, and has another window than they think."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING

import openai
import pytest

from benchmarks.conversation_script import is_summary_request
from promptkit import ToolCall, ToolDefinition
from promptkit.agent.session.session import AgentSession
from promptkit.compaction import Events
from promptkit.errors import (
    ContextWindowFullError,
    MaxStepsExceededError,
    ModelError,
    NoPendingMessageError,
)
from promptkit.providers.openai.client import OpenAIModel
from promptkit.testing.server import (
    ConnectionReset,
    Hang,
    MalformedBody,
    TruncatedBody,
    rate_limit_error,
    serve,
    server_error,
)
from promptkit.tokens.budget import ContextBudget
from promptkit.tools import Tool
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.reader import TranscriptReader, find_problems
from promptkit.transcript.stores.jsonl.store import JsonlStore
from tests.conversations import summary_reply
from tests.examples import keep_first
from tests.unit.compaction.summarizers.writers import Recorder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from promptkit.testing.server import Exchange, Server
    from promptkit.testing.server.journal import Answer, Fault

WINDOW = 4_000
SUMMARY = f"<analysis>I think.</analysis>{summary_reply('It is about the parser.')}"
PATIENCE = 0.1
"""Seconds that the client waits for an answer."""


class Weather:
    """What the server does next, by a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.hangs = 1

    def fault(self, number: int) -> Fault | None:
        if self.rng.random() > 0.15:
            return None
        faults: list[Fault] = [
            ConnectionReset(),
            TruncatedBody(),
            MalformedBody(),
            rate_limit_error(),
            server_error(),
            Hang(),
        ]
        fault = self.rng.choice(faults)
        if isinstance(fault, Hang):
            self.hangs -= 1
        return None if isinstance(fault, Hang) and self.hangs < 0 else fault

    def answer(self, exchange: Exchange) -> Answer:
        rng = self.rng
        if is_summary_request(exchange):
            return rng.choice(
                [
                    SUMMARY,
                    SUMMARY,
                    "no tags",
                    "",
                    "<summary></summary>",
                    "<summary>I cannot help with that.</summary>",
                ]
            )
        if rng.random() < 0.1:
            return ""
        if rng.random() < 0.5:
            return [
                ToolCall(id="", name=rng.choice(["read", "fails"]), arguments="{}")
                for _ in range(rng.choice([1, 2]))
            ]
        return "So it is. " * rng.randrange(1, 60)


def read(arguments: Mapping[str, object]) -> str:
    return "lorem ipsum dolor " * 80


def fails(arguments: Mapping[str, object]) -> str:
    raise OSError("no such file")


async def storm(server: Server, rng: random.Random, file: Path, told: Recorder, turns: int) -> None:
    client = openai.AsyncOpenAI(
        base_url=server.url, api_key="none", max_retries=0, timeout=PATIENCE
    )
    events = Events(told)
    known = rng.choice([None, WINDOW, WINDOW // 2, 3 * WINDOW])
    async with client:
        for _ in range(3):  # processes, one after the other
            async with AgentSession(
                model=OpenAIModel(
                    "gpt-4.1",
                    api=rng.choice(["chat", "responses"]),
                    client=client,
                    options={"max_output_tokens": 400},
                ),
                transcript=Transcript(JsonlStore(file)),
                instructions="Be brief.",
                tools=[
                    Tool(definition=ToolDefinition(name=name), run=run)
                    for name, run in (("read", read), ("fails", fails))
                ],
                budget=ContextBudget()
                if known is None
                else ContextBudget(window=known, reserved_output_tokens=400, tools=60),
                events=events,
                max_steps=6,
            ) as session:
                for number in range(turns):
                    heard: list[str] = []
                    work = (
                        session.resume()
                        if rng.random() < 0.2
                        else session.run(
                            f"Turn {number}: look.", on_text=rng.choice([None, heard.append])
                        )
                    )
                    with suppress(
                        ModelError,
                        NoPendingMessageError,
                        ContextWindowFullError,
                        MaxStepsExceededError,
                        TimeoutError,
                    ):
                        await asyncio.wait_for(work, rng.choice([30, 30, 30, 0.02]))
            here = asyncio.current_task()
            assert [
                task
                for task in asyncio.all_tasks()
                if task is not here and "promptkit" in task.get_name()
            ] == []


def weathered(seed: int, folder: Path, turns: int) -> None:
    weather, told, rng = Weather(seed), Recorder(), random.Random(seed)
    file = folder / "t.jsonl"
    with serve(window=WINDOW, after=weather.answer, faults=weather.fault) as server:
        asyncio.run(storm(server, rng, file, told, turns))
        sent = server.requests
        assert server.stats.invalid == 0, next(
            exchange.problem for exchange in sent if exchange.problem
        )
    told.check()
    assert list(find_problems(TranscriptReader(file))) == []


@pytest.mark.long
@pytest.mark.parametrize("seed", keep_first(1, *range(3)))
def test_a_session_stands_a_storm_on_the_line(seed: int, tmp_path: Path) -> None:
    weathered(seed, tmp_path, 5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_a_session_stands_many_storms_on_the_line(seed: int, tmp_path: Path) -> None:
    weathered(seed, tmp_path, 15)
