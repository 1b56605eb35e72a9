"""A state is counted as it is sent, whatever was removed before it, and none that fits is passed over."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from promptkit import (
    AssistantMessage,
    BudgetExceededError,
    Chunk,
    Group,
    PromptElement,
    Rendered,
    Renderer,
    Sizing,
    SystemMessage,
    TextChunk,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    UserMessage,
    component,
    count_request,
)
from promptkit.testing import WordTokenizer
from promptkit.wire.chat import tools_to_chat

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit import Child
    from promptkit.rendering.renderer import Defaults

TOOL = ToolDefinition(
    name="read_file",
    description="Read a file.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}},
)
LONG = "word " * 2_000


def call(name: str) -> ToolCall:
    return ToolCall(id=name, name="read_file", arguments="{}")


@component
class Same(PromptElement):
    """Its children, by a component: what it shows is expanded."""

    def render(self, sizing: Sizing) -> Child:
        return self.children


SHAPES: dict[str, Callable[[str, int], Child]] = {
    "message": lambda text, priority: UserMessage(priority=priority)[text],
    "message of a chunk": lambda text, priority: UserMessage(priority=priority)[TextChunk()[text]],
    "group": lambda text, priority: Group(priority=priority)[
        UserMessage()[text], Group()[UserMessage()[text]]
    ],
    "chunk": lambda text, priority: UserMessage()[
        TextChunk(priority=priority)[text], TextChunk(priority=3.5)["beside"]
    ],
    "chunk of chunks": lambda text, priority: UserMessage()[
        Chunk(priority=priority)[TextChunk()["a"], TextChunk()[text]],
        TextChunk(priority=3.5)["beside"],
    ],
    "result": lambda text, priority: [
        AssistantMessage(priority=priority, tool_calls=[call(text[:6] + str(priority))]),
        ToolMessage(priority=priority, tool_call_id=text[:6] + str(priority))[text],
    ],
    "message with a fallback": lambda text, priority: UserMessage(
        priority=priority, fallback=UserMessage()["short"]
    )[text],
}


@pytest.mark.parametrize("trace", [False, True], ids=["", "trace"])
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("shape", SHAPES)
def test_what_fits_beside_a_text_that_is_too_long_stays(
    shape: str, place: int, *, trace: bool
) -> None:
    build = SHAPES[shape]
    prompt = [build(LONG if at == place else f"text {at}", at + 1) for at in range(3)]
    renderer = Renderer(budget=100, tokenizer=WordTokenizer(), trace=trace)
    shown = " ".join(
        message.text
        for message in renderer.render([*prompt, UserMessage(required=True)["z"]]).messages
    )
    assert [f"text {at}" in shown for at in range(3)] == [at > place for at in range(3)]
    assert shown.endswith("z")
    assert "word" not in shown


PROMPTS: dict[str, Child] = {
    "no system message": [
        Same()[UserMessage(priority=1)["one two"]],
        UserMessage(priority=2)["three"],
        UserMessage(priority=3)["four five six"],
    ],
    "a system message": [
        SystemMessage(priority=9)["be brief"],
        Same()[UserMessage(priority=1)["one two"], UserMessage(priority=2)["three"]],
        UserMessage(priority=3)["four five six"],
    ],
    "a system message that leaves": [
        Same()[SystemMessage(priority=1)["be brief"]],
        UserMessage(priority=2)["three"],
        UserMessage(priority=3)["four five six"],
    ],
    "a fallback that is a system message": [
        UserMessage(priority=1, fallback=SystemMessage()["brief"])["a long text of some words"],
        UserMessage(priority=3)["four five six"],
    ],
    "calls": [
        AssistantMessage(priority=1, tool_calls=[call("c1"), call("c2")])[
            TextChunk(priority=0)["now"]
        ],
        ToolMessage(priority=2, tool_call_id="c1")["a result"],
        ToolMessage(priority=3, tool_call_id="c2")["another result"],
        UserMessage(priority=4)["go on"],
    ],
}


@pytest.mark.parametrize("defaults", ["promptkit", "prompt-tsx"])
@pytest.mark.parametrize("tools", [(), (TOOL,)], ids=["", "tools"])
@pytest.mark.parametrize("name", PROMPTS)
def test_a_render_costs_what_its_request_costs_and_fits_in_that(
    name: str, tools: tuple[ToolDefinition, ...], defaults: Defaults
) -> None:
    def render(budget: int) -> Rendered:
        renderer = Renderer(budget=budget, model="gpt-4o", tools=tools, defaults=defaults)
        return renderer.render(PROMPTS[name])

    budget = 1_000
    with contextlib.suppress(BudgetExceededError):
        while budget >= 0:
            made = render(budget)
            again = render(made.tokens)
            assert (again.messages, again.tokens) == (made.messages, made.tokens)
            if made.messages:
                sent = {"messages": made.to_openai(), "tools": tools_to_chat(tools)}
                assert made.tokens == count_request({"model": "gpt-4o", **sent}).tokens
            budget = made.tokens - 1
    assert budget < render(1_000).tokens
