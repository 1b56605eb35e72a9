"""Tools that a model may call: a definition for the model, and a function for the agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, cast

import attrs

from promptkit.errors import InvalidArgumentError
from promptkit.messages import Part, ToolDefinition

__all__ = ["Tool", "ToolOutput", "tool_definitions"]

ToolOutput: TypeAlias = "str | Sequence[Part] | None"
"""What a tool returns: text, or parts such as images. None if there is nothing to tell the model."""


@attrs.frozen(kw_only=True)
class Tool:
    """A tool that the model may call.

    `run` receives the arguments of the call as a JSON object and returns the tool result. It is a plain or an `async` function. A plain
    one runs in a thread of its own, so that the tool calls of one reply run concurrently. The model is told of an exception that it raises, and may
    try something else.

    >>> Tool(definition=ToolDefinition(name="now", description="Tell the time."), run=lambda arguments: time.ctime())
    """

    definition: ToolDefinition
    """What the model is told about the tool."""
    run: Callable[[Mapping[str, object]], ToolOutput | Awaitable[ToolOutput]]
    """Called with the arguments of a tool call."""


def tool_definitions(tools: Iterable[Tool | ToolDefinition]) -> tuple[ToolDefinition, ...]:
    """Return the definitions of tools, in order.

    Raises:
        TypeError: A value is neither a Tool nor a ToolDefinition.
        InvalidArgumentError: Two tools have the same name, so the model could not tell them apart.
    """
    given = cast("object", tools)  # callers without a type checker pass anything
    if isinstance(given, Tool | ToolDefinition | str | Mapping) or not isinstance(given, Iterable):
        message = f"tools must be a list of tools, such as [tool], not {tools!r:.80}."
        raise TypeError(message)
    definitions = tuple(_definition(tool) for tool in tools)
    names = [definition.name for definition in definitions]
    if len(set(names)) < len(names):
        problem = f"two tools have the name {next(name for name in names if names.count(name) > 1)!r}: give each one of its own."
        raise InvalidArgumentError(problem)
    return definitions


def _definition(tool: object) -> ToolDefinition:
    if isinstance(tool, ToolDefinition):
        return tool
    if isinstance(tool, Tool):
        return tool.definition
    message = f"a tool is written as Tool(definition=ToolDefinition(name=…), run=…) or as ToolDefinition(name=…), not {tool!r:.80}."
    raise TypeError(message)
