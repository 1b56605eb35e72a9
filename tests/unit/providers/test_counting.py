"""Counts come from the provider's own endpoint, over HTTP on the loopback address."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import anthropic
import openai
import pytest

from promptkit import (
    AssistantMessage,
    CacheBreakpoint,
    Image,
    Rendered,
    SystemMessage,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    UserMessage,
    render,
)
from promptkit.elements import Opaque
from promptkit.errors import EmitError, TokenizerError
from promptkit.providers import count_exact
from promptkit.wire import tools_to_anthropic, tools_to_responses

if TYPE_CHECKING:
    from collections.abc import Iterator

TOOLS = [
    ToolDefinition(
        name="read",
        description="Reads a file.",
        parameters={"type": "object", "properties": {"path": {"type": "string"}}},
    )
]
ARGUMENTS = '{"path" :\t"gr\\u00f6\\u00dfe.py", "n": 12345678901234567890123}'
PROMPT = (
    SystemMessage()["Be terse.", CacheBreakpoint()],
    UserMessage()[
        "Fix größe.py 👩‍👩‍👧 \x00 \u2028",
        Image(url="data:image/png;base64,iVBORw0KGgo=", detail="low"),
    ],
    AssistantMessage(tool_calls=(ToolCall(id="c1", name="read", arguments=ARGUMENTS),)),
    ToolMessage(tool_call_id="c1")["x = 1"],
)


class Endpoint(HTTPServer):
    """Gives one answer to every POST, and keeps the paths and bodies that it got."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.reply: object = {"object": "response.input_tokens", "input_tokens": 1234}
        self.requests: list[tuple[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    timeout = 10  # seconds, so that a client that says nothing cannot hold up the suite

    def do_POST(self) -> None:
        server = cast("Endpoint", self.server)  # it handles no other's
        server.requests.append(
            (self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        )
        reply = (
            server.reply.encode()
            if isinstance(server.reply, str)
            else json.dumps(server.reply).encode()
        )
        self.send_response(server.status)
        self.send_header(
            "Content-Type", "text/html" if isinstance(server.reply, str) else "application/json"
        )
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


def counted(endpoint: Endpoint, rendered: Rendered, **options: Any) -> int:
    async def count() -> int:
        async with openai.AsyncOpenAI(
            base_url=endpoint.url, api_key="x", max_retries=0, timeout=10
        ) as client:
            return await count_exact(rendered, client=client, model="m", **options)

    return asyncio.run(count())


@pytest.fixture(scope="module")
def rendered() -> Rendered:
    return render(PROMPT, budget=10_000, tools=TOOLS)


def test_returns_what_the_provider_counts(endpoint: Endpoint, rendered: Rendered) -> None:
    assert counted(endpoint, rendered) == 1234


def test_a_count_of_nothing_is_a_count(endpoint: Endpoint, rendered: Rendered) -> None:
    endpoint.reply = {"object": "response.input_tokens", "input_tokens": 0}
    assert counted(endpoint, rendered) == 0


def test_asks_about_what_was_emitted_and_nothing_else(
    endpoint: Endpoint, rendered: Rendered
) -> None:
    counted(endpoint, rendered, tools=TOOLS)
    body = {"model": "m", "input": rendered.to_responses(), "tools": tools_to_responses(TOOLS)}
    assert endpoint.requests == [("/v1/responses/input_tokens", body)]
    assert [
        item["arguments"]
        for item in endpoint.requests[0][1]["input"]
        if item["type"] == "function_call"
    ] == [ARGUMENTS]


def test_the_count_is_of_the_request_that_is_sent_later(
    endpoint: Endpoint, rendered: Rendered
) -> None:
    counted(endpoint, rendered, tools=TOOLS)
    with openai.OpenAI(base_url=endpoint.url, api_key="x", max_retries=0, timeout=10) as client:
        client.responses.create(
            model="m", input=rendered.to_responses(), tools=tools_to_responses(TOOLS)
        )
    (_, asked), (path, sent) = endpoint.requests
    assert path == "/v1/responses"
    assert asked == sent


def test_without_tools_none_are_sent(endpoint: Endpoint, rendered: Rendered) -> None:
    counted(endpoint, rendered)
    assert endpoint.requests[0][1] == {"model": "m", "input": rendered.to_responses()}


def test_cache_breakpoints_can_be_left_out(endpoint: Endpoint, rendered: Rendered) -> None:
    counted(endpoint, rendered)
    counted(endpoint, rendered, cache=False)
    marked, unmarked = (body["input"] for _, body in endpoint.requests)
    assert "prompt_cache_breakpoint" in json.dumps(marked)
    assert unmarked == rendered.to_responses(cache=False)
    assert "prompt_cache_breakpoint" not in json.dumps(unmarked)


def test_what_else_is_counted_is_sent_under_its_own_name(
    endpoint: Endpoint, rendered: Rendered
) -> None:
    options = {
        "tool_choice": {"type": "function", "name": "read"},
        "parallel_tool_calls": False,
        "text": {"format": {"type": "json_schema", "name": "Answer", "schema": {"type": "object"}}},
        "reasoning": {"effort": "low"},
    }
    counted(endpoint, rendered, tools=TOOLS, **options)
    assert {name: endpoint.requests[0][1][name] for name in options} == options


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        (405, openai.APIStatusError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
    ],
)
def test_an_http_error_is_the_sdks_own(
    endpoint: Endpoint, rendered: Rendered, status: int, error: type[openai.APIStatusError]
) -> None:
    endpoint.status = status
    endpoint.reply = {"error": {"message": "Not today.", "type": "t", "code": "c"}}
    with pytest.raises(error, match="Not today") as caught:
        counted(endpoint, rendered)
    assert caught.value.status_code == status
    assert len(endpoint.requests) == 1


def test_an_unreachable_server_is_the_sdks_own_error(
    endpoint: Endpoint, rendered: Rendered
) -> None:
    with HTTPServer(("127.0.0.1", 0), Handler) as closed:
        port = closed.server_port
    endpoint.server_port = port
    with pytest.raises(openai.APIConnectionError):
        counted(endpoint, rendered)


@pytest.mark.parametrize(
    "reply",
    [
        {"error": "Unexpected endpoint or method."},
        {"input_tokens": None},
        {"input_tokens": "12"},
        list[object](),
        "<html>Welcome</html>",
    ],
    ids=["an error", "null", "a string", "a list", "a page"],
)
def test_an_answer_without_a_count_is_an_error_and_no_number(
    endpoint: Endpoint, rendered: Rendered, reply: object
) -> None:
    endpoint.reply = reply
    with pytest.raises(TokenizerError, match=r"without a number: .*rendered\.tokens") as caught:
        counted(endpoint, rendered)
    assert endpoint.url in str(caught.value)


def test_a_password_in_the_address_stays_out_of_the_error(
    endpoint: Endpoint, rendered: Rendered, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.reply = {"input_tokens": None}
    monkeypatch.setattr(Endpoint, "url", endpoint.url.replace("http://", "http://ada:swordfish@"))
    with pytest.raises(TokenizerError) as caught:
        counted(endpoint, rendered)
    assert "swordfish" not in str(caught.value)


def test_what_has_no_form_is_refused_before_anything_is_sent(endpoint: Endpoint) -> None:
    formless = render(SystemMessage()[Image(url="https://example.org/a.png")], budget=10_000)
    with pytest.raises(EmitError, match="an image"):
        counted(endpoint, formless)
    assert endpoint.requests == []


def test_importing_the_provider_does_not_load_its_sdk() -> None:
    code = "import sys, promptkit.providers.counting; print('openai' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False\n"


class TestAnthropic:
    @pytest.fixture(autouse=True)
    def _answer(self, endpoint: Endpoint) -> None:
        endpoint.reply = {"input_tokens": 2_095}

    def test_the_sdks_endpoint_gets_the_request_that_is_sent_later(
        self, endpoint: Endpoint, rendered: Rendered
    ) -> None:
        async def count() -> int:
            url = endpoint.url.removesuffix("/v1")
            async with anthropic.AsyncAnthropic(
                base_url=url, api_key="x", max_retries=0, timeout=10
            ) as client:
                thinking = {"type": "enabled", "budget_tokens": 1_024}
                return await count_exact(
                    rendered, client=client, model="claude-opus-4-5", tools=TOOLS, thinking=thinking
                )

        assert asyncio.run(count()) == 2_095
        ((path, body),) = endpoint.requests
        assert path == "/v1/messages/count_tokens"
        assert body == {
            "model": "claude-opus-4-5",
            "tools": tools_to_anthropic(TOOLS),
            "thinking": {"type": "enabled", "budget_tokens": 1_024},
            **rendered.to_anthropic(),
        }

    def test_a_synchronous_client_works_as_well(
        self, endpoint: Endpoint, rendered: Rendered
    ) -> None:
        with anthropic.Anthropic(
            base_url=endpoint.url.removesuffix("/v1"), api_key="x", max_retries=0, timeout=10
        ) as client:
            assert (
                asyncio.run(count_exact(rendered, client=client, model="m", cache=False)) == 2_095
            )
        assert endpoint.requests[0][1] == {"model": "m", **rendered.to_anthropic(cache=False)}

    def test_an_http_error_is_the_sdks_own(self, endpoint: Endpoint, rendered: Rendered) -> None:
        endpoint.status, endpoint.reply = 404, {"error": {"message": "Not here."}}
        with (
            anthropic.Anthropic(base_url=endpoint.url, api_key="x", max_retries=0) as client,
            pytest.raises(anthropic.NotFoundError, match="Not here"),
        ):
            asyncio.run(count_exact(rendered, client=client, model="m"))


class TestGoogle:
    CONTENTS: ClassVar[list[Any]] = [
        {
            "role": "user",
            "parts": [
                {"text": "Fix größe.py 👩‍👩‍👧 \x00 \u2028"},
                {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
            ],
        },
        {
            "role": "model",
            "parts": [{"functionCall": {"name": "read", "args": json.loads(ARGUMENTS)}}],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "read", "response": {"result": "x = 1"}}}],
        },
    ]

    def ask(self, rendered: Rendered, *, vertexai: bool = False) -> dict[str, Any]:
        """Count with an object that has the SDK's methods; return what it was asked."""
        asked: dict[str, Any] = {}

        async def count_tokens(**arguments: Any) -> object:
            asked.update(arguments)
            return SimpleNamespace(total_tokens=77, cached_content_token_count=None)

        models = SimpleNamespace(count_tokens=count_tokens)
        client = SimpleNamespace(
            models=models, aio=SimpleNamespace(models=models), vertexai=vertexai
        )
        assert (
            asyncio.run(count_exact(rendered, client=client, model="gemini-2.5-pro", tools=TOOLS))
            == 77
        )
        return asked

    def test_the_messages_are_gemini_s_contents(self, rendered: Rendered) -> None:
        assert self.ask(rendered)["contents"] == self.CONTENTS

    def test_instructions_and_tools_are_counted_with_them(self, rendered: Rendered) -> None:
        declared = [
            {
                "name": "read",
                "description": "Reads a file.",
                "parametersJsonSchema": TOOLS[0].parameters,
            }
        ]
        extra = {
            "systemInstruction": {"parts": [{"text": "Be terse."}]},
            "tools": [{"functionDeclarations": declared}],
        }
        whole = {"model": "models/gemini-2.5-pro", "contents": self.CONTENTS, **extra}
        assert self.ask(rendered)["config"] == {
            "http_options": {"extra_body": {"generateContentRequest": whole}}
        }
        assert self.ask(rendered, vertexai=True)["config"] == {
            "http_options": {"extra_body": extra}
        }

    def test_the_sdk_sends_them(self, endpoint: Endpoint, rendered: Rendered) -> None:
        genai = pytest.importorskip(
            "google.genai", reason="google-genai is not installed: it is no dependency of promptkit"
        )
        endpoint.reply = {"totalTokens": 31}
        options = {"base_url": endpoint.url.removesuffix("/v1"), "timeout": 10_000}
        client = genai.Client(api_key="x", http_options=options)
        assert (
            asyncio.run(count_exact(rendered, client=client, model="gemini-2.5-pro", tools=TOOLS))
            == 31
        )
        ((path, body),) = endpoint.requests
        assert path.endswith("/models/gemini-2.5-pro:countTokens")
        assert body["generateContentRequest"]["contents"] == self.CONTENTS
        assert (
            body["generateContentRequest"]["tools"][0]["functionDeclarations"][0]["name"] == "read"
        )

    def test_what_gemini_has_no_form_for_is_refused(self) -> None:
        with pytest.raises(EmitError, match="an opaque part"):
            self.ask(
                render(UserMessage()["Hi", Opaque(value={"type": "input_audio"})], budget=10_000)
            )


def test_a_client_that_cannot_count_is_named(rendered: Rendered) -> None:
    with pytest.raises(
        TypeError,
        match="openai, anthropic or google-genai, which can count tokens, not SimpleNamespace",
    ):
        asyncio.run(count_exact(rendered, client=SimpleNamespace(), model="m"))
