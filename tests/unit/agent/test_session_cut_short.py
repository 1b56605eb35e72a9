from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from promptkit import Message
from promptkit.agent.tools import CANCELLED, Tool
from promptkit.errors import (
    NothingToAnswerError,
)
from promptkit.tool_pairing import NO_RESULT
from promptkit.transcript.jsonl.store import JsonlStore
from promptkit.transcript.transcript import Transcript
from tests.unit.agent.holding import READ, calls, checkpoints, held, said, turn_and_rest
from tests.unit.compaction.conversation_builder import words

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from promptkit.agent.tools import Result


def test_E09_a_crash_between_a_call_and_its_result_is_mended_when_the_conversation_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    before = Transcript(JsonlStore(file))
    before.say(Message(role="user", content=("look",)), Message(role="assistant", tool_calls=tuple(calls(1, 2))))
    before.say(Message(role="tool", content=("text of a1",), tool_call_id="c1"))
    lines = file.read_bytes()
    each = held("It is there.", transcript=Transcript(JsonlStore(file)))
    assert asyncio.run(each.session.resume()).text == "It is there."
    assert each.sent(0) == ["Be brief.", "look", "read+read", "text of a1", NO_RESULT]
    assert file.read_bytes().startswith(lines)


def test_E08_after_a_crash_the_person_may_also_say_something_else() -> None:
    before = Transcript()
    before.say(Message(role="user", content=("look",)), Message(role="assistant", tool_calls=tuple(calls(1))))
    each = held("Fine.", "Still fine.", transcript=before)

    async def talk() -> None:
        await each.session.run("never mind")
        await each.session.run("and now")

    asyncio.run(talk())
    assert each.sent(0) == ["Be brief.", "look", "read", NO_RESULT, "never mind"]
    assert each.sent(1)[:5] == each.sent(0)  # the placeholder is the same from then on


async def hangs(arguments: Mapping[str, object]) -> Result:
    await asyncio.Event().wait()
    return "never"


def test_E83_a_turn_that_is_cancelled_in_a_tool_leaves_a_session_that_goes_on() -> None:
    each = held(calls(1), "I see.", tools=[Tool(definition=READ, run=hangs)])

    async def talk() -> None:
        running = asyncio.ensure_future(each.session.run("look"))
        for _ in range(10):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await each.session.run("never mind")).text == "I see."

    asyncio.run(talk())
    assert each.sent(1) == ["Be brief.", "look", "read", CANCELLED, "never mind"]


def test_a_turn_that_is_cancelled_while_the_model_thinks_is_resumed() -> None:
    async def thinks(request: object) -> str:
        await asyncio.Event().wait()
        return "never"

    each = held(thinks, "done")

    async def talk() -> None:
        running = asyncio.ensure_future(each.session.run("look"))
        for _ in range(10):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert said(each.session) == ["user: look"]
        assert (await each.session.resume()).text == "done"
        with pytest.raises(NothingToAnswerError):
            await each.session.resume()

    asyncio.run(talk())


def test_a_turn_that_is_cancelled_in_a_foreground_summary_writes_no_checkpoint_and_may_try_again() -> None:
    each = held(words(600, "a"), "done")
    each.writer.gate = asyncio.Event()

    async def talk() -> None:
        await each.session.run("first")
        running = asyncio.ensure_future(each.session.run(words(500, "second")))
        for _ in range(10):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert checkpoints(each.session) == []
        each.writer.gate = None
        assert (await each.session.resume()).text == "done"

    asyncio.run(talk())
    assert each.told.ends == ["cancelled", "committed"]
    each.told.check()


def test_a_session_closes_what_goes_on_beside_it() -> None:
    each = held(words(800, "a"), calls(1), words(20, "b"))

    async def talk() -> None:
        async with each.session:
            await each.session.run("first")
            each.writer.gate = asyncio.Event()
            await turn_and_rest(each, "second")
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(talk())
    assert each.told.ends == ["cancelled"]
    each.told.check()
