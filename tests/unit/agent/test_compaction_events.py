"""The events of a compaction name its sizes by part, its model, its cost, and the summary."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import openai
import pytest

from promptkit import AgentSession, ContextBudget, OpenAIModel, Usage
from promptkit.compaction import (
    CompactionCancelled,
    CompactionCommitted,
    CompactionFailed,
    Events,
    FallbackSummarizer,
    InlineSummarizer,
    SimpleSummarizer,
    SummaryDiscarded,
    logging_subscriber,
)
from promptkit.errors import SummaryError
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.testing.server import serve
from promptkit.tools import Tool
from tests.conversations import summary_reply, words
from tests.unit.agent.holding import READ, reads
from tests.unit.compaction.summarizers.writers import Recorder

if TYPE_CHECKING:
    from promptkit.testing.scripted_model import Step

WIDE = ContextBudget(window=4_000, reserved_output_tokens=0)
USED = Usage(input_tokens=500, output_tokens=40, cached_tokens=300)


def session(*steps: Step, told: Recorder) -> tuple[AgentSession, ScriptedModel]:
    model = ScriptedModel(steps, name="writer", usage=USED)
    made = AgentSession(
        model=model,
        instructions="Be brief.",
        tools=[Tool(definition=READ, run=reads)],
        tokenizer=WordTokenizer(),
        budget=WIDE,
        summarizer=FallbackSummarizer(
            [InlineSummarizer(model=model), SimpleSummarizer(model=model, window=100_000)]
        ),
        events=Events(told),
    )
    return made, model


def test_a_committed_summary_tells_the_request_before_and_after_by_part() -> None:
    async def talk() -> None:
        told = Recorder()
        each, _ = session(
            words(100, "x"),
            words(100, "y"),
            summary_reply("It is about words."),
            "Fine.",
            told=told,
        )
        await each.run(words(200, "a"))
        await each.run(words(20, "b"))
        before = each.context_usage().parts
        await each.compact()
        (event,) = [event for event in told.events if isinstance(event, CompactionCommitted)]
        assert event.before == before
        assert event.after == each.context_usage().parts
        assert (event.before.summary, event.before.messages, event.after.messages) == (0, 420, 120)
        assert event.after.summary > 0
        assert event.before.system == event.after.system == 2
        assert (event.model, event.usage) == ("writer", USED)
        assert "It is about words." in event.summary
        request = await each.window.request()
        assert request.tokens == event.after.total

    asyncio.run(talk())


def test_the_cost_of_attempts_that_failed_is_part_of_a_committed_summary_s() -> None:
    async def talk() -> None:
        told = Recorder()
        each, _ = session(
            words(100, "x"),
            words(100, "y"),
            "no tags",
            summary_reply("It is about words."),
            told=told,
        )
        await each.run(words(200, "a"))
        await each.run(words(20, "b"))
        await each.compact()
        (event,) = [event for event in told.events if isinstance(event, CompactionCommitted)]
        assert event.usage == Usage(input_tokens=1_000, output_tokens=80, cached_tokens=600)

    asyncio.run(talk())


def test_a_failed_compaction_tells_what_it_cost() -> None:
    async def talk() -> None:
        told = Recorder()
        each, _ = session(words(100, "x"), words(100, "y"), "no tags", "no headings", told=told)
        await each.run(words(200, "a"))
        await each.run(words(20, "b"))
        with pytest.raises(SummaryError):
            await each.compact()
        (event,) = [event for event in told.events if isinstance(event, CompactionFailed)]
        assert event.usage == Usage(input_tokens=1_000, output_tokens=80, cached_tokens=600)

    asyncio.run(talk())


def test_a_cancelled_compaction_tells_what_it_cost_so_far() -> None:
    async def talk() -> None:
        asked = asyncio.Event()

        async def hang(_: object) -> str:
            asked.set()
            await asyncio.sleep(60)
            raise AssertionError

        told = Recorder()
        each, _ = session(words(100, "x"), words(100, "y"), "no tags", hang, told=told)
        await each.run(words(200, "a"))
        await each.run(words(20, "b"))
        task = asyncio.create_task(each.compact())
        await asyncio.wait_for(asked.wait(), timeout=5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (event,) = [event for event in told.events if isinstance(event, CompactionCancelled)]
        assert event.usage == USED

    asyncio.run(talk())


def test_a_discarded_summary_tells_what_it_cost() -> None:
    async def talk() -> None:
        told = Recorder()
        each, _ = session(
            words(100, "x"), words(100, "y"), summary_reply("It is about words."), told=told
        )
        await each.run(words(200, "a"))
        await each.run(words(20, "b"))
        compactor = each.compaction.compactor
        draft = await compactor.draft(compactor.plan(), trigger="background")
        assert draft is not None
        compactor.discard(draft, "small enough")
        assert isinstance(told.events[-1], SummaryDiscarded)
        assert told.events[-1].usage == USED

    asyncio.run(talk())


def test_the_provider_s_name_for_the_summary_request_is_told() -> None:
    async def talk(url: str, told: Recorder) -> None:
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            each = AgentSession(
                model=OpenAIModel("gpt-4.1", client=client), budget=WIDE, events=Events(told)
            )
            await each.run(words(200, "a"))
            await each.run(words(20, "b"))
            assert await each.compact() is not None

    told = Recorder()
    with serve(
        script=[words(100, "x"), words(100, "y"), summary_reply("It is about words.")]
    ) as server:
        asyncio.run(talk(server.url, told))
        number = next(
            exchange.number for exchange in server.requests if exchange.purpose == "compaction"
        )
    (event,) = [event for event in told.events if isinstance(event, CompactionCommitted)]
    assert event.request_id == f"req_{number}"
    assert event.model == "gpt-4.1"


def test_a_log_does_not_contain_the_summary(caplog: pytest.LogCaptureFixture) -> None:
    event = CompactionCommitted(
        number=1,
        trigger="manual",
        checkpoint="e9",
        mode="live",
        tokens_before=9,
        tokens_after=1,
        seconds=1.5,
        summary="a secret",
        usage=USED,
    )
    with caplog.at_level(logging.INFO, logger="test.events"):
        logging_subscriber(logging.getLogger("test.events"))(event)
    assert "secret" not in caplog.text
    assert "cached_tokens=300" in caplog.text
