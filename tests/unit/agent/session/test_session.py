"""What a session is made of, and what it says of what it cannot be made of."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from promptkit_components import AgentPrompt

from promptkit import Message, ToolDefinition, Usage, UserMessage
from promptkit.agent.session.session import AgentSession
from promptkit.agent.session.tools import CANCELLED
from promptkit.compaction import CompactionHooks
from promptkit.errors import (
    ContextWindowFullError,
    InvalidArgumentError,
    MaxStepsExceededError,
    NoPendingMessageError,
)
from promptkit.pairing import MISSING_TOOL_RESULT
from promptkit.providers import Reply
from promptkit.testing import ScriptedModel
from promptkit.tokens.budget import ContextBudget
from promptkit.tools import Tool
from promptkit.transcript.log.entries import MessageEntry
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.log.view import build_summary_message
from promptkit.transcript.stores.jsonl.store import JsonlStore
from promptkit.transcript.stores.store import InMemoryStore
from tests.conversations import words
from tests.unit.agent.holding import READ, calls, checkpoints, held, said, turn_and_rest
from tests.unit.compaction.summarizers.writers import WRITTEN

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from promptkit.tools import ToolOutput


def test_a_turn_goes_on_until_the_model_is_done_and_all_of_it_is_written() -> None:
    each = held(calls(1, 2), "It is fine.")
    turn = asyncio.run(each.session.run("Is it fine?"))
    assert (turn.text, turn.steps, len(turn.usages)) == ("It is fine.", 2, 2)
    assert said(each.session) == [
        "user: Is it fine?",
        "assistant: ",
        "tool: text of a1",
        "tool: text of a2",
        "assistant: It is fine.",
    ]
    answers = [
        entry.payload
        for entry in each.session.transcript.path()
        if isinstance(entry.payload, MessageEntry) and entry.payload.usage
    ]
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
    each = held(*(calls(number) for number in range(3)), "at last", max_steps=3)
    with pytest.raises(MaxStepsExceededError):
        asyncio.run(each.session.run("go"))
    assert asyncio.run(each.session.resume()).text == "at last"


@pytest.mark.spec("E89")
def test_what_is_said_during_a_turn_is_said_when_it_is_done_and_once() -> None:
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
    each = held(
        calls(1),
        calls(2),
        "one",
        calls(3),
        "two",
        budget=ContextBudget(window=100_000, reserved_output_tokens=0),
    )

    async def talk() -> None:
        await each.session.run("first")
        await each.session.run("second")

    asyncio.run(talk())
    for before, after in itertools.pairwise(each.model.requests):
        assert after.messages[: len(before.messages)] == before.messages


def test_a_request_that_fits_in_no_way_fails_and_the_session_goes_on() -> None:
    each = held("fine")

    async def talk() -> str:
        with pytest.raises(ContextWindowFullError):
            await each.session.run(words(1_100))
        each.session.rewind(None)
        return (await each.session.run("small")).text

    assert asyncio.run(talk()) == "fine"


@pytest.mark.spec("E97")
def test_a_fork_goes_on_by_itself() -> None:
    each = held("one", "two")

    async def talk() -> None:
        await each.session.run("first")
        other = each.session.fork(InMemoryStore())
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
            instructions="You are a coding agent.",
            history=view.messages,
            keep_turns=view.keep_turns,
            query=None,
            reminder="Run the tests.",
        ),
    )

    async def talk() -> None:
        await each.session.run("first")
        await each.session.run(words(400, "second"))

    asyncio.run(talk())
    assert each.sent(0)[:2] == ["You are a coding agent.", "first"]
    instructions, summary, request = each.sent(1)[:3]
    assert (instructions, request) == ("You are a coding agent.", words(400, "second"))
    assert summary.startswith(build_summary_message(WRITTEN).text)
    assert "Run the tests." in each.sent(1)[-1]


def tool(name: str) -> Tool:
    return Tool(definition=ToolDefinition(name=name), run=lambda _: "text")


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="'read'"):
        AgentSession(model=ScriptedModel([]), tools=[tool("read"), tool("list"), tool("read")])


def test_instructions_beside_a_prompt_of_one_s_own_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="not both"):
        AgentSession(model=ScriptedModel([]), instructions="Be brief.", prompt=lambda view: ())


@pytest.mark.parametrize("rounds", [0, -1])
def test_a_turn_without_a_request_is_refused(rounds: int) -> None:
    with pytest.raises(InvalidArgumentError, match="max_steps"):
        AgentSession(model=ScriptedModel([]), max_steps=rounds)


def test_a_turn_says_how_it_ended() -> None:
    cut = Reply(
        message=Message(role="assistant", content=("It is",)),
        usage=Usage(input_tokens=1),
        finish="length",
    )
    assert asyncio.run(held(cut, cut).session.run("Is it fine?")).finish == "length"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"model": 5}, "OpenAIModel"),
        ({"transcript": "talk.jsonl"}, "Transcript(JsonlStore('talk.jsonl'))"),
        ({"transcript": InMemoryStore()}, "Transcript(JsonlStore('talk.jsonl'))"),
        ({"prompt": UserMessage()["text"]}, "a function that takes a ConversationView"),
        ({"tools": [int]}, "Tool(definition="),
        ({"hooks": [CompactionHooks()]}, "HookChain(first, second)"),
        ({"rng": 0.5}, "a function that returns numbers from 0 to below 1, such as lambda: 0.5"),
        ({"redactor": "secret"}, "a function from text to text, such as redact_secrets"),
        ({"events": print}, "Events(function)"),
        ({"policy": 1}, "default_policy()"),
        ({"summarizer": "gpt-5"}, "ExtractiveSummarizer"),
        ({"budget": ["8k"]}, "8k"),
    ],
)
# Any stands for wrong on purpose
def test_what_a_session_cannot_be_made_of_is_said_with_what_it_takes(
    wrong: dict[str, Any], says: str
) -> None:
    given: dict[str, Any] = {"model": ScriptedModel([]), **wrong}  # Any: likewise
    with pytest.raises(TypeError) as caught:
        AgentSession(**given)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [b"bytes", [{"type": "text", "text": "look"}], Message(role="user", content=("look",)), None],
)
# Any stands for wrong on purpose
def test_what_is_no_content_is_refused_and_nothing_is_written(wrong: Any) -> None:
    each = held()
    with pytest.raises(TypeError, match="a session takes text"):
        asyncio.run(each.session.run(wrong))
    assert len(each.session.transcript) == 0


@pytest.mark.spec("E09")
def test_a_crash_between_a_call_and_its_result_is_mended_when_the_conversation_goes_on(
    tmp_path: Path,
) -> None:
    file = tmp_path / "t.jsonl"
    before = Transcript(JsonlStore(file))
    before.append_messages(
        Message(role="user", content=("look",)),
        Message(role="assistant", tool_calls=tuple(calls(1, 2))),
    )
    before.append_messages(Message(role="tool", content=("text of a1",), tool_call_id="c1"))
    lines = file.read_bytes()
    each = held("It is there.", transcript=Transcript(JsonlStore(file)))
    assert asyncio.run(each.session.resume()).text == "It is there."
    assert each.sent(0) == ["Be brief.", "look", "read+read", "text of a1", MISSING_TOOL_RESULT]
    assert file.read_bytes().startswith(lines)


@pytest.mark.spec("E08")
def test_after_a_crash_the_person_may_also_say_something_else() -> None:
    before = Transcript()
    before.append_messages(
        Message(role="user", content=("look",)),
        Message(role="assistant", tool_calls=tuple(calls(1))),
    )
    each = held("Fine.", "Still fine.", transcript=before)

    async def talk() -> None:
        await each.session.run("never mind")
        await each.session.run("and now")

    asyncio.run(talk())
    assert each.sent(0) == ["Be brief.", "look", "read", MISSING_TOOL_RESULT, "never mind"]
    assert each.sent(1)[:5] == each.sent(0)  # the placeholder is the same from then on


async def hangs(arguments: Mapping[str, object]) -> ToolOutput:
    await asyncio.Event().wait()
    return "never"


@pytest.mark.spec("E83")
def test_a_turn_that_is_cancelled_in_a_tool_leaves_a_session_that_goes_on() -> None:
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


def test_a_turn_whose_program_was_killed_while_its_tools_ran_is_resumed() -> None:
    before = Transcript()
    before.append_messages(
        Message(role="user", content="look"), Message(role="assistant", tool_calls=calls(1, 2))
    )
    each = held("It is there.", transcript=before)
    assert asyncio.run(each.session.resume()).text == "It is there."
    assert each.sent(0) == [
        "Be brief.",
        "look",
        "read+read",
        MISSING_TOOL_RESULT,
        MISSING_TOOL_RESULT,
    ]


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
        with pytest.raises(NoPendingMessageError):
            await each.session.resume()

    asyncio.run(talk())


def test_a_turn_that_is_cancelled_in_a_foreground_summary_writes_no_checkpoint_and_may_try_again() -> (
    None
):
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
