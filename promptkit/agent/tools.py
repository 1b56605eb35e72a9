"""Run the tool calls of a reply, concurrently, and answer them in order."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast, get_args

from promptkit.messages import Message, Part

if TYPE_CHECKING:
    from promptkit.messages import ToolCall
    from promptkit.tools import Tool, ToolOutput

__all__ = ["CANCELLED", "parse_content", "run_tools", "tools_by_name"]

CANCELLED = "Error: this call was cancelled; whether it had an effect is not known."
"""The result of a call that was not waited for."""


def tools_by_name(tools: Sequence[Tool]) -> Mapping[str, Tool]:
    """Index tools by name."""
    return {tool.definition.name: tool for tool in tools}


async def run_tools(tools: Mapping[str, Tool], calls: Sequence[ToolCall], on_results: Callable[[Sequence[Message]], object]) -> None:
    """Run tool calls concurrently, and pass their results to `on_results`, in the order of the calls.

    Nothing but a cancellation is raised: the model is told of errors. On a cancellation `on_results` is called as well, with the results
    that are finished, and with CANCELLED for all other calls.
    """
    names = sorted(tools)
    tasks = [asyncio.ensure_future(_run_call(tools.get(call.name), call, names)) for call in calls]
    try:
        await asyncio.wait(tasks)
    finally:
        for task in tasks:
            task.cancel()
        on_results([_result_of(call, task) for call, task in zip(calls, tasks, strict=True)])


def parse_content(value: object) -> tuple[Part, ...] | None:
    """Convert a text, or a list of texts and parts, to message content. Returns None for any other value."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        return None
    parts = tuple(cast("Sequence[Part]", value))  # checked in the next line
    return parts if all(isinstance(part, get_args(Part)) for part in parts) else None


def _result_of(call: ToolCall, task: asyncio.Future[Message]) -> Message:
    """Return the result of a call, or CANCELLED: a tool may also cancel itself."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return _make_result(call, CANCELLED)
    return task.result()


async def _run_call(tool: Tool | None, call: ToolCall, names: Sequence[str]) -> Message:
    if tool is None:
        return _make_result(call, f"Error: there is no tool {call.name!r}. The tools are {', '.join(names) or '(none)'}.")
    try:
        arguments: object = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        return _make_result(call, f"Error: the arguments are no JSON: {error}")
    if not isinstance(arguments, dict):
        return _make_result(call, "Error: the arguments are no JSON object.")
    try:
        output = await _run_tool(tool, cast("dict[str, object]", arguments))  # the keys of a JSON object are strings
        return _make_result(call, output)
    except Exception as error:  # noqa: BLE001  # the model is told of whatever a tool raises, or returns that is not content
        return _make_result(call, f"Error: {type(error).__name__}: {error}")


async def _run_tool(tool: Tool, arguments: Mapping[str, object]) -> ToolOutput:
    if inspect.iscoroutinefunction(tool.run):
        return cast("ToolOutput", await tool.run(arguments))  # the result of an async function
    output = await asyncio.to_thread(tool.run, arguments)
    return await output if inspect.isawaitable(output) else output


def _make_result(call: ToolCall, output: ToolOutput) -> Message:
    return Message(role="tool", content=_parse_output(output), tool_call_id=call.id)


def _parse_output(output: object) -> tuple[Part, ...]:
    """Convert a tool's output to content. Raises TypeError for anything else, which a transcript could not store."""
    content = () if output is None else parse_content(output)
    if content is not None:
        return content
    problem = f"the tool returned {type(output).__name__}, and not text or a list of parts such as images: return JSON as text."
    raise TypeError(problem)
