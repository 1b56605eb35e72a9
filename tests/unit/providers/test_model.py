"""The Model protocol: what is one, to checkers and at run time.

Options for models that take them, and for those that do not.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit import Message, ToolCall, ToolDefinition, Usage
from promptkit.providers import Model, Reply
from promptkit.providers.model import AdjustableModel, with_options
from promptkit.providers.openai.client import OpenAIModel
from promptkit.testing import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import Sequence


DONE = Message(role="assistant", content=("Done.",))


@attrs.frozen
class Echo:
    """A model of a user's own: it subclasses nothing."""

    name: str

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        return Reply(message=messages[-1], usage=Usage(input_tokens=len(tools)), finish="stop")


def test_anything_with_a_name_and_complete_is_a_model() -> None:
    model: Model = Echo("echo")
    reply = asyncio.run(model.complete([DONE], tools=[ToolDefinition(name="read")]))
    assert (model.name, reply.message, reply.usage.input_tokens) == ("echo", DONE, 1)


def test_a_reply_is_a_value() -> None:
    reply = Reply(message=DONE, usage=Usage(input_tokens=3, output_tokens=1), finish="stop")
    assert reply == Reply(message=DONE, usage=Usage(input_tokens=3, output_tokens=1), finish="stop")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(reply, "finish", "length")  # noqa: B010  # a checker would refuse the assignment


HELLO = Message(role="user", content=("Hello.",))


def test_a_model_that_takes_options_gets_them() -> None:
    model = with_options(OpenAIModel("gpt-4.1"), temperature=0)
    assert isinstance(model, OpenAIModel)
    assert model.options == {"temperature": 0}


def test_a_model_that_takes_none_is_asked_as_it_is() -> None:
    model = Echo("echo")
    assert not isinstance(model, AdjustableModel)
    assert with_options(model, temperature=0, tool_choice="none") is model
    assert with_options(model, on_text=None) is model


def test_the_text_of_any_model_can_be_heard() -> None:
    pieces: list[str] = []
    call = ToolCall(id="c", name="read")
    with ScriptedModel(["yes", call], name="mute") as model:
        listening = with_options(model, on_text=pieces.append)
        assert listening.name == "mute"
        replies = [asyncio.run(listening.complete([HELLO])) for _ in range(2)]
    assert [reply.message.text for reply in replies] == ["yes", ""]
    assert replies[1].message.tool_calls == (call,)
    assert pieces == ["yes"]
    asyncio.run(with_options(Echo("echo"), on_text=pieces.append).complete([HELLO]))
    assert pieces == ["yes", HELLO.text]  # one that takes no options at all
