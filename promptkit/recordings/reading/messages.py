"""OpenAI's chat messages, and what others made of them, as messages of ours.

Anthropic's content blocks, as parts, calls and results.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from promptkit.messages import CacheBreakpointPart, DocumentPart, ImagePart, Message, OpaquePart, Part, Role, ToolCall
from promptkit.recordings.reading.json_values import dump_json, as_object, as_objects, omit_fields, as_text, as_list
from promptkit.transcript.entries import CustomEntry, MessageEntry

if TYPE_CHECKING:
    from promptkit.messages import Json, Usage
    from promptkit.recordings.reading.json_values import JsonObject
    from promptkit.transcript.entries import EntryPayload

__all__ = ["ANTHROPIC", "ContentBlocks", "parts_from_block", "read_anthropic_content", "read_chat_message"]


ANTHROPIC = "anthropic"


@attrs.define
class ContentBlocks:
    """What the content of one message holds."""

    parts: list[Part] = attrs.field(factory=list[Part])
    calls: list[ToolCall] = attrs.field(factory=list[ToolCall])
    results: list[Message] = attrs.field(factory=list[Message])
    failed: list[str] = attrs.field(factory=list[str])
    """The ids of calls whose results are marked as errors."""


def read_anthropic_content(content: Json) -> ContentBlocks:
    """The content of a message: a text, or a list of blocks. A block of a kind that is not known becomes an opaque part."""
    made = ContentBlocks()
    for block in as_list(content) if isinstance(content, list) else [content]:
        match block:
            case {"type": "tool_use", "id": str(call), "name": str(name)}:
                made.calls.append(ToolCall(id=call, name=name, arguments=_arguments(as_object(block))))
            case {"type": "tool_result", "tool_use_id": str(call)}:
                made.results.append(_result(as_object(block), call))
                if as_object(block).get("is_error") is True:
                    made.failed.append(call)
            case _:
                made.parts.extend(parts_from_block(block))
    return made


def parts_from_block(block: Json) -> list[Part]:
    """The parts of a block that is no call and no result, with the cache boundary behind it. Empty text is none."""
    match block:
        case None | "":
            return []
        case str():
            return [block]
        case {"type": "text", "text": str(text), "citations": [_, *_]}:
            return [OpaquePart(value=block, provider=ANTHROPIC)]  # what is cited belongs to the text
        case {"type": "text", "text": str(text)}:
            made: list[Part] = [text] if text else []
        case {"type": "image", "source": Mapping() as source} if url := _url(source):
            made = [ImagePart(url=url, media_type=as_text(source.get("media_type")))]
        case {"type": "document", "source": Mapping() as source} if document := _document(source, as_text(as_object(block).get("title"))):
            made = [document]
        case Mapping():
            return [OpaquePart(value=block, provider=ANTHROPIC)]
        case _:
            return [dump_json(block)]
    cache = as_object(block).get("cache_control")
    if isinstance(cache, Mapping):
        made.append(CacheBreakpointPart(kind=as_text(cache.get("type")), ttl=as_text(cache.get("ttl"))))
    return made


def _arguments(block: JsonObject) -> str:
    given = block.get("input")
    return given if isinstance(given, str) else dump_json(given if given is not None else {})


def _result(block: JsonObject, call: str) -> Message:
    content = block.get("content")
    parts = [part for item in (content if isinstance(content, list) else [content]) for part in parts_from_block(item)]
    cache = block.get("cache_control")
    if isinstance(cache, Mapping):
        parts.append(CacheBreakpointPart(kind=as_text(cache.get("type")), ttl=as_text(cache.get("ttl"))))
    return Message(role="tool", tool_call_id=call, content=tuple(parts))


def _url(source: JsonObject) -> str | None:
    match source:
        case {"type": "base64", "data": str(data)}:
            return f"data:{as_text(source.get('media_type')) or 'image/png'};base64,{data}"
        case {"type": "url", "url": str(url)}:
            return url
        case _:
            return None


def _document(source: JsonObject, title: str | None) -> DocumentPart | None:
    match source:
        case {"type": "base64", "data": str(data)}:
            return DocumentPart(data=data, media_type=as_text(source.get("media_type")) or "application/pdf", name=title)
        case {"type": "text", "data": str(text)}:
            data = base64.b64encode(text.encode("utf-8", errors="backslashreplace")).decode("ascii")
            return DocumentPart(data=data, media_type="text/plain", name=title)
        case _:
            return None


CHAT = "chat"
ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
KNOWN = {"role", "content", "name", "tool_calls", "tool_call_id", "function_call", *(THOUGHTS := ("reasoning_content", "thinking_blocks"))}
BY_ANTHROPIC = {"image", "document", "thinking", "redacted_thinking"}


def read_chat_message(
    record: JsonObject, codec: str, *, usage: Usage | None = None, model: str | None = None, finish: str | None = None
) -> list[EntryPayload]:
    """A message, and behind it what it says that a message of ours has no place for. None for a role that is not known.

    `usage`, `model` and `finish` are what the recording says elsewhere about an answer of the model.
    """
    role = ROLES.get(as_text(record.get("role")) or "")
    if role is None:
        return []
    content = record.get("content")
    results = read_anthropic_content(content).results if role == "user" and isinstance(content, list) else []
    message = Message(
        role=role,
        content=(*_thoughts(record), *_parts(content)),
        name=as_text(record.get("name")),
        tool_calls=_calls(record) if role == "assistant" else (),
        tool_call_id=_answers(record) if role == "tool" else None,
    )
    made: list[EntryPayload] = [MessageEntry(message=result) for result in results]
    if message.content or not results:
        about = {"usage": usage, "model": model, "finish": finish} if role == "assistant" else {}
        made.append(MessageEntry(message=message, **about))  # type: ignore[arg-type]  # each field has its type above
    left = omit_fields(record, KNOWN)
    if record.get("role") == "developer":
        left["role"] = "developer"
    if left:
        made.append(CustomEntry(name=f"{codec}.fields", data=left))
    return made


def _answers(record: JsonObject) -> str:
    """The id of the call that a result answers. Functions, which were before tools, have their name for one."""
    listed = [call for call in as_list(record.get("tool_call_ids")) if isinstance(call, str)]
    return as_text(record.get("tool_call_id")) or (listed[0] if listed else as_text(record.get("name")) or "")


def _calls(record: JsonObject) -> tuple[ToolCall, ...]:
    calls: list[ToolCall] = []
    for call in as_objects(record.get("tool_calls")):
        function, custom = as_object(call.get("function")), as_object(call.get("custom"))
        arguments = {"input": custom.get("input")} if custom and not function else function.get("arguments")
        name = as_text(function.get("name")) or as_text(custom.get("name")) or ""
        calls.append(ToolCall(id=as_text(call.get("id")) or "", name=name, arguments=_chat_arguments(arguments)))
    if function := as_object(record.get("function_call")):
        name = as_text(function.get("name")) or ""
        calls.append(ToolCall(id=name, name=name, arguments=_chat_arguments(function.get("arguments"))))
    calls += read_anthropic_content(record.get("content")).calls if isinstance(record.get("content"), list) else []
    return tuple(calls)


def _chat_arguments(given: Json) -> str:
    return given if isinstance(given, str) else dump_json(given if given is not None else {})


def _thoughts(record: JsonObject) -> list[Part]:
    """What the model thought, in the fields in which gateways give it."""
    blocks = as_objects(record.get("thinking_blocks"))
    text = as_text(record.get("reasoning_content"))
    if blocks:
        return [OpaquePart(value=block, provider=ANTHROPIC) for block in blocks]
    return [OpaquePart(value={"type": "reasoning", "text": text}, provider="chat.reasoning_content")] if text else []


def _parts(content: Json) -> list[Part]:
    made: list[Part] = []
    for block in as_list(content) if isinstance(content, list) else [content]:
        made.extend(_part(block))
    return made


def _part(block: Json) -> list[Part]:
    match block:
        case None | "" | {"type": "tool_use" | "tool_result"}:
            return []
        case str():
            return [block]
        case {"type": str(kind)} if kind in BY_ANTHROPIC:
            return parts_from_block(block)
        case Mapping():
            part = _known(block)
            made: list[Part] = [part] if part != "" else []
            return made if isinstance(part, OpaquePart) else [*made, *_boundaries(block)]
        case _:
            return [dump_json(block)]


def _known(block: JsonObject) -> Part:
    """The part of a block that is an object; an opaque one for what is not known."""
    match block:
        case {"type": "text" | "input_text" | "output_text", "text": str(text)}:
            return text
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return ImagePart(url=url, detail=as_text(as_object(block.get("image_url")).get("detail")))
        case {"type": "image_url", "image_url": str(url)}:
            return ImagePart(url=url)
        case {"type": "file", "file": {"file_data": str(data)}} if data.startswith("data:") and ";base64," in data:
            kind, _, content = data.removeprefix("data:").partition(";base64,")
            return DocumentPart(data=content, media_type=kind, name=as_text(as_object(block.get("file")).get("filename")))
        case _:
            return OpaquePart(value=block, provider=CHAT)


def _boundaries(block: JsonObject) -> list[Part]:
    marks = [block[name] for name in ("cache_control", "prompt_cache_breakpoint") if isinstance(block.get(name), Mapping)]
    return [CacheBreakpointPart(kind=as_text(as_object(mark).get("type")), ttl=as_text(as_object(mark).get("ttl"))) for mark in marks]
