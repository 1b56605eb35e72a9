"""Build the bodies of Anthropic requests as plain dicts, without the SDK."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import filterfalse
from typing import Any, TypeAlias, TypeGuard

import attrs

from promptkit.messages import Message, OpaquePart, Part, ToolCall, ToolDefinition
from promptkit.providers.anthropic.capabilities import (
    Capabilities,
    capabilities_of,
    default_output_tokens,
    nearest_effort,
)
from promptkit.providers.model import Effort, ModelOptions
from promptkit.wire import to_anthropic, tools_to_anthropic
from promptkit.wire.anthropic import mark_prefix, mark_tools
from promptkit.wire.parts import begin_with_user, parse_arguments, replace_lone_surrogates

# Any: the SDK declares the values as TypedDicts, and tests check each body against these
Body: TypeAlias = dict[str, Any]

BINDING_BETA = "thinking-binding-controls-2026-08-01"
"""The value of the header `anthropic-beta` with which a request may say what becomes of thinking
blocks that do not fit any more."""

_THINKING_BUDGETS: Mapping[Effort, int] = {
    "minimal": 1_024,
    "low": 2_048,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 24_576,
    "max": 31_999,
}
"""Effort → tokens of thinking, for models that have a budget for it."""

_ID_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")
"""Characters that the API refuses in the id of a tool call."""

_MIN_BUDGET = 1_024
"""The least tokens of thinking that the API accepts."""

_TOOL_CHOICES: Mapping[str, str] = {"auto": "auto", "none": "none", "required": "any"}
"""Values of the option `tool_choice` that are not the name of a tool → the type that the API calls
them by."""


def build_body(
    name: str, messages: Sequence[Message], tools: Sequence[ToolDefinition], options: ModelOptions
) -> Body:
    """Build the body for `client.messages.create(**body)`.

    Args:
        name: The model's name.
        messages: The messages of the request.
        tools: The tools that the model may call.
        options: The options of the request. `temperature` and `prompt_cache_key` are not sent: the
            API has neither.

    Raises:
        EmitError: The format cannot hold a message.
    """
    known = capabilities_of(name)
    if count := options.get("cache_messages", 0):
        messages = mark_prefix(messages, count, options.get("cache_ttl"))
    body: Body = {
        "model": name,
        "max_tokens": options.get("max_output_tokens", default_output_tokens(name)),
    }
    if tools:
        body["tools"] = tools_to_anthropic(tools)
        if count and options.get("cache_breakpoints", True):
            mark_tools(body["tools"], messages)
        body |= _choose_tool(options, known)
    body |= _build_thinking(
        messages,
        options.get("reasoning_effort"),
        known,
        limit=body["max_tokens"],
        is_forced=body.get("tool_choice", {}).get("type") in {"any", "tool"},
    )
    if options.get("reasoning_effort") == "none" and known.off is not None:
        # which the API asks for where thinking is off
        messages = [
            attrs.evolve(message, content=[*filterfalse(is_thinking, message.content)])
            for message in messages
        ]
    sent = [_repair(message) for message in replace_lone_surrogates(begin_with_user(messages))]
    return body | to_anthropic(sent, cache=options.get("cache_breakpoints", True))


def beta_headers(body: Body) -> dict[str, str]:
    """Return the headers without which the API does not know all parameters of a body.

    Most bodies need none.
    """
    return {"anthropic-beta": BINDING_BETA} if "block_binding" in body.get("thinking", {}) else {}


def _choose_tool(options: ModelOptions, known: Capabilities) -> Body:
    choice = options.get("tool_choice")
    sequential = options.get("parallel_tool_calls") is False
    if choice is None and not sequential:
        return {}
    kind = _TOOL_CHOICES.get(choice or "auto", "tool")
    if kind in {"any", "tool"} and not known.forced_calls:
        kind = "auto"  # otherwise the API answers 400
    return {
        "tool_choice": {
            "type": kind,
            **({"name": choice} if kind == "tool" else {}),
            **({"disable_parallel_tool_use": True} if sequential and kind != "none" else {}),
        }
    }


def _build_thinking(
    messages: Sequence[Message],
    effort: Effort | None,
    known: Capabilities,
    *,
    limit: int,
    is_forced: bool,
) -> Body:
    """Build the parameters that decide how much the model thinks.

    Args:
        messages: The messages of the request.
        effort: The effort that was asked for. None leaves it to the provider.
        known: The settings that the model accepts.
        limit: The output limit in tokens, which thinking counts toward.
        is_forced: Whether the request forces a tool call.
    """
    # Compaction, pruning and edits change what is before a thinking block. The provider then leaves
    # the block out.
    binding = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}} if known.bound else {}
    if effort is None:
        return {"thinking": {"type": "adaptive", **binding}} if binding else {}
    if effort == "none" and known.off is not None:
        return {"thinking": {"type": known.off}}
    if known.thinking == "adaptive":
        return {
            "thinking": {"type": "adaptive", **binding},
            "output_config": {"effort": nearest_effort(effort, known)},
        }
    budget = min(_THINKING_BUDGETS[effort], limit // 2)
    # These models refuse thinking together with a forced call, and in a round of tool calls that
    # began without it.
    is_off = budget < _MIN_BUDGET or is_forced or _calls_without_thinking(messages)
    return {} if is_off else {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _calls_without_thinking(messages: Sequence[Message]) -> bool:
    """Return whether the messages end with a round of tool calls that the model made without thinking anywhere in its turn."""
    in_turn = False
    for message in reversed(messages):
        if message.role == "assistant":
            if any(map(is_thinking, message.content)) or not (in_turn or message.tool_calls):
                return False
            in_turn = True
        elif message.role == "user" and in_turn:
            break
    return in_turn


def is_thinking(part: Part) -> TypeGuard[OpaquePart]:
    """Return whether a part is a thinking block of Anthropic, readable or not."""
    value = part.value if isinstance(part, OpaquePart) and part.provider == "anthropic" else None
    return isinstance(value, Mapping) and value.get("type") in {"thinking", "redacted_thinking"}


def _repair(message: Message) -> Message:
    """Return the message with tool calls that can be sent, whichever model made them.

    Other messages stay the same objects.

    An id gets `_` for characters that the API refuses in ids. Arguments that are not a JSON object
    become the only value of one: the result of the call says that they are wrong, and without this
    no later request could be made.
    """
    if message.tool_call_id is not None:
        call_id = _ID_CHARACTER.sub("_", message.tool_call_id)
        return (
            message
            if call_id == message.tool_call_id
            else attrs.evolve(message, tool_call_id=call_id)
        )
    calls = tuple(map(_repair_call, message.tool_calls))
    return message if calls == message.tool_calls else attrs.evolve(message, tool_calls=calls)


def _repair_call(call: ToolCall) -> ToolCall:
    try:
        parse_arguments(call.arguments)
        arguments = call.arguments
    except ValueError:
        arguments = json.dumps({"arguments": call.arguments})
    return attrs.evolve(call, id=_ID_CHARACTER.sub("_", call.id), arguments=arguments)
