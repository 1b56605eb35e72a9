"""How each API checks a request, refuses one that is too large, and writes its answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import attrs

from promptkit.testing.server.anthropic_encoding import (
    convert_error,
    encode_message,
    encode_message_events,
)
from promptkit.testing.server.anthropic_validation import CheckedMessages, check_messages
from promptkit.testing.server.encoding import (
    JsonObject,
    ServerReply,
    encode_chat,
    encode_chat_chunks,
    encode_response,
    encode_response_events,
)
from promptkit.testing.server.journal import CHAT, COUNT_TOKENS, MESSAGES, Exchange
from promptkit.testing.server.replies import HttpAnswer, api_error
from promptkit.testing.server.validation import check_chat, check_responses


@attrs.frozen(kw_only=True)
class Api:
    """What distinguishes one API from the others."""

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
    """Whether a reply ends where the window is full, so that only the request itself has to fit."""


def _refuse_chat(tokens: int, reserved: int, window: int) -> HttpAnswer | None:
    if tokens + reserved <= window:
        return None
    parts = f"requested {tokens + reserved} tokens ({tokens} in the messages, {reserved} in the completion)"
    however = parts if reserved else f"your messages resulted in {tokens} tokens"
    reduce = "Please reduce the length of the messages" + (" or completion." if reserved else ".")
    message = f"This model's maximum context length is {window} tokens. However, {'you ' if reserved else ''}{however}. {reduce}"
    return api_error(400, message, code="context_length_exceeded", param="messages")


def _refuse_response(tokens: int, reserved: int, window: int) -> HttpAnswer | None:
    if tokens + reserved <= window:
        return None
    message = "Your input exceeds the context window of this model. Please adjust your input and try again."
    return api_error(400, message, code="context_length_exceeded", param="input")


def _refuse_messages(tokens: int, _: int, window: int) -> HttpAnswer | None:
    return (
        None
        if tokens <= window
        else api_error(400, f"prompt is too long: {tokens} tokens > {window} maximum")
    )


def _check_messages(exchange: Exchange) -> None:
    exchange.checked = check_messages(
        exchange.body, exchange.headers, counts=exchange.path == COUNT_TOKENS
    )


def _write_chat_events(exchange: Exchange, reply: ServerReply) -> Iterator[bytes]:
    options = exchange.body.get("stream_options")
    include_usage = isinstance(options, dict) and options.get("include_usage") is True
    for value in encode_chat_chunks(reply, include_usage=include_usage):
        yield _encode_event(value)
    yield b"data: [DONE]\n\n"


def _write_named_events(events: Iterator[JsonObject]) -> Iterator[bytes]:
    for event in events:
        yield _encode_event(event, event["type"])


def _encode_event(value: object, name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value)}\n\n".encode()


_CHAT = Api(
    check=lambda exchange: check_chat(exchange.body),
    refuse_size=_refuse_chat,
    write_count=lambda tokens: {"input_tokens": tokens},
    write=lambda _, reply: encode_chat(reply),
    write_events=_write_chat_events,
)
_RESPONSES = Api(
    check=lambda exchange: check_responses(exchange.body),
    refuse_size=_refuse_response,
    write_count=lambda tokens: {"object": "response.input_tokens", "input_tokens": tokens},
    write=lambda exchange, reply: encode_response(reply, exchange.body),
    write_events=lambda exchange, reply: _write_named_events(
        encode_response_events(reply, exchange.body)
    ),
)
_MESSAGES = Api(
    check=_check_messages,
    refuse_size=_refuse_messages,
    write_count=lambda tokens: {"input_tokens": tokens},
    write=lambda exchange, reply: encode_message(
        reply, exchange.checked or CheckedMessages(prefix="")
    ),
    write_events=lambda exchange, reply: _write_named_events(
        encode_message_events(reply, exchange.checked or CheckedMessages(prefix=""))
    ),
    convert_error=convert_error,
    cuts_at_window=True,
)


def api_of(path: str) -> Api:
    """Return the API that a path belongs to."""
    return _CHAT if path == CHAT else _MESSAGES if path in {MESSAGES, COUNT_TOKENS} else _RESPONSES
