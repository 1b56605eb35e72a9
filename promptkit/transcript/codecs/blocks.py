"""Anthropic's content blocks, as parts, calls and results."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from promptkit.messages import BoundaryPart, DocumentPart, ImagePart, Message, OpaquePart, Part, ToolCall
from promptkit.transcript.codecs.values import object_of, text_of, values_of, written

if TYPE_CHECKING:
    from promptkit.messages import Json
    from promptkit.transcript.codecs.values import Record

__all__ = ["ANTHROPIC", "Blocks", "part_of", "read_blocks"]

ANTHROPIC = "anthropic"


@attrs.define
class Blocks:
    """What the content of one message holds."""

    parts: list[Part] = attrs.field(factory=list[Part])
    calls: list[ToolCall] = attrs.field(factory=list[ToolCall])
    results: list[Message] = attrs.field(factory=list[Message])
    failed: list[str] = attrs.field(factory=list[str])
    """The ids of calls whose results are marked as errors."""


def read_blocks(content: Json) -> Blocks:
    """The content of a message: a text, or a list of blocks. A block of a kind that is not known becomes an opaque part."""
    made = Blocks()
    for block in values_of(content) if isinstance(content, list) else [content]:
        match block:
            case {"type": "tool_use", "id": str(call), "name": str(name)}:
                made.calls.append(ToolCall(id=call, name=name, arguments=_arguments(object_of(block))))
            case {"type": "tool_result", "tool_use_id": str(call)}:
                made.results.append(_result(object_of(block), call))
                if object_of(block).get("is_error") is True:
                    made.failed.append(call)
            case _:
                made.parts.extend(part_of(block))
    return made


def part_of(block: Json) -> list[Part]:
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
            made = [ImagePart(url=url, media_type=text_of(source.get("media_type")))]
        case {"type": "document", "source": Mapping() as source} if document := _document(source, text_of(object_of(block).get("title"))):
            made = [document]
        case Mapping():
            return [OpaquePart(value=block, provider=ANTHROPIC)]
        case _:
            return [written(block)]
    cache = object_of(block).get("cache_control")
    if isinstance(cache, Mapping):
        made.append(BoundaryPart(kind=text_of(cache.get("type")), ttl=text_of(cache.get("ttl"))))
    return made


def _arguments(block: Record) -> str:
    given = block.get("input")
    return given if isinstance(given, str) else written(given if given is not None else {})


def _result(block: Record, call: str) -> Message:
    content = block.get("content")
    parts = [part for item in (content if isinstance(content, list) else [content]) for part in part_of(item)]
    cache = block.get("cache_control")
    if isinstance(cache, Mapping):
        parts.append(BoundaryPart(kind=text_of(cache.get("type")), ttl=text_of(cache.get("ttl"))))
    return Message(role="tool", tool_call_id=call, content=tuple(parts))


def _url(source: Record) -> str | None:
    match source:
        case {"type": "base64", "data": str(data)}:
            return f"data:{text_of(source.get('media_type')) or 'image/png'};base64,{data}"
        case {"type": "url", "url": str(url)}:
            return url
        case _:
            return None


def _document(source: Record, title: str | None) -> DocumentPart | None:
    match source:
        case {"type": "base64", "data": str(data)}:
            return DocumentPart(data=data, media_type=text_of(source.get("media_type")) or "application/pdf", name=title)
        case {"type": "text", "data": str(text)}:
            data = base64.b64encode(text.encode("utf-8", errors="backslashreplace")).decode("ascii")
            return DocumentPart(data=data, media_type="text/plain", name=title)
        case _:
            return None
