"""JSON that other programs wrote: values of the expected type or an empty one, texts that may be damaged, and the messages and the usage of providers."""

from __future__ import annotations

import base64
import codecs
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Set as AbstractSet
from datetime import UTC, datetime
from decimal import Decimal
from typing import TypeAlias

import attrs

from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Json,
    Message,
    OpaquePart,
    Part,
    Role,
    ToolCall,
    Usage,
)
from promptkit.providers.anthropic.api import read_usage
from promptkit.tools import ERROR_MARK
from promptkit.transcript import CustomEntry, EntryPayload, MessageEntry

JsonObject: TypeAlias = Mapping[str, Json]
"""A JSON object."""

MAX_DEPTH = 200
"""Levels of nested objects and lists. A deeper value is kept as text, because not every JSON reader
can read it."""

MAX_TIME = 1e15
"""No clock shows a larger time, in seconds or milliseconds."""

MIN_MILLISECONDS = 1e11
"""A larger time is in milliseconds: as seconds it would be more than 3,000 years after 1970."""


def as_object(value: Json) -> JsonObject:
    """Return the value if it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def as_list(value: Json) -> list[Json]:
    """Return the value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def as_blocks(content: Json) -> list[Json]:
    """Return the blocks of a content. A text, or anything else but a list, is one."""
    return content if isinstance(content, list) else [content]


def as_objects(value: Json) -> list[JsonObject]:
    """Return the objects in a list. Other items are ignored."""
    return [item for item in as_list(value) if isinstance(item, dict)]


def as_text(value: Json) -> str | None:
    """Return the value if it is a string, else None."""
    return value if isinstance(value, str) else None


def as_count(value: Json) -> int | None:
    """Return the value as a whole number if it is a number of at least 0, else None."""
    return (
        int(value)
        if isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
        else None
    )


def parse_time(value: Json) -> float | None:
    """Return a time in seconds since 1970, from an ISO date, from seconds or from milliseconds; None if the value is no time."""
    if isinstance(value, str):
        try:
            date = datetime.fromisoformat(value)
            return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    return (
        (value / 1000 if value > MIN_MILLISECONDS else float(value))
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and -MAX_TIME < value < MAX_TIME
        else None
    )


EMPTY: tuple[Json, ...] = (None, [], {}, "")
"""The values of fields that say nothing."""


def omit_fields(record: JsonObject, known: AbstractSet[str]) -> dict[str, Json]:
    """Return the fields of an object that are neither in `known` nor empty: what a format did not understand."""
    if record.keys() <= known:  # as most are
        return {}
    return {key: value for key, value in record.items() if key not in known and value not in EMPTY}


def dump_json(value: Json) -> str:
    """Write a value as JSON text, for example arguments that a recording holds as an object."""
    return _ENCODER.encode(value)


def parse_objects(line: bytes) -> Iterable[tuple[bytes, JsonObject | str]]:
    """Parse the JSON object of a line, or several, as two programs write at once.

    Returns each with its bytes, or with what is wrong, in words, if it is none. Of several, one at
    a time is in memory.
    """
    record = parse_object(line)
    if not isinstance(record, str):
        return ((line, record),)
    # several objects are none when they are read as one
    return ((part, record if part is line else parse_object(part)) for part in split_objects(line))


def parse_object(line: bytes) -> JsonObject | str:
    """Parse the JSON object of a line. Returns what is wrong, in words, if there is none.

    NaN and numbers beyond the range of doubles become strings, because they cannot be written as
    JSON. Invalid UTF-8 becomes replacement characters.
    """
    # The reasons are stored in transcripts, beside the line, so that they must not change.
    if line.startswith(codecs.BOM_UTF8):
        return "no JSON: Unexpected UTF-8 BOM (decode using utf-8-sig) at column 1."
    try:
        value: Json = _TOLERANT_DECODER.decode(line.decode("utf-8", errors="replace"))
    except json.JSONDecodeError as error:
        return f"no JSON: {error.msg} at column {error.colno:,}."
    except ValueError as error:  # of a number with more digits than Python converts
        return f"{error}."
    except RecursionError:
        return "nested too deeply."
    # replacing the few brackets takes half of the time of counting them, which looks at each byte
    brackets = len(line) - len(line.replace(b"[", b"").replace(b"{", b""))
    if brackets > MAX_DEPTH and is_too_deep(value):
        return "nested too deeply."
    return value if isinstance(value, dict) else "no JSON object."


