"""Cases recorded from prompt-tsx, as element trees: only those that the oracle can judge."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from promptkit.elements.builtin import (
    AssistantMessage,
    CacheBreakpoint,
    Chunk,
    Group,
    Image,
    KeepWith,
    LegacyPrioritization,
    Opaque,
    PrioritizedList,
    SystemMessage,
    TextChunk,
    TokenLimit,
    ToolMessage,
    UserMessage,
)
from promptkit.messages import CacheBreakpointPart, ImagePart, Message, OpaquePart, ToolCall
from tests.paths import SHARED

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit.elements.element import Child, PromptElement

__all__ = ["RECORDED", "UnjudgedError", "cases", "converted", "shown"]

RECORDED = SHARED / "conformance" / "prompt_tsx.jsonl"

Case = dict[str, Any]  # Any: JSON that is walked by key

CONTAINERS: dict[str, type[PromptElement]] = {
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
    if spec is None or isinstance(spec, bool | str):
        return spec
    if isinstance(spec, int | float):
        return str(spec)
    return _element(spec) if "type" in spec else tuple(converted(item) for item in spec)


def _element(spec: Case) -> Child:
    if spec["type"] == "br":
        return "\n"
    if {"breakOn", "breakOnRegex", "breakOnWhitespace", "flexGrow", "flexReserve"} & spec.keys():
        raise UnjudgedError(spec["type"])
    children = converted(spec.get("children", []))
    props: Case = {
        "priority": spec.get("priority"),
        "pass_priority": spec.get("passPriority", False),
    }
    if spec["type"] in CONTAINERS:
        return CONTAINERS[spec["type"]](
            **props, **({"name": spec["name"]} if spec.get("name") else {})
        )[children]
    if spec["type"] not in BUILDERS:
        raise UnjudgedError(spec["type"])
    made = BUILDERS[spec["type"]](spec, props)
    return made if isinstance(made, Image | Opaque | CacheBreakpoint) else made[children]


def _assistant(spec: Case, props: Case) -> PromptElement:
    made: list[Case] = spec.get("toolCalls", [])
    calls = [
        ToolCall(id=call["id"], name=call["name"], arguments=call["arguments"]) for call in made
    ]
    return AssistantMessage(
        tool_calls=calls,
        keep_with={call["id"]: call["keepWith"] for call in made if "keepWith" in call},
        **props,
    )


BUILDERS: dict[str, Callable[[Case, Case], PromptElement]] = {
    "assistant": _assistant,
    "tool": lambda spec, props: ToolMessage(tool_call_id=spec["toolCallId"], **props),
    "prioritizedlist": lambda spec, props: PrioritizedList(
        descending=spec.get("descending", False), **props
    ),
    "tokenlimit": lambda spec, props: TokenLimit(max_tokens=spec["max"], **props),
    "keepwith": lambda spec, props: KeepWith(group=spec["id"], **props),
    "image": lambda spec, props: Image(
        url=spec["src"], detail=spec.get("detail"), media_type=spec.get("mimeType"), **props
    ),
    "opaque": lambda spec, props: Opaque(
        value=spec["value"], tokens=spec.get("tokenUsage"), **props
    ),
    "cachebreakpoint": lambda spec, props: CacheBreakpoint(kind=spec.get("cacheType")),
}


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
        shape["toolCalls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments}
            for call in message.tool_calls
        ]
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
        return {
            "type": "image",
            **{key: value for key, value in named.items() if value is not None},
        }
    if isinstance(part, OpaquePart):
        return {"type": "opaque", "value": part.value}
    assert isinstance(part, CacheBreakpointPart)
    return {"type": "cachebreakpoint", **({"cacheType": part.kind} if part.kind else {})}
