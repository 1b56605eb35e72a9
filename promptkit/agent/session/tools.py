"""Run the tool calls of a reply, concurrently, and answer them in order."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import NoReturn, TypeVar

import attrs

from promptkit.agent.session.hooks import TurnHooks, run_after_tool, run_before_tool
from promptkit.compaction import Events
from promptkit.compaction.run.events import ToolCalled, ToolReturned
from promptkit.errors import ToolError
from promptkit.messages import Message, ToolCall, as_mapping
from promptkit.tools import Tool, ToolOutput, ToolResult

Output = TypeVar("Output")

UNKNOWN_EFFECT = "Whether it had an effect is not known."

CANCELLED = f"Error: this call was cancelled. {UNKNOWN_EFFECT}"
"""The result of a call that was not waited for."""

NOT_STARTED = "Error: this call was cancelled before it was run."
"""The result of a call that was cancelled while the program still decided about it or about another
one."""

MAX_ARGUMENT_CHARACTERS = 500
"""Characters of the changed arguments that a result names."""


def tools_by_name(tools: Sequence[Tool]) -> Mapping[str, Tool]:
    """Index tools by name."""
    return {tool.definition.name: tool for tool in tools}


@attrs.frozen(kw_only=True)
class ToolRunner:
    """Runs the tool calls of a conversation."""

    tools: Mapping[str, Tool]
    """The tools by name."""
    hooks: TurnHooks = attrs.field(factory=TurnHooks)
    """Asked about each call, one after the other, before any of them runs; and about each result
    when all of them are there."""
    events: Events = attrs.field(factory=Events)
    """Receive the start and the end of each call that is run."""
    conversation: str | None = None
    """The id of the conversation, for the events."""

    async def run(
        self, calls: Sequence[ToolCall], on_results: Callable[[Sequence[Message]], object]
    ) -> None:
        """Run tool calls concurrently, and pass their results to `on_results`, in the order of the calls.

        Nothing but a cancellation is raised: the model is told of errors. On a cancellation
        `on_results` is called as well, with the results that are finished, and with an error for
        all other calls.

        Args:
            calls: The tool calls of one reply.
            on_results: Called once with the messages that answer the calls.
        """
        results: list[ToolResult | None] = [None] * len(calls)
        tasks: dict[int, asyncio.Future[ToolResult]] = {}
        try:
            for at, run in enumerate([await self._prepare(call) for call in calls]):
                if isinstance(run, ToolResult):
                    results[at] = run
                else:
                    tasks[at] = asyncio.ensure_future(self._run_reported(run, calls[at]))
            if tasks:
                await asyncio.wait(tasks.values())
            for at, task in tasks.items():
                results[at] = await run_after_tool(self.hooks, calls[at], _read_result(task))
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # what a thread has returned by now arrives
            raise
        finally:
            for at, task in tasks.items():
                task.cancel()
                results[at] = results[at] or _read_result(task)
            on_results(
                [
                    (result or ToolResult(NOT_STARTED, is_error=True)).to_message(call)
                    for call, result in zip(calls, results, strict=True)
                ]
            )

    async def _prepare(self, call: ToolCall) -> _Run | ToolResult:
        """Return the run of a call, or the error that answers it.

        A hook is asked only about calls that can be run.
        """
        tool = self.tools.get(call.name)
        if tool is None:
            names = ", ".join(sorted(self.tools)) or "(none)"
            return ToolResult(
                f"Error: there is no tool {call.name!r}. The tools are {names}.", is_error=True
            )
        try:
            arguments = _read_arguments(call)
            checked = arguments if tool.check is None else tool.check(arguments)
        except Exception as error:  # noqa: BLE001  # a check may run code of the program
            return _describe_failure(error)
        if checked is not arguments:
            arguments = checked
            call = attrs.evolve(call, arguments=json.dumps(checked, ensure_ascii=False))
        decision = await run_before_tool(self.hooks, call)
        if decision.refusal is not None:
            return ToolResult(
                f"Error: this call was refused, and not run: {decision.refusal}", is_error=True
            )
        if decision.arguments is None or decision.arguments == arguments:
            return _Run(tool=tool, arguments=arguments)
        return _Run(
            tool=tool,
            arguments=decision.arguments,
            note=_describe_change(arguments, decision.arguments),
        )

    async def _run_reported(self, run: _Run, call: ToolCall) -> ToolResult:
        """Run a tool call, and report its start and its end."""
        number, started, definition = (
            self.events.next_number("tool"),
            time.monotonic(),
            run.tool.definition,
        )
        self.events.emit(
            ToolCalled(
                number=number,
                name=call.name,
                call_id=call.id,
                conversation=self.conversation,
                description=definition.description or None,
                arguments=call.arguments,
            )
        )
        try:
            result = await run.run()
        except BaseException as error:
            self.events.emit(
                ToolReturned(
                    number=number, seconds=time.monotonic() - started, error=type(error).__name__
                )
            )
            raise
        text = "".join(part for part in result.content if isinstance(part, str))
        error_type = "tool_error" if result.is_error else None
        self.events.emit(
            ToolReturned(
                number=number, seconds=time.monotonic() - started, error=error_type, result=text
            )
        )
        return result


@attrs.frozen(kw_only=True)
class _Run:
    """A tool call that is to be run."""

    tool: Tool
    arguments: Mapping[str, object]
    note: str = ""
    """Text that is put before the result."""

    async def run(self) -> ToolResult:
        """Run the tool.

        An exception, or a value that cannot be content, becomes an error that the model is told of.
        """
        limit = asyncio.timeout(self.tool.timeout)
        try:
            async with limit:
                output = await self._call()
            result = output if isinstance(output, ToolResult) else ToolResult(output)
        except Exception as error:  # noqa: BLE001  # the model is told of whatever a tool raises
            if limit.expired() and not isinstance(error, ToolError):
                return ToolResult(
                    f"Error: the call took longer than {self.tool.timeout:g} seconds. {UNKNOWN_EFFECT}",
                    is_error=True,
                )
            result = _describe_failure(error)
        return attrs.evolve(result, content=(self.note, *result.content)) if self.note else result

    async def _call(self) -> ToolOutput:
        is_async = inspect.iscoroutinefunction(self.tool.run)
        output = self._call_plain() if is_async else await _run_in_thread(self._call_plain)
        return await output if inspect.isawaitable(output) else output

    def _call_plain(self) -> ToolOutput | Awaitable[ToolOutput]:
        """Call a plain function.

        StopIteration becomes a result here: a future cannot hold it, and would never be done.
        """
        try:
            return self.tool.run(self.arguments)
        except StopIteration as error:
            return _describe_failure(error)


def _read_arguments(call: ToolCall) -> Mapping[str, object]:
    """Return the arguments of a call.

    Raises ToolError for what is no JSON object, and for an object that says two things of one name:
    a hook and a tool could each read another one.
    """
    try:
        value: object = json.loads(
            call.arguments or "{}", object_pairs_hook=_read_object, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise ToolError(f"the arguments are no JSON: {error}") from None
    arguments = as_mapping(value)
    if not isinstance(value, dict):
        raise ToolError("the arguments are no JSON object.")
    return arguments


def _read_object(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ToolError(
            f"the key {next(name for name in names if names.count(name) > 1)!r} is there twice."
        )
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ToolError(f"{name} is no number in JSON.")


async def _run_in_thread(function: Callable[[], Output]) -> Output:
    """Return what a function returns in a thread of its own, with a copy of the context variables.

    asyncio's own threads are few, so that functions that hang would keep others from starting, and
    the event loop waits for them when it is closed. This thread is a daemon: nothing waits for it.
    `function` must not raise StopIteration.
    """
    outcome: Future[Output] = Future()
    context = contextvars.copy_context()

    def work() -> None:
        if not outcome.set_running_or_notify_cancel():
            return
        try:
            outcome.set_result(context.run(function))
        except BaseException as error:  # noqa: BLE001  # raised where the function is waited for
            outcome.set_exception(error)

    threading.Thread(target=work, name="promptkit tool", daemon=True).start()
    return await asyncio.wrap_future(outcome)


def _describe_failure(error: Exception) -> ToolResult:
    """Return the result that tells the model what a tool raised."""
    text = ""
    with suppress(Exception):  # of a tool's own exception, which may be wrong itself
        text = str(error)
    name = "" if isinstance(error, ToolError) and text else type(error).__name__
    return ToolResult(f"Error: {': '.join(filter(None, (name, text)))}", is_error=True)


def _describe_change(before: Mapping[str, object], after: Mapping[str, object]) -> str:
    """Tell the model which arguments were changed.

    The call in the transcript stays as the model wrote it.
    """
    changed = {
        name: value for name, value in after.items() if name not in before or before[name] != value
    }
    text = json.dumps(changed, ensure_ascii=False, default=str)
    if len(text) > MAX_ARGUMENT_CHARACTERS:
        text = f"{text[:MAX_ARGUMENT_CHARACTERS]}…"
    removed = [name for name in before if name not in after]
    without = f", without {', '.join(removed)}" if removed else ""
    return f"[The call was run with changed arguments: {text}{without}]\n"


def _read_result(task: asyncio.Future[ToolResult]) -> ToolResult:
    """Return the result of a task, or CANCELLED: a tool may also cancel itself."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return ToolResult(CANCELLED, is_error=True)
    return task.result()
