"""Build the bodies of OpenAI requests as plain dicts, without the SDK."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from promptkit.messages import Message, OpaquePart, ToolDefinition
from promptkit.providers.surrogates import replace_lone_surrogates
from promptkit.tokens.models import sees_images
from promptkit.wire import to_chat, to_responses, tools_to_chat, tools_to_responses
from promptkit.wire.parts import name_media

if TYPE_CHECKING:
    from promptkit.providers.model import ModelOptions

# Any: the SDK declares the values as TypedDicts, and tests check each body against these
Body: TypeAlias = dict[str, Any]

PHASE = "responses.phase"
"""The `provider` of an opaque part with the phase of its message, which OpenAI expects to get back:
`{"phase": "commentary"}`.

No emitter knows it, so other providers do not receive it.
"""

_TOOL_CHOICES = ("auto", "none", "required")
"""Values of `tool_choice` that are not the name of a tool."""

_REASONING_MODEL = re.compile(
    r"(?:[\w.-]+/)*(?:o\d|gpt-(?:[5-9]|\d\d)(?!.*chat)|codex|computer-use)"
)
"""Names of OpenAI's reasoning models. They refuse a temperature, unless they are told not to
reason."""

_PLAIN_MODEL = re.compile(r"(?:[\w.-]+/)*(?:gpt-[34]|gpt-[5-9].*chat|chatgpt-|chat-latest)")
"""Names of OpenAI's other models, which refuse an effort. Nothing is known of any other name, and
the option is sent as it is."""

_CACHE_BREAKPOINT_MODEL = re.compile(r"gpt-(?:5\.(?:[6-9]|\d\d)|[6-9]|\d\d)")
"""Names of models that accept `prompt_cache_breakpoint`. Others answer 400."""


def may_reason(name: str) -> bool:
    """Return whether a model may reason before it answers: OpenAI's reasoning models, and every model of which nothing is known."""
    return _PLAIN_MODEL.match(name) is None


def build_chat_body(
    name: str, messages: Sequence[Message], tools: Sequence[ToolDefinition], options: ModelOptions
) -> Body:
    """Build the body for `client.chat.completions.create(**body)`.

    Args:
        name: The model's name.
        messages: The messages of the request.
        tools: The tools that the model may call.
        options: The options of the request.

    Raises:
        EmitError: The format cannot hold a message.
    """
    body: Body = {
        "model": name,
        "messages": to_chat(
            _write_messages(name, messages), cache=_sends_cache_breakpoints(name, options)
        ),
    }
    body |= _build_shared(name, tools, options)
    if tools:
        body["tools"] = tools_to_chat(tools)
        if (choice := options.get("tool_choice")) is not None:
            body["tool_choice"] = (
                choice
                if choice in _TOOL_CHOICES
                else {"type": "function", "function": {"name": choice}}
            )
    if "max_output_tokens" in options:
        body["max_completion_tokens"] = options["max_output_tokens"]
    if "reasoning_effort" in options and not _PLAIN_MODEL.match(name):
        body["reasoning_effort"] = options["reasoning_effort"]
    if options.get("on_text") is not None:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def build_responses_body(
    name: str, messages: Sequence[Message], tools: Sequence[ToolDefinition], options: ModelOptions
) -> Body:
    """Build the body for `client.responses.create(**body)`.

    The provider stores nothing (`store=False`), so reasoning is exchanged encrypted.

    Args:
        name: The model's name.
        messages: The messages of the request.
        tools: The tools that the model may call.
        options: The options of the request.

    Raises:
        EmitError: The format cannot hold a message.
    """
    items = to_responses(
        _write_messages(name, messages), cache=_sends_cache_breakpoints(name, options)
    )
    _set_phases(items, messages)
    body: Body = {"model": name, "input": items, "store": False}
    body |= _build_shared(name, tools, options)
    if tools:
        body["tools"] = tools_to_responses(tools)
        if (choice := options.get("tool_choice")) is not None:
            body["tool_choice"] = (
                choice if choice in _TOOL_CHOICES else {"type": "function", "name": choice}
            )
    if "max_output_tokens" in options:
        body["max_output_tokens"] = options["max_output_tokens"]
    if _REASONING_MODEL.match(name) and _reasons(name, options):
        body["include"] = ["reasoning.encrypted_content"]
    if "reasoning_effort" in options and not _PLAIN_MODEL.match(name):
        body["reasoning"] = {"effort": options["reasoning_effort"]}
    if options.get("on_text") is not None:
        body["stream"] = True
    return body


def _write_messages(name: str, messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages that can be written for a model."""
    shown = messages if sees_images(name) else name_media(messages, "which this model cannot see")
    return replace_lone_surrogates(shown)


def _build_shared(name: str, tools: Sequence[ToolDefinition], options: ModelOptions) -> Body:
    """Build the options that both formats call the same."""
    body: Body = {}
    if tools and "parallel_tool_calls" in options:
        body["parallel_tool_calls"] = options["parallel_tool_calls"]
    if "prompt_cache_key" in options:
        body["prompt_cache_key"] = options["prompt_cache_key"]
    if "temperature" in options and not _reasons(name, options):
        body["temperature"] = options["temperature"]
    return body


def _reasons(name: str, options: ModelOptions) -> bool:
    effort = options.get("reasoning_effort")
    return effort != "none" and (
        _REASONING_MODEL.match(name) is not None
        or (effort is not None and not _PLAIN_MODEL.match(name))
    )


def _sends_cache_breakpoints(name: str, options: ModelOptions) -> bool:
    return options.get("cache_breakpoints", _CACHE_BREAKPOINT_MODEL.match(name) is not None)


def _set_phases(items: list[Any], messages: Sequence[Message]) -> None:  # Any: as in Body
    """Set the phase on the items of each message that has one."""
    if not any(
        isinstance(part, OpaquePart) and part.provider == PHASE
        for message in messages
        for part in message.content
    ):
        return
    start = 0
    for message in messages:
        end = start + len(to_responses([message], cache=False))
        phase = next(
            (
                _read_phase(part)
                for part in reversed(message.content)
                if isinstance(part, OpaquePart) and part.provider == PHASE
            ),
            None,
        )
        for item in items[start:end] if phase else ():
            if item.get("type") == "message":
                item["phase"] = phase
        start = end


def _read_phase(part: OpaquePart) -> object:
    value: object = part.value
    return value.get("phase") if isinstance(value, Mapping) else None
