"""Encode replies and errors for Anthropic's Messages API, complete or as streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from promptkit.messages import OpaquePart, ToolCall, as_mapping
from promptkit.providers.anthropic.request import is_thinking
from promptkit.testing.server.anthropic_validation import (
    CheckedMessages,
    check_messages,
    sign_thinking,
)
from promptkit.testing.server.encoding import (
    Api,
    JsonObject,
    ServerReply,
    split_deltas,
    write_named_events,
)
from promptkit.testing.server.journal import COUNT_TOKENS, Exchange
from promptkit.testing.server.replies import HttpAnswer, api_error
from promptkit.wire.parts import parse_arguments

_STOP_REASONS: Mapping[str, str] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
"""Finish reason of a step → `stop_reason`. Any other is sent as it is."""

_ERROR_TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""HTTP status → the type of the error. Any other is `api_error`."""


def convert_error(answer: HttpAnswer, number: int) -> HttpAnswer:
    """Return an error in OpenAI's form in Anthropic's form. Any other answer stays as it is."""
    error = as_mapping(as_mapping(answer.body).get("error"))
    if set(error) != {"message", "type", "param", "code"}:
        return answer
    details = {} if error["code"] is None else {"details": {"error_code": error["code"]}}
    body: JsonObject = {
        "type": "error",
        "error": {
            "type": _ERROR_TYPES.get(answer.status, "api_error"),
            "message": error["message"],
            **details,
        },
        "request_id": f"req_{number}",
    }
    return attrs.evolve(answer, body=body)


def encode_message(reply: ServerReply, checked: CheckedMessages) -> JsonObject:
    """Encode a reply as a complete message."""
    return {
        **_message_head(reply, checked),
        "content": [_complete_block(block) for block in _iter_blocks(reply, checked)],
        **_encode_stop(reply),
        "usage": _encode_usage(reply),
    }


def encode_message_events(reply: ServerReply, checked: CheckedMessages) -> Iterator[JsonObject]:
    """Encode a reply as the events of a stream."""
    usage = _encode_usage(reply)
    stop = _encode_stop(reply)
    yield {
        "type": "message_start",
        "message": {
            **_message_head(reply, checked),
            "content": list[JsonObject](),
            **dict.fromkeys(stop),
            "usage": {**usage, "output_tokens": 1},
        },
    }
    yield {"type": "ping"}
    for index, block in enumerate(_iter_blocks(reply, checked)):
        empty, deltas = _split_block(block)
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield from (
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        )
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": stop, "usage": usage}
    yield {"type": "message_stop"}


def _encode_stop(reply: ServerReply) -> JsonObject:
    return {
        "stop_reason": _STOP_REASONS.get(reply.finish, reply.finish),
        "stop_sequence": None,
        "stop_details": None,
    }


def _message_head(reply: ServerReply, checked: CheckedMessages) -> JsonObject:
    dropped = [
        {"type": "thinking_dropped", "path": path, "reason": "prefix_binding_mismatch"}
        for path in checked.dropped
    ]
    return {
        "id": f"msg_{reply.number}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        **({"input_transformations": dropped} if dropped else {}),
    }


def _iter_blocks(reply: ServerReply, checked: CheckedMessages) -> Iterator[JsonObject]:
    """Yield the blocks of a reply in order.

    Thinking is signed; the `input` of a tool call is still the text that was scripted.
    """
    calls = {call.id: call for call in reply.message.tool_calls}
    for part in reply.message.content:
        if isinstance(part, str):
            yield {"type": "text", "text": part, "citations": None}
        elif isinstance(part, OpaquePart) and isinstance(part.value, Mapping):
            if part.provider == "anthropic.call" and (
                call := calls.pop(str(part.value.get("call")), None)
            ):
                yield _encode_call(call)
            elif part.provider == "anthropic":
                block: JsonObject = dict(part.value)
                if block.get("type") == "thinking":
                    block["signature"] = sign_thinking(
                        str(block.get("thinking", "")), checked.prefix
                    )
                yield block
    yield from map(_encode_call, calls.values())


def _encode_call(call: ToolCall) -> JsonObject:
    return {
        "type": "tool_use",
        "id": call.id,
        "name": call.name,
        "input": call.arguments,
        "caller": {"type": "direct"},
    }


def _complete_block(block: JsonObject) -> JsonObject:
    try:
        return (
            {**block, "input": parse_arguments(block["input"])}
            if block["type"] == "tool_use"
            else block
        )
    except ValueError:
        return {**block, "input": {}}


def _split_block(block: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
    """Return the empty block that a stream begins with, and the deltas that fill it."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [
                {"type": "text_delta", "text": delta} for delta in split_deltas(block["text"])
            ]
        case "thinking":
            return {**block, "thinking": "", "signature": ""}, [
                *(
                    {"type": "thinking_delta", "thinking": delta}
                    for delta in split_deltas(str(block.get("thinking", "")))
                ),
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        case "tool_use":
            return {**block, "input": {}}, [
                {"type": "input_json_delta", "partial_json": delta}
                for delta in ("", *split_deltas(block["input"]))
            ]
        case _:
            return block, []


def _encode_usage(reply: ServerReply) -> JsonObject:
    usage = reply.usage
    thinking = sum(part.tokens or 0 for part in reply.message.content if is_thinking(part))
    return {
        "input_tokens": max(0, usage.input_tokens - usage.cached_tokens - usage.written_tokens),
        "cache_creation_input_tokens": usage.written_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        **({"output_tokens_details": {"thinking_tokens": thinking}} if thinking else {}),
    }


def _check_messages(exchange: Exchange) -> None:
    exchange.checked = check_messages(
        exchange.body, exchange.headers, counts=exchange.path == COUNT_TOKENS
    )


MESSAGES_API = Api(
    check=_check_messages,
    refuse_size=lambda tokens, _, window: (
        api_error(400, f"prompt is too long: {tokens} tokens > {window} maximum")
        if tokens > window
        else None
    ),
    write_count=lambda tokens: {"input_tokens": tokens},
    write=lambda exchange, reply: encode_message(
        reply, exchange.checked or CheckedMessages(prefix="")
    ),
    write_events=lambda exchange, reply: write_named_events(
        encode_message_events(reply, exchange.checked or CheckedMessages(prefix=""))
    ),
    convert_error=convert_error,
    cuts_at_window=True,
)
