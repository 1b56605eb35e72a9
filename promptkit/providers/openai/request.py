"""What OpenAIModel sends: the body of a request, as plain dicts. Nothing of the SDK is needed for that.

Text that can be sent: half surrogate pairs, of which one would have a whole conversation refused for ever, are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from promptkit.emitters import to_chat, to_responses, tools_to_chat, tools_to_responses
from promptkit.messages import OpaquePart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import Message, ToolDefinition
    from promptkit.providers.model import ModelOptions

__all__ = ["PHASE", "Body", "chat_body", "replace_lone_surrogates", "responses_body"]


HALVES = re.compile(r"[\ud800-\udfff]")
"""In names of files that are no UTF-8, in answers that were cut between two halves, and in recordings of both."""


def replace_lone_surrogates(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages with U+FFFD in the place of each half surrogate pair, as tokenizers count it. What is whole stays the same object."""
    return [_whole(message) for message in messages]


def _whole(message: Message) -> Message:
    texts = [*(part for part in message.content if isinstance(part, str)), *(call.name + call.arguments for call in message.tool_calls)]
    if not any(map(_is_torn, texts)):
        return message
    return attrs.evolve(
        message,
        content=tuple(_mended(part) if isinstance(part, str) else part for part in message.content),
        tool_calls=tuple(attrs.evolve(call, name=_mended(call.name), arguments=_mended(call.arguments)) for call in message.tool_calls),
    )


def _is_torn(text: str) -> bool:
    return not text.isascii() and HALVES.search(text) is not None


def _mended(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


Body: TypeAlias = dict[str, Any]  # Any: the SDK declares what goes in as TypedDicts, which tests check each body against

PHASE = "responses.phase"
"""The `provider` of an opaque part that says the phase of its message, which OpenAI wants to see again: `{"phase": "commentary"}`.

No emitter knows it, so it is left out wherever else the message goes.
"""

WORDS = ("auto", "none", "required")
"""What `tool_choice` may say besides the name of a tool."""

REASONS = re.compile(r"(?:[\w.-]+/)*(?:o\d|gpt-(?:[5-9]|\d\d)(?!.*chat)|codex|computer-use)")
"""The names of OpenAI's models that reason: they refuse a temperature, unless they are told not to reason."""

DOES_NOT = re.compile(r"(?:[\w.-]+/)*(?:gpt-[34]|gpt-[5-9].*chat|chatgpt-|chat-latest)")
"""The names of OpenAI's that do not: they refuse an effort. Of any other name nothing is known, and what was asked for is sent."""

TAKES_BOUNDARIES = re.compile(r"gpt-(?:5\.(?:[6-9]|\d\d)|[6-9]|\d\d)")
"""The names of models that take `prompt_cache_breakpoint`; others answer 400."""


def chat_body(name: str, messages: Sequence[Message], tools: Sequence[ToolDefinition], options: ModelOptions) -> Body:
    """The body for `client.chat.completions.create(**body)`. Raises EmitError for what has no form there."""
    body: Body = {"model": name, "messages": to_chat(replace_lone_surrogates(messages), cache=_boundaries(name, options))}
    body |= _common(name, tools, options)
    if tools:
        body["tools"] = tools_to_chat(tools)
        if (choice := options.get("tool_choice")) is not None:
            body["tool_choice"] = choice if choice in WORDS else {"type": "function", "function": {"name": choice}}
    if "max_output_tokens" in options:
        body["max_completion_tokens"] = options["max_output_tokens"]
    if "reasoning_effort" in options and not DOES_NOT.match(name):
        body["reasoning_effort"] = options["reasoning_effort"]
    if options.get("on_text") is not None:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def responses_body(name: str, messages: Sequence[Message], tools: Sequence[ToolDefinition], options: ModelOptions) -> Body:
    """The body for `client.responses.create(**body)`. Raises EmitError for what has no form there.

    Nothing is stored at the provider: the conversation is the caller's. So thoughts come and go encrypted.
    """
    items = to_responses(replace_lone_surrogates(messages), cache=_boundaries(name, options))
    _say_phases(items, messages)
    body: Body = {"model": name, "input": items, "store": False}
    body |= _common(name, tools, options)
    if tools:
        body["tools"] = tools_to_responses(tools)
        if (choice := options.get("tool_choice")) is not None:
            body["tool_choice"] = choice if choice in WORDS else {"type": "function", "name": choice}
    if "max_output_tokens" in options:
        body["max_output_tokens"] = options["max_output_tokens"]
    if REASONS.match(name) and _reasons(name, options):
        body["include"] = ["reasoning.encrypted_content"]
    if "reasoning_effort" in options and not DOES_NOT.match(name):
        body["reasoning"] = {"effort": options["reasoning_effort"]}
    if options.get("on_text") is not None:
        body["stream"] = True
    return body


def _common(name: str, tools: Sequence[ToolDefinition], options: ModelOptions) -> Body:
    """What both formats call the same."""
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
    return effort != "none" and (REASONS.match(name) is not None or (effort is not None and not DOES_NOT.match(name)))


def _boundaries(name: str, options: ModelOptions) -> bool:
    return options.get("cache_boundaries", TAKES_BOUNDARIES.match(name) is not None)


def _say_phases(items: list[Any], messages: Sequence[Message]) -> None:  # Any: as in Body
    """Put the phase of each message that has one on its items."""
    if not any(isinstance(part, OpaquePart) and part.provider == PHASE for message in messages for part in message.content):
        return
    start = 0
    for message in messages:
        end = start + len(to_responses([message], cache=False))
        phase = next((_phase(part) for part in reversed(message.content) if isinstance(part, OpaquePart) and part.provider == PHASE), None)
        for item in items[start:end] if phase else ():
            if item.get("type") == "message":
                item["phase"] = phase
        start = end


def _phase(part: OpaquePart) -> object:
    value: object = part.value
    return value.get("phase") if isinstance(value, Mapping) else None
