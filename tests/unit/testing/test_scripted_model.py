"""ScriptedModel: what it answers, what it records, what it counts, and when it fails."""

from __future__ import annotations

import asyncio
import pickle
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from promptkit import Message, ToolCall, ToolDefinition, Usage
from promptkit.providers import Model, Reply
from promptkit.testing import NoStepLeftError, Request, ScriptedModel, StepsLeftError, WordTokenizer
from promptkit.tokens import tokenizer_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.testing.scripted_model import Answer, Step

SYSTEM = Message(role="system", content=("You are terse.",))
QUESTION = Message(role="user", content=("Why is the sky blue?",))
CALL = ToolCall(id="c1", name="read", arguments='{"path": "a.py"}')
READ = ToolDefinition(name="read")


def ask(model: Model, *messages: Message, tools: Sequence[ToolDefinition] = ()) -> Reply:
    return asyncio.run(model.complete(messages, tools=tools))


def answer(step: Step) -> Reply:
    with ScriptedModel([step]) as model:
        return ask(model, SYSTEM, QUESTION)


class TestSteps:
    def test_text_is_an_assistant_message(self) -> None:
        made = answer("Rayleigh scattering.")
        assert made.message == Message(role="assistant", content=("Rayleigh scattering.",))
        assert made.finish == "stop"

    def test_no_text_is_an_empty_message(self) -> None:
        assert answer("").message == Message(role="assistant")

    @pytest.mark.parametrize("step", [CALL, [CALL], (CALL, ToolCall(id="c2", name="read"))])
    def test_calls_are_a_message_that_waits_for_tools(
        self, step: ToolCall | Sequence[ToolCall]
    ) -> None:
        made = answer(step)
        assert made.message == Message(
            role="assistant", tool_calls=(step,) if isinstance(step, ToolCall) else tuple(step)
        )
        assert made.finish == "tool_calls"

    def test_a_message_is_sent_as_it_is(self) -> None:
        message = Message(role="assistant", content=("I look.",), tool_calls=(CALL,))
        made = answer(message)
        assert made.message is message
        assert made.finish == "tool_calls"

    def test_a_reply_is_sent_as_it_is(self) -> None:
        reply = Reply(
            message=Message(role="assistant", content=("Ray",)),
            usage=Usage(input_tokens=9_000),
            finish="length",
        )
        assert answer(reply) is reply

    @pytest.mark.parametrize("error", [TimeoutError("too slow"), asyncio.CancelledError()])
    def test_an_error_is_raised(self, error: BaseException) -> None:
        with pytest.raises(type(error)) as caught:
            answer(error)
        assert caught.value is error

    @pytest.mark.parametrize("made", ["yes", CALL, Message(role="assistant")])
    def test_a_function_answers_by_the_request(self, made: Answer) -> None:
        seen: list[Request] = []

        def step(request: Request) -> Answer:
            seen.append(request)
            return made

        assert answer(step) == answer(made)
        assert seen == [Request(messages=(SYSTEM, QUESTION))]

    def test_a_function_may_be_async_and_may_raise(self) -> None:
        async def step(request: Request) -> Answer:
            await asyncio.sleep(0)
            return LookupError(request.messages[-1].text)

        with pytest.raises(LookupError, match="Why is the sky blue"):
            answer(step)

    @pytest.mark.parametrize(
        "step", [None, 3, [], [CALL, "text"], QUESTION, {"role": "assistant"}, b"text"]
    )
    # Any stands for what a checker would refuse
    def test_anything_else_is_refused_when_the_model_is_made(self, step: Any) -> None:
        with pytest.raises(TypeError, match="a step is text, a ToolCall") as caught:
            ScriptedModel([step])
        assert repr(step) in str(caught.value)

    def test_what_a_function_returns_is_looked_at_too(self) -> None:
        def nothing(_: Request) -> Any:  # Any: what a checker would refuse
            return None

        with pytest.raises(TypeError, match="not None"):
            answer(nothing)

    def test_steps_are_taken_in_order_even_by_requests_at_once(self) -> None:
        async def slow(_: Request) -> Answer:
            await asyncio.sleep(0.01)
            return "first"

        async def both(model: Model) -> list[str]:
            replies = await asyncio.gather(model.complete([QUESTION]), model.complete([QUESTION]))
            return [reply.message.text for reply in replies]

        with ScriptedModel([slow, "second"]) as model:
            assert asyncio.run(both(model)) == ["first", "second"]


