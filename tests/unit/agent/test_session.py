from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import attrs
import pytest
from promptkit_components import AgentPrompt

from promptkit import Message, Reply, ToolCall, ToolDefinition, Usage
from promptkit.agent.session import AgentSession
from promptkit.agent.tools import CANCELLED, Tool
from promptkit.compaction.budget import Budget
from promptkit.compaction.events import Events
from promptkit.errors import (
    ContextOverflowError,
    NothingToAnswerError,
    RateLimitedError,
    TooManyRoundsError,
    WindowFullError,
)
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.transcript.entries import Checkpoint, Said, Setting
from promptkit.transcript.jsonl import JsonlStore
from promptkit.transcript.log import Transcript
from promptkit.transcript.pairing import NO_RESULT
from promptkit.transcript.projection import summary_message
from promptkit.transcript.store import MemoryStore
from tests.unit.compaction.talk import words
from tests.unit.compaction.writers import Recorder, Writer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from promptkit.agent.prompt import Prompt
    from promptkit.agent.tools import Result
    from promptkit.testing.scripted import Step
    from promptkit.transcript.entries import Entry

READ = ToolDefinition(name="read")


async def reads(arguments: Mapping[str, object]) -> Result:
    return f"text of {arguments.get('path', '?')}"


@attrs.define
class Held:
    """A session with a scripted model, and what was told of it."""

    session: AgentSession
    model: ScriptedModel
    told: Recorder
    writer: Writer

    def sent(self, number: int) -> list[str]:
        """The messages of a request, counted from 0; calls by the name of the tool."""
        return [message.text or "+".join(call.name for call in message.tool_calls) for message in self.model.requests[number].messages]


def held(
    *steps: Step,
    transcript: Transcript | None = None,
    budget: Budget | None = None,
    prompt: Prompt | None = None,
    tools: Sequence[Tool] = (Tool(definition=READ, run=reads),),
    enabled: bool = True,
    max_rounds: int = 100,
) -> Held:
    model, told, writer = ScriptedModel(steps), Recorder(), Writer()
    session = AgentSession(
        model=model,
        transcript=transcript,
        instructions=None if prompt else "Be brief.",
        prompt=prompt,
        tools=tools,
        budget=budget or Budget(window=1_000, reply_tokens=0),
        summarizer=writer,
        tokenizer=WordTokenizer(),
        events=Events(told),
        enabled=enabled,
        max_rounds=max_rounds,
        rng=lambda: 0.5,
    )
    return Held(session, model, told, writer)


def calls(*numbers: int, path: str = "a") -> list[ToolCall]:
    return [ToolCall(id=f"c{number}", name="read", arguments=f'{{"path": "{path}{number}"}}') for number in numbers]


def said(session: AgentSession) -> list[str]:
    return [f"{message.role}: {message.text}" for entry in session.transcript.path() if (message := entry.message)]


def checkpoints(session: AgentSession) -> list[Entry]:
    return [entry for entry in session.transcript.path() if isinstance(entry.payload, Checkpoint)]


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


@pytest.mark.parametrize("content", ["", " \n", (), ("", " ")])
def test_an_empty_message_is_refused_and_nothing_is_written(content: str | tuple[str, ...]) -> None:
    each = held()
    with pytest.raises(NothingToAnswerError):
        asyncio.run(each.session.run(content))
    assert len(each.session.transcript) == 0
    assert each.model.requests == []


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


async def turn_and_rest(each: Held, text: str) -> str:
    """A turn, and a moment for what goes on beside the conversation."""
    done = (await each.session.run(text)).text
    for _ in range(4):
        await asyncio.sleep(0)
    return done


def test_a_background_summary_is_put_in_place_before_the_next_request() -> None:
    each = held(words(400, "a"), calls(1), words(300, "b"), "end")

    async def talk() -> None:
        await turn_and_rest(each, words(100, "ask"))
        await turn_and_rest(each, "again")
        assert checkpoints(each.session) == []
        await turn_and_rest(each, "last")
        await each.session.close()

    asyncio.run(talk())
    assert each.sent(-1) == ["Be brief.", summary_message("S").text, words(300, "b"), "last"]
    assert each.told.ends == ["committed"]
    each.told.check()


