"""Build the bodies of OpenAI requests as plain dicts, without the SDK."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import attrs

from promptkit.messages import Message, OpaquePart, ToolDefinition, as_mapping
from promptkit.providers.model import ModelOptions
from promptkit.tokens.models import sees_images
from promptkit.wire import to_chat, to_responses, tools_to_chat, tools_to_responses
from promptkit.wire.parts import Payload, name_media, replace_lone_surrogates

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
    sent = to_chat(_write_messages(name, messages), cache=_sends_cache_breakpoints(name, options))
    return {"model": name, "messages": sent, **_build_options(_CHAT, name, tools, options)}


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
    return {
        "model": name,
        "input": items,
        "store": False,
        **_build_options(_RESPONSES, name, tools, options),
    }


def _write_messages(name: str, messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages that can be written for a model."""
    shown = messages if sees_images(name) else name_media(messages, "which this model cannot see")
    return replace_lone_surrogates(shown)


@attrs.frozen
class _Api:
    """Names and forms of the options of a request in one API."""

    write_tools: Callable[[Sequence[ToolDefinition]], Payload]
    choose_tool: Callable[[str], Body]
    limit: str
    """The name of the most tokens of a reply."""
    write_effort: Callable[[str], Body]
    stream: Body
    """The options that ask for a stream with the usage."""


_CHAT = _Api(
    write_tools=tools_to_chat,
    choose_tool=lambda name: {"type": "function", "function": {"name": name}},
    limit="max_completion_tokens",
    write_effort=lambda effort: {"reasoning_effort": effort},
    stream={"stream": True, "stream_options": {"include_usage": True}},
)
_RESPONSES = _Api(
    write_tools=tools_to_responses,
    choose_tool=lambda name: {"type": "function", "name": name},
    limit="max_output_tokens",
    write_effort=lambda effort: {"reasoning": {"effort": effort}},
    stream={"stream": True},
)


def _build_options(
    api: _Api, name: str, tools: Sequence[ToolDefinition], options: ModelOptions
) -> Body:
    """Build what a body has besides the messages."""
    is_sent = {
        "parallel_tool_calls": bool(tools),
        "prompt_cache_key": True,
        "temperature": not _reasons(name, options),
    }
    body: Body = {option: value for option, value in sorted(options.items()) if is_sent.get(option)}
    if tools:
        body["tools"] = api.write_tools(tools)
        if (choice := options.get("tool_choice")) is not None:
            body["tool_choice"] = choice if choice in _TOOL_CHOICES else api.choose_tool(choice)
    if "max_output_tokens" in options:
        body[api.limit] = options["max_output_tokens"]
    if api is _RESPONSES and _REASONING_MODEL.match(name) and _reasons(name, options):
        body["include"] = ["reasoning.encrypted_content"]
    if "reasoning_effort" in options and not _PLAIN_MODEL.match(name):
        body |= api.write_effort(options["reasoning_effort"])
    return body if options.get("on_text") is None else body | api.stream


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
    phases = [_find_phase(message) for message in messages]
    start = 0
    for message, phase in zip(messages, phases, strict=True) if any(phases) else ():
        end = start + len(to_responses([message], cache=False))
        for item in items[start:end] if phase else ():
            if item.get("type") == "message":
                item["phase"] = phase
        start = end


def _find_phase(message: Message) -> object:
    return next(
        (
            as_mapping(part.value).get("phase")
            for part in reversed(message.content)
            if isinstance(part, OpaquePart) and part.provider == PHASE
        ),
        None,
    )
