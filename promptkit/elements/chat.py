"""Message elements: one for each role, and the tool round."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import cast

import attrs

from promptkit.elements.component import component
from promptkit.elements.element import Child, PromptElement
from promptkit.errors import BadPropError
from promptkit.messages import Role, ToolCall


def _check_name(element: object, _attribute: attrs.Attribute[str | None], name: str | None) -> None:
    # callers without a type checker pass anything
    if name is not None and not (isinstance(cast("object", name), str) and name):
        raise BadPropError(
            f"name must be a text that is not empty, or None, not {name!r:.80}.",
            path=type(element).__name__,
        )


@component
class MessageElement(PromptElement):
    """The base of the message elements."""

    name: str | None = attrs.field(default=None, validator=_check_name)
    """The participant's name, which is sent to the provider and costs tokens. For a name in
    receipts alone, use `label`."""


@component
class SystemMessage(MessageElement):
    """A message with the developer's instructions.

    Without a priority, of its own or of an element around it, the message is never removed, nor is
    the last one without a priority of its own. Its children with priorities are pruned.

    >>> SystemMessage()["You are terse."]
    """


@component
class UserMessage(MessageElement):
    """A message of the user.

    A render that would remove the last one of a prompt raises BudgetExceededError.

    >>> UserMessage(priority=900, flex_grow=2)["Fix the parser."]
    """


def _freeze_calls(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    return tuple(calls)


@component
class AssistantMessage(MessageElement):
    """A message of the model: text, tool calls or both.

    When the result of a tool call is pruned, the call is removed from the message. A message
    without text is removed with its last call.

    >>> AssistantMessage(tool_calls=[ToolCall(id="c1", name="read", arguments='{"path": "a.py"}')])
    """

    tool_calls: Sequence[ToolCall] = attrs.field(default=(), converter=_freeze_calls)
    """The tool calls, in the order in which the model made them."""

    keep_with: Mapping[str, Hashable] = attrs.field(factory=dict[str, Hashable])
    """Call id → `KeepWith` group. The call is pruned together with the group."""


@component
class ToolMessage(MessageElement):
    """The result of one tool call.

    The result and its call are pruned together. Without children it is sent as an empty result.

    >>> ToolMessage(tool_call_id="c1")["def parse(): ..."]
    """

    tool_call_id: str
    """The id of the tool call that this message answers. The call must come before the result."""


ROLES: Mapping[type[PromptElement], Role] = {
    SystemMessage: "system",
    UserMessage: "user",
    AssistantMessage: "assistant",
    ToolMessage: "tool",
}
"""The roles of the message elements."""


@component
class ToolRound(PromptElement):
    """One step of the model: its text, its tool calls and all their results, kept or pruned as a whole.

    >>> ToolRound(
    ...     calls=[ToolCall(id="c1", name="read", arguments="{}")],
    ...     results={"c1": "def parse(): ..."},
    ...     text="I look at the parser.",
    ... )
    """

    calls: Sequence[ToolCall]
    """The tool calls, at least one, in the order in which the model made them."""

    results: Mapping[str, Child] = attrs.field(factory=dict[str, Child])
    """Call id → result of the tool. Every call needs one; None is an empty result."""

    text: Child = None
    """The text that the model wrote with its calls."""
