"""Messages as OpenAI's Chat Completions takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.emitters.openai_shared import breakpoints, file_fields
from promptkit.emitters.parts import Payload, WireDict, check, formless, plain, visible
from promptkit.messages import CacheBreakpointPart, DocumentPart, ImagePart, Message, OpaquePart, Part, ToolCall, ToolDefinition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["to_chat", "tools_to_chat"]


def to_chat(messages: Sequence[Message], *, cache: bool = True) -> Payload:
    """One Chat Completions message for each message, in order: `client.chat.completions.create(messages=...)`.

    Content is a plain string where it is all text, and an array of parts where it has images, documents, opaque parts or cache
    breakpoints. Tool call arguments go out byte for byte. An empty tool result is `""`; an assistant message of tool calls alone
    has the content None. `name` is sent where it is set, but for tool messages, which have none in this format.

    A cache boundary becomes `prompt_cache_breakpoint` on the nearest text, image or document before it outside the assistant's
    messages; its `ttl` is sent where OpenAI knows it (`30m`, `12h`), its `kind` never: there is only one. Models before gpt-5.6
    reject the field: `cache=False` leaves it out.

    Raises EmitError for images and documents in system, assistant and tool messages, tool calls outside assistant messages, and
    tool messages without a call id.
    """
    check(messages, "chat")
    contents = [visible(message, "chat", cache=cache) for message in messages]
    marks = breakpoints((message.role, parts) for message, parts in zip(messages, contents, strict=True))
    return [
        _message(index, message, parts, {place: mark for place in range(len(parts)) if (mark := marks.get((index, place)))})
        for index, (message, parts) in enumerate(zip(messages, contents, strict=True))
    ]


def tools_to_chat(tools: Sequence[ToolDefinition]) -> Payload:
    """Tool definitions for `client.chat.completions.create(tools=...)`; what a definition does not say is left out."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                **({} if tool.description is None else {"description": tool.description}),
                **({} if tool.parameters is None else {"parameters": plain(tool.parameters)}),
                **({} if tool.strict is None else {"strict": tool.strict}),
            },
        }
        for tool in tools
    ]


def _message(index: int, message: Message, parts: Sequence[Part], marks: Mapping[int, WireDict]) -> WireDict:
    said = [(part, marks.get(place)) for place, part in enumerate(parts) if not isinstance(part, CacheBreakpointPart)]
    wire: WireDict = {"role": message.role}
    if message.role == "tool":
        wire["tool_call_id"] = message.tool_call_id
    elif message.name is not None:
        wire["name"] = message.name
    if marks or not all(isinstance(part, str) for part, _ in said):
        wire["content"] = [_part(index, message, part) | ({"prompt_cache_breakpoint": mark} if mark else {}) for part, mark in said]
    else:
        text = "".join(part for part, _ in said if isinstance(part, str))
        wire["content"] = text if text or not message.tool_calls else None
    if message.tool_calls:
        wire["tool_calls"] = [_call(call) for call in message.tool_calls]
    return wire


def _part(index: int, message: Message, part: Part) -> WireDict:
    match part:
        case str():
            return {"type": "text", "text": part}
        case OpaquePart():
            return plain(part.value)  # type: ignore[no-any-return]  # an opaque part is the caller's word for it
        case ImagePart() if message.role == "user":
            return {"type": "image_url", "image_url": {"url": part.url} | ({"detail": part.detail} if part.detail else {})}
        case DocumentPart() if message.role == "user":
            return {"type": "file", "file": file_fields(part)}
        case _:
            raise formless(index, message, part, "chat")


def _call(call: ToolCall) -> WireDict:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
