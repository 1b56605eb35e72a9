"""Messages, the only elements that a model sees directly."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import attrs

from promptkit.element import Child, PromptElement, component
from promptkit.messages import ToolCall

__all__ = ["AssistantMessage", "SystemMessage", "ToolMessage", "ToolRound", "UserMessage"]


@component
class SystemMessage(PromptElement):
    """A message with instructions of the developer.

    >>> SystemMessage(priority=1000)["You are terse."]
    """


@component
class UserMessage(PromptElement):
    """A message of the person who asks.

    >>> UserMessage(priority=900, flex_grow=2)["Fix the parser."]
    """


@component
class AssistantMessage(PromptElement):
    """A message of the model: text, tool calls or both.

    A call whose result is pruned leaves the message, and the message leaves with its last call if it has no text.

    >>> AssistantMessage(tool_calls=[ToolCall(id="c1", name="read", arguments='{"path": "a.py"}')])
    """

    tool_calls: Sequence[ToolCall] = ()
    """In the order in which the model made them."""

    keep_with: Mapping[str, Hashable] = attrs.field(factory=dict[str, Hashable])
    """Call id → `KeepWith` group: that call leaves together with the group."""


@component
class ToolMessage(PromptElement):
    """The result of one tool call. It leaves with its call, and its call with it. An empty one is sent as an empty result.

    >>> ToolMessage(tool_call_id="c1")["def parse(): ..."]
    """

    tool_call_id: str
    """The id of the call that this answers; the call must stand before it."""


@component
class ToolRound(PromptElement):
    """What the model said with its calls, and all results: one thing, kept or pruned as a whole.

    >>> ToolRound(
    ...     calls=[ToolCall(id="c1", name="read", arguments="{}")],
    ...     results={"c1": "def parse(): ..."},
    ...     text="I look at the parser.",
    ... )
    """

    calls: Sequence[ToolCall]
    """At least one, in the order in which the model made them."""

    results: Mapping[str, Child] = attrs.field(factory=dict[str, Child])
    """Call id → what the tool returned. Every call needs one; None is an empty result."""

    text: Child = None
    """What the model said beside its calls."""
