"""What an agent can do: tools, called as the model asks, answered in the order of the calls.

The content of a message, as a person or a tool may give it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast, get_args

from promptkit.errors import InvalidArgumentError
from promptkit.messages import Message, Part

if TYPE_CHECKING:
    from promptkit.messages import ToolCall
    from promptkit.tools import Tool, ToolOutput

__all__ = ["CANCELLED", "call_tools", "content_of", "tools_by_name"]


def content_of(given: object) -> tuple[Part, ...] | None:
    """Text, or a list of texts and other parts, as the content of a message; None for anything else, which could not be written down."""
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, list | tuple):
        return None
    parts = tuple(cast("Sequence[Part]", given))  # looked at in the next line
    return parts if all(isinstance(part, get_args(Part)) for part in parts) else None


CANCELLED = "Error: this call was cancelled; whether it had an effect is not known."
"""What answers a call that was not waited for."""


def tools_by_name(tools: Sequence[Tool]) -> Mapping[str, Tool]:
    """The tools by their names. Raises InvalidArgumentError where two have the same: the model could not tell them apart."""
    named = {tool.definition.name: tool for tool in tools}
    if len(named) < len(tools):
        names = [tool.definition.name for tool in tools]
        problem = f"two tools have the name {next(name for name in names if names.count(name) > 1)!r}: give each one of its own."
        raise InvalidArgumentError(problem)
    return named


async def call_tools(tools: Mapping[str, Tool], calls: Sequence[ToolCall], told: Callable[[Sequence[Message]], object]) -> None:
    """Call what the model asks for, side by side; `told` gets the results, in the order of the calls, however long each takes.

    Raises nothing but what cancels it. `told` is called then, too: what is done is done, and every other call is answered by CANCELLED.
    """
    known = sorted(tools)
    tasks = [asyncio.ensure_future(_call(tools.get(call.name), call, known)) for call in calls]
    try:
        await asyncio.wait(tasks)
    finally:
        for task in tasks:
            task.cancel()
        told([_told(call, task) for call, task in zip(calls, tasks, strict=True)])


def _told(call: ToolCall, task: asyncio.Future[Message]) -> Message:
    """The result of a call, or that there is none: a tool may also cancel itself."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return _answer(call, CANCELLED)
    return task.result()


async def _call(tool: Tool | None, call: ToolCall, known: Sequence[str]) -> Message:
    if tool is None:
        return _answer(call, f"Error: there is no tool {call.name!r}. The tools are {', '.join(known) or '(none)'}.")
    try:
        arguments: object = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        return _answer(call, f"Error: the arguments are no JSON: {error}")
    if not isinstance(arguments, dict):
        return _answer(call, "Error: the arguments are no JSON object.")
    given = cast("dict[str, object]", arguments)  # JSON objects have string keys
    try:
        result = await _run(tool, given)
        return _answer(call, result)
    except Exception as error:  # noqa: BLE001  # whatever a tool raises, or returns that is no content, is told to the model
        return _answer(call, f"Error: {type(error).__name__}: {error}")


async def _run(tool: Tool, arguments: Mapping[str, object]) -> ToolOutput:
    if inspect.iscoroutinefunction(tool.run):
        return cast("ToolOutput", await tool.run(arguments))  # an async function's result is awaited
    result = await asyncio.to_thread(tool.run, arguments)
    return await result if inspect.isawaitable(result) else result


def _answer(call: ToolCall, result: ToolOutput) -> Message:
    return Message(role="tool", content=_content(result), tool_call_id=call.id)


def _content(result: object) -> tuple[Part, ...]:
    """What a tool returned as content; what is none must not reach the transcript, which could not be written. Raises TypeError."""
    content = () if result is None else content_of(result)
    if content is not None:
        return content
    problem = f"the tool returned {type(result).__name__}, and not text or a list of parts such as images: return JSON as text."
    raise TypeError(problem)