class TestRequests:
    def test_are_recorded_as_they_were_sent(self) -> None:
        with ScriptedModel(["a", "b"]) as model:
            history = [QUESTION]
            asyncio.run(model.complete(history, tools=[READ]))
            history.append(Message(role="assistant", content=("a",)))
            asyncio.run(model.complete(history))
        assert model.requests == [
            Request(messages=(QUESTION,), tools=(READ,)),
            Request(messages=(QUESTION, Message(role="assistant", content=("a",)))),
        ]

    def test_show_messages_calls_and_tools_in_a_line_each(self) -> None:
        asked = Message(role="assistant", content=("I look.",), tool_calls=(CALL,))
        result = Message(role="tool", content=("x = 1\n" * 200,), tool_call_id="c1")
        lines = str(Request(messages=(QUESTION, asked, result), tools=(READ,))).splitlines()
        assert lines[:2] == [
            "  0  user: Why is the sky blue?",
            '  1  assistant: I look. → read {"path": "a.py"}',
        ]
        assert lines[2].startswith("  2  tool (c1): x = 1 x = 1")
        assert len(lines[2]) < 200
        assert lines[3:] == ["  tools: read"]

    def test_of_many_messages_show_the_first_and_the_last(self) -> None:
        many = tuple(Message(role="user", content=(f"turn {index}",)) for index in range(5_000))
        lines = str(Request(messages=many)).splitlines()
        assert len(lines) == 13
        assert lines[5:8] == ["  5  user: turn 5", "  …  4,988 more", "  4994  user: turn 4994"]


class TestUsage:
    def test_is_counted_one_token_a_word(self) -> None:
        assert answer("Rayleigh scattering.").usage == Usage(input_tokens=8, output_tokens=2)

    def test_is_counted_by_the_tokenizer_given(self) -> None:
        with ScriptedModel(
            ["two words", CALL], tokenizer=WordTokenizer(per_message=10, per_call=5)
        ) as model:
            assert ask(model, SYSTEM, QUESTION).usage == Usage(input_tokens=28, output_tokens=12)
            assert ask(model, QUESTION).usage == Usage(input_tokens=15, output_tokens=5)

    def test_holds_what_tools_cost(self) -> None:
        tokenizer = tokenizer_for("gpt-4o")
        with ScriptedModel(["yes", "no"], tokenizer=tokenizer) as model:
            with_tools = ask(model, SYSTEM, QUESTION, tools=[READ]).usage.input_tokens
            without = ask(model, SYSTEM, QUESTION).usage.input_tokens
        assert (
            with_tools - without
            == tokenizer.count_overhead([READ], system=SYSTEM.text).tokens
            - tokenizer.count_overhead(system=SYSTEM.text).tokens
        )
        assert with_tools > without

    def test_of_a_request_sent_twice_is_all_cached(self) -> None:
        with ScriptedModel(["yes", "no"], tokenizer=tokenizer_for("gpt-4o")) as model:
            first, second = (ask(model, SYSTEM, QUESTION, tools=[READ]).usage for _ in range(2))
        assert (first.cached_tokens, second.input_tokens, second.cached_tokens) == (
            0,
            first.input_tokens,
            first.input_tokens,
        )

    def test_of_a_turn_and_its_answer_is_the_next_input(self) -> None:
        more = Message(role="user", content=("And at night?",))
        with ScriptedModel(
            ["It scatters.", "It is black."], tokenizer=WordTokenizer(per_message=4)
        ) as model:
            first = ask(model, QUESTION)
            second = ask(model, QUESTION, first.message, more)
        assert (
            second.usage.input_tokens
            == first.usage.input_tokens + first.usage.output_tokens + 4 + 3
        )

    def test_says_what_an_earlier_request_began_with(self) -> None:
        other = Message(role="user", content=("Something quite different here.",))
        with ScriptedModel(["a", "b", "c", "d", "e"]) as model:
            cached = [
                ask(model, *messages, tools=tools).usage.cached_tokens
                for messages, tools in (
                    ((SYSTEM, QUESTION), ()),
                    ((SYSTEM, QUESTION, other), ()),
                    ((SYSTEM, other), ()),
                    ((SYSTEM, QUESTION, QUESTION), ()),
                    ((SYSTEM, QUESTION), (READ,)),
                )
            ]
        assert cached == [0, 8, 3, 8, 0]

    def test_can_be_set_for_all_steps_and_for_one(self) -> None:
        full = Usage(input_tokens=120_000, output_tokens=50)
        own = Reply(message=Message(role="assistant"), usage=Usage(input_tokens=1), finish="stop")
        with ScriptedModel(["a", own], usage=full) as model:
            assert ask(model, QUESTION).usage is full
            assert ask(model, QUESTION).usage == Usage(input_tokens=1)

    def test_counts_every_message_once_however_often_it_is_sent(self) -> None:
        counted: list[str] = []

        class Counting(WordTokenizer):
            def count(self, text: str) -> int:
                counted.append(text)
                return super().count(text)

        history = [Message(role="user", content=(f"turn {index}",)) for index in range(30)]
        with ScriptedModel(["ok"] * 30, tokenizer=Counting()) as model:
            for length in range(1, 31):
                ask(model, *history[:length])
        assert [text for text in counted if text != "ok"] == [message.text for message in history]


