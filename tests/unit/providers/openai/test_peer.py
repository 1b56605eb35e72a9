"""The same questions to two servers that know nothing of each other: this package's own, and aimock (npm: @copilotkit/aimock, 1.43).

The second runs where PROMPTKIT_AIMOCK names a folder in which it is installed:
`npm install --prefix FOLDER @copilotkit/aimock`.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from promptkit import Message, ToolCall, Usage
from promptkit.errors import (
    ContextLengthExceededError,
    EmptyReplyError,
    ModelError,
    ModelRequestError,
    ModelUnavailableError,
    RateLimitedError,
)
from promptkit.providers import Reply
from promptkit.testing.server import Rule, api_error, rate_limit_error, serve, server_error
from tests.unit.providers.openai.asking import READ, Api, heard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from promptkit.testing.server.journal import Answer

PLACE = "PROMPTKIT_AIMOCK"
missing = not (os.environ.get(PLACE) and shutil.which("node"))
BOTH = pytest.mark.parametrize("api", ["chat", "responses"])
EITHER = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])

TEXT = "The parser scatters its state. 日本語 👩‍👩‍👧\n\nIt should not."
CALLS = (
    ToolCall(id="call_a", name="read", arguments='{"path":"größe.py"}'),
    ToolCall(id="call_b", name="read", arguments='{"path":"b.py"}'),
)
USAGE = Usage(input_tokens=2000, output_tokens=30)
OVERFLOW = "This model's maximum context length is 8192 tokens. However, your messages resulted in 8545 tokens."

ANSWERS: dict[str, Answer] = {
    "say it": TEXT,
    "say it for 2000": Reply(
        message=Message(role="assistant", content=("Dear.",)), usage=USAGE, finish="stop"
    ),
    "use tools": CALLS,
    "say and use": Message(role="assistant", content=("I look.",), tool_calls=CALLS[:1]),
    "stop early": Reply(
        message=Message(role="assistant", content=("So far",)), usage=USAGE, finish="length"
    ),
    "say nothing": "",
    "be too long": api_error(400, OVERFLOW, code="context_length_exceeded", param="messages"),
    "be too many": rate_limit_error(),
    "be wrong": api_error(400, "Unknown parameter.", code="unknown_parameter"),
    "fail": server_error(),
}
"""What is asked → what is answered, by both."""

Ask = Any


class Peer(NamedTuple):
    """A running server, and the bodies that it was sent."""

    url: str
    bodies: Callable[[], list[Any]]


@pytest.fixture(
    scope="module",
    params=[
        "promptkit",
        pytest.param(
            "aimock",
            marks=[
                pytest.mark.peer,
                pytest.mark.skipif(
                    missing, reason=f"{PLACE} names no folder with it, or there is no node"
                ),
            ],
        ),
    ],
)
def peer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Peer]:
    if request.param == "aimock":
        yield from aimock(tmp_path_factory.mktemp("aimock"))
        return
    rules = [
        Rule(
            match=lambda exchange: exchange.messages[-1]["role"] == "tool", answer="I have read it."
        )
    ]
    rules += [Rule(match=f"^{question}$", answer=answer) for question, answer in ANSWERS.items()]
    with serve(rules=rules) as server:
        yield Peer(server.url, lambda: [exchange.body for exchange in server.requests])


def aimock(place: Path) -> Iterator[Peer]:
    fixtures = [{"match": {"toolCallId": "call_a"}, "response": {"content": "I have read it."}}]
    # The longest question first: it takes the first one that the message holds.
    fixtures += [
        fixture(question, ANSWERS[question]) for question in sorted(ANSWERS, key=len, reverse=True)
    ]
    (place / "fixtures.json").write_text(json.dumps({"fixtures": fixtures}), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = Path(os.environ[PLACE]).resolve() / "node_modules" / ".bin" / "llmock"
    command = [
        str(program),
        "-p",
        str(port),
        "-f",
        str(place / "fixtures.json"),
        "--strict",
        "--log-level",
        "silent",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            origin = f"http://127.0.0.1:{port}"
            wait_for(origin + "/health", process)
            yield Peer(
                f"{origin}/v1",
                lambda: [entry["body"] for entry in fetched(origin + "/__aimock/journal")],
            )
        finally:
            process.terminate()


def fixture(question: str, answer: Any) -> Any:
    match = {"userMessage": question}
    if isinstance(answer, str):
        return {"match": match, "response": {"content": answer}}
    if answer is CALLS:
        return {"match": match, "response": {"toolCalls": calls_of(CALLS)}}
    if isinstance(answer, Message):
        return {
            "match": match,
            "response": {"content": answer.text, "toolCalls": calls_of(answer.tool_calls)},
        }
    if isinstance(answer, Reply):
        usage = answer.usage
        counts = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
        counts |= {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        total = {"total_tokens": usage.input_tokens + usage.output_tokens}
        return {
            "match": match,
            "response": {
                "content": answer.message.text,
                "finishReason": answer.finish,
                "usage": counts | total,
            },
        }
    error: Any = answer.body
    return {"match": match, "response": {"error": error["error"], "status": answer.status}}


def calls_of(calls: tuple[ToolCall, ...]) -> list[dict[str, str]]:
    return [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls]


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        try:
            fetched(url)
        except OSError:
            assert process.poll() is None, "it ended before it answered"
            time.sleep(0.05)
        else:
            return
    raise AssertionError


def fetched(url: str) -> Any:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        url, timeout=10
    ) as answer:
        return json.load(answer)


def ask(peer: Peer, question: str, api: Api, *, stream: bool, tools: bool = False) -> Reply:
    return heard(
        peer.url,
        [Message(role="user", content=(question,))],
        api=api,
        stream=stream,
        tools=[READ] if tools else (),
    ).reply


@BOTH
@EITHER
class TestBothServers:
    def test_text(self, peer: Peer, api: Api, stream: bool) -> None:
        answer = heard(
            peer.url, [Message(role="user", content=("say it",))], api=api, stream=stream
        )
        assert answer.reply.message == Message(role="assistant", content=(TEXT,))
        assert answer.reply.finish == "stop"
        assert "".join(answer.pieces) == (TEXT if stream else "")

    def test_what_it_cost(self, peer: Peer, api: Api, stream: bool) -> None:
        assert ask(peer, "say it for 2000", api, stream=stream).usage == USAGE

    def test_parallel_calls(self, peer: Peer, api: Api, stream: bool) -> None:
        reply = ask(peer, "use tools", api, stream=stream, tools=True)
        assert reply.message.tool_calls == CALLS
        assert reply.finish == "tool_calls"

    def test_text_and_a_call(self, peer: Peer, api: Api, stream: bool) -> None:
        reply = ask(peer, "say and use", api, stream=stream, tools=True)
        assert (reply.message.text, reply.message.tool_calls) == ("I look.", CALLS[:1])

    def test_a_round_of_a_tool(self, peer: Peer, api: Api, stream: bool) -> None:
        asked = Message(role="user", content=("say and use",))
        first = heard(peer.url, [asked], api=api, stream=stream, tools=[READ]).reply
        result = Message(
            role="tool", tool_call_id=first.message.tool_calls[0].id, content=("x = 1",)
        )
        second = heard(
            peer.url, [asked, first.message, result], api=api, stream=stream, tools=[READ]
        ).reply
        assert second.message.text == "I have read it."
        # the arguments are text, byte for byte
        assert '"{\\"path\\":' in json.dumps(peer.bodies()[-1], ensure_ascii=False)

    def test_an_answer_that_ran_out_of_room(self, peer: Peer, api: Api, stream: bool) -> None:
        assert ask(peer, "stop early", api, stream=stream).finish == "length"

    @pytest.mark.parametrize(
        ("question", "kind"),
        [
            ("be too long", ContextLengthExceededError),
            ("be too many", RateLimitedError),
            ("be wrong", ModelRequestError),
            ("fail", ModelUnavailableError),
            ("say nothing", EmptyReplyError),
        ],
    )
    def test_what_goes_wrong(
        self, peer: Peer, api: Api, stream: bool, question: str, kind: type[ModelError]
    ) -> None:
        with pytest.raises(ModelError) as caught:
            ask(peer, question, api, stream=stream)
        assert type(caught.value) is kind
        if isinstance(caught.value, ContextLengthExceededError):
            assert (caught.value.tokens, caught.value.window) == (8545, 8192)
