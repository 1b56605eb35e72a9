"""Tools that a model may call: a definition for the model, and a function for the agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias, cast, get_args

import attrs

from promptkit.errors import InvalidArgumentError
from promptkit.messages import Message, OpaquePart, Part, ToolCall, ToolDefinition

__all__ = ["ERROR_MARK", "Tool", "ToolOutput", "ToolResult", "is_error_result", "parse_content"]

ERROR_MARK = OpaquePart(value={"is_error": True}, tokens=0, provider="anthropic.message")
"""Marks a tool result as an error. Anthropic is sent it; OpenAI's formats have no such field, and
the text has to say it."""


MIN_RESULT_TOKENS = 100
"""The lowest limit of a tool's results, in tokens. With less, there is nothing but the marker that
replaces their middle."""


def parse_content(value: object) -> tuple[Part, ...] | None:
    """Convert a text, or a list of texts and parts, to message content.

    Returns None for any other value.
    """
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        return None
    parts = tuple(cast("Sequence[Part]", value))  # checked in the next line
    return parts if all(isinstance(part, get_args(Part)) for part in parts) else None


def _read_content(value: object) -> tuple[Part, ...]:
    content = () if value is None else parse_content(value)
    if content is not None:
        return content
    problem = f"the tool returned {type(value).__name__}, and not text or a list of parts such as images: return JSON as text."
    raise TypeError(problem)


@attrs.frozen
class ToolResult:
    """The result of a tool call.

    A tool returns it instead of its content to say that the result is an error.

    >>> ToolResult(f"exit status 2: {output}", is_error=True)
    """

    content: tuple[Part, ...] = attrs.field(default=(), converter=_read_content)
    """The content: text, or a list of texts and parts such as images."""
    is_error: bool = attrs.field(default=False, kw_only=True)
    """Whether the tool failed. Anthropic's models get a mark for it. Other models have only the
    text, which should say it, too."""

    def to_message(self, call: ToolCall) -> Message:
        """Build the message that answers a tool call."""
        content = (*self.content, ERROR_MARK) if self.is_error else self.content
        return Message(role="tool", content=content, tool_call_id=call.id)


def is_error_result(message: Message) -> bool:
    """Return whether a message is a tool result that is marked as an error."""
    return message.role == "tool" and any(
        isinstance(part, OpaquePart)
        and part.provider == ERROR_MARK.provider
        and isinstance(part.value, Mapping)
        and part.value.get("is_error") is True
        for part in message.content
    )


ToolOutput: TypeAlias = "str | Sequence[Part] | ToolResult | None"
"""The result of a tool function: text, parts such as images, or a result that may be an error. None
if there is nothing to tell the model."""


@attrs.frozen(kw_only=True)
class Tool:
    """A tool that the model may call.

    `run` receives the arguments of the call as a JSON object and returns the tool result. It is a
    plain or an `async` function. A plain one runs in a thread of its own, so that the tool calls of
    one reply run concurrently. The model is told of an exception that it raises, and may try
    something else: a `ToolError` in its own words, any other one with the name of its class.

    >>> Tool(definition=ToolDefinition(name="now", description="Tell the time."), run=lambda arguments: time.ctime())
    """

    definition: ToolDefinition
    """What the model is told about the tool."""
    run: Callable[[Mapping[str, object]], ToolOutput | Awaitable[ToolOutput]]
    """Called with the arguments of a tool call."""
    seconds: float | None = None
    """The longest time that a call may take. None: no limit. A plain function goes on running in
    its thread, but is not waited for, not even by the end of the program."""
    max_tokens: int | None = None
    """The most tokens of a result's text that the model is shown. Of a longer one it sees the head,
    the tail, and how to read the rest. None: half of what messages may take. The transcript keeps
    all of it. At least 100."""

    def __attrs_post_init__(self) -> None:
        seconds = cast("object", self.seconds)  # callers without a type checker pass anything
        max_tokens = cast("object", self.max_tokens)  # the same
        if seconds is not None and (
            isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0
        ):
            problem = f"seconds of the tool {self.definition.name!r} must be a number above 0, or None, not {seconds!r:.80}."
            raise InvalidArgumentError(problem)
        if max_tokens is not None and (
            isinstance(max_tokens, bool)
            or not isinstance(max_tokens, int)
            or max_tokens < MIN_RESULT_TOKENS
        ):
            wanted = f"at least {MIN_RESULT_TOKENS}, and a whole number, or None"
            problem = f"max_tokens of the tool {self.definition.name!r} must be {wanted}, not {max_tokens!r:.80}."
            raise InvalidArgumentError(problem)
