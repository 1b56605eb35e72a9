"""Messages as the input items of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from promptkit.emitters.openai_shared import breakpoints, file_fields
from promptkit.emitters.parts import Payload, WireDict, check, formless, plain, visible
from promptkit.messages import CacheBreakpointPart, DocumentPart, ImagePart, Message, OpaquePart, Part, ToolCall, ToolDefinition

__all__ = ["to_responses", "tools_to_responses"]

CONTENT_TYPES = ("input_audio", "input_file", "input_image", "input_text", "output_text", "refusal")
"""Opaque values of these types stand in a message's content; of any other type (reasoning, compaction, …) they are items."""


def to_responses(messages: Sequence[Message], *, cache: bool = True) -> Payload:
    """The input items of all messages, in order: `client.responses.create(input=...)`.

    A message is a `message` item, whose content is a plain string where it is all text; each tool call is a `function_call` item
    after the text of its message, arguments byte for byte; each tool message is a `function_call_output` item, an empty result
    `""`. An opaque part whose type belongs to no message content, such as `reasoning`, is an item of its own and splits the
    message around it. Names have no place in this format and are left out.

    A cache boundary becomes `prompt_cache_breakpoint` on the nearest text, image or document before it outside the assistant's
    messages; its `ttl` is sent where OpenAI knows it (`30m`, `12h`), its `kind` never: there is only one. Models before gpt-5.6
    reject the field: `cache=False` leaves it out.

    Raises EmitError for images and documents in system and assistant messages, tool calls outside assistant messages, and tool
    messages without a call id.
    """
    check(messages, "responses")
    contents = [visible(message, "responses", cache=cache) for message in messages]
    marks = breakpoints((message.role, parts) for message, parts in zip(messages, contents, strict=True))
    items: Payload = []
    for index, (message, parts) in enumerate(zip(messages, contents, strict=True)):
        said = [(part, marks.get((index, place))) for place, part in enumerate(parts) if not isinstance(part, CacheBreakpointPart)]
        if message.role == "tool":
            items.append({"type": "function_call_output", "call_id": message.tool_call_id, "output": _content(index, message, said)})
        else:
            items += _items(index, message, said)
    return items


def tools_to_responses(tools: Sequence[ToolDefinition]) -> Payload:
    """Tool definitions for `client.responses.create(tools=...)`.

    The format wants `parameters` and `strict` always: they are None where a definition does not say them, and OpenAI then decides.
    """
    return [
        {
            "type": "function",
            "name": tool.name,
            "parameters": plain(tool.parameters),
            "strict": tool.strict,
            **({} if tool.description is None else {"description": tool.description}),
        }
        for tool in tools
    ]


def _items(index: int, message: Message, said: Sequence[tuple[Part, WireDict | None]]) -> Payload:
    items: Payload = []
    content: list[tuple[Part, WireDict | None]] = []

    def close() -> None:
        if content:
            items.append({"type": "message", "role": message.role, "content": _content(index, message, content)})
            content.clear()

    for part, mark in said:
        if isinstance(part, OpaquePart) and not _is_content(part):
            close()
            items.append(plain(part.value))
        else:
            content.append((part, mark))
    close()
    items += [_call(call) for call in message.tool_calls]
    return items or [{"type": "message", "role": message.role, "content": ""}]


def _is_content(part: OpaquePart) -> bool:
    return isinstance(part.value, Mapping) and part.value.get("type") in CONTENT_TYPES


def _content(index: int, message: Message, said: Sequence[tuple[Part, WireDict | None]]) -> str | Payload:
    if all(isinstance(part, str) and mark is None for part, mark in said):
        return "".join(part for part, _ in said if isinstance(part, str))
    return [_part(index, message, part) | ({"prompt_cache_breakpoint": mark} if mark else {}) for part, mark in said]


def _part(index: int, message: Message, part: Part) -> WireDict:
    match part:
        case str() if message.role == "assistant":
            return {"type": "output_text", "text": part, "annotations": []}
        case str():
            return {"type": "input_text", "text": part}
        case OpaquePart():
            return plain(part.value)  # type: ignore[no-any-return]  # an opaque part is the caller's word for it
        case ImagePart() if message.role in ("user", "tool"):
            return {"type": "input_image", "image_url": part.url, "detail": part.detail or "auto"}
        case DocumentPart() if message.role in ("user", "tool"):
            return {"type": "input_file", **file_fields(part)}
        case _:
            raise formless(index, message, part, "responses")


def _call(call: ToolCall) -> WireDict:
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