def parse_number(digits: str | Decimal) -> float | str:
    """Return a number, or its digits if it is beyond the range of doubles."""
    number = float(digits)
    return number if math.isfinite(number) else str(digits)


# Made once: `json.dumps` and `json.loads` would make one for every value.
_ENCODER = json.JSONEncoder(ensure_ascii=False)
_TOLERANT_DECODER = json.JSONDecoder(parse_constant=str, parse_float=parse_number)


def is_too_deep(value: Json) -> bool:
    """Return whether a value is nested deeper than `MAX_DEPTH`."""
    level: list[Json] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, Mapping) else as_list(item))
            if isinstance(child, Mapping | list)
        ]
        if not level:
            return False
    return True


def split_objects(line: bytes) -> list[bytes]:
    """Return the JSON objects of a line; the line itself if it is anything but several whole objects."""
    if not _OBJECTS.search(line):
        return [line]
    text, at, parts = line.decode("utf-8", errors="replace").strip(), 0, list[bytes]()
    while at < len(text):
        try:
            _, end = _TOLERANT_DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return [line]
        if text[at] != "{":
            return [line]
        parts.append(text[at:end].encode())
        at = end + len(text[end:]) - len(text[end:].lstrip())
    return parts if len(parts) > 1 else [line]


_OBJECTS = re.compile(rb"\}\s*\{")
"""The end of an object and the beginning of another one; also found in texts."""


def keep_fields(format_name: str, extra: JsonObject) -> list[EntryPayload]:
    """Return an entry that keeps the fields of a record that nothing else holds; none if there are none."""
    return [CustomEntry(name=f"{format_name}.fields", data=extra)] if extra else []


def keep_bad_line(format_name: str, number: int, line: bytes, problem: str) -> CustomEntry:
    """Return an entry that keeps a line that could not be read, as text."""
    text = line.decode("utf-8", errors="backslashreplace").rstrip("\r\n")
    return CustomEntry(
        name=f"{format_name}.bad_line", data={"line": number, "problem": problem, "text": text}
    )


ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
CHAT_FIELDS = {
    "role",
    "content",
    "name",
    "tool_calls",
    "tool_call_id",
    "function_call",
    "reasoning_content",
    "thinking_blocks",
}
ANTHROPIC_BLOCKS = {"image", "document", "thinking", "redacted_thinking"}

ANTHROPIC = "anthropic"
"""The provider of opaque parts with Anthropic's blocks."""


def read_chat_message(
    record: JsonObject,
    format_name: str,
    *,
    usage: Usage | None = None,
    model: str | None = None,
    finish: str | None = None,
) -> list[EntryPayload]:
    """Read an OpenAI chat message.

    Args:
        record: The message.
        format_name: The name of the recording's format, for the names of custom entries.
        usage: The usage of the request, if this is its reply and the recording has it elsewhere.
        model: The model that wrote the reply, likewise.
        finish: The finish reason of the reply, likewise.

    Returns:
        The message, then a custom entry with the fields that promptkit's messages do not have.
        Empty for an unknown role.
    """
    if (role := ROLES.get(as_text(record.get("role")) or "")) is None:
        return []
    content = record.get("content")
    results = (
        read_anthropic_content(content).results
        if role == "user" and isinstance(content, list)
        else []
    )
    message = Message(
        role=role,
        content=(
            *_read_thinking(record),
            *(part for block in as_blocks(content) for part in _read_chat_block(block)),
        ),
        name=as_text(record.get("name")),
        tool_calls=tuple(_read_tool_calls(record)) if role == "assistant" else (),
        tool_call_id=_find_tool_call_id(record) if role == "tool" else None,
    )
    payloads: list[EntryPayload] = [MessageEntry(message=result) for result in results]
    if role == "assistant":
        payloads.append(MessageEntry(message=message, usage=usage, model=model, finish=finish))
    elif message.content or not results:
        payloads.append(MessageEntry(message=message))
    extra = omit_fields(record, CHAT_FIELDS)
    if record.get("role") == "developer":
        extra["role"] = "developer"
    return [*payloads, *keep_fields(format_name, extra)]


