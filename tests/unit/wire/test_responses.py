"""Input items of the Responses API, by example."""

from __future__ import annotations

import pytest

from promptkit.errors import EmitError
from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Json,
    Message,
    OpaquePart,
    ToolCall,
    ToolDefinition,
)
from promptkit.wire import to_responses, tools_to_responses

PNG = ImagePart(url="data:image/png;base64,iVBORw0KGgo=", detail="low")
CALL = ToolCall(id="c1", name="read", arguments='{"path" :  "a.py"}')


def test_text_is_a_plain_string_in_every_role() -> None:
    emitted = to_responses(
        [
            Message(role=role, content=("a", "b"), name="ada")
            for role in ("system", "user", "assistant")
        ]
    )
    assert emitted == [
        {"type": "message", "role": role, "content": "ab"}
        for role in ("system", "user", "assistant")
    ]


def test_calls_and_results_are_items_in_order() -> None:
    emitted = to_responses(
        [
            Message(
                role="assistant",
                content=("I look.",),
                tool_calls=(CALL, ToolCall(id="c2", name="now")),
            ),
            Message(role="tool", tool_call_id="c2"),
            Message(role="tool", tool_call_id="c1", content=("print(1)",)),
        ]
    )
    assert emitted == [
        {"type": "message", "role": "assistant", "content": "I look."},
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "read",
            "arguments": '{"path" :  "a.py"}',
        },
        {"type": "function_call", "call_id": "c2", "name": "now", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c2", "output": ""},
        {"type": "function_call_output", "call_id": "c1", "output": "print(1)"},
    ]


def test_a_message_of_calls_alone_is_only_calls() -> None:
    assert [
        item["type"] for item in to_responses([Message(role="assistant", tool_calls=(CALL,))])
    ] == ["function_call"]


def test_a_message_without_content_is_an_empty_string() -> None:
    assert to_responses([Message(role="user")]) == [
        {"type": "message", "role": "user", "content": ""}
    ]


def test_images_and_documents_are_parts_of_messages_and_of_results() -> None:
    document = DocumentPart(data="SGk=", media_type="text/plain")
    parts = [
        {"type": "input_text", "text": "Look."},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"},
        {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "auto"},
        {
            "type": "input_file",
            "filename": "document.txt",
            "file_data": "data:text/plain;base64,SGk=",
        },
    ]
    content = ("Look.", PNG, ImagePart(url="https://example.org/a.png"), document)
    emitted = to_responses(
        [
            Message(role="user", content=content),
            Message(role="tool", tool_call_id="c1", content=content),
        ]
    )
    assert emitted == [
        {"type": "message", "role": "user", "content": parts},
        {"type": "function_call_output", "call_id": "c1", "output": parts},
    ]


def test_an_opaque_item_stands_on_its_own_and_splits_its_message() -> None:
    reasoning: Json = {"type": "reasoning", "id": "rs_1", "summary": []}
    message = Message(
        role="assistant",
        content=("a", OpaquePart(value=reasoning, provider="responses"), "b"),
        tool_calls=(CALL,),
    )
    emitted = to_responses([message])
    assert emitted[:3] == [
        {"type": "message", "role": "assistant", "content": "a"},
        reasoning,
        {"type": "message", "role": "assistant", "content": "b"},
    ]
    assert emitted[3]["type"] == "function_call"


def test_an_opaque_content_part_stands_in_its_message() -> None:
    refusal = {"type": "refusal", "refusal": "No."}
    emitted = to_responses(
        [Message(role="assistant", content=("Well.", OpaquePart(value=refusal)))]
    )
    assert emitted == [
        {
            "type": "message",
            "id": "msg_0_0",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Well.", "annotations": []}, refusal],
        }
    ]


def test_another_providers_opaque_part_is_left_out() -> None:
    message = Message(
        role="user", content=("Hi", OpaquePart(value={"type": "image_url"}, provider="chat"))
    )
    assert to_responses([message]) == [{"type": "message", "role": "user", "content": "Hi"}]


class TestCacheBreakpoints:
    def test_mark_the_part_before_them(self) -> None:
        message = Message(
            role="system", content=("Long.", CacheBreakpointPart(ttl="30m"), "Short.")
        )
        assert to_responses([message])[0]["content"] == [
            {
                "type": "input_text",
                "text": "Long.",
                "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"},
            },
            {"type": "input_text", "text": "Short."},
        ]

    def test_mark_results_and_fall_back_over_output_of_the_model(self) -> None:
        emitted = to_responses(
            [
                Message(role="tool", tool_call_id="c1", content=("print(1)",)),
                Message(role="assistant", content=("It prints.", CacheBreakpointPart())),
            ]
        )
        marked = [
            {
                "type": "input_text",
                "text": "print(1)",
                "prompt_cache_breakpoint": {"mode": "explicit"},
            }
        ]
        assert emitted == [
            {"type": "function_call_output", "call_id": "c1", "output": marked},
            {"type": "message", "role": "assistant", "content": "It prints."},
        ]

    def test_are_all_left_out_where_the_model_knows_none(self) -> None:
        message = Message(role="system", content=("Long.", CacheBreakpointPart()))
        assert to_responses([message], cache=False) == [
            {"type": "message", "role": "system", "content": "Long."}
        ]

    def test_keep_texts_apart_where_they_are_left_out(self) -> None:
        message = Message(role="user", content=("Long.", CacheBreakpointPart(), "Short."))
        apart = [{"type": "input_text", "text": "Long."}, {"type": "input_text", "text": "Short."}]
        assert to_responses([message], cache=False) == [
            {"type": "message", "role": "user", "content": apart}
        ]


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (
            Message(role="system", content=(PNG,)),
            r"messages\[0\] \(system\) has an image.*Responses API.*user message",
        ),
        (Message(role="assistant", content=(PNG,)), r"messages\[0\] \(assistant\) has an image"),
        (Message(role="tool"), r"has no tool_call_id"),
        (Message(role="system", tool_calls=(CALL,)), r"has tool calls"),
    ],
)
def test_unsupported_content_is_rejected_with_its_place_and_advice(
    message: Message, says: str
) -> None:
    with pytest.raises(EmitError, match=says):
        to_responses([message])


def test_tool_definitions_say_parameters_and_strict_always() -> None:
    full = ToolDefinition(
        name="read", description="Reads.", parameters={"type": "object"}, strict=False
    )
    assert tools_to_responses([full, ToolDefinition(name="now")]) == [
        {
            "type": "function",
            "name": "read",
            "parameters": {"type": "object"},
            "strict": False,
            "description": "Reads.",
        },
        {"type": "function", "name": "now", "parameters": None, "strict": None},
    ]
