"""Messages and tools in the wire format of OpenAI's Chat Completions API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.emitters.openai_shared import place_breakpoints, to_file_fields
from promptkit.emitters.parts import Payload, WireDict, check_messages, copy_json, select_parts, unsupported_part_error
from promptkit.messages import CacheBreakpointPart, DocumentPart, ImagePart, Message, OpaquePart, Part, ToolCall, ToolDefinition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["to_chat", "tools_to_chat"]


def to_chat(messages: Sequence[Message], *, cache: bool = True) -> Payload:
    """Convert messages to Chat Completions messages, for `client.chat.completions.create(messages=...)`.

    Each message becomes one message. Its content is a string if it is one text, and an array of parts if it has several texts (with
    cache breakpoints between them), images, documents, opaque parts or a cache breakpoint that is sent. Tool call arguments are sent byte for byte. An empty tool result is `""`; an
    assistant message with tool calls only has the content None. `name` is sent except for tool messages, which have no name in
    this format.

    A cache breakpoint becomes `prompt_cache_breakpoint` on the nearest text, image or document before it outside of assistant
    messages. Its `ttl` is sent if OpenAI supports it (`30m`, `12h`). Its `kind` is not sent: OpenAI has only one.

    Args:
        messages: The messages, in order.
        cache: Whether cache breakpoints are sent. Models before gpt-5.6 reject the field.

    Raises:
        EmitError: A system, assistant or tool message has an image or a document, a message other than an assistant message has
            tool calls, or a tool message has no call id.
    """
    check_messages(messages, "chat")
    contents = [select_parts(message, "chat", cache=cache) for message in messages]
    marks = place_breakpoints((message.role, parts) for message, parts in zip(messages, contents, strict=True))
    return [
        _convert_message(index, message, parts, {place: mark for place in range(len(parts)) if (mark := marks.get((index, place)))})
        for index, (message, parts) in enumerate(zip(messages, contents, strict=True))
    ]


def tools_to_chat(tools: Sequence[ToolDefinition]) -> Payload:
    """Convert tool definitions, for `client.chat.completions.create(tools=...)`. Fields that are None are left out."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                **({} if tool.description is None else {"description": tool.description}),
                **({} if tool.parameters is None else {"parameters": copy_json(tool.parameters)}),
                **({} if tool.strict is None else {"strict": tool.strict}),
            },
        }
        for tool in tools
    ]


def _convert_message(index: int, message: Message, parts: Sequence[Part], marks: Mapping[int, WireDict]) -> WireDict:
    content = [(part, marks.get(place)) for place, part in enumerate(parts) if not isinstance(part, CacheBreakpointPart)]
    wire: WireDict = {"role": message.role}
    if message.role == "tool":
        wire["tool_call_id"] = message.tool_call_id
    elif message.name is not None:
        wire["name"] = message.name
    if marks or len(content) > 1 or not all(isinstance(part, str) for part, _ in content):
        wire["content"] = [
            _convert_part(index, message, part) | ({"prompt_cache_breakpoint": mark} if mark else {}) for part, mark in content
        ]
    else:
        text = "".join(part for part, _ in content if isinstance(part, str))
        wire["content"] = text if text or not message.tool_calls else None
    if message.tool_calls:
        wire["tool_calls"] = [_convert_call(call) for call in message.tool_calls]
    return wire


def _convert_part(index: int, message: Message, part: Part) -> WireDict:
    match part:
        case str():
            return {"type": "text", "text": part}
        case OpaquePart():
            return copy_json(part.value)  # type: ignore[no-any-return]  # the caller vouches for an opaque part
        case ImagePart() if message.role == "user":
            return {"type": "image_url", "image_url": {"url": part.url} | ({"detail": part.detail} if part.detail else {})}
        case DocumentPart() if message.role == "user":
            return {"type": "file", "file": to_file_fields(part)}
        case _:
            raise unsupported_part_error(index, message, part, "chat")


def _convert_call(call: ToolCall) -> WireDict:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