def _find_tool_call_id(record: JsonObject) -> str:
    """Return the id of the call that a tool result answers.

    For the older functions it is their name.
    """
    ids = [call_id for call_id in as_list(record.get("tool_call_ids")) if isinstance(call_id, str)]
    return as_text(record.get("tool_call_id")) or (
        ids[0] if ids else as_text(record.get("name")) or ""
    )


def _read_tool_calls(record: JsonObject) -> Iterator[ToolCall]:
    for call in as_objects(record.get("tool_calls")):
        function, custom = as_object(call.get("function")), as_object(call.get("custom"))
        yield ToolCall(
            id=as_text(call.get("id")) or "",
            name=as_text(function.get("name")) or as_text(custom.get("name")) or "",
            arguments=dump_arguments(
                {"input": custom.get("input")}
                if custom and not function
                else function.get("arguments")
            ),
        )
    if function := as_object(record.get("function_call")):
        name = as_text(function.get("name")) or ""
        yield ToolCall(id=name, name=name, arguments=dump_arguments(function.get("arguments")))
    yield from read_anthropic_content(as_list(record.get("content"))).calls


def _read_thinking(record: JsonObject) -> list[Part]:
    """Read the model's thinking from the fields in which gateways return it."""
    if blocks := as_objects(record.get("thinking_blocks")):
        return [OpaquePart(value=block, provider=ANTHROPIC) for block in blocks]
    text = as_text(record.get("reasoning_content"))
    return (
        [OpaquePart(value={"type": "reasoning", "text": text}, provider="chat.reasoning_content")]
        if text
        else []
    )


def _read_chat_block(block: Json) -> list[Part]:
    match block:
        case None | "" | {"type": "tool_use" | "tool_result"}:
            return []
        case str():
            return [block]
        case {"type": str(kind)} if kind in ANTHROPIC_BLOCKS:
            return parts_from_block(block)
        case Mapping():
            part = _read_chat_part(block)
            parts: list[Part] = [part] if part != "" else []
            return (
                parts
                if isinstance(part, OpaquePart)
                else [
                    *parts,
                    *_read_cache_breakpoint(block.get("cache_control")),
                    *_read_cache_breakpoint(block.get("prompt_cache_breakpoint")),
                ]
            )
        case _:
            return [dump_json(block)]


def _read_chat_part(block: JsonObject) -> Part:
    """Read a content part. An unknown one becomes an opaque part."""
    match block:
        case {"type": "text" | "input_text" | "output_text", "text": str(text)}:
            return text
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return ImagePart(
                url=url, detail=as_text(as_object(block.get("image_url")).get("detail"))
            )
        case {"type": "image_url", "image_url": str(url)}:
            return ImagePart(url=url)
        case {"type": "file", "file": {"file_data": str(data)}} if (
            data.startswith("data:") and ";base64," in data
        ):
            kind, _, content = data.removeprefix("data:").partition(";base64,")
            return DocumentPart(
                data=content,
                media_type=kind,
                name=as_text(as_object(block.get("file")).get("filename")),
            )
        case _:
            return OpaquePart(value=block, provider="chat")


def _read_cache_breakpoint(mark: Json) -> tuple[Part, ...]:
    """Read the cache breakpoint after a block from the field that marks it; none if it is no object."""
    return (
        (CacheBreakpointPart(kind=as_text(mark.get("type")), ttl=as_text(mark.get("ttl"))),)
        if isinstance(mark, dict)
        else ()
    )


def dump_arguments(arguments: Json) -> str:
    """Return tool call arguments as text: a string unchanged, any other value as JSON text, None as an empty object."""
    return (
        arguments
        if isinstance(arguments, str)
        else dump_json(arguments if arguments is not None else {})
    )


@attrs.define(eq=False)
class ContentBlocks:
    """The content of one Anthropic message."""

    parts: list[Part]
    """The parts that are neither calls nor results."""
    calls: list[ToolCall]
    """The tool calls."""
    results: list[Message]
    """The tool results, each as a message."""


