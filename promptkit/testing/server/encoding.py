"""Replies as the Responses API writes them: whole, or as a stream of events; and compactions.

Replies as Chat Completions writes them: whole, or as a stream of chunks.
A reply that is ready to be written down, in whichever format it is asked for.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from promptkit.messages import OpaquePart
from promptkit.providers.openai.request import PHASE
from promptkit.testing.server.validation import mapping, sequence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.messages import Json, Message, Usage
    from promptkit.testing.server.journal import Exchange

__all__ = ["Made", "chunks", "compaction", "completion", "events", "pieces", "refusal_of", "response"]


PIECE = 16  # characters of a streamed text that come at once, at least
MOST = 64  # pieces of one text


@attrs.frozen(kw_only=True)
class Made:
    """What the model says to one request."""

    number: int
    """That of the request: ids are made of it."""
    created: int
    """Seconds since 1970."""
    model: str
    message: Message
    """Every call has an id."""
    finish: str
    usage: Usage


def pieces(text: str) -> Iterator[str]:
    """A text in the pieces in which it is streamed."""
    size = max(PIECE, -(-len(text) // MOST))
    for start in range(0, len(text), size):
        yield text[start : start + size]


def refusal_of(part: object) -> Json:
    """The refusal that an opaque part holds, `{"type": "refusal", "refusal": "…"}`; None for any other part."""
    value = part.value if isinstance(part, OpaquePart) else None
    return value.get("refusal") if isinstance(value, dict) and value.get("type") == "refusal" else None


REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Finish → the reason of a response that is incomplete."""

JsonObject: TypeAlias = dict[str, Any]  # Any: JSON that goes out


def response(made: Made, body: Mapping[str, Any]) -> JsonObject:  # Any: JSON that came in
    """The whole answer."""
    reason = REASONS.get(made.finish)
    return _response(made, body) | {
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": list(_items(made)),
        "usage": _usage(made.usage, sum(part.tokens or 0 for part in made.message.content if isinstance(part, OpaquePart))),
    }


def events(made: Made, body: Mapping[str, Any]) -> Iterator[JsonObject]:  # Any: as above
    """The answer as the values of a stream's events."""
    for number, event in enumerate(_events(made, body)):
        yield event | {"sequence_number": number}


def compaction(exchange: Exchange, usage: Usage, created: int) -> JsonObject:
    """The answer of the endpoint that compacts: all messages of the user, and one item that stands for the rest.

    A conversation is not really summarized: the item says how much there was.
    """
    given = exchange.body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else sequence(given)
    said = [dict(item) for item in map(mapping, items) if item.get("type", "message") == "message" and item.get("role") == "user"]
    for index, item in enumerate(said):
        content = item.get("content")
        parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
        said[index] = {"id": f"msg_{exchange.number}_{index}", "type": "message", "role": "user", "status": "completed", "content": parts}
    rest = f"A conversation of {len(items)} items and {usage.input_tokens} tokens was compacted."
    sealed = base64.b64encode(rest.encode()).decode()
    output = [*said, {"id": f"cmp_{exchange.number}", "type": "compaction", "encrypted_content": sealed}]
    head = {"id": f"resp_{exchange.number}", "object": "response.compaction", "created_at": created}
    return {**head, "output": output, "usage": _usage(usage)}


