"""A model behind OpenAI's protocol, asked through the real SDK over HTTP: what it answers, streamed or not, on both APIs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx2
import openai
import pytest

from promptkit import ImagePart, Message, OpaquePart, ToolCall, Usage
from promptkit.errors import EmitError
from promptkit.providers import Reply
from promptkit.providers.openai.api import build_responses_body, parse_responses_reply
from promptkit.providers.openai.client import OpenAIModel
from promptkit.testing.server import Delay, Hang, HttpAnswer, ScriptedReply, serve
from promptkit.tokens import tokenizer_for
from tests.unit.providers.openai.asking import HELLO, READ, Api, client, heard

if TYPE_CHECKING:
    from promptkit.messages import Json
    from promptkit.testing.server import Exchange

BOTH = pytest.mark.parametrize("api", ["chat", "responses"])
EITHER = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])

ARGUMENTS = '{ "path" :\t"gr\\u00f6\\u00dfe.py", "n": 12345678901234567890123 }'
CALLS = (
    ToolCall(id="call_a", name="read", arguments=ARGUMENTS),
    ToolCall(id="call_b", name="read", arguments="not json"),
)
TEXT = "The parser scatters its state. 日本語 👩‍👩‍👧\n\nIt should not.\u2028"
THOUGHT = OpaquePart(
    value={"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    tokens=40,
    provider="responses",
)


@BOTH
@EITHER
class TestReplies:
    def test_text_comes_out_as_it_was_said(self, api: Api, stream: bool) -> None:
        with serve(script=[TEXT]) as server:
            answer = heard(server.url, api=api, stream=stream)
        assert answer.reply == Reply(
            message=Message(role="assistant", content=(TEXT,)),
            usage=Usage(input_tokens=9, output_tokens=tokenizer_for("gpt-4.1").count(TEXT)),
            finish="stop",
        )
        assert "".join(answer.pieces) == (TEXT if stream else "")
        assert len(answer.pieces) != 1  # a stream of one piece would prove nothing

    def test_parallel_calls_keep_their_order_and_their_arguments_byte_for_byte(
        self, api: Api, stream: bool
    ) -> None:
        with serve(script=[CALLS]) as server:
            reply = heard(server.url, api=api, stream=stream, tools=[READ]).reply
        assert reply.message == Message(role="assistant", tool_calls=CALLS)
        assert reply.finish == "tool_calls"

    def test_text_and_calls_come_together(self, api: Api, stream: bool) -> None:
        message = Message(role="assistant", content=("I look into it.",), tool_calls=CALLS[:1])
        with serve(script=[message]) as server:
            answer = heard(server.url, api=api, stream=stream, tools=[READ])
        assert answer.reply.message == message
        assert "".join(answer.pieces) == ("I look into it." if stream else "")

    @pytest.mark.parametrize("finish", ["stop", "length", "content_filter"])
    def test_why_it_ended_is_said(self, api: Api, stream: bool, finish: str) -> None:
        with serve(
            script=[
                ScriptedReply(message=Message(role="assistant", content=("So far",)), finish=finish)
            ]
        ) as server:
            assert heard(server.url, api=api, stream=stream).reply.finish == finish

    def test_what_it_cost_is_what_the_provider_says(self, api: Api, stream: bool) -> None:
        usage = Usage(input_tokens=5000, output_tokens=700, cached_tokens=4096)
        with serve(
            script=[
                Reply(
                    message=Message(role="assistant", content=("Done.",)),
                    usage=usage,
                    finish="stop",
                )
            ]
        ) as server:
            assert heard(server.url, api=api, stream=stream).reply.usage == usage

    @pytest.mark.spec("E44")
    # the case's number
    def test_cached_tokens_are_a_part_of_the_input_and_never_more(
        self, api: Api, stream: bool
    ) -> None:
        usage = Usage(input_tokens=100, output_tokens=1, cached_tokens=900)
        with serve(
            script=[
                Reply(
                    message=Message(role="assistant", content=("Done.",)),
                    usage=usage,
                    finish="stop",
                )
            ]
        ) as server:
            assert heard(server.url, api=api, stream=stream).reply.usage == Usage(
                input_tokens=100, output_tokens=1, cached_tokens=100
            )

    def test_a_refusal_is_text_that_was_withheld(self, api: Api, stream: bool) -> None:
        refusal = OpaquePart(value={"type": "refusal", "refusal": "I cannot help with that."})
        with serve(script=[Message(role="assistant", content=(refusal,))]) as server:
            answer = heard(server.url, api=api, stream=stream)
        assert (answer.reply.message.text, answer.reply.finish) == (
            "I cannot help with that.",
            "content_filter",
        )
        assert "".join(answer.pieces) == ("I cannot help with that." if stream else "")

    def test_a_reply_can_be_sent_back_with_the_results(self, api: Api, stream: bool) -> None:
        with serve(script=[CALLS, "Both are fine."]) as server:
            first = heard(server.url, api=api, stream=stream, tools=[READ]).reply
            results = [
                Message(role="tool", tool_call_id=call.id, content=("x = 1",))
                for call in first.message.tool_calls
            ]
            second = heard(
                server.url, [HELLO, first.message, *results], api=api, stream=stream, tools=[READ]
            ).reply
            assert server.stats.invalid == 0
        assert second.message.text == "Both are fine."

    def test_what_was_sent_before_is_cached(self, api: Api, stream: bool) -> None:
        long = Message(role="user", content=(" ".join(f"word{number}" for number in range(1200)),))
        with serve(script=["one", "two"]) as server:
            first = heard(server.url, [long], api=api, stream=stream).reply
            messages = [long, first.message, Message(role="user", content=("And now?",))]
            second = heard(server.url, messages, api=api, stream=stream).reply
        assert first.usage.cached_tokens == 0
        assert second.usage.cached_tokens == first.usage.input_tokens // 128 * 128 > 1024


@pytest.mark.parametrize(
    "usage",
    [None, {}, {"prompt_tokens": None}, {"prompt_tokens": "12"}, {"prompt_tokens": -3}],
    ids=str,
)
def test_a_provider_that_says_nothing_of_the_cost_gives_zeros(usage: Any) -> None:
    choice: Json = {"message": {"content": "Hi."}, "finish_reason": "stop"}
    with serve(
        script=[HttpAnswer(status=200, body={"choices": [choice], "usage": usage})]
    ) as server:
        assert heard(server.url).reply.usage == Usage(input_tokens=0)


class TestBothWays:
    @BOTH
    @pytest.mark.parametrize(
        "answer",
        [
            TEXT,
            CALLS,
            Message(role="assistant", content=("a", THOUGHT, "b"), tool_calls=CALLS),
            Message(
                role="assistant",
                content=(
                    OpaquePart(value={"phase": "commentary"}, provider="responses.message"),
                    "Looking.",
                ),
                tool_calls=CALLS,
            ),
            ScriptedReply(message=Message(role="assistant", content=("cut",)), finish="length"),
            "x" * 5000,
        ],
        ids=["text", "calls", "all", "phase", "length", "long"],
    )
    def test_a_stream_ends_in_the_reply_that_comes_without_one(self, api: Api, answer: Any) -> None:
        with serve(script=[answer, answer]) as server:
            whole = heard(server.url, api=api, tools=[READ]).reply
            streamed = heard(server.url, api=api, tools=[READ], stream=True)
        assert streamed.reply == whole
        assert "".join(streamed.pieces) == whole.message.text

    def test_parallel_calls_of_one_index_are_told_apart_by_their_ids(self) -> None:
        calls = [
            {
                "index": 0,
                "id": f"c{n}",
                "type": "function",
                "function": {"name": "read", "arguments": f'{{"n":{n}}}'},
            }
            for n in (1, 2)
        ]
        chunks: list[Any] = [
            {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]} for call in calls
        ]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
        with serve(script=[stream_of(*chunks)]) as server:
            reply = heard(server.url, tools=[READ], stream=True).reply
        assert [(call.id, call.arguments) for call in reply.message.tool_calls] == [
            ("c1", '{"n":1}'),
            ("c2", '{"n":2}'),
        ]

    def test_items_stand_in_for_the_output_that_the_last_event_lacks(self) -> None:
        item: Any = {
            "type": "message",
            "id": "m",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hi.", "annotations": list[str]()}],
        }
        end: Any = {
            "type": "response.completed",
            "response": {"id": "r", "output": [], "status": "completed"},
        }
        with serve(
            script=[stream_of({"type": "response.output_item.done", "item": item}, end)]
        ) as server:
            assert heard(server.url, api="responses", stream=True).reply.message.text == "Hi."

    def test_an_incomplete_response_without_a_reason_ran_out_of_room(self) -> None:
        item: Any = {
            "type": "message",
            "id": "m",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "So far", "annotations": list[str]()}],
        }
        with serve(
            script=[
                HttpAnswer(status=200, body={"id": "r", "status": "incomplete", "output": [item]})
            ]
        ) as server:
            assert heard(server.url, api="responses").reply.finish == "length"


class TestOpaqueItems:
    @pytest.mark.spec("E14")
    @EITHER
    # the case's number
    def test_encrypted_thoughts_come_back_and_go_out_again_as_they_were(self, stream: bool) -> None:
        message = Message(role="assistant", content=(THOUGHT,), tool_calls=CALLS[:1])
        with serve(script=[message, "Done."]) as server:
            reply = heard(
                server.url, api="responses", stream=stream, tools=[READ], name="gpt-5"
            ).reply
            assert reply.message == message  # the tokens of the thoughts are those of the usage
            result = Message(role="tool", tool_call_id="call_a", content=("x = 1",))
            heard(
                server.url,
                [HELLO, reply.message, result],
                api="responses",
                stream=stream,
                tools=[READ],
                name="gpt-5",
            )
            sent: Any = server.requests[1].body["input"]
            assert server.stats.invalid == 0
        assert [item["type"] for item in sent] == [
            "message",
            "reasoning",
            "function_call",
            "function_call_output",
        ]
        assert sent[1] == THOUGHT.value

    def test_a_thought_that_is_stored_nowhere_is_not_kept(self) -> None:
        bare = OpaquePart(
            value={"type": "reasoning", "id": "rs_1", "summary": []}, provider="responses"
        )
        with serve(script=[Message(role="assistant", content=(bare, "Done."))]) as server:
            assert heard(server.url, api="responses").reply.message.content == ("Done.",)

    def test_what_the_provider_compacted_is_kept_without_what_it_would_not_take_back(self) -> None:
        value = {
            "type": "compaction",
            "id": "cmp_1",
            "encrypted_content": "gAAA",
            "created_by": "server",
        }
        with serve(
            script=[
                Message(
                    role="assistant",
                    content=(OpaquePart(value=value, provider="responses"), "Done."),
                )
            ]
        ) as server:
            kept, _ = heard(server.url, api="responses").reply.message.content
        assert isinstance(kept, OpaquePart)
        assert kept.value == {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"}

    @pytest.mark.spec("E66")
    def test_items_of_one_api_do_not_go_to_another(self) -> None:  # the case's number
        message = Message(role="assistant", content=(THOUGHT, "I look into it."))
        with serve(script=["Fine."]) as server:
            heard(server.url, [HELLO, message, HELLO], api="chat")
            assert server.requests[0].messages[1] == {
                "role": "assistant",
                "content": "I look into it.",
            }

    @EITHER
    def test_the_phase_of_a_message_goes_out_again(self, stream: bool) -> None:
        said = Message(
            role="assistant",
            content=(
                OpaquePart(value={"phase": "commentary"}, provider="responses.message"),
                "I look.",
            ),
            tool_calls=CALLS[:1],
        )
        with serve(script=[said, "Done.", "Done."]) as server:
            reply = heard(server.url, api="responses", stream=stream, tools=[READ]).reply
            conversation = [
                HELLO,
                Message(role="assistant", content=("Plain.",)),
                HELLO,
                reply.message,
                Message(role="tool", tool_call_id="call_a"),
            ]
            heard(server.url, conversation, api="responses", stream=stream, tools=[READ])
            heard(server.url, conversation, api="chat", tools=[READ])
            sent: Any = server.requests[1].body["input"]
            assert "commentary" not in json.dumps(server.requests[2].body)
        assert [item.get("phase") for item in sent] == [None, None, None, "commentary", None, None]

    def test_each_message_of_a_reply_keeps_its_own_phase(self) -> None:
        output: list[Json] = [
            {"type": "message", "phase": phase, "content": [{"type": "output_text", "text": text}]}
            for phase, text in (("commentary", "I look."), ("final_answer", "Done."), ("empty", ""))
        ]
        reply = parse_responses_reply({"output": output}, "gpt-5").message
        sent = build_responses_body("gpt-5", [reply], (), {})["input"]
        assert [(item["phase"], item["content"]) for item in sent] == [
            ("commentary", "I look."),
            ("final_answer", "Done."),
        ]


class TestClients:
    def test_without_a_client_the_environment_says_where_to_ask(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with serve(script=["one", "two"]) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            monkeypatch.setenv("OPENAI_API_KEY", "from the environment")
            model = OpenAIModel("gpt-4.1", timeout=10, max_retries=0)

            async def ask() -> str:
                async with model:
                    return (await model.complete([HELLO])).message.text

            # Each in a loop of its own, as programs without one do it: the connection of the first
            # would be of no use to the second.
            assert [asyncio.run(ask()), asyncio.run(ask())] == ["one", "two"]
            assert server.requests[1].headers["authorization"] == "Bearer from the environment"

    def test_one_loop_keeps_its_connection(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ports: set[int] = set()
        with serve(after=lambda exchange: "ok") as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            monkeypatch.setenv("OPENAI_API_KEY", "none")

            async def ask() -> None:
                async with OpenAIModel("gpt-4.1") as model:
                    for _ in range(3):
                        await model.with_options(prompt_cache_key="k").complete([HELLO])

            asyncio.run(ask())
            ports |= {exchange.client[1] for exchange in server.requests}
        assert len(ports) == 1

    def test_a_given_client_stays_open(self) -> None:
        with serve(script=["one", "two"]) as server:

            async def ask() -> list[str]:
                async with client(server.url) as over:
                    async with OpenAIModel("gpt-4.1", client=over) as model:
                        first = await model.complete([HELLO])
                    return [first.message.text, (await model.complete([HELLO])).message.text]

            assert asyncio.run(ask()) == ["one", "two"]

    def test_an_unknown_api_is_refused_at_once(self) -> None:
        with pytest.raises(ValueError, match="'completions'"):
            OpenAIModel("gpt-4.1", api="completions")  # type: ignore[arg-type]  # that is the point

    def test_options_are_added_to_those_that_are_there_and_the_model_stays_as_it_is(self) -> None:
        model = OpenAIModel("gpt-4.1", options={"temperature": 1, "prompt_cache_key": "a"})
        assert model.with_options(temperature=0, max_output_tokens=5).options == {
            "temperature": 0,
            "prompt_cache_key": "a",
            "max_output_tokens": 5,
        }
        assert model.options == {"temperature": 1, "prompt_cache_key": "a"}

    def test_what_has_no_form_is_refused_before_anything_is_sent(self) -> None:
        with serve() as server:
            with pytest.raises(EmitError, match="an image"):
                heard(
                    server.url,
                    [Message(role="system", content=(ImagePart(url="https://example.org/a.png"),))],
                )
            assert server.stats.requests == 0

    def test_importing_the_provider_loads_no_sdk(self) -> None:
        code = "import sys, promptkit.providers.openai.client; print('openai' in sys.modules)"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout == "False\n"


class TestStopping:
    @BOTH
    @EITHER
    def test_a_cancelled_request_is_cancelled(self, api: Api, stream: bool) -> None:
        with serve(script=[Hang(), "after"]) as server:

            async def ask() -> str:
                async with client(server.url) as over:
                    model = OpenAIModel("gpt-4.1", api=api, client=over)
                    asked = model.with_options(on_text=print) if stream else model
                    task = asyncio.create_task(asked.complete([HELLO]))
                    while not server.requests:  # noqa: ASYNC110  # it is another thread that knows
                        await asyncio.sleep(0.01)
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                    return (await model.complete([HELLO])).message.text

            assert asyncio.run(ask()) == "after"

    @BOTH
    @pytest.mark.parametrize(
        "error",
        [ValueError("mine"), openai.OpenAIError("mine"), KeyboardInterrupt("mine")],
        ids=repr,
    )
    def test_what_the_listener_raises_comes_out_as_it_is(
        self, api: Api, error: BaseException
    ) -> None:
        def listen(_: str) -> None:
            raise error

        with serve(script=[TEXT]) as server, pytest.raises(type(error), match="mine"):
            heard(server.url, api=api, on_text=listen)

    @BOTH
    def test_a_stream_that_is_left_gives_its_connection_back(self, api: Api) -> None:
        def listen(_: str) -> None:
            raise ZeroDivisionError

        async def ask(url: str) -> str:
            # it is no https
            one = openai.DefaultAsyncHttpxClient(
                limits=httpx2.Limits(max_connections=1), verify=False
            )
            async with openai.AsyncOpenAI(
                base_url=url, api_key="none", max_retries=0, timeout=5, http_client=one
            ) as over:
                model = OpenAIModel("gpt-4.1", api=api, client=over)
                with pytest.raises(ZeroDivisionError) as caught:
                    await model.with_options(on_text=listen).complete([HELLO])
                reply = await model.complete([HELLO])
                del caught  # until here it kept what it came through from being collected
                return reply.message.text

        with serve(script=["x" * 5000, "after"]) as server:
            assert asyncio.run(ask(server.url)) == "after"

    @BOTH
    def test_twenty_at_once_get_their_own_answers(self, api: Api) -> None:
        def answer(exchange: Exchange) -> Delay:
            return Delay(seconds=0.05, answer=f"answer to {exchange.text}")

        with serve(after=answer) as server:

            async def ask() -> list[str]:
                async with client(server.url) as over:
                    model = OpenAIModel("gpt-4.1", api=api, client=over)
                    messages = [
                        Message(role="user", content=(f"question {number}",))
                        for number in range(25)
                    ]
                    return [
                        reply.message.text
                        for reply in await asyncio.gather(
                            *(model.complete([message]) for message in messages)
                        )
                    ]

            assert asyncio.run(ask()) == [f"answer to question {number}" for number in range(25)]


def stream_of(*values: dict[str, Any]) -> HttpAnswer:
    """A stream that the server would not write itself."""
    body = "".join(f"data: {json.dumps(value)}\n\n" for value in values) + "data: [DONE]\n\n"
    return HttpAnswer(status=200, body=body, headers={"Content-Type": "text/event-stream"})


def test_a_synchronous_client_is_refused_with_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"write AsyncOpenAI\(…\) instead of OpenAI\(…\)"):
        OpenAIModel("gpt-5", client=openai.OpenAI(api_key="none"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # wrong on purpose
