"""Build the bodies of Anthropic requests as plain dicts, without the SDK, of the settings that a model accepts.

The Messages API refuses a setting that the model does not have with 400, and which it has changes
from generation to generation. It is read from the model's name. The facts are those of Anthropic's
pages "Thinking", "Effort", "Preserved thinking" and "What's new" of each model, of October 2026.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import filterfalse
from typing import Any, Literal, TypeAlias, TypeGuard

import attrs

from promptkit.errors import UnknownModelError
from promptkit.messages import Message, OpaquePart, Part, ToolCall, ToolDefinition
from promptkit.providers.model import Effort, ModelOptions
from promptkit.tokens import model_info
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


@attrs.frozen(kw_only=True)
class Capabilities:
    """The settings that a model accepts."""

    thinking: Literal["budget", "adaptive"] = "adaptive"
    """How thinking is asked for: with a number of tokens, or with an effort, by which the model
    decides itself."""

    off: Literal["disabled", "between_tools"] | None = None
    """The value of `thinking.type` that switches thinking off. None: it always thinks."""

    efforts: tuple[Effort, ...] = ("low", "medium", "high", "xhigh", "max")
    """The efforts that it knows, the lowest first."""

    forced_calls: bool = True
    """Whether a request may force a tool call."""

    prefill: bool = False
    """Whether the last message may be the beginning of its reply."""

    bound: bool = False
    """Whether a thinking block is refused once anything before it has changed ("preserved
    thinking")."""


_VERSION = re.compile(
    r"claude-(?:(?P<family>[a-z]+)-)?(?P<major>\d{1,2})(?!\d)(?:[-.](?P<minor>\d{1,2})(?!\d))?"
)
"""The family and the version in names such as `claude-opus-5-5`, `claude-3-7-sonnet-20250219` and
`us.anthropic.claude-haiku-4-5-v1:0`."""

_EFFORT_ORDER: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

_GENERATIONS: tuple[tuple[tuple[int, int], frozenset[str], Capabilities], ...] = (
    ((5, 1), frozenset({"haiku"}), Capabilities(off="disabled", bound=True)),
    (
        (5, 1),
        frozenset({"sonnet"}),
        Capabilities(off="between_tools", forced_calls=False, bound=True),
    ),
    ((5, 1), frozenset(), Capabilities(forced_calls=False, bound=True)),
    ((4, 7), frozenset({"fable", "mythos"}), Capabilities()),
    ((4, 7), frozenset(), Capabilities(off="disabled")),
    ((4, 6), frozenset(), Capabilities(off="disabled", efforts=("low", "medium", "high", "max"))),
    (
        (0, 0),
        frozenset(),
        Capabilities(thinking="budget", off="disabled", efforts=(), prefill=True),
    ),
)
"""The first version, the families (empty: all others), and what they accept, the newest first."""

_OUTPUT_TOKENS, _UNKNOWN_OUTPUT_TOKENS = 32_000, 8_192
"""The output limits of a request that sets none: of models that are known, and of others, which may
not accept more."""


def capabilities_of(name: str) -> Capabilities:
    """Return the settings that a model accepts.

    A name without a version, such as that of another maker's model, gets what most accept.
    """
    match = _VERSION.search(name)
    if match is None:
        return Capabilities(off="disabled")
    family, version = match["family"], (int(match["major"]), int(match["minor"] or 0))
    return next(
        known
        for first, families, known in _GENERATIONS
        if version >= first and (not families or family in families)
    )


def nearest_effort(effort: Effort, known: Capabilities) -> Effort:
    """Return the effort itself if the model knows it, otherwise the next lower one, or else its lowest."""
    order = _EFFORT_ORDER.index
    lower: list[Effort] = [each for each in known.efforts if order(each) <= order(effort)]
    return lower[-1] if lower else known.efforts[0]


def default_output_tokens(name: str) -> int:
    """Return the output limit of a request that sets none, in tokens: 32,000, or the most that the model can write; 8,192 for other models."""
    try:
        known = model_info(name).max_output_tokens
    except UnknownModelError:
        known = None
    return _UNKNOWN_OUTPUT_TOKENS if known is None else min(known, _OUTPUT_TOKENS)