def _events(made: Made, body: Mapping[str, Any]) -> Iterator[JsonObject]:  # Any: as above
    begun = _response(made, body) | {"status": "in_progress", "output": list[JsonObject](), "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(_items(made)):
        place = {"output_index": index, "item_id": item["id"]}
        empty: JsonObject = {"content": []} if item["type"] == "message" else {"arguments": ""} if item["type"] == "function_call" else {}
        started = item | ({"status": "in_progress"} if "status" in item else {}) | empty
        yield {"type": "response.output_item.added", "output_index": index, "item": started}
        if item["type"] == "function_call":
            for piece in pieces(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
            done = {"name": item["name"], "arguments": item["arguments"]}
            yield {"type": "response.function_call_arguments.done", **place, **done}
        for at, part in enumerate(item["content"] if item["type"] == "message" else ()):
            yield from _part_events(part, place | {"content_index": at})
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    whole = response(made, body)
    yield {"type": f"response.{whole['status']}", "response": whole}


def _part_events(part: JsonObject, place: JsonObject) -> Iterator[JsonObject]:
    key, kind = ("text", "output_text") if part["type"] == "output_text" else ("refusal", "refusal")
    logged = {"logprobs": list[JsonObject]()} if kind == "output_text" else {}
    yield {"type": "response.content_part.added", **place, "part": part | {key: ""}}
    for piece in pieces(part[key]):
        yield {"type": f"response.{kind}.delta", **place, "delta": piece, **logged}
    yield {"type": f"response.{kind}.done", **place, key: part[key], **logged}
    yield {"type": "response.content_part.done", **place, "part": part}


def _response(made: Made, body: Mapping[str, Any]) -> JsonObject:  # Any: as above
    return {
        "id": f"resp_{made.number}",
        "object": "response",
        "created_at": made.created,
        "model": made.model,
        "error": None,
        "instructions": body.get("instructions"),
        "metadata": {},
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "temperature": body.get("temperature", 1.0),
        "top_p": body.get("top_p", 1.0),
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": list(sequence(body.get("tools"))),
        "store": body.get("store", True),
        "truncation": "disabled",
    }


def _items(made: Made) -> Iterator[JsonObject]:
    """The output items: what is opaque as it is, text and refusals in messages, then the calls."""
    phase: object = None
    content: list[JsonObject] = []
    count = 0

    def message() -> Iterator[JsonObject]:
        if content:
            item = {
                "id": f"msg_{made.number}_{count}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": list(content),
            }
            content.clear()
            yield item | ({"phase": phase} if phase else {})

    for part in made.message.content:
        if isinstance(part, str):
            content.append({"type": "output_text", "text": part, "annotations": list[JsonObject](), "logprobs": list[JsonObject]()})
        elif refusal := refusal_of(part):
            content.append({"type": "refusal", "refusal": refusal})
        elif isinstance(part, OpaquePart) and isinstance(part.value, Mapping):
            yield from message()
            count += 1
            if part.provider == PHASE:
                phase = part.value.get("phase")
            elif part.provider == "responses":
                yield {"id": f"item_{made.number}_{count}", **part.value}
    yield from message()
    for index, call in enumerate(made.message.tool_calls):
        item = {"id": f"fc_{made.number}_{index}", "type": "function_call", "status": "completed"}
        yield item | {"call_id": call.id, "name": call.name, "arguments": call.arguments}


def _usage(usage: Usage, reasoning: int = 0) -> JsonObject:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def completion(made: Made) -> dict[str, Any]:  # Any: JSON
    """The whole answer."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": made.message.text or None,
        "refusal": _refusal(made),
        "annotations": [],
    }  # Any: as above
    if made.message.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in made.message.tool_calls
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": made.finish}
    return {**_head(made, "chat.completion"), "choices": [choice], "usage": _chat_usage(made.usage)}


def chunks(made: Made, *, include_usage: bool) -> Iterator[dict[str, Any]]:  # Any: as above
    """The answer as the values of a stream's events."""
    head = _head(made, "chat.completion.chunk") | ({"usage": None} if include_usage else {})

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:  # Any: as above
        return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": "" if made.message.text else None, "refusal": None})
    for key, text in (("content", made.message.text), ("refusal", _refusal(made) or "")):
        for piece in pieces(text):
            yield chunk({key: piece})
    for index, call in enumerate(made.message.tool_calls):
        start = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield chunk({"tool_calls": [start]})
        for piece in pieces(call.arguments):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, made.finish)
    if include_usage:
        yield {**head, "choices": [], "usage": _chat_usage(made.usage)}


def _head(made: Made, kind: str) -> dict[str, Any]:  # Any: as above
    return {"id": f"chatcmpl-{made.number}", "object": kind, "created": made.created, "model": made.model, "service_tier": "default"}


def _refusal(made: Made) -> str | None:
    return "".join(str(said) for part in made.message.content if (said := refusal_of(part))) or None


def _chat_usage(usage: Usage) -> dict[str, Any]:  # Any: as above
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }
