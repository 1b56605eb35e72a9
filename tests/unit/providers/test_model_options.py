"""Options for models that take them, and for those that do not."""

from __future__ import annotations

import asyncio

from promptkit import Message, ToolCall
from promptkit.providers.model import AdjustableModel, with_options
from promptkit.providers.openai import OpenAIModel
from promptkit.testing import ScriptedModel

HELLO = Message(role="user", content=("Hello.",))


def test_a_model_that_takes_options_gets_them() -> None:
    model = with_options(OpenAIModel("gpt-4.1"), temperature=0)
    assert isinstance(model, OpenAIModel)
    assert model.options == {"temperature": 0}


def test_a_model_that_takes_none_is_asked_as_it_is() -> None:
    model = ScriptedModel(["yes"])
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
