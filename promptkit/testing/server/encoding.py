"""Encode replies for Chat Completions and the Responses API, complete or as streams, and the answers of the compact endpoint."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import attrs

from promptkit.messages import Json, Message, OpaquePart, Usage, as_mapping, as_sequence
from promptkit.providers.openai.request import PHASE
from promptkit.testing.server.journal import Exchange
from promptkit.testing.server.replies import HttpAnswer, api_error
from promptkit.testing.server.validation import check_chat, check_responses, list_items

JsonObject: TypeAlias = dict[str, Any]  # Any: JSON


@attrs.frozen(kw_only=True)
class ServerReply:
    """The model's reply to one request, before it is encoded."""

    number: int
    """Number of the request, from which ids are built."""
    created: int
    """Seconds since 1970."""
    model: str
    message: Message
    """Every call has an id."""
    finish: str
    usage: Usage


@attrs.frozen(kw_only=True)
class Api:
    """The checks and encodings of one API."""

    check: Callable[[Exchange], None]
    """Raises IllFormedRequestError for a request that the API would refuse."""
    refuse_size: Callable[[int, int, int], HttpAnswer | None]
    """Takes the tokens of a request, those that it reserves for the reply, and the window. Returns
    the refusal of one that does not fit."""
    write_count: Callable[[int], JsonObject]
    """Write the answer to a request for the number of tokens."""
    write: Callable[[Exchange, ServerReply], JsonObject]
    """Write a complete reply."""
    write_events: Callable[[Exchange, ServerReply], Iterator[bytes]]
    """Write a reply as a stream."""
    convert_error: Callable[[HttpAnswer, int], HttpAnswer] = attrs.field(
        default=lambda answer, _: answer
    )
    """Return an error in the form of the API. Takes the error in OpenAI's form, and the number of
    the request."""
    cuts_at_window: bool = False
    """True: a reply ends where the window is full, so that only the request itself has to fit."""


def encode_chat(reply: ServerReply) -> JsonObject:
    """Encode a reply as a complete answer of Chat Completions."""
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in reply.message.tool_calls
    ]
    message: JsonObject = {
        "role": "assistant",
        "content": reply.message.text or None,
        "refusal": _join_refusals(reply),
        "annotations": [],
        **({"tool_calls": calls} if calls else {}),
    }
    return {
        **_chunk_head(reply, "chat.completion"),
        "choices": [
            {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish}
        ],
        "usage": _encode_chat_usage(reply.usage),
    }


def encode_chat_chunks(reply: ServerReply, *, include_usage: bool) -> Iterator[JsonObject]:
    """Encode a reply as the chunks of a Chat Completions stream."""
    head = _chunk_head(reply, "chat.completion.chunk") | ({"usage": None} if include_usage else {})

    def chunk(delta: JsonObject, finish: str | None = None) -> JsonObject:
        return {
            **head,
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        }

    yield chunk(
        {"role": "assistant", "content": "" if reply.message.text else None, "refusal": None}
    )
    for key, text in (("content", reply.message.text), ("refusal", _join_refusals(reply) or "")):
        yield from (chunk({key: delta}) for delta in split_deltas(text))
    for index, call in enumerate(reply.message.tool_calls):
        pieces: list[JsonObject] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}},
            *({"function": {"arguments": delta}} for delta in split_deltas(call.arguments)),
        ]
        yield from (chunk({"tool_calls": [{"index": index, **piece}]}) for piece in pieces)
    yield chunk({}, reply.finish)
    if include_usage:
        yield {**head, "choices": [], "usage": _encode_chat_usage(reply.usage)}


def _chunk_head(reply: ServerReply, kind: str) -> JsonObject:
    return {
        "id": f"chatcmpl-{reply.number}",
        "object": kind,
        "created": reply.created,
        "model": reply.model,
        "service_tier": "default",
    }


def _join_refusals(reply: ServerReply) -> str | None:
    return (
        "".join(str(refusal) for part in reply.message.content if (refusal := get_refusal(part)))
        or None
    )


