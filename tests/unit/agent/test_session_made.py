"""What a session is made of, and what it says of what it cannot be made of."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from promptkit import Message, Reply, ToolDefinition, Usage, UserMessage
from promptkit.agent.session import AgentSession
from promptkit.agent.tools import Tool
from promptkit.errors import BadPropError
from promptkit.testing import ScriptedModel
from promptkit.transcript.store import MemoryStore
from tests.unit.agent.holding import held


def tool(name: str) -> Tool:
    return Tool(definition=ToolDefinition(name=name), run=lambda _: "text")


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(BadPropError, match="'read'"):
        AgentSession(model=ScriptedModel([]), tools=[tool("read"), tool("list"), tool("read")])


def test_instructions_beside_a_prompt_of_one_s_own_are_refused() -> None:
    with pytest.raises(BadPropError, match="not both"):
        AgentSession(model=ScriptedModel([]), instructions="Be brief.", prompt=lambda view: ())


@pytest.mark.parametrize("rounds", [0, -1])
def test_a_turn_without_a_request_is_refused(rounds: int) -> None:
    with pytest.raises(BadPropError, match="max_rounds"):
        AgentSession(model=ScriptedModel([]), max_rounds=rounds)


def test_a_turn_says_how_it_ended() -> None:
    cut = Reply(message=Message(role="assistant", content=("It is",)), usage=Usage(input_tokens=1), finish="length")
    assert asyncio.run(held(cut).session.run("Is it fine?")).finish == "length"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"model": "gpt-5"}, "OpenAIModel"),
        ({"transcript": "talk.jsonl"}, "Transcript(JsonlStore('talk.jsonl'))"),
        ({"transcript": MemoryStore()}, "Transcript(JsonlStore('talk.jsonl'))"),
        ({"prompt": UserMessage()["text"]}, "a function of the view"),
        ({"tools": [print]}, "Tool(definition="),
    ],
)
def test_what_a_session_cannot_be_made_of_is_said_with_what_it_takes(wrong: dict[str, Any], says: str) -> None:  # Any: wrong on purpose
    given: dict[str, Any] = {"model": ScriptedModel([]), **wrong}  # Any: likewise
    with pytest.raises(TypeError) as caught:
        AgentSession(**given)
    assert says in str(caught.value)


@pytest.mark.parametrize("wrong", [b"bytes", [{"type": "text", "text": "look"}], Message(role="user", content=("look",)), None])
def test_what_is_no_content_is_refused_and_nothing_is_written(wrong: Any) -> None:  # Any: wrong on purpose
    each = held()
    with pytest.raises(TypeError, match="a session is told text"):
        asyncio.run(each.session.run(wrong))
    assert len(each.session.transcript) == 0
