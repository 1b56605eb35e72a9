"""A window takes messages and replies as providers' clients have them: dicts and objects of their SDKs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from anthropic.types import Message as AnthropicReply
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from promptkit import ContextWindow, Message, ToolCall, Usage
from promptkit.errors import EmptyReplyError, InvalidArgumentError
from promptkit.messages import OpaquePart
from promptkit.transcript import Edit, MessageEntry
from promptkit.wire import to_chat, to_responses

CALL: dict[str, Any] = {
    "id": "c",
    "type": "function",
    "function": {"name": "read", "arguments": "{}"},
}
TOOL_USE: dict[str, Any] = {"type": "tool_use", "id": "d", "name": "read", "input": {}}
RESULT_AND_TEXT: list[dict[str, Any]] = [
    {"type": "tool_result", "tool_use_id": "d", "content": "x"},
    {"type": "text", "text": "So?"},
]
QUESTION: dict[str, Any] = {"role": "user", "content": "Is it sound?"}


def window() -> ContextWindow:
    return ContextWindow(model="gpt-4.1")


def completion(message: dict[str, Any]) -> ChatCompletion:
    return ChatCompletion.model_validate(
        {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [
                {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}
            ],
            "usage": {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "total_tokens": 11,
                "prompt_tokens_details": {"cached_tokens": 4},
            },
        }
    )


class TestAdd:
    def test_takes_messages_of_all_three_formats(self) -> None:
        each = window()
        each.add(QUESTION, {"role": "assistant", "content": None, "tool_calls": [CALL]})
        each.add({"type": "function_call_output", "call_id": "c", "output": "def parse()"})
        each.add({"role": "assistant", "content": [TOOL_USE]})
        each.add({"role": "user", "content": RESULT_AND_TEXT})
        assert each.view.messages == (
            Message(role="user", content="Is it sound?"),
            Message(role="assistant", tool_calls=[ToolCall(id="c", name="read")]),
            Message(role="tool", tool_call_id="c", content="def parse()"),
            Message(role="assistant", tool_calls=[ToolCall(id="d", name="read")]),
            Message(role="tool", tool_call_id="d", content="x"),
            Message(role="user", content="So?"),
        )

    def test_reads_items_of_one_answer_together(self) -> None:
        each = window()
        call = {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"}
        each.add({"type": "message", "role": "assistant", "content": "I read it."}, call)
        assert [entry.message for entry in each.transcript.entries] == [
            Message(
                role="assistant", content="I read it.", tool_calls=[ToolCall(id="c", name="read")]
            )
        ]

    def test_says_what_a_wrong_message_must_be(self) -> None:
        with pytest.raises(
            TypeError,
            match=r"takes messages such as Message\(role='user', content='Hello'\), dicts and SDK objects, not 'Hello'",
        ):
            window().add("Hello")  # type: ignore[arg-type]  # what is tested
        with pytest.raises(InvalidArgumentError, match="must have the role"):
            window().add({"role": "speaker", "content": "Hello"})


class TestOrigins:
    def test_are_the_given_dicts(self) -> None:
        each = window()
        each.sync([QUESTION])
        (origin,) = asyncio.run(each.request()).origins
        assert origin is QUESTION

    def test_are_none_for_messages_alone_and_where_one_dict_is_several_messages(self) -> None:
        each = window()
        each.add(Message(role="user", content="Hello"))
        each.add(
            Message(role="assistant", content=[], tool_calls=[TOOL_USE]),
            {"role": "user", "content": RESULT_AND_TEXT},
        )
        assert set(asyncio.run(each.request()).origins) == {None}

    def test_are_none_for_messages_that_an_edit_changed_and_for_results_that_the_caller_does_not_have(
        self,
    ) -> None:
        each = window()
        given = [QUESTION, {"role": "assistant", "content": None, "tool_calls": [CALL]}, QUESTION]
        entries = each.sync(given)
        each.transcript.append(Edit(target=entries[0].id, content=("Is it?",), reason="pruned"))
        assert asyncio.run(each.request()).origins == (None, given[1], None, given[2])

    def test_that_are_given_must_be_as_many_as_the_messages(self) -> None:
        with pytest.raises(InvalidArgumentError, match="1 messages have 2 origins"):
            window().add(QUESTION, origins=[1, 2])


class TestReplies:
    def test_of_the_sdks_are_read_with_their_usage(self) -> None:
        response = Response.model_validate(
            {
                "id": "r",
                "created_at": 0,
                "model": "m",
                "object": "response",
                "status": "completed",
                "parallel_tool_calls": True,
                "tool_choice": "auto",
                "tools": [],
                "output": [
                    {
                        "type": "message",
                        "id": "m",
                        "role": "assistant",
                        "status": "completed",
                        "content": [{"type": "output_text", "text": "Yes.", "annotations": []}],
                    }
                ],
                "usage": {
                    "input_tokens": 9,
                    "output_tokens": 2,
                    "total_tokens": 11,
                    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
                    "output_tokens_details": {"reasoning_tokens": 0},
                },
            }
        )
        message = AnthropicReply.model_validate(
            {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "model": "claude",
                "content": [{"type": "text", "text": "Yes."}],
                "stop_reason": "end_turn",
                "usage": {"input_tokens": 5, "cache_read_input_tokens": 4, "output_tokens": 2},
            }
        )
        for reply in (
            completion({"content": "Yes."}),
            completion({"content": "Yes."}).model_dump(),
            response,
            message,
        ):
            each = window()
            each.add(QUESTION)
            asyncio.run(each.request())
            payload = each.add_reply(reply).payload
            assert isinstance(payload, MessageEntry)
            assert (payload.message.role, payload.message.text) == ("assistant", "Yes.")
            assert (payload.usage, payload.finish) == (
                Usage(input_tokens=9, output_tokens=2, cached_tokens=4),
                "stop",
            )

    def test_of_anthropic_count_their_thinking_as_the_provider_does(self) -> None:
        thought = {"type": "thinking", "thinking": "", "signature": "x"}
        usage = {
            "input_tokens": 5,
            "cache_creation_input_tokens": 3,
            "output_tokens": 90,
            "output_tokens_details": {"thinking_tokens": 80},
        }
        each = window()
        each.add(QUESTION)
        asyncio.run(each.request())
        reply = {
            "role": "assistant",
            "content": [thought, {"type": "text", "text": "Yes."}],
            "stop_reason": "end_turn",
            "usage": usage,
        }
        payload = each.add_reply(reply).payload
        assert isinstance(payload, MessageEntry)
        assert payload.message.content == (
            OpaquePart(value=thought, tokens=80, provider="anthropic"),
            "Yes.",
        )
        assert payload.usage == Usage(input_tokens=8, output_tokens=90, written_tokens=3)

    def test_of_a_chat_completion_are_recorded_as_sync_records_them(self) -> None:
        cited = {
            "type": "url_citation",
            "url_citation": {
                "start_index": 0,
                "end_index": 3,
                "title": "A",
                "url": "https://a.example",
            },
        }
        reply = completion({"content": "Yes.", "annotations": [cited], "tool_calls": [CALL]})
        each, other = window(), window()
        message = each.add_reply(reply).message
        (synced,) = other.sync([reply.choices[0].message])
        assert message == synced.message
        assert to_chat([message] if message else [])[0]["tool_calls"] == [CALL]
        assert each.sync([reply.choices[0].message]) == []

    @pytest.mark.parametrize("reported", [True, -3, "7", None])
    def test_a_count_of_reasoning_that_is_no_number_of_tokens_is_none(
        self, reported: object
    ) -> None:
        content = [{"type": "output_text", "text": "Yes."}]
        reply: dict[str, Any] = {
            "output": [
                {"type": "reasoning", "id": "rs_1", "summary": []},
                {"type": "message", "id": "msg_1", "role": "assistant", "content": content},
            ],
            "store": True,
            "usage": {"output_tokens": 9, "output_tokens_details": {"reasoning_tokens": reported}},
        }
        message = window().add_reply(reply).message
        assert message
        tokens = (part.tokens for part in message.content if isinstance(part, OpaquePart))
        assert next(tokens) == 0

    @pytest.mark.parametrize("store", [True, False])
    def test_of_a_response_are_recorded_as_sync_records_them_if_openai_takes_their_items_again(
        self, store: bool
    ) -> None:
        reasoning: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}
        cited = {
            "type": "url_citation",
            "start_index": 0,
            "end_index": 3,
            "title": "A",
            "url": "https://a.example",
        }
        answer = {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Yes.", "annotations": [cited]}],
        }
        output: list[dict[str, Any]] = [reasoning, answer]
        reply = {
            "output": output,
            "store": store,
            "usage": {"output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 7}},
        }
        each = window()
        message = each.add_reply(reply).message
        assert message
        assert message.text == ("" if store else "Yes.")
        if store:
            assert to_responses([message]) == output
            assert (
                next(
                    part.tokens
                    for part in message.content
                    if isinstance(part, OpaquePart) and part.provider == "responses"
                )
                == 7
            )
            assert each.sync(output) == []
        else:
            assert to_responses([message]) == [
                {"type": "message", "role": "assistant", "content": "Yes."}
            ]

    def test_that_are_messages_of_a_provider_are_read(self) -> None:
        entry = window().add_reply(
            {"role": "assistant", "content": "Yes."}, usage=Usage(input_tokens=3)
        )
        assert isinstance(entry.payload, MessageEntry)
        assert (entry.message, entry.payload.usage) == (
            Message(role="assistant", content="Yes."),
            Usage(input_tokens=3),
        )

    def test_that_are_empty_or_of_another_role_are_refused(self) -> None:
        with pytest.raises(EmptyReplyError):
            window().add_reply(completion({"content": ""}))
        with pytest.raises(TypeError, match=r"use add\(\)"):
            window().add_reply(QUESTION)
