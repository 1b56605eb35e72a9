"""The tool calls of a turn, run concurrently and answered in order, its hooks, before each request and before and after each call, and its result."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Literal, NoReturn, TypeAlias, TypeVar

import attrs

from promptkit.agent.window.requests import WindowRequest
from promptkit.compaction import Events, ToolCalled, ToolReturned
from promptkit.errors import ToolError
from promptkit.messages import Message, ToolCall, Usage, as_mapping
from promptkit.reprs import describe_fields
from promptkit.tools import Tool, ToolOutput, ToolResult

T = TypeVar("T")

MaybeAsync: TypeAlias = T | Awaitable[T]
"""The result of a plain function, or of an `async` one."""

_LOGGER = logging.getLogger("promptkit")


@attrs.frozen(kw_only=True)
class TurnResult:
    """The result of one turn: a user message, and everything until the model's last reply."""

    text: str
    """The text of the model's last reply. If a reply was cut off and the model continued it, both
    texts. If the model was asked to go on after a compaction, its replies of before and after, with
    a blank line between them."""
    steps: int
    """The number of requests of the turn."""
    usages: tuple[Usage, ...]
    """The cost of each request, in order."""
    finish: Literal["stop", "tool_calls", "length", "content_filter"] = "stop"
    """The reason why the model ended. `length`: its reply was cut off, and so was the next one.
    `content_filter`: the provider withheld the rest."""

    __repr__ = describe_fields


@attrs.frozen(kw_only=True)
class ToolDecision:
    """The decision of a hook about a tool call. The default approves it."""

    refusal: str | None = None
    """Do not run the call, for this reason: the model is told it as the call's error."""
    arguments: Mapping[str, object] | None = None
    """Run the call with these arguments instead. The transcript keeps what the model wrote, and the
    result begins with the changes."""


class TurnHooks:
    """Base class of hooks around the rounds of a turn, which does nothing.

    Subclass it and override the methods you need.

    Each method is a plain or an `async` one. A plain one blocks the event loop: what waits for a
    user should be `async`. If what it waits for is cancelled, such as the answer of a dialog that
    is closed, that counts as an error that the method raises.

    >>> class AskFirst(TurnHooks):
    ...     async def before_tool(self, call):
    ...         if call.name == "delete_file" and not await ask_user(call):
    ...             return ToolDecision(refusal="The user does not want this file to be deleted.")
    """

    def before_request(self, request: WindowRequest) -> MaybeAsync[WindowRequest | None]:
        """Handle a request that is about to be sent.

        An error that it raises ends the turn, which `resume` can continue.

        Args:
            request: The request. It fits the window.

        Returns:
            The request to send instead, such as `attrs.evolve(request, messages=…)`. None sends the
            request as it is.
        """

    def before_tool(self, call: ToolCall) -> MaybeAsync[ToolDecision | None]:
        """Decide about a tool call: approve it, change its arguments, or refuse it.

        The calls of one reply are decided about one after the other, in their order, and then run
        concurrently. A call of an unknown tool, or with arguments that are wrong, is an error without
        this decision. If the method raises, the call is refused and the error is logged.

        Args:
            call: The tool call. Its arguments are a JSON object, as text: those that the tool's
                `check` returned.

        Returns:
            The decision. None approves the call.
        """

    def after_tool(self, call: ToolCall, result: ToolResult) -> MaybeAsync[ToolResult | None]:
        """Handle the result of a call that was run, when all calls of its reply are finished, in their order.

        If the method raises, the error is logged and the result stays.

        Args:
            call: The tool call, as the model wrote it.
            result: What the tool returned, or the error that it raised.

        Returns:
            The result to record and to show instead. None keeps the result.
        """


async def run_before_request(hooks: TurnHooks, request: WindowRequest) -> WindowRequest:
    """Return the request to send.

    Raises what the hook raises, and TypeError if it returns something else.
    """
    return await _ask(hooks.before_request(request), type(request), "before_request") or request


async def run_before_tool(hooks: TurnHooks, call: ToolCall) -> ToolDecision:
    """Return the decision about a call.

    An exception refuses the call: a check that failed has approved nothing.
    """
    try:
        return await _ask(hooks.before_tool(call), ToolDecision, "before_tool") or ToolDecision()
    except Exception as error:
        _LOGGER.exception("a hook raised before a call of %s, which is refused", call.name)
        return ToolDecision(refusal=f"the check before it failed with {type(error).__name__}.")


async def run_after_tool(hooks: TurnHooks, call: ToolCall, result: ToolResult) -> ToolResult:
    """Return the result to record. An exception is logged, and the result stays."""
    try:
        return await _ask(hooks.after_tool(call, result), type(result), "after_tool") or result
    except Exception:
        _LOGGER.exception("a hook raised after a call of %s, whose result stays", call.name)
        return result


async def _ask(answer: object, kind: type[T], method: str) -> T | None:
    """Return the answer of a hook, which may be waited for.

    Raises TypeError if it is of another type. If what it waits for is cancelled, and the turn is
    not, that is an error of the hook.
    """
    if inspect.isawaitable(answer):
        try:
            answer = await answer
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise RuntimeError(
                "what the hook waited for was cancelled, and the turn was not."
            ) from error
    if answer is None or isinstance(answer, kind):
        return answer
    raise TypeError(
        f"{method} of the turn hooks must return a {kind.__name__} or None, not {answer!r:.80}."
    )


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
        self.events.emit(
            ToolReturned(
                number=number,
                seconds=time.monotonic() - started,
                error="tool_error" if result.is_error else None,
                result="".join(part for part in result.content if isinstance(part, str)),
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
        output = (
            self._call_plain()
            if inspect.iscoroutinefunction(self.tool.run)
            else await _run_in_thread(self._call_plain)
        )
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


async def _run_in_thread(function: Callable[[], T]) -> T:
    """Return what a function returns in a thread of its own, with a copy of the context variables.

    asyncio's own threads are few, so that functions that hang would keep others from starting, and
    the event loop waits for them when it is closed. This thread is a daemon: nothing waits for it.
    `function` must not raise StopIteration.
    """
    outcome: Future[T] = Future()
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
    is_lost = not task.done() or task.cancelled() or task.exception() is not None
    return ToolResult(CANCELLED, is_error=True) if is_lost else task.result()
