"""The server as its clients see it: what it answers and when, what it remembers, and how it ends."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import openai
import pytest

from promptkit import Message, OpaquePart, ToolCall, Usage
from promptkit.providers import Reply
from promptkit.testing.server import (
    ConnectionReset,
    Delay,
    Hang,
    HttpAnswer,
    MalformedBody,
    Rule,
    ScriptedReply,
    TruncatedBody,
    api_error,
    echo,
    rate_limit_error,
    serve,
    server as listener,
    server_error,
)
from tests.unit.testing.server.posting import chat, post, responses

if TYPE_CHECKING:
    from promptkit.testing.server import Exchange, Server

ASK = pytest.mark.parametrize("ask", [chat, responses])
HELLO = {"role": "user", "content": "Hello."}


def said(body: Any) -> str:
    """The text of an answer of either API."""
    if "choices" in body:
        return str(body["choices"][0]["message"]["content"])
    return "".join(
        part["text"]
        for item in body["output"]
        if item["type"] == "message"
        for part in item["content"]
    )


def raises(_: object) -> str:
    raise ZeroDivisionError


def is_none(_: object) -> None:
    pass


def connection_threads() -> list[threading.Thread]:
    """The threads of open connections."""
    return [each for each in threading.enumerate() if "process_request_thread" in each.name]


class TestScripts:
    @pytest.mark.slow
    def test_steps_are_for_requests_in_the_order_in_which_they_came_also_where_the_first_takes_long_to_count(
        self,
    ) -> None:
        long = "".join(f"word{number} " for number in range(200_000))
        with serve(script=["one", "two"]) as server, ThreadPoolExecutor(1) as pool:
            first = pool.submit(chat, server, {"role": "user", "content": long})
            while not server.requests:
                time.sleep(0.001)
            second = chat(server, HELLO)
            assert (said(first.result().body), said(second.body)) == ("one", "two")

    @ASK
    def test_steps_are_answered_in_order(self, ask: Any) -> None:
        with serve(script=["one", "two"]) as server:
            assert [said(ask(server).body) for _ in range(2)] == ["one", "two"]
            assert server.steps_left == 0

    @ASK
    def test_beyond_the_script_a_request_is_refused(self, ask: Any) -> None:
        with serve(script=["one"]) as server:
            ask(server)
            answer = ask(server)
            assert (answer.status, answer.error["code"]) == (400, "script_used_up")
            assert answer.headers["x-should-retry"] == "false"
            assert (server.stats.answered, server.stats.beyond_script) == (1, 1)

    @ASK
    def test_what_comes_after_the_script_can_be_said(self, ask: Any) -> None:
        with serve(script=["one"], after=echo) as server:
            assert [
                said(ask(server, {"role": "user", "content": text}).body)
                for text in ("a", "b", "c")
            ] == ["one", "b", "c"]

    @ASK
    def test_a_step_may_be_a_function_of_the_request(self, ask: Any) -> None:
        def count(exchange: Exchange) -> str:
            return f"{len(exchange.messages)} messages, {exchange.text!r}, {exchange.number}"

        with serve(script=[count, count]) as server:
            assert (
                said(
                    ask(
                        server,
                        HELLO,
                        {"role": "assistant", "content": "Hi."},
                        {"role": "user", "content": "Bye."},
                    ).body
                )
                == "3 messages, 'Bye.', 1"
            )
            assert said(ask(server).body) == "1 messages, 'Hello.', 2"

    @ASK
    def test_a_rule_answers_what_matches_it_and_uses_no_step(self, ask: Any) -> None:
        rules = [
            Rule(match="^compact", answer="A summary."),
            Rule(match=lambda exchange: "tools" in exchange.body, answer="With tools."),
        ]
        with serve(script=["step"], rules=rules) as server:
            assert (
                said(ask(server, {"role": "user", "content": "compact this"}).body) == "A summary."
            )
            assert said(ask(server).body) == "step"
            assert (
                said(ask(server, {"role": "user", "content": "compact that"}).body) == "A summary."
            )
            assert server.steps_left == 0

    @pytest.mark.parametrize("step", [raises, is_none], ids=["raises", "is no answer"])
    def test_a_function_that_fails_is_told_to_the_client_who_need_not_ask_again(
        self, step: Any
    ) -> None:
        with serve(script=[step]) as server:
            answer = chat(server)
        assert (answer.status, answer.error["code"]) == (500, "script_raised")
        assert answer.headers["x-should-retry"] == "false"

    @pytest.mark.parametrize(
        "step", [5, None, [], ["text"], Message(role="user", content=("Hi.",))], ids=repr
    )
    def test_what_is_no_step_is_refused_at_once(self, step: Any) -> None:
        with pytest.raises(TypeError, match="an answer must be text"):
            serve(script=[step])

    def test_a_call_without_an_id_gets_one_of_its_own(self) -> None:
        with serve(
            after=lambda _: [ToolCall(id="", name="read"), ToolCall(id="", name="read")]
        ) as server:
            ids = [
                call["id"]
                for _ in range(2)
                for call in chat(server).body["choices"][0]["message"]["tool_calls"]
            ]
        assert len(set(ids)) == 4

    @ASK
    def test_usage_is_what_a_reply_says(self, ask: Any) -> None:
        usage = Usage(input_tokens=7, output_tokens=8, cached_tokens=3)
        with serve(
            script=[
                Reply(message=Message(role="assistant", content=("x",)), usage=usage, finish="stop")
            ]
        ) as server:
            body = ask(server).body["usage"]
            assert server.requests[0].usage == usage
        assert body["total_tokens"] == 15


class TestWindow:
    @pytest.mark.parametrize("room", [0, 10])
    @pytest.mark.parametrize(
        ("ask", "limit", "param"),
        [(chat, "max_completion_tokens", "messages"), (responses, "max_output_tokens", "input")],
    )
    def test_a_request_fits_up_to_the_last_token(
        self, ask: Any, limit: str, param: str, room: int
    ) -> None:
        more = {limit: room} if room else {}
        with serve(after=lambda _: "ok") as server:
            usage = ask(server).body["usage"]
            tokens = usage.get("prompt_tokens") or usage["input_tokens"]
        with serve(window=tokens + room, after=lambda _: "ok") as server:
            assert ask(server, **more).status == 200
        with serve(window=tokens + room - 1, script=["ok"]) as server:
            answer = ask(server, **more)
            assert (server.stats.overflows, server.steps_left, server.requests[0].status) == (
                1,
                1,
                400,
            )
        assert answer.status == 400
        assert answer.error["code"] == "context_length_exceeded"
        assert answer.error["param"] == param

    @pytest.mark.parametrize(
        ("ask", "limit"),
        [(chat, "max_completion_tokens"), (chat, "max_tokens"), (responses, "max_output_tokens")],
    )
    def test_an_answer_is_cut_at_the_limit_of_the_request(self, ask: Any, limit: str) -> None:
        with serve(script=["one two three four five six"]) as server:
            body = ask(server, **{limit: 3}).body
        assert said(body) == "one two three"
        assert "length" in json.dumps(body) or body["incomplete_details"] == {
            "reason": "max_output_tokens"
        }

    def test_tokens_can_be_counted_without_an_answer(self) -> None:
        with serve(window=5) as server:
            counted = post(
                server, "/responses/input_tokens", {"model": "gpt-4.1", "input": "Hello."}
            ).body
            assert server.stats.answered == 0
        assert counted == {"object": "response.input_tokens", "input_tokens": 9}


class TestFaults:
    """A client that reads byte by byte sees each of them."""

    @pytest.mark.parametrize("stream", [False, True])
    def test_truncated(self, stream: bool) -> None:
        with serve(script=[TruncatedBody()]) as server:
            head, body = talk(server, {"stream": stream})
        if stream:
            assert body.endswith(b"0\r\n\r\n")  # properly closed
            assert b'finish_reason": "' not in body
        else:
            assert len(body) < int(head["content-length"])

    @pytest.mark.parametrize("stream", [False, True])
    def test_reset(self, stream: bool) -> None:
        with (
            serve(script=[ConnectionReset()]) as server,
            socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection,
        ):
            connection.sendall(request_of({"stream": stream}))
            blocks: list[bytes] = []
            with pytest.raises(ConnectionResetError):
                read_into(blocks, connection)
        assert not b"".join(blocks).endswith(b"0\r\n\r\n")

    def test_malformed(self) -> None:
        with serve(script=[MalformedBody()]) as server:
            answer = chat(server)
        assert answer.status == 200
        assert isinstance(answer.body, bytes)

    def test_hang_lasts_until_the_client_goes(self) -> None:
        with serve(script=[Hang(), "there"]) as server:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=0.2)
            connection.request(
                "POST", "/v1/chat/completions", json.dumps({"model": "m", "messages": [HELLO]})
            )
            with pytest.raises(TimeoutError):
                connection.getresponse()
            connection.close()
            assert said(chat(server).body) == "there"
            assert [exchange.status for exchange in server.requests] == [None, 200]
            until(lambda: not connection_threads())

    def test_delay(self) -> None:
        with serve(
            script=[
                Delay(seconds=0.2, answer="late"),
                Delay(seconds=0.1, answer=Delay(seconds=0.1, answer=lambda _: "later")),
            ]
        ) as server:
            for expected in ("late", "later"):
                start = time.monotonic()
                assert said(chat(server).body) == expected
                assert time.monotonic() - start >= 0.2  # never less, however slow the machine is

    @pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
    def test_a_stream_that_is_slow_between_its_events_can_be_left_in_the_middle(
        self, path: str
    ) -> None:
        asked: dict[str, object] = (
            {"input": "Hi"} if path == "/v1/responses" else {"messages": [HELLO], "max_tokens": 500}
        )
        body = {"model": "m", "stream": True, **asked}
        slow = Delay(between=0.02, answer="A" * 40 + "B" * 8)
        with serve(script=["first", slow, "next"]) as server:
            assert said(chat(server).body) == "first"  # what is loaded once is not timed below
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
            headers = {"anthropic-version": "2023-06-01"}
            start = time.monotonic()
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            lines = [response.readline() for _ in range(5)]  # of two events at least
            assert time.monotonic() - start >= 0.04
            assert b"AB" not in b"".join(lines)
            connection.close()
            assert said(chat(server).body) == "next"
            until(lambda: not connection_threads())

    @pytest.mark.parametrize(
        ("fault", "status", "headers"),
        [
            (rate_limit_error(retry_after=2), 429, {"retry-after": "2"}),
            (rate_limit_error(), 429, {}),
            (server_error(), 500, {}),
            (api_error(418, "No."), 418, {}),
            (HttpAnswer(status=502, body="<html>"), 502, {"content-type": "text/html"}),
            (HttpAnswer(status=400), 400, {"content-length": "0"}),
        ],
    )
    def test_http_errors(self, fault: Any, status: int, headers: dict[str, str]) -> None:
        with serve(script=[fault]) as server:
            answer = chat(server)
            assert server.stats.faults == 1
            assert server.requests[0].fault == "HttpAnswer"
        assert answer.status == status
        assert headers.items() <= answer.headers.items()

    def test_a_schedule_strikes_by_number_and_uses_no_step(self) -> None:
        with serve(
            script=["one", "two"],
            faults={1: server_error(), 3: rate_limit_error(), 4: Delay(seconds=0.01)},
        ) as server:
            assert [chat(server).status for _ in range(4)] == [500, 200, 429, 200]
            assert server.steps_left == 0
            assert (server.stats.faults, server.stats.answered) == (2, 2)

    def test_a_schedule_may_be_a_function(self) -> None:
        with serve(
            after=lambda _: "ok", faults=lambda number: server_error() if number % 3 == 0 else None
        ) as server:
            assert [chat(server).status for _ in range(6)] == [200, 200, 500, 200, 200, 500]


class TestJournal:
    def test_holds_what_came_byte_for_byte_and_what_became_of_it(self) -> None:
        raw = '{"model" :"gpt-4.1",\n"messages":[{"role":"user","content":"größe"}]}'.encode()
        with serve(script=["ok"]) as server:
            post(server, "/chat/completions", raw, headers={"X-Mine": "yes"})
            (exchange,) = server.requests
        assert (exchange.number, exchange.method, exchange.path, exchange.raw) == (
            1,
            "POST",
            "/v1/chat/completions",
            raw,
        )
        assert exchange.headers["x-mine"] == "yes"
        assert exchange.body == json.loads(raw)
        assert (exchange.status, exchange.problem, exchange.fault) == (200, None, None)
        assert exchange.usage is not None

    def test_an_ill_formed_request_is_counted_with_its_reason(self) -> None:
        with serve(script=["never"]) as server:
            answer = chat(server, {"role": "tool", "tool_call_id": "c1", "content": "x"})
            assert answer.status == 400
            assert answer.error["type"] == "invalid_request_error"
            assert (server.stats.invalid, server.steps_left) == (1, 1)
            assert server.requests[0].problem == answer.error["message"]

    def test_keeps_the_last_ones(self) -> None:
        with serve(after=echo, max_recorded=2) as server:
            for _ in range(3):
                chat(server)
            assert [exchange.number for exchange in server.requests] == [2, 3]
            assert server.stats.requests == 3


class TestHttp:
    def test_lists_its_models(self) -> None:
        with serve(models=["a", "b"]) as server:
            answer = post(server, "/models", b"", method="GET")
        assert [model["id"] for model in answer.body["data"]] == ["a", "b"]

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("POST", "/nowhere", 404),
            ("GET", "/nowhere", 404),
            ("GET", "/responses", 405),
            ("POST", "/models", 405),
            ("DELETE", "/models", 501),
        ],
    )
    def test_other_addresses_are_unknown(self, method: str, path: str, status: int) -> None:
        with serve() as server:
            assert post(server, path, {}, method=method).status == status

    @pytest.mark.parametrize(
        "body", [b"", b"{", b"[]", b"5", b"\xff", b"[" * 100_000], ids=range(6)
    )
    def test_what_is_no_json_object_is_refused(self, body: bytes) -> None:
        with serve(script=["never"]) as server:
            answer = post(server, "/chat/completions", body)
            assert (answer.status, server.stats.invalid) == (400, 1)
        assert "could not parse the JSON body" in answer.error["message"]

    def test_a_query_does_not_matter(self) -> None:
        with serve(script=["ok"]) as server:
            assert (
                post(
                    server, "/chat/completions?api-version=1", {"model": "m", "messages": [HELLO]}
                ).status
                == 200
            )

    def test_a_body_beyond_the_limit_is_not_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(listener, "MAX_BODY", 100)
        with serve() as server:
            assert post(server, "/chat/completions", b"x" * 101).status == 413
            assert server.requests[0].raw == b""

    @pytest.mark.parametrize("length", [None, "-1", "many"])
    def test_a_body_without_a_length_is_refused(self, length: str | None) -> None:
        with serve() as server:
            head = "" if length is None else f"Content-Length: {length}\r\n"
            assert raw(
                server, f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n{head}\r\n"
            ).startswith(b"HTTP/1.1 411")

    def test_headers_without_end_are_refused(self) -> None:
        with serve() as server:
            many = "".join(f"X-{number}: 1\r\n" for number in range(200))
            assert raw(server, f"POST / HTTP/1.1\r\n{many}\r\n").startswith(b"HTTP/1.1 431")
            assert raw(server, f"POST / HTTP/1.1\r\nX: {'1' * 70_000}\r\n\r\n").startswith(
                b"HTTP/1.1 431"
            )

    def test_a_client_that_stops_in_the_middle_does_no_harm(self) -> None:
        with serve(script=["ok"]) as server:
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(
                    b'POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"model"'
                )
            until(lambda: not connection_threads())
            assert (said(chat(server).body), server.stats.requests) == ("ok", 1)

    @pytest.mark.long
    def test_a_client_that_goes_before_its_answer_is_whole_is_no_news(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        long = Message(role="assistant", content=("x" * 2_000_000,))
        with serve(
            script=[Reply(message=long, usage=Usage(input_tokens=1), finish="stop")]
        ) as server:
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(request_of({"stream": True}))
                connection.recv(1)
            until(lambda: not connection_threads())
        assert capsys.readouterr().err == ""

    def test_beyond_the_most_connections_the_newest_are_closed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("promptkit.testing.server.server.MAX_CONNECTIONS", 2)
        with serve(after=lambda _: "ok") as server:
            address = "127.0.0.1", server.port
            with socket.create_connection(address), socket.create_connection(address):
                until(lambda: len(connection_threads()) == 2)
                with socket.create_connection(address, timeout=10) as third:
                    assert third.recv(1) == b""
            until(lambda: not connection_threads())
            assert said(chat(server).body) == "ok"

    @pytest.mark.long
    def test_many_clients_at_once_are_all_answered(self) -> None:
        with (
            serve(after=lambda exchange: Delay(seconds=0.02, answer=exchange.text)) as server,
            ThreadPoolExecutor(40) as pool,
        ):
            texts = [f"question {number}" for number in range(200)]

            def ask(text: str) -> str:
                return said(chat(server, {"role": "user", "content": text}).body)

            answers = list(pool.map(ask, texts))
            assert answers == texts
            assert server.stats.answered == 200
            assert sorted(exchange.number for exchange in server.requests) == list(range(1, 201))


class TestCompaction:
    def test_keeps_what_the_user_said_and_seals_the_rest(self) -> None:
        with (
            serve() as server,
            openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as client,
        ):
            items: Any = [
                HELLO,
                {"role": "assistant", "content": "Hi."},
                {"role": "user", "content": "Bye."},
            ]
            compacted = client.responses.compact(model="gpt-4.1", input=items)
            output: Any = [
                item.model_dump(exclude_none=True, warnings=False) for item in compacted.output
            ]
            assert [item["type"] for item in output] == ["message", "message", "compaction"]
            assert (
                base64.b64decode(output[-1]["encrypted_content"])
                .decode()
                .startswith("A conversation of 3 items")
            )
            assert compacted.usage.input_tokens > 0

    def test_what_it_seals_is_taken_and_counted_again(self) -> None:
        with serve(after=echo) as server:
            output = post(
                server, "/responses/compact", {"model": "gpt-4.1", "input": [HELLO]}
            ).body["output"]
            plain = responses(server, HELLO).body["usage"]["input_tokens"]
            with_it = responses(server, *output).body["usage"]["input_tokens"]
            assert server.stats.invalid == 0
        assert with_it > plain

    def test_demands_an_orderly_conversation_that_fits(self) -> None:
        call = {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"}
        with serve(window=100) as server:
            assert (
                post(server, "/responses/compact", {"model": "m", "input": [call]})
                .error["message"]
                .startswith("No tool output")
            )
            assert (
                post(server, "/responses/compact", {"model": "m", "input": "word " * 200}).error[
                    "code"
                ]
                == "context_length_exceeded"
            )


class TestLife:
    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "example.org", ""])  # noqa: S104  # refused
    def test_listens_to_this_machine_only(self, host: str) -> None:
        with pytest.raises(ValueError, match="other machines can reach the host"):
            serve(host=host)

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
    def test_listens_on_every_address_of_loopback(self, host: str) -> None:
        with (
            serve(host=host, script=["ok"]) as server,
            openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as client,
        ):
            done = client.chat.completions.create(
                model="gpt-4.1", messages=[{"role": "user", "content": "Hello."}]
            )
        assert done.choices[0].message.content == "ok"

    def test_a_wider_address_has_to_be_meant(self) -> None:
        with serve(host="0.0.0.0", allow_remote=True, script=["ok"]) as server:  # noqa: S104  # it is meant
            assert said(chat(server).body) == "ok"

    def test_a_taken_port_is_an_error(self) -> None:
        with serve() as server, pytest.raises(OSError, match="in use"):
            serve(port=server.port)

    def test_closing_ends_those_who_wait_and_all_threads(self) -> None:
        before = set(threading.enumerate())
        with serve(after=lambda _: Hang()) as server, ThreadPoolExecutor(5) as pool:
            waiting = [pool.submit(chat, server) for _ in range(5)]
            idle = socket.create_connection(("127.0.0.1", server.port))
            until(lambda: server.stats.requests == 5)
            server.close()
            for future in waiting:
                with pytest.raises((OSError, http.client.HTTPException)):
                    future.result(timeout=10)
            until(lambda: not connection_threads())
            idle.close()
        until(lambda: set(threading.enumerate()) <= before)
        with pytest.raises(ConnectionRefusedError):
            chat(server)


class TestStreams:
    def test_what_the_sdk_reads_is_what_was_said(self) -> None:
        message = Message(
            role="assistant",
            content=("Look: ", "größe"),
            tool_calls=(ToolCall(id="c", name="read", arguments='{"a": 1}'),),
        )
        tool: Any = {"type": "function", "function": {"name": "read", "parameters": {}}}
        with (
            serve(script=[message]) as server,
            openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as client,
            client.chat.completions.stream(
                model="gpt-4.1", messages=[{"role": "user", "content": "x"}], tools=[tool]
            ) as stream,
        ):
            final = stream.get_final_completion()
        assert final.choices[0].message.content == "Look: größe"
        calls = final.choices[0].message.tool_calls
        assert calls is not None
        assert calls[0].function.arguments == '{"a": 1}'

    def test_and_of_a_response(self) -> None:
        message = Message(
            role="assistant",
            content=(
                OpaquePart(
                    value={"type": "reasoning", "id": "rs", "summary": []},
                    provider="responses",
                    tokens=5,
                ),
                "Look: ",
                "größe",
            ),
            tool_calls=(ToolCall(id="c", name="read", arguments='{"a": 1}'),),
        )
        tool: Any = {"type": "function", "name": "read", "parameters": {}, "strict": False}
        with (
            serve(script=[message]) as server,
            openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as client,
            client.responses.stream(model="gpt-4.1", input="x", tools=[tool]) as stream,
        ):
            final = stream.get_final_response()
        assert final.output_text == "Look: größe"
        assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
        assert final.usage is not None
        assert final.usage.output_tokens_details.reasoning_tokens == 5

    @pytest.mark.parametrize("wanted", [False, True])
    def test_usage_comes_only_to_those_who_ask(self, wanted: bool) -> None:
        more: Any = {"stream_options": {"include_usage": True}} if wanted else {}
        with (
            serve(script=["ok"]) as server,
            openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as client,
        ):
            chunks = list(
                client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "x"}], stream=True, **more
                )
            )
        assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [
            wanted
        ]

    def test_a_finish_reason_can_be_said(self) -> None:
        with serve(
            script=[
                ScriptedReply(
                    message=Message(role="assistant", content=("x",)), finish="content_filter"
                )
            ]
            * 2
        ) as server:
            assert chat(server).body["choices"][0]["finish_reason"] == "content_filter"
            body = responses(server).body
        assert (body["status"], body["incomplete_details"]) == (
            "incomplete",
            {"reason": "content_filter"},
        )


def talk(server: Server, more: dict[str, Any]) -> tuple[dict[str, str], bytes]:
    """A chat completion, read to the end of the connection: its headers and the bytes of its body."""
    text = raw(server, request_of(more).decode())
    head, _, rest = text.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")[1:]
    return {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}, rest


def request_of(more: dict[str, Any]) -> bytes:
    body = json.dumps({"model": "m", "messages": [HELLO], **more})
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )


def raw(server: Server, request: str) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(request.encode())
        blocks: list[bytes] = []
        read_into(blocks, connection)
        return b"".join(blocks)


def read_into(blocks: list[bytes], connection: socket.socket) -> None:
    while block := connection.recv(65_536):
        blocks.append(block)


def until(true: Any) -> None:
    """Wait for another thread; ten seconds are for a machine that is very busy."""
    for _ in range(1000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError
