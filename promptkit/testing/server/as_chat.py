"""A request to the Responses API as one to Chat Completions: so that there is one way to count, to cache and to look at both."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from promptkit.messages import Json

__all__ = ["as_chat", "mapping", "sequence", "text_of", "unsealed"]


def as_chat(body: Mapping[str, Json]) -> dict[str, Any]:  # Any: JSON
    """The chat request with the same text, calls, results and tools. What it has no form for stands as text."""
    messages: list[dict[str, Any]] = []  # Any: as above
    if body.get("instructions"):
        messages.append({"role": "system", "content": body["instructions"]})
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else sequence(given)
    for item in map(mapping, items):
        _add(messages, item)
    chat = {"model": body.get("model"), "messages": messages, "tool_choice": body.get("tool_choice")}
    chat["tools"] = [
        {"type": "function", "function": {key: tool[key] for key in ("name", "description", "parameters", "strict") if key in tool}}
        for tool in map(mapping, sequence(body.get("tools")))
    ]
    return chat


def text_of(content: object) -> str:
    """The text of a message's content, in the form of either API."""
    if isinstance(content, str):
        return content
    texts = [part.get("text", part.get("refusal")) for part in map(mapping, sequence(content))]
    return "".join(text for text in texts if isinstance(text, str))


def unsealed(encrypted: object) -> str:
    """What stands in the `encrypted_content` that this server made; that of others as it is."""
    if not isinstance(encrypted, str):
        return ""
    try:
        return base64.b64decode(encrypted, validate=True).decode()
    except ValueError:
        return encrypted


def mapping(value: object) -> Mapping[str, Any]:  # Any: JSON
    """A JSON object, or an empty one in the place of anything else."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}  # JSON has no other keys


def sequence(value: object) -> Sequence[Any]:  # Any: JSON
    """A JSON array, or an empty one in the place of anything else."""
    return cast("Sequence[Any]", value) if isinstance(value, list) else ()  # of JSON values


def _add(messages: list[dict[str, Any]], item: Mapping[str, Any]) -> None:  # Any: as above
    kind = item.get("type", "message")
    if kind == "message":
        messages.append({"role": item.get("role"), "content": _content(item.get("content"))})
    elif kind == "function_call":
        call = {"id": item.get("call_id"), "type": "function", "function": {"name": item.get("name"), "arguments": item.get("arguments")}}
        if messages and messages[-1]["role"] == "assistant":
            messages[-1].setdefault("tool_calls", []).append(call)
        else:
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
    elif kind == "function_call_output":
        messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": _content(item.get("output"))})
    else:  # thoughts and the like
        said = [text_of(item.get("summary")), text_of(item.get("content")), unsealed(item.get("encrypted_content"))]
        messages.append({"role": "assistant", "content": "".join(said)})


def _content(content: object) -> object:
    return content if isinstance(content, str) else [_part(mapping(part)) for part in sequence(content)]


def _part(part: Mapping[str, Any]) -> Mapping[str, Any]:  # Any: as above
    match part.get("type"):
        case "input_text" | "output_text":
            return {"type": "text", "text": part.get("text")}
        case "input_image":
            return {"type": "image_url", "image_url": {"url": part.get("image_url"), "detail": part.get("detail", "auto")}}
        case _:
            return part
