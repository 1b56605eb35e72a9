"""The SDKs send what the emitters write, over HTTP, as it is."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any, cast

import anthropic
import openai
import pytest

from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Message,
    ToolCall,
    ToolDefinition,
)
from promptkit.wire import (
    to_anthropic,
    to_chat,
    to_responses,
    tools_to_anthropic,
    tools_to_chat,
    tools_to_responses,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ARGUMENTS = (
    '{"path" :\t"gr\\u00f6\\u00dfe.py", "n": 12345678901234567890123, "日本": "\\ud83d\\ude00"}'
)
MESSAGES = [
    Message(role="system", content=("Be terse.", CacheBreakpointPart(), "Today is Monday.")),
    Message(
        role="user",
        content=("Look:", ImagePart(url="data:image/png;base64,iVBORw0KGgo=", detail="low")),
        name="ada",
    ),
    Message(
        role="user",
        content=(DocumentPart(data="JVBERi0=", media_type="application/pdf", name="report.pdf"),),
    ),
    Message(
        role="assistant",
        tool_calls=(
            ToolCall(id="c1", name="read", arguments=ARGUMENTS),
            ToolCall(id="c2", name="read"),
        ),
    ),
    Message(role="tool", tool_call_id="c1", content=("größe 👩‍👩‍👧 \x00 \u2028",)),
    Message(role="tool", tool_call_id="c2"),
]
TOOLS = [
    ToolDefinition(
        name="read",
        description="Reads a file.",
        parameters={"type": "object", "properties": {"path": {"type": "string"}}},
    )
]

NONE: list[object] = []
REPLIES: Mapping[str, object] = {
    "/v1/chat/completions": {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "Done."},
            }
        ],
    },
    "/v1/responses": {
        "id": "1",
        "object": "response",
        "created_at": 0,
        "model": "m",
        "output": [
            {
                "type": "message",
                "id": "1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Done.", "annotations": NONE}],
            }
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": NONE,
    },
    "/v1/messages": {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "Done."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
}


class Endpoint(HTTPServer):
    """Answers three paths on the loopback address, and keeps the last body."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.body: Any = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        # it handles no other's
        cast("Endpoint", self.server).body = json.loads(
            self.rfile.read(int(self.headers["Content-Length"]))
        )
        reply = json.dumps(REPLIES[self.path]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the parameter's name in http.server
        """Tests are quiet."""


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_chat_completions_receives_what_was_emitted(endpoint: Endpoint) -> None:
    emitted = to_chat(MESSAGES)
    with openai.OpenAI(base_url=f"{endpoint.url}/v1", api_key="x", max_retries=0) as client:
        reply = client.chat.completions.create(
            model="m", messages=to_chat(MESSAGES), tools=tools_to_chat(TOOLS)
        )
    assert endpoint.body == {"model": "m", "messages": emitted, "tools": tools_to_chat(TOOLS)}
    assert endpoint.body["messages"][3]["tool_calls"][0]["function"]["arguments"] == ARGUMENTS
    assert reply.choices[0].message.content == "Done."


def test_responses_receives_what_was_emitted(endpoint: Endpoint) -> None:
    emitted = to_responses(MESSAGES)
    with openai.OpenAI(base_url=f"{endpoint.url}/v1", api_key="x", max_retries=0) as client:
        reply = client.responses.create(
            model="m", input=to_responses(MESSAGES), tools=tools_to_responses(TOOLS)
        )
    assert endpoint.body == {"model": "m", "input": emitted, "tools": tools_to_responses(TOOLS)}
    assert [
        item["arguments"] for item in endpoint.body["input"] if item["type"] == "function_call"
    ] == [ARGUMENTS, "{}"]
    assert reply.output_text == "Done."


def test_the_messages_api_receives_what_was_emitted(endpoint: Endpoint) -> None:
    emitted = to_anthropic(MESSAGES)
    with anthropic.Anthropic(base_url=endpoint.url, api_key="x", max_retries=0) as client:
        reply = client.messages.create(
            model="m", max_tokens=1, tools=tools_to_anthropic(TOOLS), **to_anthropic(MESSAGES)
        )
    assert endpoint.body == {
        "model": "m",
        "max_tokens": 1,
        "tools": tools_to_anthropic(TOOLS),
        **emitted,
    }
    assert endpoint.body["messages"][1]["content"][0]["input"] == json.loads(ARGUMENTS)
    assert reply.content[0].type == "text"


def test_the_parts_of_a_request_may_be_handed_over_one_by_one(endpoint: Endpoint) -> None:
    emitted = to_anthropic(MESSAGES)
    with anthropic.Anthropic(base_url=endpoint.url, api_key="x", max_retries=0) as client:
        client.messages.create(
            model="m", max_tokens=1, system=emitted.get("system", []), messages=emitted["messages"]
        )
    assert endpoint.body["system"] == emitted.get("system")