class TestTheScriptAsAWhole:
    def test_asking_for_more_fails_and_shows_the_request(self) -> None:
        def run() -> None:
            with model:
                ask(model, QUESTION)
                ask(model, QUESTION, Message(role="user", content=("Once more.",)), tools=[READ])

        model = ScriptedModel(["a"])
        with pytest.raises(NoStepLeftError) as caught:
            run()
        assert str(caught.value).splitlines() == [
            "ScriptedModel received another request, but its only step is used up. The request:",
            "  0  user: Why is the sky blue?",
            "  1  user: Once more.",
            "  tools: read",
        ]
        assert caught.value.request is model.requests[-1]

    def test_asking_for_more_fails_even_if_the_error_is_swallowed(self) -> None:
        with (
            pytest.raises(NoStepLeftError, match="its 0 steps are used up"),
            ScriptedModel([]) as model,
            suppress(Exception),
        ):
            ask(model, QUESTION)

    def test_steps_that_were_not_used_fail_and_are_shown(self) -> None:
        with pytest.raises(StepsLeftError) as caught, ScriptedModel(["a", "b", CALL]) as model:
            ask(model, QUESTION)
        lines = str(caught.value).splitlines()
        assert lines[:2] == [
            "ScriptedModel received 1 request, but 2 of its steps are left:",
            "  'b'",
        ]
        assert lines[2].startswith("  ToolCall(id='c1', name='read'")
        assert lines[2:][-1] == "  0  user: Why is the sky blue?"
        assert caught.value.steps == ("b", CALL)

    def test_a_model_that_was_never_asked_fails_too(self) -> None:
        with pytest.raises(StepsLeftError, match="received 0 requests"), ScriptedModel(["a"]):
            pass

    def test_check_does_without_a_block(self) -> None:
        model = ScriptedModel(["a"])
        with pytest.raises(StepsLeftError):
            model.check()
        ask(model, QUESTION)
        model.check()
        with pytest.raises(NoStepLeftError):
            ask(model, QUESTION)
        with pytest.raises(NoStepLeftError):
            model.check()

    def test_a_test_that_failed_keeps_its_own_reason(self) -> None:
        with pytest.raises(LookupError), ScriptedModel(["a"]):
            raise LookupError("the real reason")

    def test_errors_are_failed_assertions_and_travel_between_processes(self) -> None:
        for error in (
            NoStepLeftError(Request(messages=(QUESTION,)), 1),
            StepsLeftError(["a"], [Request(messages=(QUESTION,))]),
        ):
            assert isinstance(error, AssertionError)
            assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301  # made here


def test_has_a_name_as_every_model_has() -> None:
    model: Model = ScriptedModel([], name="gpt-5")
    assert model.name == "gpt-5"
    assert ScriptedModel([]).name == "scripted"
