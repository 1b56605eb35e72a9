from __future__ import annotations

import asyncio
import itertools

import pytest
from promptkit_components import AgentPrompt

from promptkit.compaction.budget import Budget
from promptkit.errors import (
    TooManyRoundsError,
    WindowFullError,
)
from promptkit.transcript.entries import Said
from promptkit.transcript.store import MemoryStore
from promptkit.transcript.view import summary_message
from tests.unit.agent.holding import READ, calls, held, said
from tests.unit.compaction.conversation_builder import words


def test_a_turn_goes_on_until_the_model_is_done_and_all_of_it_is_written() -> None:
    each = held(calls(1, 2), "It is fine.")
    turn = asyncio.run(each.session.run("Is it fine?"))
    assert (turn.text, turn.rounds, len(turn.usage)) == ("It is fine.", 2, 2)
    assert said(each.session) == [
        "user: Is it fine?",
        "assistant: ",
        "tool: text of a1",
        "tool: text of a2",
        "assistant: It is fine.",
    ]
    answers = [entry.payload for entry in each.session.transcript.path() if isinstance(entry.payload, Said) and entry.payload.usage]
    assert [answer.finish for answer in answers] == ["tool_calls", "stop"]
    assert {answer.model for answer in answers} == {"scripted"}
    assert each.sent(1) == ["Be brief.", "Is it fine?", "read+read", "text of a1", "text of a2"]
    assert each.model.requests[0].tools == (READ,)


def test_text_is_heard_as_it_comes() -> None:
    each = held("It is fine.")
    heard: list[str] = []
    asyncio.run(each.session.run("Is it fine?", on_text=heard.append))
    assert "".join(heard) == "It is fine."


def test_a_model_that_goes_on_calling_is_stopped() -> None:
    each = held(*(calls(number) for number in range(3)), "at last", max_rounds=3)
    with pytest.raises(TooManyRoundsError):
        asyncio.run(each.session.run("go"))
    assert asyncio.run(each.session.resume()).text == "at last"


def test_E89_what_is_said_during_a_turn_is_said_when_it_is_done_and_once() -> None:
    each = held(calls(1), "first done", "second done")

    async def both() -> None:
        first = asyncio.ensure_future(each.session.run("first"))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(each.session.run("second"))
        assert [(await first).text, (await second).text] == ["first done", "second done"]

    asyncio.run(both())
    assert said(each.session) == [
        "user: first",
        "assistant: ",
        "tool: text of a1",
        "assistant: first done",
        "user: second",
        "assistant: second done",
    ]


def test_the_same_view_gives_the_same_bytes_and_requests_only_grow() -> None:
    each = held(calls(1), calls(2), "one", calls(3), "two", budget=Budget(window=100_000, reply_tokens=0))

    async def talk() -> None:
        await each.session.run("first")
        await each.session.run("second")

    asyncio.run(talk())
    for before, after in itertools.pairwise(each.model.requests):
        assert after.messages[: len(before.messages)] == before.messages


def test_a_request_that_fits_in_no_way_fails_and_the_session_goes_on() -> None:
    each = held("fine")

    async def talk() -> str:
        with pytest.raises(WindowFullError):
            await each.session.run(words(1_100))
        each.session.rewind(None)
        return (await each.session.run("small")).text

    assert asyncio.run(talk()) == "fine"


def test_E97_a_fork_goes_on_by_itself() -> None:
    each = held("one", "two")

    async def talk() -> None:
        await each.session.run("first")
        other = each.session.fork(MemoryStore())
        await other.run("elsewhere")
        assert said(other)[-2:] == ["user: elsewhere", "assistant: two"]

    asyncio.run(talk())
    assert said(each.session) == ["user: first", "assistant: one"]
    assert each.sent(-1)[0] == "Be brief."


def test_the_prompt_may_be_one_s_own() -> None:
    each = held(
        words(600, "a"),
        "done",
        prompt=lambda view: AgentPrompt(
            instructions="You are a coding agent.", history=view.messages, keep_turns=view.keep_turns, query=None, reminder="Run the tests."
        ),
    )

    async def talk() -> None:
        await each.session.run("first")
        await each.session.run(words(400, "second"))

    asyncio.run(talk())
    assert each.sent(0)[:2] == ["You are a coding agent.", "first"]
    assert each.sent(1)[:3] == ["You are a coding agent.", summary_message("S").text, words(400, "second")]
    assert "Run the tests." in each.sent(1)[-1]
