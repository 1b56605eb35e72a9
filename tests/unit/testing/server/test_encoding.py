"""What the server writes is what the SDK's own response types say, strictly: nothing is missing and nothing has another type."""

from __future__ import annotations

from typing import Any

import openai.types.chat
import openai.types.responses
import pytest
from pydantic import TypeAdapter

from promptkit import Message, OpaquePart, ToolCall, ToolDefinition, Usage
from promptkit.testing.server import serve
from promptkit.testing.server.openai_api import (
    ServerReply,
    encode_chat,
    encode_chat_chunks,
    encode_response,
    encode_response_events,
)
from promptkit.wire import tools_to_responses
from tests.unit.testing.server.posting import post

CALLS = (
    ToolCall(id="c1", name="read", arguments='{"path": "a.py"}'),
    ToolCall(id="c2", name="read", arguments=""),
)
THOUGHT = OpaquePart(
    value={"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
    provider="responses",
)
REFUSAL = OpaquePart(value={"type": "refusal", "refusal": "No."})
PHASE = OpaquePart(value={"phase": "commentary"}, provider="responses.message")
SAID = [
    Message(role="assistant", content=("Hello.",)),
    Message(role="assistant"),
    Message(role="assistant", tool_calls=CALLS),
    Message(
        role="assistant", content=(THOUGHT, PHASE, "a" * 100, "b", THOUGHT, "c"), tool_calls=CALLS
    ),
    Message(role="assistant", content=("So far. ", REFUSAL)),
]
TOOLS = tools_to_responses(
    [ToolDefinition(name="read", parameters={"type": "object"}, strict=False)]
)


def made(message: Message, finish: str) -> ServerReply:
    usage = Usage(input_tokens=10, output_tokens=5, cached_tokens=2)
    return ServerReply(
        number=1,
        created=1_700_000_000,
        model="gpt-4.1",
        message=message,
        finish=finish,
        usage=usage,
    )


def check(kind: Any, value: Any) -> None:
    # Not strict about int and float: the SDK calls a time a float.
    assert (
        TypeAdapter(kind)
        .validate_python(value)
        .model_dump(exclude_unset=True, by_alias=True)
        .keys()
        >= value.keys()
    )


@pytest.mark.parametrize("finish", ["stop", "length", "content_filter", "tool_calls"])
@pytest.mark.parametrize("message", SAID, ids=range(len(SAID)))
def test_answers_have_the_sdks_types(message: Message, finish: str) -> None:
    answer = made(message, finish)
    check(openai.types.chat.ChatCompletion, encode_chat(answer))
    for chunk in encode_chat_chunks(answer, include_usage=True):
        check(openai.types.chat.ChatCompletionChunk, chunk)
    check(openai.types.responses.Response, encode_response(answer, {"tools": TOOLS}))
    numbers: list[int] = []
    for event in encode_response_events(answer, {"tools": TOOLS}):
        TypeAdapter(openai.types.responses.ResponseStreamEvent).validate_python(event)
        numbers.append(event["sequence_number"])
    assert numbers == list(range(len(numbers)))


def test_so_have_the_other_endpoints() -> None:
    with serve() as server:
        check(
            openai.types.responses.InputTokenCountResponse,
            post(server, "/responses/input_tokens", {"model": "m", "input": "x"}).body,
        )
        compacted = post(
            server,
            "/responses/compact",
            {"model": "m", "input": [{"role": "assistant", "content": "x"}]},
        ).body
        check(openai.types.responses.CompactedResponse, compacted)
        check(openai.types.Model, post(server, "/models", b"", method="GET").body["data"][0])
