from __future__ import annotations

from typing import Any

import pytest

from promptkit import Tool, ToolDefinition, UserMessage, render
from promptkit.errors import InvalidArgumentError
from promptkit.function_tools import tool_definitions

READ = ToolDefinition(name="read", description="Read a file.")
TOOL = Tool(definition=READ, run=str)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="two tools have the name 'read'"):
        tool_definitions([TOOL, READ])


def test_tools_and_definitions_have_definitions() -> None:
    assert tool_definitions([TOOL]) == tool_definitions([READ]) == (READ,)
    assert tool_definitions(()) == ()


@pytest.mark.parametrize("wrong", [["read"], [{"name": "read"}], [None], [int]])
def test_what_is_no_tool_is_refused_with_what_to_write(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"a tool is a function, Tool\(definition=.*\) or ToolDefinition"):
        tool_definitions(wrong)


@pytest.mark.parametrize("wrong", [TOOL, READ, "read", {"read": TOOL}])
def test_a_single_tool_is_no_list_of_tools(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"tools must be a list of tools, such as \[tool\]"):
        tool_definitions(wrong)


def test_a_render_takes_tools_and_definitions() -> None:
    prompt = UserMessage()["Hello"]
    assert render(prompt, budget=1_000, tools=[TOOL]).tokens == render(prompt, budget="1k", tools=[READ]).tokens
