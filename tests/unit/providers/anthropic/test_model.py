"""A model of Anthropic, asked through the real SDK over HTTP: what it answers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

import anthropic
import pytest

from promptkit import ImagePart, Message, OpaquePart, ToolCall, Usage
from promptkit.errors import EmitError, EmptyReplyError
from promptkit.messages import CacheBreakpointPart
from promptkit.providers import AdjustableModel, AnthropicModel, Reply
from promptkit.testing.server import Hang, HttpAnswer, ScriptedReply, serve
from tests.unit.providers.anthropic.asking import HELLO, MODEL, READ, client, heard

if TYPE_CHECKING:
    from promptkit.testing.server import Server

ARGUMENTS = '{ "path" :\t"gr\\u00f6\\u00dfe.py", "n": 12345678901234567890123 }'
CALLS = (
    ToolCall(id="toolu_a", name="read", arguments=ARGUMENTS),
    ToolCall(id="toolu_b", name="read", arguments="not json"),
)
TEXT = "The parser scatters its state. 日本語 👩‍👩‍👧\n\nIt should not.\u2028"
THOUGHT = OpaquePart(
    value={"type": "thinking", "thinking": "Is it the parser? " * 5},
    tokens=40,
    provider="anthropic",
)
SEALED = OpaquePart(
    value={"type": "redacted_thinking", "data": "gAAA"}, tokens=0, provider="anthropic"
)
LONG = Message(
    role="system",
    content=(" ".join(f"word{number}" for number in range(1200)), CacheBreakpointPart()),
)


def said(*content: Any, calls: tuple[ToolCall, ...] = ()) -> Message:
    return Message(role="assistant", content=content, tool_calls=calls)


def results(*calls: ToolCall) -> list[Message]:
    return [Message(role="tool", tool_call_id=call.id, content=("x = 1",)) for call in calls]


def sent(server: Server, number: int = -1) -> Any:
    return server.requests[number].body


class TestReplies:
    def test_text_comes_out_as_it_was_said_and_in_pieces_before(self) -> None:
        with serve(script=[TEXT]) as server:
            answer = heard(server.anthropic_url)
        assert (answer.reply.message, answer.reply.finish) == (said(TEXT), "stop")
        assert "".join(answer.pieces) == TEXT
        assert len(answer.pieces) > 1

    def test_the_reply_is_the_same_for_a_caller_that_does_not_listen(self) -> None:
        with serve(script=[TEXT, TEXT]) as server:
            assert (
                heard(server.anthropic_url, on_text=None).reply == heard(server.anthropic_url).reply
            )

    def test_parallel_calls_keep_their_order_and_their_arguments_byte_for_byte(self) -> None:
        with serve(script=[said("I look into it.", calls=CALLS)]) as server:
            reply = heard(server.anthropic_url, tools=[READ]).reply
        assert (reply.message, reply.finish) == (said("I look into it.", calls=CALLS), "tool_calls")

    def test_a_call_without_arguments_has_an_empty_object(self) -> None:
        with serve(script=[ToolCall(id="a", name="read", arguments="")]) as server:
            assert heard(server.anthropic_url, tools=[READ]).reply.message.tool_calls == (
                ToolCall(id="a", name="read", arguments="{}"),
            )

    @pytest.mark.parametrize(
        ("stop_reason", "finish"),
        [
            ("end_turn", "stop"),
            ("stop_sequence", "stop"),
            ("max_tokens", "length"),
            ("model_context_window_exceeded", "length"),
            ("pause_turn", "length"),
            ("refusal", "content_filter"),
            ("something new", "stop"),
        ],
    )
    def test_why_it_ended_is_said(self, stop_reason: str, finish: str) -> None:
        with serve(script=[ScriptedReply(message=said("So far"), finish=stop_reason)]) as server:
            assert heard(server.anthropic_url).reply.finish == finish

    def test_a_reply_that_was_cut_within_a_call_says_so(self) -> None:
        cut = ToolCall(id="toolu_a", name="read", arguments='{"path": "a.p')
        with serve(script=[ScriptedReply(message=said(calls=(cut,)), finish="length")]) as server:
            reply = heard(server.anthropic_url, tools=[READ]).reply
        assert (reply.finish, reply.message.tool_calls) == ("length", (cut,))

    def test_the_request_has_the_provider_s_name_for_it(self) -> None:
        with serve(script=["one"]) as server:
            assert heard(server.anthropic_url).reply.request_id == "req_1"

    def test_citations_come_back_and_go_out_again(self) -> None:
        cited: Any = {
            "type": "char_location",
            "cited_text": "x",
            "document_index": 0,
            "start_char_index": 0,
            "end_char_index": 1,
        }
        events: list[Any] = [
            {
                "type": "message_start",
                "message": {"id": "m", "usage": {"input_tokens": 1, "output_tokens": 1}},
            },
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "text", "text": "", "citations": []},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "citations_delta", "citation": cited},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": "It is x."},
            },
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": 5},
            },
        ]
        more = [
            {
                "type": "content_block_start",
                "index": 1,
                "content_block": {"type": "text", "text": " Said."},
            }
        ]
        with serve(script=[stream_of(*events[:5], *more, events[5]), "Fine."]) as server:
            reply = heard(server.anthropic_url).reply
            heard(server.anthropic_url, [HELLO, reply.message, HELLO])
            blocks = sent(server)["messages"][1]["content"]
        assert blocks == [
            {"type": "text", "text": "It is x.", "citations": [cited]},
            {"type": "text", "text": " Said."},
        ]


class TestUsage:
    def test_input_tokens_are_all_of_them(self) -> None:
        usage = Usage(
            input_tokens=5_000, output_tokens=700, cached_tokens=4_000, written_tokens=900
        )
        with serve(script=[Reply(message=said("Done."), usage=usage, finish="stop")]) as server:
            assert heard(server.anthropic_url).reply.usage == usage

    def test_what_a_breakpoint_marks_is_written_once_and_read_from_then_on(self) -> None:
        with serve(script=["one", "two"]) as server:
            first = heard(server.anthropic_url, [LONG, HELLO]).reply
            second = heard(
                server.anthropic_url,
                [LONG, HELLO, first.message, Message(role="user", content=("And now?",))],
            ).reply
        assert first.usage.written_tokens > 1_024
        assert first.usage.cached_tokens == 0
        assert (second.usage.cached_tokens, second.usage.written_tokens) == (
            first.usage.written_tokens,
            0,
        )

    def test_without_breakpoints_nothing_is_cached(self) -> None:
        with serve(script=["one", "two"]) as server:
            for _ in range(2):
                usage = heard(
                    server.anthropic_url, [LONG, HELLO], cache_breakpoints=False
                ).reply.usage
                assert (usage.cached_tokens, usage.written_tokens) == (0, 0)


class TestThinking:
    def test_thoughts_come_back_and_go_out_again_as_they_were(self) -> None:
        message = said(THOUGHT, SEALED, "I read it.", calls=CALLS[:1])
        with serve(script=[message, "Done."]) as server:
            reply = heard(server.anthropic_url, tools=[READ]).reply
            heard(server.anthropic_url, [HELLO, reply.message, *results(CALLS[0])], tools=[READ])
            blocks = sent(server)["messages"][1]["content"]
            assert (
                server.stats.invalid,
                server.requests[1].checked and server.requests[1].checked.dropped,
            ) == (0, ())
        assert [block["type"] for block in blocks] == [
            "thinking",
            "redacted_thinking",
            "text",
            "tool_use",
        ]
        assert blocks[0]["thinking"] == cast("Any", THOUGHT.value)["thinking"]
        assert blocks[0]["signature"]
        assert blocks[1] == SEALED.value

    def test_thoughts_between_calls_keep_their_place(self) -> None:
        places = OpaquePart(value={"call": "toolu_a"}, provider="anthropic.call")
        with serve(script=[said(THOUGHT, places, THOUGHT, calls=CALLS[:1]), "Done."]) as server:
            reply = heard(server.anthropic_url, tools=[READ]).reply
            heard(server.anthropic_url, [HELLO, reply.message, *results(CALLS[0])], tools=[READ])
            assert [block["type"] for block in sent(server)["messages"][1]["content"]] == [
                "thinking",
                "tool_use",
                "thinking",
            ]
            assert server.stats.invalid == 0

    def test_the_tokens_of_all_thoughts_are_those_of_the_usage(self) -> None:
        with serve(script=[said(THOUGHT, SEALED, "Done.")]) as server:
            parts = heard(server.anthropic_url).reply.message.content
        assert [part.tokens for part in parts if isinstance(part, OpaquePart)] == [40, 0]

    def test_thoughts_whose_text_is_withheld_keep_their_signature(self) -> None:
        empty = OpaquePart(
            value={"type": "thinking", "thinking": ""}, tokens=12, provider="anthropic"
        )
        with serve(script=[said(empty, "I read it.", calls=CALLS[:1]), "Done."]) as server:
            reply = heard(server.anthropic_url, tools=[READ]).reply
            heard(server.anthropic_url, [HELLO, reply.message, *results(CALLS[0])], tools=[READ])
            thinking = sent(server)["messages"][1]["content"][0]
            assert server.stats.invalid == 0
        assert thinking["thinking"] == ""
        assert thinking["signature"]

    def test_where_the_conversation_before_them_has_changed_they_are_left_out(self) -> None:
        with serve(script=[said(THOUGHT, "I think so."), "Done."]) as server:
            reply = heard(server.anthropic_url, [HELLO]).reply
            heard(
                server.anthropic_url,
                [Message(role="user", content=("A summary.",)), reply.message, HELLO],
            )
            checked = server.requests[1].checked
        assert checked
        assert checked.dropped == ("messages.1.content.0",)

    def test_with_thinking_switched_off_none_are_sent(self) -> None:
        with serve(script=[said(THOUGHT, "I think so."), "Done."]) as server:
            reply = heard(server.anthropic_url, name="claude-haiku-5-5").reply
            heard(
                server.anthropic_url,
                [HELLO, reply.message, HELLO],
                name="claude-haiku-5-5",
                reasoning_effort="none",
            )
            assert sent(server)["thinking"] == {"type": "disabled"}
            assert [block["type"] for block in sent(server)["messages"][1]["content"]] == ["text"]

    def test_a_client_keeps_its_own_beta_headers(self) -> None:
        async def ask(url: str) -> None:
            async with client(
                url, default_headers={"anthropic-beta": "fast-mode-2026-02-01"}
            ) as over:
                await AnthropicModel(MODEL, client=over).complete([HELLO])

        with serve(script=["one"]) as server:
            asyncio.run(ask(server.anthropic_url))
            assert (
                server.requests[0].headers["anthropic-beta"]
                == "fast-mode-2026-02-01,thinking-binding-controls-2026-08-01"
            )


class TestEmptyReplies:
    def test_a_refusal_without_a_word_is_an_error_with_the_provider_s_explanation(self) -> None:
        delta = {
            "stop_reason": "refusal",
            "stop_details": {"type": "refusal", "category": "cyber", "explanation": "It may harm."},
        }
        with (
            serve(
                script=[
                    stream_of(
                        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 2}}
                    )
                ]
            ) as server,
            pytest.raises(EmptyReplyError, match="refused to reply: It may harm") as caught,
        ):
            heard(server.anthropic_url)
        assert (caught.value.finish, caught.value.usage) == (
            "refusal",
            Usage(input_tokens=0, output_tokens=2),
        )

    def test_thinking_alone_is_no_reply(self) -> None:
        with (
            serve(script=[ScriptedReply(message=said(THOUGHT), finish="length")]) as server,
            pytest.raises(EmptyReplyError, match=r"'max_tokens'.*more output tokens"),
        ):
            heard(server.anthropic_url)


class TestCounting:
    def test_the_provider_counts_the_whole_request(self) -> None:
        async def count(url: str, *, tools: Any = ()) -> int:
            async with client(url) as over:
                return await AnthropicModel(
                    MODEL, client=over, options={"reasoning_effort": "low"}
                ).count_tokens([LONG, HELLO], tools=tools)

        with serve() as server:
            bare, with_tools = (
                asyncio.run(count(server.anthropic_url)),
                asyncio.run(count(server.anthropic_url, tools=[READ])),
            )
            assert [exchange.path for exchange in server.requests] == [
                "/v1/messages/count_tokens"
            ] * 2
            assert server.stats.invalid == 0
            assert "max_tokens" not in sent(server)
        assert 1_200 < bare < with_tools

    def test_an_answer_without_a_number_is_an_error(self) -> None:
        async def count(url: str) -> int:
            async with client(url) as over:
                return await AnthropicModel(MODEL, client=over).count_tokens([HELLO])

        with (
            serve(faults={1: HttpAnswer(status=200, body={})}) as server,
            pytest.raises(EmptyReplyError, match="no number"),
        ):
            asyncio.run(count(server.anthropic_url))


class TestClients:
    def test_without_a_client_the_environment_says_where_to_ask(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with serve(script=["one", "two"]) as server:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.anthropic_url)
            monkeypatch.setenv("ANTHROPIC_API_KEY", "from the environment")
            model = AnthropicModel(MODEL, timeout=10, max_retries=0)

            async def ask() -> str:
                async with model:
                    return (await model.with_options(purpose="test").complete([HELLO])).message.text

            # Each in a loop of its own, as programs without one do it: the connection of the first
            # would be of no use to the second.
            assert [asyncio.run(ask()), asyncio.run(ask())] == ["one", "two"]
            headers = server.requests[1].headers
            # by the SDK's version
            assert headers.get("authorization", headers.get("x-api-key", "")).endswith(
                "from the environment"
            )
            assert server.requests[1].purpose == "test"

    def test_a_given_client_stays_open(self) -> None:
        with serve(script=["one", "two"]) as server:

            async def ask() -> list[str]:
                async with client(server.anthropic_url) as over:
                    async with AnthropicModel(MODEL, client=over) as model:
                        first = await model.complete([HELLO])
                    return [first.message.text, (await model.complete([HELLO])).message.text]

            assert asyncio.run(ask()) == ["one", "two"]

    def test_it_accepts_options_and_stays_as_it_is(self) -> None:
        model = AnthropicModel(MODEL, options={"max_output_tokens": 5})
        assert isinstance(model, AdjustableModel)
        assert model.with_options(tool_choice="none").options == {
            "max_output_tokens": 5,
            "tool_choice": "none",
        }
        assert model.options == {"max_output_tokens": 5}

    def test_a_synchronous_client_is_refused_at_once(self) -> None:
        with pytest.raises(TypeError, match=r"write AsyncAnthropic\(…\) instead of Anthropic\(…\)"):
            AnthropicModel(MODEL, client=anthropic.Anthropic(api_key="none"))  # type: ignore[arg-type]  # that is the point

    def test_what_has_no_form_is_refused_before_anything_is_sent(self) -> None:
        with serve() as server:
            with pytest.raises(EmitError, match="an image"):
                heard(
                    server.anthropic_url,
                    [Message(role="system", content=(ImagePart(url="https://example.org/a.png"),))],
                )
            assert server.stats.requests == 0

    def test_importing_the_provider_loads_no_sdk(self) -> None:
        code = "import sys, promptkit.providers.anthropic.client; print('anthropic' in sys.modules)"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout == "False\n"


class TestStopping:
    def test_a_cancelled_request_is_cancelled(self) -> None:
        with serve(script=[Hang(), "after"]) as server:

            async def ask() -> str:
                async with client(server.anthropic_url) as over:
                    model = AnthropicModel(MODEL, client=over)
                    task = asyncio.create_task(model.complete([HELLO]))
                    while not server.requests:  # noqa: ASYNC110  # it is another thread that knows
                        await asyncio.sleep(0.01)
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                    return (await model.complete([HELLO])).message.text

            assert asyncio.run(ask()) == "after"

    @pytest.mark.parametrize(
        "error",
        [ValueError("mine"), anthropic.AnthropicError("mine"), KeyboardInterrupt("mine")],
        ids=repr,
    )
    def test_what_the_listener_raises_comes_out_as_it_is(self, error: BaseException) -> None:
        def listen(_: str) -> None:
            raise error

        with serve(script=[TEXT]) as server, pytest.raises(type(error), match="mine"):
            heard(server.anthropic_url, on_text=listen)


def stream_of(*events: Any) -> HttpAnswer:
    """A stream with these events."""
    text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return HttpAnswer(status=200, body=text, headers={"Content-Type": "text/event-stream"})
