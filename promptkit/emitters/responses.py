"""Messages and tools in the wire format of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from promptkit.emitters.openai_shared import place_breakpoints, to_file_fields
from promptkit.emitters.parts import Payload, WireDict, check_messages, copy_json, select_parts, unsupported_part_error
from promptkit.messages import CacheBreakpointPart, DocumentPart, ImagePart, Message, OpaquePart, Part, ToolCall, ToolDefinition

__all__ = ["to_responses", "tools_to_responses"]

CONTENT_TYPES = ("input_audio", "input_file", "input_image", "input_text", "output_text", "refusal")
"""Opaque parts of these types belong to the content of a message. Parts of other types (reasoning, compaction, …) are items."""


def to_responses(messages: Sequence[Message], *, cache: bool = True) -> Payload:
    """Convert messages to input items of the Responses API, for `client.responses.create(input=...)`.

    A message becomes a `message` item, whose content is a string if it is one text. An assistant message with several parts
    gets an `id`, which the format requires: its place among the messages. Each tool call becomes a `function_call` item
    after the text of its message, with its arguments byte for byte. Each tool message becomes a `function_call_output` item; an
    empty result is `""`. An opaque part whose type is not message content, such as `reasoning`, becomes an item of its own and
    splits the message around it. Names are dropped, since this format has none.

    A cache breakpoint becomes `prompt_cache_breakpoint` on the nearest text, image or document before it outside of assistant
    messages. Its `ttl` is sent if OpenAI supports it (`30m`, `12h`). Its `kind` is not sent: OpenAI has only one.

    Args:
        messages: The messages, in order.
        cache: Whether cache breakpoints are sent. Models before gpt-5.6 reject the field.

    Raises:
        EmitError: A system or assistant message has an image or a document, a message other than an assistant message has tool
            calls, or a tool message has no call id.
    """
    check_messages(messages, "responses")
    contents = [select_parts(message, "responses", cache=cache) for message in messages]
    marks = place_breakpoints((message.role, parts) for message, parts in zip(messages, contents, strict=True))
    items: Payload = []
    for index, (message, parts) in enumerate(zip(messages, contents, strict=True)):
        content = [(part, marks.get((index, place))) for place, part in enumerate(parts) if not isinstance(part, CacheBreakpointPart)]
        if message.role == "tool":
            items.append(
                {"type": "function_call_output", "call_id": message.tool_call_id, "output": _convert_content(index, message, content)}
            )
        else:
            items += _convert_message(index, message, content)
    return items


def tools_to_responses(tools: Sequence[ToolDefinition]) -> Payload:
    """Convert tool definitions, for `client.responses.create(tools=...)`.

    The format requires `parameters` and `strict`. They are None if a definition has none, and OpenAI then chooses.
    """
    return [
        {
            "type": "function",
            "name": tool.name,
            "parameters": copy_json(tool.parameters),
            "strict": tool.strict,
            **({} if tool.description is None else {"description": tool.description}),
        }
        for tool in tools
    ]


def _convert_message(index: int, message: Message, content: Sequence[tuple[Part, WireDict | None]]) -> Payload:
    items: Payload = []
    pending: list[tuple[Part, WireDict | None]] = []

    def close() -> None:
        if pending:
            item = {"type": "message", "role": message.role, "content": _convert_content(index, message, pending)}
            if message.role == "assistant" and isinstance(item["content"], list):
                item |= {"id": f"msg_{index}_{len(items)}", "status": "completed"}  # the format requires both beside `output_text`
            items.append(item)
            pending.clear()

    for part, mark in content:
        if isinstance(part, OpaquePart) and not _is_message_content(part):
            close()
            items.append(copy_json(part.value))
        else:
            pending.append((part, mark))
    close()
    items += [_convert_call(call) for call in message.tool_calls]
    return items or [{"type": "message", "role": message.role, "content": ""}]


def _is_message_content(part: OpaquePart) -> bool:
    return isinstance(part.value, Mapping) and part.value.get("type") in CONTENT_TYPES


def _convert_content(index: int, message: Message, content: Sequence[tuple[Part, WireDict | None]]) -> str | Payload:
    if not content:
        return ""
    first, mark = content[0]
    if len(content) == 1 and isinstance(first, str) and mark is None:
        return first
    return [_convert_part(index, message, part) | ({"prompt_cache_breakpoint": mark} if mark else {}) for part, mark in content]


def _convert_part(index: int, message: Message, part: Part) -> WireDict:
    match part:
        case str() if message.role == "assistant":
            return {"type": "output_text", "text": part, "annotations": []}
        case str():
            return {"type": "input_text", "text": part}
        case OpaquePart():
            return copy_json(part.value)  # type: ignore[no-any-return]  # the caller vouches for an opaque part
        case ImagePart() if message.role in ("user", "tool"):
            return {"type": "input_image", "image_url": part.url, "detail": part.detail or "auto"}
        case DocumentPart() if message.role in ("user", "tool"):
            return {"type": "input_file", **to_file_fields(part)}
        case _:
            raise unsupported_part_error(index, message, part, "responses")


def _convert_call(call: ToolCall) -> WireDict:
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
