"""What goes wrong between a program and a model of Anthropic, over real HTTP: which of the errors it is, and what it says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anthropic
import pytest

from promptkit import Message
from promptkit.errors import (
    ContextLengthExceededError,
    EmptyReplyError,
    ModelError,
    ModelRequestError,
    ModelUnavailableError,
    RateLimitedError,
)
from promptkit.providers import AnthropicModel
from promptkit.testing.server import (
    ConnectionReset,
    Hang,
    HttpAnswer,
    MalformedBody,
    ScriptedReply,
    TruncatedBody,
    api_error,
    rate_limit_error,
    serve,
    server_error,
)
from tests.unit.providers.anthropic.asking import HELLO, MODEL, client, heard
from tests.unit.providers.anthropic.test_model import stream_of

if TYPE_CHECKING:
    from promptkit.messages import Json

LONG = Message(role="user", content=("word " * 3_000,))


def body(kind: str, message: str) -> Json:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def error_of(answer: Any, *, timeout: float = 10) -> ModelError:
    with serve(script=[answer]) as server, pytest.raises(ModelError) as caught:
        heard(server.anthropic_url, timeout=timeout)
    return caught.value


class TestOverflow:
    def test_the_window_of_the_server_is_told(self) -> None:
        with serve(window=2_000) as server, pytest.raises(ContextLengthExceededError) as caught:
            heard(server.anthropic_url, [LONG])
        assert caught.value.window == 2_000
        assert (caught.value.tokens or 0) > 2_000
        assert isinstance(caught.value.__cause__, anthropic.BadRequestError)

    @pytest.mark.parametrize(
        ("status", "kind", "message", "tokens", "window"),
        [
            (
                400,
                "invalid_request_error",
                "prompt is too long: 208310 tokens > 200000 maximum",
                208_310,
                200_000,
            ),
            (
                400,
                "invalid_request_error",
                "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input length or `max_tokens` and try again",
                190_000,
                200_000,
            ),
            (413, "request_too_large", "Request exceeds the maximum size", None, None),
        ],
    )
    def test_every_way_in_which_the_api_says_it_is_understood(
        self, status: int, kind: str, message: str, tokens: int | None, window: int | None
    ) -> None:
        error = error_of(HttpAnswer(status=status, body=body(kind, message)))
        assert isinstance(error, ContextLengthExceededError)
        assert (error.tokens, error.window, error.status) == (tokens, window, status)

    def test_a_window_that_is_full_before_the_reply_begins_is_one(self) -> None:
        error = error_of(
            ScriptedReply(message=Message(role="assistant"), finish="model_context_window_exceeded")
        )
        assert isinstance(error, ContextLengthExceededError)

    def test_a_window_that_is_full_within_the_reply_cuts_it(self) -> None:
        with serve(window=1_000, script=["word " * 3_000]) as server:
            reply = heard(server.anthropic_url).reply
        assert reply.finish == "length"
        assert 800 < reply.usage.input_tokens + reply.usage.output_tokens < 1_100


class TestRefusals:
    @pytest.mark.parametrize(
        ("status", "kind", "expected"),
        [
            (400, "invalid_request_error", ModelRequestError),
            (401, "authentication_error", ModelRequestError),
            (402, "billing_error", ModelRequestError),
            (403, "permission_error", ModelRequestError),
            (404, "not_found_error", ModelRequestError),
            (409, "conflict_error", ModelUnavailableError),
            (429, "rate_limit_error", RateLimitedError),
            (500, "api_error", ModelUnavailableError),
            (504, "timeout_error", ModelUnavailableError),
            (529, "overloaded_error", ModelUnavailableError),
        ],
    )
    def test_the_status_decides(self, status: int, kind: str, expected: type[ModelError]) -> None:
        error = error_of(HttpAnswer(status=status, body=body(kind, "It says why.")))
        assert type(error) is expected
        assert (error.status, error.model) == (status, MODEL)
        assert "It says why." in str(error)

    def test_the_code_of_an_error_is_kept(self) -> None:
        error = error_of(api_error(400, "No.", code="tool_name_conflict"))
        assert (type(error), error.code) == (ModelRequestError, "tool_name_conflict")

    def test_a_rate_limit_says_how_long_to_wait(self) -> None:
        error = error_of(rate_limit_error(retry_after=7))
        assert isinstance(error, RateLimitedError)
        assert error.retry_after == 7

    @pytest.mark.parametrize(
        ("kind", "expected"),
        [
            ("overloaded_error", ModelUnavailableError),
            ("api_error", ModelUnavailableError),
            ("rate_limit_error", RateLimitedError),
            ("invalid_request_error", ModelRequestError),
        ],
    )
    def test_an_error_within_the_stream_is_what_it_says_and_not_its_status_200(
        self, kind: str, expected: type[ModelError]
    ) -> None:
        start: Any = {
            "type": "message_start",
            "message": {"id": "m", "usage": {"input_tokens": 1, "output_tokens": 1}},
        }
        error = error_of(
            stream_of(start, {"type": "error", "error": {"type": kind, "message": "Sorry."}})
        )
        assert type(error) is expected
        assert error.status is None
        assert "Sorry." in str(error)

    def test_without_a_key_the_error_says_so(self) -> None:
        with pytest.raises(ModelRequestError, match="api_key"):
            asyncio.run(AnthropicModel(MODEL).complete([HELLO]))


class TestConnections:
    def test_a_server_that_sends_nothing(self) -> None:
        assert "time limit" in str(error_of(Hang(), timeout=0.2))

    @pytest.mark.parametrize(
        "fault", [ConnectionReset(), TruncatedBody()], ids=["reset", "truncated"]
    )
    def test_a_stream_that_breaks_off(self, fault: Any) -> None:
        assert type(error_of(fault)) is ModelUnavailableError

    def test_a_server_that_is_not_there(self) -> None:
        with serve() as server:
            url = server.anthropic_url
        with pytest.raises(ModelUnavailableError, match="connection failed"):
            heard(url)

    @pytest.mark.parametrize(
        "answer",
        [MalformedBody(), HttpAnswer(status=200, body="<html>Welcome</html>")],
        ids=["broken", "page"],
    )
    def test_what_is_no_reply(self, answer: Any) -> None:
        assert type(error_of(answer)) is EmptyReplyError

    def test_retries_are_those_of_the_sdk_and_no_more(self) -> None:
        async def ask(url: str, max_retries: int | None) -> None:
            async with client(url, max_retries=2) as over:
                await AnthropicModel(MODEL, client=over, max_retries=max_retries).complete([HELLO])

        for given, requests in ((None, 3), (1, 2), (0, 1)):
            failing = [
                HttpAnswer(
                    status=529,
                    body=body("overloaded_error", "Busy."),
                    headers={"retry-after-ms": "1"},
                )
            ] * 3
            with serve(script=failing) as server, pytest.raises(ModelUnavailableError):
                asyncio.run(ask(server.anthropic_url, given))
            assert server.stats.requests == requests

    def test_after_a_fault_the_next_request_is_answered(self) -> None:
        with serve(script=["Hello again."], faults={1: server_error()}) as server:
            with pytest.raises(ModelUnavailableError):
                heard(server.anthropic_url)
            assert heard(server.anthropic_url).reply.message.text == "Hello again."
