"""What goes wrong between a program and its model, over real HTTP: which of the five errors it is, and what it says."""

from __future__ import annotations

import asyncio
import json
import pickle
from typing import TYPE_CHECKING, Any

import httpx2
import openai
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
from promptkit.providers.openai.client import OpenAIModel
from promptkit.providers.sdk import parse_retry_after
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
from tests.unit.providers.openai.asking import HELLO, READ, Api, client, heard
from tests.unit.providers.openai.error_bodies import FITTING, OVERFLOWS, Case
from tests.unit.providers.openai.test_model import stream_of

if TYPE_CHECKING:
    from collections.abc import Mapping

BOTH = pytest.mark.parametrize("api", ["chat", "responses"])
EITHER = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
NO_ANSWERS: list[Any] = [
    "<html>Welcome</html>",
    {},
    {"choices": []},
    {"choices": None, "output": None},
    {"choices": [{}], "output": [5]},
    [],
]
STRANGE: list[Any] = [
    [[[[]]]] * 50,
    {"error": {"message": "{" * 500}},
    {"error": {"message": '{"a":' * 5000}},
    {"error": [{}] * 5000},
]
KINDS: Mapping[str, type[ModelError]] = {
    "rate": RateLimitedError,
    "request": ModelRequestError,
    "unavailable": ModelUnavailableError,
}


def error_of(answer: Any, *, api: Api = "chat", stream: bool = False, **options: Any) -> ModelError:
    with serve(script=[answer]) as server, pytest.raises(ModelError) as caught:
        heard(server.url, api=api, stream=stream, tools=[READ], **options)
    return caught.value


class TestOverflow:
    @pytest.mark.spec("E37")
    @pytest.mark.parametrize("case", OVERFLOWS, ids=[case.name for case in OVERFLOWS])
    def test_every_provider_is_understood(self, case: Case) -> None:  # the case's number
        error = error_of(HttpAnswer(status=case.status, body=case.body))
        assert type(error) is ContextLengthExceededError
        assert (error.tokens, error.window) == (case.tokens, case.window)
        assert error.status == case.status

    @pytest.mark.spec("E36", "E63")
    @pytest.mark.parametrize(("kind", "case"), FITTING, ids=[case.name for _, case in FITTING])
    # the cases' numbers
    def test_what_is_no_overflow_is_not_taken_for_one(self, kind: str, case: Case) -> None:
        error = error_of(HttpAnswer(status=case.status, body=case.body))
        assert type(error) is KINDS[kind]
        assert error.status == case.status

    @BOTH
    @EITHER
    def test_a_real_window_overflows(self, api: Api, stream: bool) -> None:
        long = Message(role="user", content=("word " * 3000,))
        with serve(window=2000, script=["never"]) as server:
            with pytest.raises(ContextLengthExceededError) as caught:
                heard(server.url, [long], api=api, stream=stream)
            assert (server.stats.overflows, server.steps_left) == (1, 1)
        assert caught.value.code == "context_length_exceeded"
        assert isinstance(caught.value.__cause__, openai.BadRequestError)

    @pytest.mark.parametrize(
        "error",
        [
            {"code": "context_length_exceeded", "message": "Too long."},
            {"message": "prompt is too long"},
        ],
    )
    def test_in_the_middle_of_a_stream_as_well(self, error: dict[str, str]) -> None:
        assert (
            type(error_of(stream_of({"error": error}), stream=True)) is ContextLengthExceededError
        )

    def test_a_full_window_may_be_a_finish_reason(self) -> None:
        answer: Any = {
            "choices": [
                {"message": {"content": ""}, "finish_reason": "model_context_window_exceeded"}
            ]
        }
        assert type(error_of(HttpAnswer(status=200, body=answer))) is ContextLengthExceededError


