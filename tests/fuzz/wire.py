"""Targets: messages in providers' formats, their replies whole and in pieces, and the bodies of their errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from promptkit.errors import EmitError, InvalidArgumentError, ModelError
from promptkit.messages import Message
from promptkit.providers.anthropic.api import MessageStream
from promptkit.providers.errors import error_from_failure
from promptkit.providers.openai.api import (
    ChatStream,
    ResponsesStream,
    parse_chat_reply,
    parse_responses_reply,
)
from promptkit.testing import strategies
from promptkit.wire import (
    messages_from_anthropic,
    messages_from_chat,
    messages_from_responses,
    to_anthropic,
    to_chat,
    to_responses,
)
from promptkit.wire.parts import replace_lone_surrogates
from tests.conversations import user_message
from tests.fuzz.mutations import mutated
from tests.fuzz.target import Target, as_case, check_sentence, read_case

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["WIRE_MESSAGES", "WIRE_REPLIES"]

Wire = Any  # Any: JSON
_READERS: Mapping[str, tuple[Callable[[Wire], list[Message]], Callable[[list[Message]], Wire]]] = {
    "chat": (messages_from_chat, to_chat),
    "responses": (messages_from_responses, to_responses),
    "anthropic": (messages_from_anthropic, lambda messages: to_anthropic(messages)["messages"]),
}


# Messages
# --------------------------------------------------------------------------------------------------------------------------


def _check_messages(case: bytes) -> None:
    """What comes in is refused with an error of promptkit's, or read; what goes out then is the same when it has come in again."""
    spec = read_case(case)
    if spec is None or not all(isinstance(record, dict) for record in spec["wire"]):
        return  # TypeError is for a caller's mistake
    read, write = _READERS[spec["format"]]
    try:
        messages = read(spec["wire"])
    except InvalidArgumentError as error:
        check_sentence(error)
        return
    for _, other in _READERS.values():
        try:
            out = other(messages)
        except EmitError:
            continue
        json.dumps(out, allow_nan=False)
    try:
        out = write(messages)
    except EmitError:
        return
    assert write(read(json.loads(json.dumps(out)))) == out, (
        "it is not the same when it has come in again"
    )


@st.composite
def _message_cases(draw: st.DrawFn) -> bytes:
    name = draw(st.sampled_from(tuple(_READERS)))
    wire: Wire = json.loads(
        json.dumps(_READERS[name][1](list(draw(strategies.conversations(turns=3, system=False)))))
    )
    return as_case({"format": name, "wire": draw(mutated(wire))})


WIRE_MESSAGES = Target(check=_check_messages, cases=_message_cases())


# Replies
# ---------------------------------------------------------------------------------------------------------------------------

_CALL: Wire = {
    "id": "c1",
    "type": "function",
    "function": {"name": "read", "arguments": '{"path": "x"}'},
}
_USAGE: Wire = {
    "prompt_tokens": 9,
    "completion_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 2},
}
_OUTPUT: list[Wire] = [
    {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "zz"},
    {
        "type": "message",
        "id": "m1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Hi."}],
    },
    {"type": "function_call", "id": "f1", "call_id": "c1", "name": "read", "arguments": "{}"},
]
_RESPONSE: Wire = {
    "status": "completed",
    "output": _OUTPUT,
    "usage": {"input_tokens": 9, "output_tokens": 3},
}
_SAMPLES: Mapping[str, Wire] = {
    "chat": {
        "choices": [
            {
                "message": {"role": "assistant", "content": "Hi.", "tool_calls": [_CALL]},
                "finish_reason": "tool_calls",
            }
        ],
        "usage": _USAGE,
    },
    "responses": _RESPONSE,
    "chat stream": [
        {"choices": [{"delta": {"role": "assistant", "content": "Hi"}}]},
        {"choices": [{"delta": {"content": ".", "tool_calls": [{"index": 0, **_CALL}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": " "}}]}}]},
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": _USAGE},
    ],
    "responses stream": [
        {"type": "response.output_text.delta", "delta": "Hi."},
        {"type": "response.output_item.done", "item": _OUTPUT[1]},
        {"type": "response.output_item.done", "item": _OUTPUT[2]},
        {"type": "response.completed", "response": {**_RESPONSE, "output": []}},
    ],
    "anthropic stream": [
        {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "thinking_delta", "thinking": "hm"},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "signature_delta", "signature": "s"},
        },
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hi."}},
        {
            "type": "content_block_start",
            "index": 2,
            "content_block": {"type": "tool_use", "id": "c1", "name": "read", "input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 2,
            "delta": {"type": "input_json_delta", "partial_json": '{"a": 1}'},
        },
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 5},
        },
    ],
    "error": {
        "error": {
            "message": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
            "type": "invalid_request_error",
            "code": "context_length_exceeded",
            "param": "messages",
        }
    },
}


_STREAMS: Mapping[str, type[ChatStream | ResponsesStream | MessageStream]] = {
    "chat stream": ChatStream,
    "responses stream": ResponsesStream,
    "anthropic stream": MessageStream,
}


def _read_reply(kind: str, wire: Wire) -> Message | None:
    """Read a reply. None for an error of the model's."""
    try:
        if kind == "chat":
            return parse_chat_reply(wire, "m").message
        if kind == "responses":
            return parse_responses_reply(wire, "m").message
        stream = _STREAMS[kind]("m")
        pieces = [piece for event in wire for piece in stream.add(event)]
        assert all(isinstance(piece, str) for piece in pieces)
        return stream.build_reply().message
    except ModelError as error:
        check_sentence(error)
        return None


def _check_reply(case: bytes) -> None:
    """A reply is refused with an error of the model's, or it is a message that the same provider takes back, and every other, too."""
    spec = read_case(case)
    if spec is None:
        return
    kind, wire = spec["kind"], spec["wire"]
    if kind == "error":
        for status in (None, 400, 413, 429, 500):
            error = error_from_failure(model="m", message="it failed", body=wire, status=status)
            check_sentence(error)
        return
    if any(not hasattr(event, "items") for event in (wire if kind in _STREAMS else [wire])):
        return  # the clients give mappings
    message = _read_reply(kind, wire)
    if message is None:
        return
    assert message.content or message.tool_calls
    results = [
        Message(role="tool", tool_call_id=call.id, content=("done",)) for call in message.tool_calls
    ]
    conversation = list(replace_lone_surrogates([user_message("go"), message, *results]))
    own = _READERS[kind.partition(" ")[0]][1]
    for _, write in _READERS.values():
        try:
            json.dumps(write(conversation), allow_nan=False).encode()
        except EmitError:
            assert write is not own or kind.startswith("anthropic"), (
                "a provider's reply cannot be sent back to it"
            )


@st.composite
def _reply_cases(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from(tuple(_SAMPLES)))
    return as_case({"kind": kind, "wire": draw(mutated(_SAMPLES[kind]))})


WIRE_REPLIES = Target(check=_check_reply, cases=_reply_cases())
