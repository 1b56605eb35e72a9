from __future__ import annotations

from typing import Any

import pytest

from promptkit import Message, Tool, ToolDefinition, UserMessage, fit, render
from promptkit.errors import InvalidArgumentError
from promptkit.tools import tool_definitions

READ = ToolDefinition(name="read", description="Read a file.")
TOOL = Tool(definition=READ, run=str)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="two tools have the name 'read'"):
        tool_definitions([TOOL, READ])


def test_tools_and_definitions_have_definitions() -> None:
    assert tool_definitions([TOOL]) == tool_definitions([READ]) == (READ,)
    assert tool_definitions(()) == ()


SCHEMA: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}}


@pytest.mark.parametrize(
    "given",
    [
        {"type": "function", "function": {"name": "read", "parameters": SCHEMA, "strict": True}},
        {"type": "function", "name": "read", "parameters": SCHEMA, "strict": True},
        {"name": "read", "input_schema": SCHEMA, "strict": True},
    ],
    ids=["chat", "responses", "anthropic"],
)
def test_a_tool_as_an_api_takes_it_is_a_definition(given: dict[str, Any]) -> None:
    definition = ToolDefinition(name="read", parameters=SCHEMA, strict=True)
    assert tool_definitions([given]) == (definition,)
    messages = [Message(role="user", content="Hello")]
    assert fit(messages, tools=[given]).tokens == fit(messages, tools=[definition]).tokens


@pytest.mark.parametrize(
    "wrong", [["read"], [{"name": "read"}], [{"type": "web_search"}], [None], [int]]
)
def test_what_is_no_tool_is_refused_with_what_to_write(wrong: Any) -> None:
    with pytest.raises(
        TypeError, match=r"a tool is a function, Tool\(definition=.*\), ToolDefinition.*, or a dict"
    ):
        tool_definitions(wrong)


@pytest.mark.parametrize("wrong", [TOOL, READ, "read", {"read": TOOL}])
def test_a_single_tool_is_no_list_of_tools(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"tools must be a list of tools, such as \[tool\]"):
        tool_definitions(wrong)


def test_a_render_takes_tools_and_definitions() -> None:
    prompt = UserMessage()["Hello"]
    assert (
        render(prompt, budget=1_000, tools=[TOOL]).tokens
        == render(prompt, budget="1k", tools=[READ]).tokens
    )


@pytest.mark.parametrize("seconds", [0, -1, "3", float("nan"), True])
def test_a_limit_of_seconds_that_no_call_could_keep_is_refused(seconds: Any) -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=r"timeout of the tool 'read' must be a number of seconds above 0, or None, not ",
    ):
        Tool(definition=READ, run=str, timeout=seconds)


@pytest.mark.parametrize("max_tokens", [300.5, True, 99, "99"])
def test_a_limit_of_tokens_that_is_no_whole_number_is_refused(max_tokens: Any) -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=r"max_tokens of the tool 'read' must be at least 100, and a whole number, or None, not ",
    ):
        Tool(definition=READ, run=str, max_tokens=max_tokens)


@pytest.mark.parametrize("seconds", [0.5, 3, None])
def test_seconds_may_be_any_number_above_zero(seconds: float | None) -> None:
    assert Tool(definition=READ, run=str, timeout=seconds).timeout == seconds