def _encode_chat_usage(usage: Usage) -> JsonObject:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Finish reason → the reason of an incomplete response."""


def encode_response(reply: ServerReply, body: Mapping[str, Any]) -> JsonObject:  # Any: JSON
    """Encode a reply as a complete answer of the Responses API.

    `body` is the request, whose settings are repeated.
    """
    reason = INCOMPLETE_REASONS.get(reply.finish)
    return _response_head(reply, body) | {
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": list(_iter_output_items(reply)),
        "usage": _encode_response_usage(
            reply.usage,
            sum(part.tokens or 0 for part in reply.message.content if isinstance(part, OpaquePart)),
        ),
    }


# Any stands for JSON
def encode_response_events(reply: ServerReply, body: Mapping[str, Any]) -> Iterator[JsonObject]:
    """Encode a reply as the events of a Responses API stream. `body` is the request."""
    yield from (
        event | {"sequence_number": number}
        for number, event in enumerate(_iter_response_events(reply, body))
    )


def encode_compaction(exchange: Exchange, usage: Usage, created: int) -> JsonObject:
    """Encode the answer of the compact endpoint: all user messages, and one item that replaces the rest.

    Nothing is really summarized: the item says how many items and tokens there were.

    Args:
        exchange: The request.
        usage: The usage to report.
        created: Seconds since 1970.
    """
    items = list_items(exchange.body)
    asked = [
        item.get("content")
        for item in items
        if item.get("type", "message") == "message" and item.get("role") == "user"
    ]
    sealed = base64.b64encode(
        f"A conversation of {len(items)} items and {usage.input_tokens} tokens was compacted.".encode()
    ).decode()
    return {
        "id": f"resp_{exchange.number}",
        "object": "response.compaction",
        "created_at": created,
        "output": [
            *(
                {
                    "id": f"msg_{exchange.number}_{index}",
                    "type": "message",
                    "role": "user",
                    "status": "completed",
                    "content": [{"type": "input_text", "text": content}]
                    if isinstance(content, str)
                    else content,
                }
                for index, content in enumerate(asked)
            ),
            {"id": f"cmp_{exchange.number}", "type": "compaction", "encrypted_content": sealed},
        ],
        "usage": _encode_response_usage(usage),
    }


# Any stands for JSON
def _iter_response_events(reply: ServerReply, body: Mapping[str, Any]) -> Iterator[JsonObject]:
    head = _response_head(reply, body) | {
        "status": "in_progress",
        "output": list[JsonObject](),
        "usage": None,
        "incomplete_details": None,
    }
    yield {"type": "response.created", "response": head}
    yield {"type": "response.in_progress", "response": head}
    for index, item in enumerate(_iter_output_items(reply)):
        place = {"output_index": index, "item_id": item["id"]}
        empty: JsonObject = (
            {"content": []}
            if item["type"] == "message"
            else {"arguments": ""}
            if item["type"] == "function_call"
            else {}
        )
        yield {
            "type": "response.output_item.added",
            "output_index": index,
            "item": item | ({"status": "in_progress"} if "status" in item else {}) | empty,
        }
        if item["type"] == "function_call":
            yield from (
                {"type": "response.function_call_arguments.delta", **place, "delta": delta}
                for delta in split_deltas(item["arguments"])
            )
            yield {
                "type": "response.function_call_arguments.done",
                **place,
                "name": item["name"],
                "arguments": item["arguments"],
            }
        for at, part in enumerate(item["content"] if item["type"] == "message" else ()):
            yield from _iter_part_events(part, place | {"content_index": at})
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    complete = encode_response(reply, body)
    yield {"type": f"response.{complete['status']}", "response": complete}


def _iter_part_events(part: JsonObject, place: JsonObject) -> Iterator[JsonObject]:
    key, kind = ("text", "output_text") if part["type"] == "output_text" else ("refusal", "refusal")
    logged = {"logprobs": list[JsonObject]()} if key == "text" else {}
    yield {"type": "response.content_part.added", **place, "part": part | {key: ""}}
    yield from (
        {"type": f"response.{kind}.delta", **place, "delta": delta, **logged}
        for delta in split_deltas(part[key])
    )
    yield {"type": f"response.{kind}.done", **place, key: part[key], **logged}
    yield {"type": "response.content_part.done", **place, "part": part}


def _response_head(reply: ServerReply, body: Mapping[str, Any]) -> JsonObject:  # Any: JSON
    return {
        "id": f"resp_{reply.number}",
        "object": "response",
        "created_at": reply.created,
        "model": reply.model,
        "error": None,
        "instructions": body.get("instructions"),
        "metadata": {},
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "temperature": body.get("temperature", 1.0),
        "top_p": body.get("top_p", 1.0),
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": list(as_sequence(body.get("tools"))),
        "store": body.get("store", True),
        "truncation": "disabled",
    }


def _iter_output_items(reply: ServerReply) -> Iterator[JsonObject]:
    """Yield the output items: opaque items as they are, text and refusals in messages, then the tool calls."""
    phase: object = None
    content: list[JsonObject] = []
    count = 0

    def message() -> Iterator[JsonObject]:
        if content:
            item = {
                "id": f"msg_{reply.number}_{count}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": list(content),
            }
            content.clear()
            yield item | ({"phase": phase} if phase else {})

    for part in reply.message.content:
        if isinstance(part, str):
            content.append(
                {
                    "type": "output_text",
                    "text": part,
                    "annotations": list[JsonObject](),
                    "logprobs": list[JsonObject](),
                }
            )
        elif refusal := get_refusal(part):
            content.append({"type": "refusal", "refusal": refusal})
        elif isinstance(part, OpaquePart) and isinstance(part.value, Mapping):
            yield from message()
            count += 1
            if part.provider == PHASE:
                phase = part.value.get("phase")
            elif part.provider == "responses":
                yield {"id": f"item_{reply.number}_{count}", **part.value}
    yield from message()
    for index, call in enumerate(reply.message.tool_calls):
        item = {"id": f"fc_{reply.number}_{index}", "type": "function_call", "status": "completed"}
        yield item | {"call_id": call.id, "name": call.name, "arguments": call.arguments}


def _encode_response_usage(usage: Usage, reasoning: int = 0) -> JsonObject:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def _refuse_chat(tokens: int, reserved: int, window: int) -> HttpAnswer | None:
    if tokens + reserved <= window:
        return None
    however = (
        f"you requested {tokens + reserved} tokens ({tokens} in the messages, {reserved} in the completion)"
        if reserved
        else f"your messages resulted in {tokens} tokens"
    )
    return api_error(
        400,
        f"This model's maximum context length is {window} tokens. However, {however}. "
        f"Please reduce the length of the messages{' or completion' if reserved else ''}.",
        code="context_length_exceeded",
        param="messages",
    )


def _refuse_response(tokens: int, reserved: int, window: int) -> HttpAnswer | None:
    return (
        None
        if tokens + reserved <= window
        else api_error(
            400,
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            code="context_length_exceeded",
            param="input",
        )
    )


def _write_chat_events(exchange: Exchange, reply: ServerReply) -> Iterator[bytes]:
    options = as_mapping(exchange.body.get("stream_options"))
    include_usage = options.get("include_usage") is True
    yield from map(_encode_event, encode_chat_chunks(reply, include_usage=include_usage))
    yield b"data: [DONE]\n\n"


def write_named_events(events: Iterator[JsonObject]) -> Iterator[bytes]:
    """Write the events of a stream, each with its type as its name."""
    yield from (f"event: {event['type']}\n".encode() + _encode_event(event) for event in events)


def _encode_event(value: object) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


CHAT_API = Api(
    check=lambda exchange: check_chat(exchange.body),
    refuse_size=_refuse_chat,
    write_count=lambda tokens: {"input_tokens": tokens},
    write=lambda _, reply: encode_chat(reply),
    write_events=_write_chat_events,
)
RESPONSES_API = Api(
    check=lambda exchange: check_responses(exchange.body),
    refuse_size=_refuse_response,
    write_count=lambda tokens: {"object": "response.input_tokens", "input_tokens": tokens},
    write=lambda exchange, reply: encode_response(reply, exchange.body),
    write_events=lambda exchange, reply: write_named_events(
        encode_response_events(reply, exchange.body)
    ),
)
MIN_DELTA = 16  # characters
MAX_DELTAS = 64  # of one text


def split_deltas(text: str) -> Iterator[str]:
    """Split a text into the deltas of a stream."""
    size = max(MIN_DELTA, -(-len(text) // MAX_DELTAS))
    yield from (text[start : start + size] for start in range(0, len(text), size))


def get_refusal(part: object) -> Json:
    """Return the refusal of an opaque part `{"type": "refusal", "refusal": "…"}`, and None for any other part."""
    value = part.value if isinstance(part, OpaquePart) else None
    return (
        value.get("refusal") if isinstance(value, dict) and value.get("type") == "refusal" else None
    )