def test_an_overflow_is_summarized_in_the_foreground_and_the_request_stays() -> None:
    each = held(words(600, "a"), "done")

    async def talk() -> None:
        await each.session.run("first")
        await each.session.run(words(500, "second"))

    asyncio.run(talk())
    assert each.sent(-1) == ["Be brief.", summary_message("S").text, words(500, "second")]
    assert each.told.triggers == ["foreground"]
    each.told.check()


def test_an_overflow_that_cannot_be_summarized_is_pruned() -> None:
    each = held(words(600, "a"), "done")
    each.writer.error = ValueError("no provider")

    async def talk() -> None:
        await each.session.run("first")
        await each.session.run(words(500, "second"))

    asyncio.run(talk())
    assert each.sent(-1)[-1] == words(500, "second")
    assert words(600, "a") not in each.sent(-1)
    assert each.told.ends == ["failed"]


def test_a_request_that_fits_in_no_way_fails_and_the_session_goes_on() -> None:
    each = held("fine")

    async def talk() -> str:
        with pytest.raises(WindowFullError):
            await each.session.run(words(1_100))
        each.session.rewind(None)
        return (await each.session.run("small")).text

    assert asyncio.run(talk()) == "fine"


def overflow(window: int | None = None) -> ContextOverflowError:
    error = ContextOverflowError("too large")
    error.window = window
    return error


def test_E30_a_refusal_is_recovered_once_with_a_smaller_request() -> None:
    each = held(words(300, "a"), overflow(), "done", budget=Budget(window=100_000, reply_tokens=0))

    async def talk() -> str:
        await each.session.run("first")
        return (await each.session.run("second")).text

    assert asyncio.run(talk()) == "done"
    refused, smaller = each.model.requests[1:]
    assert len(smaller.messages) < len(refused.messages)
    limit = each.session.keeper.budget.limit
    assert limit is not None
    assert limit < 310  # learnt, and kept to from now on


def test_the_window_that_the_provider_names_is_learnt() -> None:
    each = held(words(300, "a"), overflow(window=250), "done", budget=Budget(window=100_000, reply_tokens=50))

    async def talk() -> None:
        await each.session.run("first")
        await each.session.run("second")

    asyncio.run(talk())
    assert each.session.keeper.budget.window == 250
    assert sum(len(text.split()) for text in each.sent(-1)) <= 200


def test_E30_a_second_refusal_comes_out() -> None:
    each = held(words(300, "a"), overflow(), overflow(), "done")

    async def talk() -> None:
        await each.session.run("first")
        with pytest.raises(ContextOverflowError):
            await each.session.run("second")
        assert len(each.model.requests) == 3
        assert (await each.session.resume()).text == "done"

    asyncio.run(talk())


def test_E36_a_rate_limit_is_no_overflow() -> None:
    each = held(words(300, "a"), RateLimitedError("too many tokens a minute"), "done")

    async def talk() -> None:
        await each.session.run("first")
        with pytest.raises(RateLimitedError):
            await each.session.run("second")
        assert (await each.session.resume()).text == "done"

    asyncio.run(talk())
    assert each.writer.tasks == []
    assert checkpoints(each.session) == []


def test_a_conversation_is_compacted_on_demand_and_that_is_undone() -> None:
    each = held(words(50, "a"), words(50, "b"), "end")

    async def talk() -> None:
        await each.session.run("first")
        await each.session.run("second")
        assert await each.session.compact("mind the parser") is not None
        assert each.writer.tasks[0].instructions == "mind the parser"
        shown = len(each.session.keeper.view.items)
        assert each.session.undo_compaction() is not None
        assert len(each.session.keeper.view.items) > shown
        await each.session.run("third")

    asyncio.run(talk())
    assert each.sent(-1) == ["Be brief.", "first", words(50, "a"), "second", words(50, "b"), "third"]