class TestRates:
    @BOTH
    @EITHER
    def test_how_long_to_wait_is_said_in_seconds(self, api: Api, stream: bool) -> None:
        error = error_of(rate_limit_error(retry_after=37), api=api, stream=stream)
        assert isinstance(error, RateLimitedError)
        assert (error.retry_after, error.status, error.code) == (37.0, 429, "rate_limit_exceeded")

    @pytest.mark.parametrize(
        ("headers", "seconds"),
        [
            ({"retry-after": "2"}, 2.0),
            ({"retry-after": "0.5"}, 0.5),
            ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
            (
                {
                    "retry-after": "Sun, 06 Nov 1994 08:49:50 GMT",
                    "date": "Sun, 06 Nov 1994 08:49:37 GMT",
                },
                13.0,
            ),
            (
                {
                    "retry-after": "Sun, 06 Nov 1994 08:49:37 GMT",
                    "date": "Sun, 06 Nov 1994 08:49:50 GMT",
                },
                0.0,
            ),
            ({"retry-after": "Sun, 06 Nov 1994 08:49:50 GMT"}, None),
            ({"retry-after": "soon"}, None),
            ({"retry-after": "inf"}, None),
            ({"retry-after": "-3"}, None),
            ({}, None),
        ],
    )
    def test_the_header_is_read_in_every_form(
        self, headers: dict[str, str], seconds: float | None
    ) -> None:
        assert parse_retry_after(httpx2.Headers(headers)) == seconds

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("Please try again in 20s.", 20.0),
            ("Please try again in 6m0s.", 360.0),
            ("Please try again in 4.77s. Need more?", 4.77),
            ("Please try again in 250ms.", 0.25),
            ("Please try again in 1h2m3s.", 3723.0),
            ("Please try again in a while.", None),
        ],
    )
    def test_without_the_header_the_words_say_it(self, text: str, seconds: float | None) -> None:
        error = error_of(api_error(429, text, code="rate_limit_exceeded"))
        assert isinstance(error, RateLimitedError)
        assert error.retry_after == seconds

    def test_in_the_middle_of_a_stream_as_well(self) -> None:
        assert (
            type(
                error_of(stream_of({"error": {"code": 429, "message": "Slow down."}}), stream=True)
            )
            is RateLimitedError
        )

    @pytest.mark.spec("E64")
    def test_a_long_wait_is_the_callers_to_take(self) -> None:  # the case's number
        with serve(script=[rate_limit_error(retry_after=3600), "after an hour"]) as server:
            with pytest.raises(RateLimitedError) as caught:
                heard(server.url, max_retries=2)
            assert server.stats.requests == 1
        assert caught.value.retry_after == 3600


class TestConnections:
    @BOTH
    @EITHER
    def test_no_answer_in_time(self, api: Api, stream: bool) -> None:
        error = error_of(Hang(), api=api, stream=stream, timeout=0.3)
        assert type(error) is ModelUnavailableError
        assert isinstance(error.__cause__, openai.APITimeoutError)

    @BOTH
    @EITHER
    @pytest.mark.parametrize(
        "fault", [ConnectionReset(), TruncatedBody()], ids=["reset", "truncated"]
    )
    def test_a_body_that_breaks_off(self, api: Api, stream: bool, fault: Any) -> None:
        assert type(error_of(fault, api=api, stream=stream)) is ModelUnavailableError

    @BOTH
    @EITHER
    def test_a_failing_server(self, api: Api, stream: bool) -> None:
        assert type(error_of(server_error(503), api=api, stream=stream)) is ModelUnavailableError

    def test_nobody_there(self) -> None:
        with serve() as server:
            url = server.url
        with pytest.raises(ModelUnavailableError) as caught:
            heard(url)
        assert isinstance(caught.value.__cause__, openai.APIConnectionError)

    @pytest.mark.parametrize(
        ("event", "kind"),
        [
            (
                {"type": "error", "code": "server_error", "message": "Failed."},
                ModelUnavailableError,
            ),
            ({"type": "error", "code": None, "message": "Failed."}, ModelUnavailableError),
            (
                {
                    "type": "error",
                    "sequence_number": 2,
                    "error": {"code": "context_length_exceeded", "message": "Too long."},
                },
                ContextLengthExceededError,
            ),
            (
                {
                    "type": "response.failed",
                    "response": {"error": {"code": "rate_limit_exceeded", "message": "Slow."}},
                },
                RateLimitedError,
            ),
            (
                {
                    "type": "response.failed",
                    "response": {"error": {"code": "server_error", "message": "Failed."}},
                },
                ModelUnavailableError,
            ),
            (
                {
                    "type": "response.failed",
                    "response": {"error": {"code": "invalid_prompt", "message": "No."}},
                },
                ModelRequestError,
            ),
        ],
    )
    def test_what_a_stream_of_events_says_of_its_failure(
        self, event: dict[str, Any], kind: type[ModelError]
    ) -> None:
        assert type(error_of(stream_of(event), api="responses", stream=True)) is kind