def read_anthropic_content(content: Json) -> ContentBlocks:
    """Read the content of an Anthropic message: a text, or a list of blocks.

    An unknown block becomes an opaque part.
    """
    blocks = ContentBlocks([], [], [])
    for block in as_blocks(content):
        fields = as_object(block)
        kind = fields.get("type")
        if (
            kind == "tool_use"
            and isinstance(call_id := fields.get("id"), str)
            and isinstance(name := fields.get("name"), str)
        ):
            arguments = dump_arguments(fields.get("input"))
            blocks.calls.append(ToolCall(id=call_id, name=name, arguments=arguments))
        elif kind == "tool_result" and isinstance(call_id := fields.get("tool_use_id"), str):
            blocks.results.append(_read_tool_result(fields, call_id))
        else:
            blocks.parts.extend(parts_from_block(block))
    return blocks


def parts_from_block(block: Json) -> list[Part]:
    """Read a block that is neither a call nor a result: its part, and a cache breakpoint after it.

    Empty text gives no part.
    """
    if not isinstance(block, dict):
        return (
            []
            if block is None or block == ""
            else [block if isinstance(block, str) else dump_json(block)]
        )
    if block.get("type") == "text" and isinstance(text := block.get("text"), str):
        if as_list(block.get("citations")):
            return [OpaquePart(value=block, provider=ANTHROPIC)]  # the citations belong to the text
        return [*([text] if text else []), *_read_cache_breakpoint(block.get("cache_control"))]
    kind = as_text(as_object(block.get("source")).get("media_type"))
    match block:
        case {"type": "image", "source": {"type": "base64", "data": str(data)}}:
            url = f"data:{kind or 'image/png'};base64,{data}"
            part: Part = ImagePart(url=url, media_type=kind)
        case {"type": "image", "source": {"type": "url", "url": str(url)}} if url:
            part = ImagePart(url=url, media_type=kind)
        case {"type": "document", "source": {"type": "base64" | "text" as form, "data": str(data)}}:
            if form == "text":
                kind = "text/plain"
                data = base64.b64encode(data.encode("utf-8", "backslashreplace")).decode("ascii")
            part = DocumentPart(
                data=data, media_type=kind or "application/pdf", name=as_text(block.get("title"))
            )
        case _:
            return [OpaquePart(value=block, provider=ANTHROPIC)]
    return [part, *_read_cache_breakpoint(block.get("cache_control"))]


def _read_tool_result(block: JsonObject, call_id: str) -> Message:
    parts = [part for item in as_blocks(block.get("content")) for part in parts_from_block(item)]
    return mark_error(
        Message(
            role="tool",
            tool_call_id=call_id,
            content=(*parts, *_read_cache_breakpoint(block.get("cache_control"))),
        ),
        failed=block.get("is_error") is True,
    )


def mark_error(result: Message, *, failed: bool) -> Message:
    """Return a tool result with the mark of an error, if the recording says that the tool failed."""
    return attrs.evolve(result, content=(*result.content, ERROR_MARK)) if failed else result


def usage_from_openai(value: Json) -> Usage | None:
    """Read the usage that OpenAI's APIs and similar ones report.

    Their input tokens include the cached ones.
    """
    data = as_object(value)
    if (input_tokens := _first_count(data, "prompt_tokens", "input_tokens")) is None:
        return None
    details = as_object(data.get("prompt_tokens_details")) or as_object(
        data.get("input_tokens_details")
    )
    cached = (
        _first_count(details, "cached_tokens")
        or _first_count(data, "cached_input_tokens", "prompt_cache_hit_tokens")
        or 0
    )
    return Usage(
        input_tokens=input_tokens,
        output_tokens=_first_count(data, "completion_tokens", "output_tokens") or 0,
        cached_tokens=min(cached, input_tokens),
    )


def _first_count(data: JsonObject, *names: str) -> int | None:
    return next((count for name in names if (count := as_count(data.get(name))) is not None), None)


def usage_from_anthropic(value: Json) -> Usage | None:
    """Read the usage that Anthropic's API reports. None if it has no input tokens."""
    data = as_object(value)
    return None if as_count(data.get("input_tokens")) is None else read_usage(data)