def test_E111_an_empty_conversation_has_nothing_to_compact_undo_or_resume() -> None:
    each = held()

    async def talk() -> None:
        assert await each.session.compact() is None
        assert each.session.undo_compaction() is None
        with pytest.raises(NothingToAnswerError):
            await each.session.resume()

    asyncio.run(talk())
    assert len(each.session.transcript) == 0


def test_E98_a_rewind_to_before_a_compaction_shows_what_was() -> None:
    each = held(words(50, "a"), words(50, "b"), "other way")

    async def talk() -> None:
        await each.session.run("first")
        second = each.session.transcript.leaf
        await each.session.run("second")
        await each.session.compact()
        each.session.rewind(second)
        await each.session.run("third")

    asyncio.run(talk())
    assert each.sent(-1) == ["Be brief.", "first", words(50, "a"), "third"]


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


def test_a_smaller_window_is_made_room_for_at_the_next_request() -> None:
    each = held(words(600, "a"))
    smaller = ScriptedModel(["done"], name="smaller")

    async def talk() -> None:
        await each.session.run("first")
        each.session.switch(smaller, budget=Budget(window=300, reply_tokens=0))
        await each.session.run("second")

    asyncio.run(talk())
    assert [message.text for message in smaller.requests[0].messages] == ["Be brief.", summary_message("S").text, "second"]
    settings = [entry.payload for entry in each.session.transcript.path() if isinstance(entry.payload, Setting)]
    assert settings == [Setting(name="model", value="smaller")]


def test_E91_a_summary_in_the_making_does_not_outlive_the_model_that_it_is_for() -> None:
    each = held(words(800, "a"), calls(1), words(20, "b"))
    other = ScriptedModel(["done"], name="other")

    async def talk() -> None:
        await each.session.run("first")
        each.writer.gate = asyncio.Event()
        await turn_and_rest(each, "second")
        assert each.session.keeper.background.state == "running"
        each.session.switch(other, budget=Budget(window=100_000, reply_tokens=0))
        await each.session.run("third")
        await each.session.close()

    asyncio.run(talk())
    assert checkpoints(each.session) == []
    assert each.told.ends == ["cancelled"]


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


def test_a_large_result_is_cut_for_the_model_and_kept_in_full() -> None:
    async def large(arguments: Mapping[str, object]) -> Result:
        return words(5_000)

    each = held(calls(1), "done", tools=[Tool(definition=READ, run=large)])
    asyncio.run(each.session.run("look"))
    assert len(each.sent(1)[-1].split()) <= 500
    assert said(each.session)[2] == f"tool: {words(5_000)}"
    assert each.told.triggers == []


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


def test_with_no_window_known_nothing_is_compacted_until_a_provider_names_one() -> None:
    each = held(words(3_000, "a"), overflow(window=500), "done", budget=Budget())

    async def talk() -> None:
        await each.session.run("first")
        assert each.told.triggers == []
        await each.session.run("second")

    asyncio.run(talk())
    assert each.session.keeper.budget.window == 500


def test_E42_a_provider_that_counts_nothing_starts_no_summary() -> None:
    nothing = Usage(input_tokens=0)
    replies = [Reply(message=Message(role="assistant", content=(words(5),)), usage=nothing, finish="stop") for _ in range(3)]
    each = held(*replies)

    async def talk() -> None:
        for number in range(3):
            await each.session.run(f"turn {number}")

    asyncio.run(talk())
    assert each.told.triggers == []


def test_E40_a_summary_is_begun_and_put_in_place_inside_one_long_turn() -> None:
    each = held(*(calls(number, path=words(80, "p")) for number in range(1, 30)), "done")
    turn = asyncio.run(each.session.run("work"))
    assert turn.text == "done"
    assert len(checkpoints(each.session)) >= 2
    assert "work" in each.sent(-1)  # the request is said again behind every summary
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
