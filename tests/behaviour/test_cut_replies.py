"""An answer that was cut off: it is asked for again once, no tool call of it runs, and nothing is lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import openai
from hypothesis import given, strategies as st

from promptkit import (
    ContextWindow,
    Message,
    OpenAIModel,
    Tool,
    ToolCall,
    ToolDefinition,
    Transcript,
    Usage,
)
from promptkit.agent.session.session import AgentSession
from promptkit.agent.window.continuation import CONTINUE, CUT_OFF
from promptkit.compaction import Events
from promptkit.compaction.planning.blocks import find_open_user_requests
from promptkit.providers import Reply
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.testing.server import serve
from promptkit.tokens.budget import ContextBudget
from promptkit.transcript.log.entries import Checkpoint, CustomMessage, MessageEntry
from promptkit.transcript.log.view import ViewBuilder, build_view
from promptkit.wire import to_anthropic
from tests.conversations import words
from tests.unit.compaction.summarizers.writers import WRITTEN, Recorder, Writer

if TYPE_CHECKING:
    from promptkit import TurnResult
    from promptkit.testing.scripted_model import Step
    from promptkit.transcript.log.entries import EntryPayload

CALL = ToolCall(id="c1", name="write", arguments='{"path": "a.py", "text": "def pa')


def cut(text: str = "", *calls: ToolCall, usage: Usage | None = None) -> Reply:
    return Reply(
        message=Message(role="assistant", content=text, tool_calls=calls),
        usage=usage or Usage(input_tokens=50, output_tokens=20),
        finish="length",
    )


class Talk:
    """A session with a scripted model and a tool, and a record of what the tool was called with."""

    def __init__(
        self,
        *steps: Step,
        preset: str = "vscode",
        enabled: bool = True,
        max_output_tokens: int | None = None,
    ) -> None:
        self.ran: list[object] = []
        self.model = ScriptedModel(steps)
        self.told = Recorder()
        self.session = AgentSession(
            model=self.model,
            tools=[Tool(definition=ToolDefinition(name="write"), run=self.run)],
            budget=ContextBudget(
                window=1_000, reserved_output_tokens=100, max_output_tokens=max_output_tokens
            ),
            tokenizer=WordTokenizer(),
            summarizer=Writer(),
            preset=preset,
            enabled=enabled,
            events=Events(self.told),
        )

    def run(self, arguments: object) -> str:
        self.ran.append(arguments)
        return "written"

    def sent(self, number: int) -> list[str]:
        return [
            message.text or "+".join(call.name for call in message.tool_calls)
            for message in self.model.requests[number].messages
        ]

    def recorded(self) -> list[str]:
        return [
            message.text
            for entry in self.session.transcript.entries
            if (message := entry.message) and message.role == "assistant"
        ]


def test_a_text_that_was_cut_off_is_continued_and_the_result_has_both_parts() -> None:
    talk = Talk(cut("The answer is for"), "ty-two.")
    heard: list[str] = []
    turn = asyncio.run(talk.session.run("What is it?", on_text=heard.append))
    assert (turn.text, turn.finish, turn.steps) == ("The answer is forty-two.", "stop", 2)
    assert "".join(heard) == turn.text
    assert talk.sent(1)[:2] == ["What is it?", "The answer is for"]
    assert "cut off at the output limit" in talk.sent(1)[2]


def test_a_tool_call_of_a_reply_that_was_cut_off_never_runs_and_is_asked_for_again() -> None:
    # as whole as it looks, the next one may have changed its sense
    whole = ToolCall(id="c2", name="write", arguments='{"path": "b.py"}')
    talk = Talk(
        cut("I write it.", whole, CALL),
        [ToolCall(id="c3", name="write", arguments='{"path": "a.py"}')],
        "Done.",
    )
    turn = asyncio.run(talk.session.run("Write it."))
    assert (turn.text, turn.finish, turn.steps) == ("Done.", "stop", 3)
    assert talk.ran == [{"path": "a.py"}]
    assert talk.sent(1)[:2] == ["Write it.", "I write it."]
    assert "none of them was run" in talk.sent(1)[2]
    assert not any(message.tool_calls for message in talk.model.requests[1].messages)
    to_anthropic(talk.session.window.view.messages)  # which refuses arguments that are no JSON


def test_a_second_cut_ends_the_turn_with_the_text_so_far_and_nothing_is_lost() -> None:
    talk = Talk(cut("one "), cut("two", CALL), "hello again")
    turn = asyncio.run(talk.session.run("Count."))
    assert (turn.text, turn.finish, turn.steps) == ("one two", "length", 2)
    assert talk.ran == []
    assert talk.recorded() == ["one ", "two"]
    kept = [
        entry.message
        for entry in talk.session.transcript.path()
        if entry.message and entry.message.tool_calls
    ]
    assert [message.tool_calls for message in kept] == [(CALL,)]
    assert asyncio.run(talk.session.run("And now?")).text == "hello again"
    assert talk.sent(2)[-2:] == ["two", "And now?"]


def test_a_cut_after_a_whole_reply_is_asked_for_again_too() -> None:
    call = ToolCall(id="c1", name="write")
    talk = Talk(cut("o"), [call], cut("tw"), "o", cut("thr"), "ee")
    assert asyncio.run(talk.session.run("Go.")).text == "two"
    assert asyncio.run(talk.session.run("On.")).text == "three"


def full_window(
    *answers: Step,
    preset: str = "vscode",
    enabled: bool = True,
    max_output_tokens: int | None = None,
) -> Talk:
    """Two turns: the reply of the second is cut off where the window of 1,000 is full."""
    usage = Usage(input_tokens=760, output_tokens=238)
    return Talk(
        words(400, "a"),
        words(250, "b"),
        cut("It is", usage=usage),
        *answers,
        preset=preset,
        enabled=enabled,
        max_output_tokens=max_output_tokens,
    )


async def fill(talk: Talk) -> str:
    await talk.session.run("first")
    await talk.session.run("second")
    return (await talk.session.run("What is it?")).text


def test_room_is_made_before_a_reply_is_asked_for_again_that_a_full_window_cut_off() -> None:
    talk = full_window("It is forty-two.")
    assert asyncio.run(fill(talk)) == "It is forty-two."
    assert talk.told.ends == ["committed"]
    assert WRITTEN in talk.sent(3)[0]
    # without the half answer, and without a message of ours
    assert talk.sent(3)[-1] == "What is it?"
    assert talk.recorded()[-2:] == ["It is", "It is forty-two."]


def test_no_room_is_made_where_the_output_limit_was_the_reason() -> None:
    talk = full_window(" forty-two.", max_output_tokens=238)
    assert asyncio.run(fill(talk)) == "It is forty-two."
    assert not [
        entry for entry in talk.session.transcript.path() if isinstance(entry.payload, Checkpoint)
    ]


def test_a_turn_ends_where_a_full_window_cannot_be_made_roomier() -> None:
    for talk in (
        full_window(enabled=False),
        full_window(preset="truncate_only"),
        full_window(preset="off"),
    ):
        assert asyncio.run(fill(talk)) == "It is"
        assert talk.session.window.view.messages[-1].text == "It is"
        assert len(talk.model.requests) == 3


def test_the_request_stays_open_while_the_model_continues_its_answer() -> None:
    transcript = Transcript()
    transcript.append_messages(Message(role="user", content="Go."))
    transcript.append(
        MessageEntry(message=Message(role="assistant", content="half"), finish="length")
    )
    items = build_view(transcript.path()).items
    assert find_open_user_requests(items) == []
    transcript.append(CustomMessage(name=CUT_OFF, message=Message(role="user", content=CONTINUE)))
    assert find_open_user_requests(build_view(transcript.path()).items) == [0]
    transcript.append_messages(
        Message(role="assistant", content="rest"), Message(role="user", content="And?")
    )
    assert find_open_user_requests(build_view(transcript.path()).items) == [4]


def test_a_loop_of_one_s_own_asks_again_with_one_method() -> None:
    async def talk() -> tuple[list[bool], list[str]]:
        window = ContextWindow(model="gpt-5", transcript=Transcript())
        window.add(Message(role="user", content="Go."))
        retried: list[bool] = []
        for reply in (cut("one ", CALL), cut("two"), "three"):
            await window.request()
            window.add_reply(
                reply if isinstance(reply, Reply) else Message(role="assistant", content=reply)
            )
            retried.append(await window.retry_cut_reply())
        return retried, [message.text for message in window.view.messages]

    retried, shown = asyncio.run(talk())
    assert retried == [True, False, False]
    assert (shown[0], shown[1], shown[3:]) == ("Go.", "one ", ["two", "three"])


def test_a_reply_that_a_provider_cuts_off_is_continued() -> None:
    async def tell(url: str) -> TurnResult:
        async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
            model = OpenAIModel("gpt-5", client=client).with_options(max_output_tokens=20)
            return await AgentSession(model=model, budget=10_000).run("Tell a story.")

    with serve(script=[words(40, "far"), "The end."]) as server:
        turn = asyncio.run(tell(server.url))
    assert turn.finish == "stop"
    assert turn.text.startswith("far")
    assert turn.text.endswith("The end.")
    assert turn.steps == 2


@given(st.lists(st.integers(0, 5), max_size=12))
def test_the_view_of_a_growing_transcript_is_that_of_the_whole_wherever_replies_were_cut_off(
    steps: list[int],
) -> None:
    transcript, builder = Transcript(), ViewBuilder()
    for number, step in enumerate(steps):
        calls = tuple(ToolCall(id=f"c{number}_{at}", name="read") for at in range(2))
        asked = [
            call.id
            for entry in transcript.path()
            if entry.message
            for call in entry.message.tool_calls
        ]
        payload: EntryPayload = MessageEntry(message=Message(role="user", content="go"))
        if step in {0, 1}:
            payload = MessageEntry(
                message=Message(role="assistant", content="x" * step, tool_calls=calls),
                finish="length",
            )
        elif step == 2:
            payload = MessageEntry(
                message=Message(role="assistant", tool_calls=calls), finish="tool_calls"
            )
        elif step in {3, 4} and asked:
            payload = MessageEntry(
                message=Message(
                    role="tool", tool_call_id=asked[-min(step - 2, len(asked))], content="r"
                )
            )
        transcript.append(payload)
        assert builder.build(transcript.path()) == build_view(transcript.path())


def test_a_call_of_a_reply_whose_rest_was_withheld_is_neither_run_nor_shown_again() -> None:
    ran: list[object] = []
    call = ToolCall(id="c1", name="write", arguments='{"path": "a.py"}')
    withheld = Reply(
        message=Message(role="assistant", content="I write it.", tool_calls=[call]),
        finish="content_filter",
        usage=Usage(input_tokens=5, output_tokens=5),
    )
    model = ScriptedModel([withheld, "Yes."])
    session = AgentSession(
        model=model,
        tools=[Tool(definition=ToolDefinition(name="write"), run=ran.append)],
        budget="8k",
    )
    assert asyncio.run(session.run("Write it.")).finish == "content_filter"
    assert not ran
    assert asyncio.run(session.run("Did you?")).text == "Yes."
    assert [message.text for message in model.requests[-1].messages] == [
        "Write it.",
        "I write it.",
        "Did you?",
    ]
    assert not any(message.tool_calls for message in model.requests[-1].messages)
