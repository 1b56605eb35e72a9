"""A background summary survives a switch to a larger window, and is judged there by its size."""

from __future__ import annotations

import asyncio

import pytest

from promptkit.agent import AgentSession
from promptkit.compaction import CompactionCommitted, Events, SummaryDiscarded
from promptkit.testing import ScriptedModel, WordTokenizer, summary_answer
from promptkit.tokens import ContextBudget
from tests.conversations import words
from tests.unit.compaction.summarizers.writers import Recorder


def budget_of(window: int) -> ContextBudget:
    return ContextBudget(window=window, reserved_output_tokens=0)


def switched_while_running(window: int, *, ends_before: bool) -> Recorder:
    """The events of a session whose summary was running when the model was changed, up to the next reply."""
    told = Recorder()

    async def talk() -> None:
        gate = asyncio.Event()

        async def write(_: object) -> str:
            await gate.wait()
            return summary_answer(words(60))

        session = AgentSession(
            model=ScriptedModel([words(4_300), words(4_900)], name="first"),
            summarizer=ScriptedModel([write] * 3, name="writer"),
            tokenizer=WordTokenizer(),
            budget=budget_of(10_000),
            events=Events(told),
            rng=lambda: 0.5,
        )
        await session.run("one")
        await session.run("two")
        assert session.compaction.background.state == "running"
        if ends_before:
            gate.set()
            await session.window.wait_idle()
        session.set_model(ScriptedModel([words(10)], name="second"), budget=budget_of(window))
        gate.set()
        await session.window.wait_idle()
        await session.run("three")
        await session.close()

    asyncio.run(talk())
    told.check()
    return told


@pytest.mark.parametrize("ends_before", [True, False])
def test_the_summary_is_put_in_place_where_the_larger_window_is_still_rather_full(
    *, ends_before: bool
) -> None:
    told = switched_while_running(12_000, ends_before=ends_before)
    (committed,) = [each for each in told.events if isinstance(each, CompactionCommitted)]
    assert committed.trigger == "background"


@pytest.mark.parametrize("ends_before", [True, False])
def test_the_summary_is_discarded_where_the_conversation_is_small_in_the_larger_window(
    *, ends_before: bool
) -> None:
    told = switched_while_running(100_000, ends_before=ends_before)
    (discarded,) = [each for each in told.events if isinstance(each, SummaryDiscarded)]
    assert "small enough" in discarded.reason
    assert told.ends == ["discarded"]
