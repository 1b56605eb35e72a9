"""`AgentSession.stream`: what happens in a turn, as it happens."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from promptkit import (
    AgentSession,
    JsonlStore,
    Message,
    SyncSession,
    ToolCall,
    Transcript,
    TurnResult,
    tool,
)
from promptkit.agent import TextDelta
from promptkit.compaction import Events
from promptkit.errors import ModelError, NoPendingMessageError
from promptkit.testing import ScriptedModel

if TYPE_CHECKING:
    from pathlib import Path

    from promptkit.agent import StreamEvent

KINDS = [
    "RequestSent",
    "ReplyReceived",
    "ToolCalled",
    "ToolReturned",
    "RequestSent",
    "TextDelta",
    "ReplyReceived",
    "TurnResult",
]


@tool
def add(left: int, right: int) -> str:
    """Add two numbers."""
    return str(left + right)


def ask_to_add() -> Message:
    call = ToolCall(id="c1", name="add", arguments='{"left": 1, "right": 2}')
    return Message(role="assistant", tool_calls=[call])


def open_session(**settings: object) -> AgentSession:
    model = ScriptedModel([ask_to_add(), "It is three."])
    return AgentSession(model=model, tools=[add], **settings)  # type: ignore[arg-type]  # passed on


async def collect(session: AgentSession, text: str = "1 + 2?") -> list[StreamEvent]:
    return [event async for event in session.stream(text)]


def test_a_stream_has_text_calls_results_usage_and_the_result_in_order() -> None:
    async def check() -> None:
        events = await collect(open_session())
        assert [type(event).__name__ for event in events] == KINDS
        *_, result = events
        assert isinstance(result, TurnResult)
        assert (
            "".join(event.text for event in events if isinstance(event, TextDelta)) == result.text
        )

    asyncio.run(check())


def test_the_synchronous_stream_has_the_same_events() -> None:
    with SyncSession(open_session()) as session:
        assert [type(event).__name__ for event in session.stream("1 + 2?")] == KINDS
        assert session.transcript.entries[-1].message is not None


def test_events_of_another_conversation_are_not_in_it() -> None:
    async def check() -> None:
        events = Events()
        streams = await asyncio.gather(
            *(collect(open_session(events=events), f"{number}?") for number in range(3))
        )
        assert [[type(event).__name__ for event in stream] for stream in streams] == [KINDS] * 3

    asyncio.run(check())


def test_a_closed_stream_cancels_the_turn_and_resume_continues_it(tmp_path: Path) -> None:
    async def check() -> None:
        transcript = Transcript(JsonlStore(tmp_path / "talk.jsonl"))
        session = open_session(transcript=transcript)
        async with aclosing(session.stream("1 + 2?")) as stream:
            async for event in stream:
                if type(event).__name__ == "ToolCalled":
                    break
        await asyncio.wait_for(session.wait_idle(), 5)
        assert transcript.entries[-1].message is not None
        assert transcript.entries[-1].message.role == "tool"
        assert (await session.resume()).text == "It is three."

    asyncio.run(check())


def test_a_synchronous_stream_that_is_left_cancels_the_turn() -> None:
    @tool(name="add")
    async def wait(left: int, right: int) -> str:
        """Wait."""
        await asyncio.sleep(60)
        return f"{left} {right}"

    model = ScriptedModel([ask_to_add(), "It is three."])
    with SyncSession(AgentSession(model=model, tools=[wait])) as session:
        stream = session.stream("1 + 2?")
        assert "ToolCalled" in (type(event).__name__ for event in stream)
        stream.close()
        assert session.resume().text == "It is three."


def test_a_stream_raises_what_run_raises() -> None:
    async def check() -> None:
        with pytest.raises(NoPendingMessageError):
            await collect(open_session(), "")
        with pytest.raises(ModelError):
            await collect(AgentSession(model=ScriptedModel([ModelError("refused")])), "Hello")

    asyncio.run(check())


def test_a_stream_leaves_no_subscriber_behind() -> None:
    async def check() -> None:
        events = Events()
        await collect(open_session(events=events))
        assert not vars(events)["_subscribers"]

    asyncio.run(check())
