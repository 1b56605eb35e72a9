"""Hooks of a session's turns: before each request, and before and after each tool call."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Mapping
from typing import TypeAlias, TypeVar

import attrs

from promptkit.agent.window.requests import WindowRequest
from promptkit.messages import ToolCall
from promptkit.tools import ToolResult

T = TypeVar("T")

MaybeAsync: TypeAlias = T | Awaitable[T]
"""The result of a plain function, or of an `async` one."""

_LOGGER = logging.getLogger("promptkit")


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
        return None

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
        return None

    def after_tool(self, call: ToolCall, result: ToolResult) -> MaybeAsync[ToolResult | None]:
        """Handle the result of a call that was run, when all calls of its reply are finished, in their order.

        If the method raises, the error is logged and the result stays.

        Args:
            call: The tool call, as the model wrote it.
            result: What the tool returned, or the error that it raised.

        Returns:
            The result to record and to show instead. None keeps the result.
        """
        return None


async def run_before_request(hooks: TurnHooks, request: WindowRequest) -> WindowRequest:
    """Return the request to send.

    Raises what the hook raises, and TypeError if it returns something else.
    """
    return (
        _check(await _wait(hooks.before_request(request)), type(request), "before_request")
        or request
    )


async def run_before_tool(hooks: TurnHooks, call: ToolCall) -> ToolDecision:
    """Return the decision about a call.

    An exception refuses the call: a check that failed has approved nothing.
    """
    try:
        return (
            _check(await _wait(hooks.before_tool(call)), ToolDecision, "before_tool")
            or ToolDecision()
        )
    except Exception as error:
        _LOGGER.exception("a hook raised before a call of %s, which is refused", call.name)
        return ToolDecision(refusal=f"the check before it failed with {type(error).__name__}.")


async def run_after_tool(hooks: TurnHooks, call: ToolCall, result: ToolResult) -> ToolResult:
    """Return the result to record. An exception is logged, and the result stays."""
    try:
        return (
            _check(await _wait(hooks.after_tool(call, result)), type(result), "after_tool")
            or result
        )
    except Exception:
        _LOGGER.exception("a hook raised after a call of %s, whose result stays", call.name)
        return result


async def _wait(value: object) -> object:
    """Return the result of a hook.

    If what it waits for is cancelled, and the turn is not, that is an error of the hook.
    """
    if not inspect.isawaitable(value):
        return value
    try:
        result: object = await value
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError(
            "what the hook waited for was cancelled, and the turn was not."
        ) from error
    return result


def _check(value: object, kind: type[T], method: str) -> T | None:
    """Return what a hook returned.

    Raises TypeError if it is of another type: callers without a type checker return anything.
    """
    if value is None or isinstance(value, kind):
        return value
    raise TypeError(
        f"{method} of the turn hooks must return a {kind.__name__} or None, not {value!r:.80}."
    )