class TestEmptyAnswers:
    @pytest.mark.spec("E57")
    @BOTH
    @EITHER
    @pytest.mark.parametrize("said", ["", " \n\t"], ids=["nothing", "blanks"])
    # the case's number
    def test_an_empty_text_is_an_error(self, api: Api, stream: bool, said: str) -> None:
        error = error_of(said, api=api, stream=stream)
        assert type(error) is EmptyReplyError
        assert error.usage is not None
        assert error.usage.input_tokens > 0

    @BOTH
    @EITHER
    def test_so_is_an_answer_that_ran_out_of_room_before_it_began(
        self, api: Api, stream: bool
    ) -> None:
        empty = ScriptedReply(
            message=Message(role="assistant"),
            finish="length",
            usage=Usage(input_tokens=10, output_tokens=400),
        )
        error = error_of(empty, api=api, stream=stream)
        assert isinstance(error, EmptyReplyError)
        assert error.finish in ("length", "max_output_tokens")
        assert error.usage == Usage(input_tokens=10, output_tokens=400)

    @BOTH
    @EITHER
    def test_so_is_broken_json(self, api: Api, stream: bool) -> None:
        assert type(error_of(MalformedBody(), api=api, stream=stream)) is EmptyReplyError

    @BOTH
    @EITHER
    @pytest.mark.parametrize("body", NO_ANSWERS, ids=str)
    def test_so_is_what_is_no_answer_at_all(self, api: Api, stream: bool, body: Any) -> None:
        assert (
            type(error_of(HttpAnswer(status=200, body=body), api=api, stream=stream))
            is EmptyReplyError
        )

    @BOTH
    def test_an_error_that_comes_with_200_is_that_error(self, api: Api) -> None:
        body: Any = {"error": {"code": 429, "message": "Slow down.", "type": "requests"}}
        assert type(error_of(HttpAnswer(status=200, body=body), api=api)) is RateLimitedError

    @EITHER
    def test_a_call_without_a_name_is_no_call(self, stream: bool) -> None:
        calls: Any = [{"index": 0, "id": "c1", "type": "function", "function": {"arguments": "{}"}}]
        answer = (
            stream_of(
                {"choices": [{"delta": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}
            )
            if stream
            else None
        )
        whole = HttpAnswer(
            status=200,
            body={"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]},
        )
        assert type(error_of(answer or whole, stream=stream)) is EmptyReplyError


class TestRetries:
    @pytest.mark.spec("E62")
    # the case's number
    def test_the_sdk_asks_again_as_often_as_it_was_told_and_nobody_else(self) -> None:
        for retries in (0, 2):
            with serve(faults=lambda _: attempt) as server:
                with pytest.raises(ModelUnavailableError):
                    heard(server.url, max_retries=retries)
                assert server.stats.requests == retries + 1

    @pytest.mark.long
    def test_what_passes_is_not_noticed(self) -> None:
        with serve(script=["there"], faults={1: attempt, 2: ConnectionReset()}) as server:
            assert heard(server.url, max_retries=2).reply.message.text == "there"
            assert server.stats.faults == 2

    @pytest.mark.spec("E63")
    def test_an_overflow_is_not_asked_again(self) -> None:  # the case's number
        with serve(window=5) as server:
            with pytest.raises(ContextLengthExceededError):
                heard(server.url, max_retries=5)
            assert server.stats.requests == 1

    @BOTH
    @EITHER
    @pytest.mark.slow
    def test_the_model_may_have_a_time_limit_and_a_number_of_its_own(
        self, api: Api, stream: bool
    ) -> None:
        with serve(after=lambda _: Hang()) as server:

            async def ask() -> None:
                async with client(server.url, max_retries=5, timeout=60) as over:
                    model = OpenAIModel("gpt-4.1", api=api, client=over, timeout=0.1, max_retries=1)
                    await (model.with_options(on_text=print) if stream else model).complete([HELLO])

            with pytest.raises(ModelUnavailableError):
                asyncio.run(ask())
            assert server.stats.requests == 2


class TestRequests:
    @pytest.mark.spec("E65")
    def test_a_refused_tool_choice_can_be_told_from_all_else(self) -> None:  # the case's number
        answer = api_error(
            400,
            "Invalid value: 'none'. Supported values are: 'auto'.",
            code="invalid_value",
            param="tool_choice",
        )
        error = error_of(answer, tool_choice="none")
        assert isinstance(error, ModelRequestError)
        assert (error.param, error.code) == ("tool_choice", "invalid_value")

    @BOTH
    def test_half_of_a_surrogate_pair_in_a_name_cannot_be_sent(self, api: Api) -> None:
        with serve() as server:
            with pytest.raises(ModelRequestError, match="surrogate"):
                heard(server.url, api=api, name="gpt-\ud83d")
            assert server.stats.requests == 0

    @BOTH
    def test_in_what_was_said_it_is_replaced_since_it_would_stop_the_conversation_for_ever(
        self, api: Api
    ) -> None:
        call = ToolCall(id="c1", name="read", arguments='{"path": "\udcff.md"}')
        said = [
            Message(role="user", content=("Read \udcff.md \ud83d\ude00", "\ud83d")),
            Message(role="assistant", tool_calls=(call,)),
            Message(role="tool", content=("no \udcff",), tool_call_id="c1"),
        ]
        with serve(script=["Done."]) as server:
            heard(server.url, said, api=api, tools=[READ])
            told = json.dumps(server.requests[0].body, ensure_ascii=False)
        assert "Read \ufffd.md \N{GRINNING FACE}" in told
        assert "no \ufffd" in told
        assert '\\"\ufffd.md\\"' in told
        assert told.encode().count("\ufffd".encode()) == 4

    @BOTH
    @pytest.mark.parametrize("key", ["secret\n", "s\u00e9cret"])
    def test_a_key_that_no_header_may_have_is_told_and_not_shown(self, api: Api, key: str) -> None:
        async def ask(url: str) -> None:
            async with openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client:
                await OpenAIModel("gpt-4.1", api=api, client=client).complete(
                    [Message(role="user", content=("Hello.",))]
                )

        with serve() as server, pytest.raises(ModelRequestError, match="header") as caught:
            asyncio.run(ask(server.url))
        assert "cret" not in str(caught.value)

    def test_a_missing_key_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        with pytest.raises(ModelRequestError, match="OPENAI_API_KEY"):
            asyncio.run(
                OpenAIModel("gpt-4.1").complete([Message(role="user", content=("Hello.",))])
            )


class TestMessages:
    def test_says_who_refused_what_and_keeps_the_cause(self) -> None:
        error = error_of(
            api_error(400, "Unknown parameter: 'colour'.", code="unknown_parameter", param="colour")
        )
        assert str(error) == "gpt-4.1: HTTP 400: Unknown parameter: 'colour'."
        assert error.model == "gpt-4.1"
        assert isinstance(error.__cause__, openai.BadRequestError)

    def test_a_page_is_not_repeated_as_a_whole(self) -> None:
        assert len(str(error_of(HttpAnswer(status=502, body="<p>" * 10_000)))) < 600

    @pytest.mark.parametrize("body", STRANGE, ids=range(len(STRANGE)))
    def test_a_strange_body_does_no_harm(self, body: Any) -> None:
        assert type(error_of(HttpAnswer(status=400, body=body))) is ModelRequestError

    def test_a_body_is_looked_into_so_far_and_no_further(self) -> None:
        body: Any = {"message": "prompt is too long"}
        for _ in range(50):
            body = {"metadata": body}
        assert type(error_of(HttpAnswer(status=400, body=body))) is ContextLengthExceededError
        for _ in range(100):
            body = {"metadata": body}
        assert type(error_of(HttpAnswer(status=400, body=body))) is ModelRequestError

    def test_the_providers_own_words_come_before_those_around_them(self) -> None:
        inner = json.dumps({"error": {"message": "At most one image is taken."}})
        body: Any = {
            "error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": inner}}
        }
        assert (
            str(error_of(HttpAnswer(status=400, body=body)))
            == "gpt-4.1: HTTP 400: At most one image is taken."
        )

    def test_travels_between_processes(self) -> None:
        error = error_of(rate_limit_error(retry_after=3))
        back = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes
        assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))


attempt = HttpAnswer(status=500, headers={"retry-after-ms": "1"})
"""A failure after which the SDK asks again at once."""


@BOTH
@EITHER
@pytest.mark.parametrize(
    "body",
    [
        "<html>\n<head><title>502</title></head>\r\n<body>Bad\u2028gateway</body>\n</html>",
        {"error": {"message": "The prompt\n\nis\x0bwrong\x85here.\r\n", "type": "x\ny"}},
        {"detail": "a\n" * 400},
    ],
    ids=["html", "object", "long"],
)
def test_an_error_is_one_line_whatever_the_server_wrote(api: Api, stream: bool, body: Any) -> None:
    error = error_of(HttpAnswer(status=502, body=body), api=api, stream=stream)
    assert len(str(error).splitlines()) == 1
    assert "  " not in str(error)
