"""The Model protocol: what is one, to checkers and at run time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit import Message, Model, Reply, ToolDefinition, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

DONE = Message(role="assistant", content=("Done.",))


@attrs.frozen
class Echo:
    """A model of a user's own: it subclasses nothing."""

    name: str

    async def complete(self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()) -> Reply:
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
