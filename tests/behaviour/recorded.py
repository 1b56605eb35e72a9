"""Cases recorded from prompt-tsx, as element trees: only those that the oracle can judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from promptkit.elements.chat import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from promptkit.elements.layout import (
    CacheBoundary,
    Chunk,
    Group,
    KeepWith,
    LegacyPrioritization,
    PrioritizedList,
    TokenLimit,
)
from promptkit.elements.media import Image, Opaque
from promptkit.elements.text import TextChunk
from promptkit.messages import BoundaryPart, ImagePart, Message, OpaquePart, ToolCall

if TYPE_CHECKING:
    from promptkit.element import Child

__all__ = ["RECORDED", "UnjudgedError", "cases", "converted", "shown"]

RECORDED = Path(__file__).resolve().parents[3] / "shared" / "conformance" / "prompt_tsx.jsonl"

Case = dict[str, Any]  # Any: JSON that is walked by key

CONTAINERS = {
    "chunk": Chunk,
    "wrap": Group,
    "logicalwrapper": Group,
    "legacy": LegacyPrioritization,
    "textchunk": TextChunk,
    "system": SystemMessage,
    "user": UserMessage,
}


class UnjudgedError(Exception):
    """The case needs an element that the oracle does not know."""


def cases() -> list[Case]:
    if not RECORDED.exists():
        return []
    return [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]


def converted(spec: Any) -> Child:
    """The element tree of a recorded spec. Raises UnjudgedError."""
    if isinstance(spec, list):
        return tuple(converted(item) for item in spec)
    if spec is None or isinstance(spec, bool | str):
        return spec
    if isinstance(spec, int | float):
        return str(spec)
    return _element(spec)


def _element(spec: Case) -> Child:
    kind = spec["type"]
    props: Case = {"priority": spec.get("priority"), "pass_priority": spec.get("passPriority", False)}
    children = converted(spec.get("children", []))
    if {"breakOn", "breakOnRegex", "breakOnWhitespace", "flexGrow", "flexReserve"} & spec.keys():
        raise UnjudgedError(kind)
    if kind in CONTAINERS:
        if spec.get("name"):
            props["name"] = spec["name"]
        return CONTAINERS[kind](**props)[children]
    if kind == "assistant":
        calls = [ToolCall(id=c["id"], name=c["name"], arguments=c["arguments"]) for c in spec.get("toolCalls", [])]
        groups = {c["id"]: c["keepWith"] for c in spec.get("toolCalls", []) if "keepWith" in c}
        return AssistantMessage(tool_calls=calls, keep_with=groups, **props)[children]
    if kind == "tool":
        return ToolMessage(tool_call_id=spec["toolCallId"], **props)[children]
    if kind == "prioritizedlist":
        return PrioritizedList(descending=spec.get("descending", False), **props)[children]
    if kind == "tokenlimit":
        return TokenLimit(max_tokens=spec["max"], **props)[children]
    if kind == "keepwith":
        return KeepWith(group=spec["id"], **props)[children]
    if kind == "image":
        return Image(src=spec["src"], detail=spec.get("detail"), media_type=spec.get("mimeType"), **props)
    if kind == "opaque":
        return Opaque(value=spec["value"], tokens=spec.get("tokenUsage"), **props)
    if kind == "cachebreakpoint":
        return CacheBoundary(kind=spec.get("cacheType"))
    if kind == "br":
        return "\n"
    raise UnjudgedError(kind)


def shown(messages: tuple[Message, ...]) -> list[Case]:
    """Messages in the form of the recording, without names."""
    return [_shown(message) for message in messages]


def _shown(message: Message) -> Case:
    parts = [_part(part) for part in message.content]
    shape: Case = {"role": message.role}
    if len(parts) == 1 and parts[0]["type"] == "text":
        shape["text"] = parts[0]["text"]
    else:
        shape["content"] = parts
    if message.tool_calls:
        shape["toolCalls"] = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls]
    if message.tool_call_id is not None:
        shape["toolCallId"] = message.tool_call_id
    if message.name is not None:
        shape["name"] = message.name
    return shape


def _part(part: object) -> Case:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if isinstance(part, ImagePart):
        url = f"data:image/png;base64,{part.url}" if part.url.startswith("iVBOR") else part.url
        named = {"url": url, "detail": part.detail, "mediaType": part.media_type}
        return {"type": "image", **{key: value for key, value in named.items() if value is not None}}
    if isinstance(part, OpaquePart):
        return {"type": "opaque", "value": part.value}
    assert isinstance(part, BoundaryPart)
    return {"type": "cachebreakpoint", **({"cacheType": part.kind} if part.kind else {})}
