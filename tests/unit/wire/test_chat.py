"""Chat Completions messages, by example."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from promptkit.errors import EmitError
from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Json,
    Message,
    OpaquePart,
    Role,
    ToolCall,
    ToolDefinition,
)
from promptkit.wire import to_chat, tools_to_chat

PNG = ImagePart(url="data:image/png;base64,iVBORw0KGgo=", detail="low")
PDF = DocumentPart(data="JVBERi0=", media_type="application/pdf", name="report.pdf")
CALL = ToolCall(id="c1", name="read", arguments='{"path" :  "a.py", "n": 1.0}')


def test_text_is_a_plain_string_in_every_role() -> None:
    emitted = to_chat(
        [
            Message(role="system", content=("Be ", "terse.")),
            Message(role="user", content=("Hi",)),
            Message(role="assistant", content=("Hello",)),
        ]
    )
    assert emitted == [
        {"role": "system", "content": "Be terse."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
    ]


def test_a_tool_round_keeps_the_arguments_byte_for_byte() -> None:
    emitted = to_chat(
        [
            Message(role="assistant", tool_calls=(CALL,)),
            Message(role="tool", tool_call_id="c1", content=("print(1)",)),
        ]
    )
    assert emitted == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "read", "arguments": CALL.arguments},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "print(1)"},
    ]


def test_text_beside_calls_is_kept() -> None:
    assert (
        to_chat([Message(role="assistant", content=("I look.",), tool_calls=(CALL,))])[0]["content"]
        == "I look."
    )


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_a_message_without_content_is_an_empty_string(role: Role) -> None:
    assert to_chat([Message(role=role)]) == [{"role": role, "content": ""}]


def test_an_empty_result_is_an_empty_string() -> None:
    assert to_chat([Message(role="tool", tool_call_id="c1")]) == [
        {"role": "tool", "tool_call_id": "c1", "content": ""}
    ]


def test_images_and_documents_are_parts_of_an_array() -> None:
    message = Message(
        role="user", content=("Look: ", "", PNG, ImagePart(url="https://example.org/a.png"), PDF)
    )
    assert to_chat([message])[0]["content"] == [
        {"type": "text", "text": "Look: "},
        {
            "type": "image_url",
            "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"},
        },
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {
            "type": "file",
            "file": {"filename": "report.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
        },
    ]


def test_a_document_without_a_name_is_given_one() -> None:
    message = Message(
        role="user", content=(DocumentPart(data="JVBERi0=", media_type="application/pdf"),)
    )
    assert to_chat([message])[0]["content"][0]["file"]["filename"] == "document.pdf"


@pytest.mark.parametrize("provider", [None, "chat"])
def test_an_opaque_part_goes_out_verbatim(provider: str | None) -> None:
    value: Json = {
        "type": "input_audio",
        "input_audio": MappingProxyType({"data": "UklGRg==", "format": "wav"}),
    }
    message = Message(role="user", content=("Listen.", OpaquePart(value=value, provider=provider)))
    assert to_chat([message])[0]["content"] == [
        {"type": "text", "text": "Listen."},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
    ]


def test_another_providers_opaque_part_is_left_out() -> None:
    message = Message(
        role="assistant",
        content=(OpaquePart(value={"type": "thinking"}, provider="anthropic"), "Done."),
    )
    assert to_chat([message]) == [{"role": "assistant", "content": "Done."}]


def test_a_name_is_sent_where_it_is_set_and_the_format_has_one() -> None:
    emitted = to_chat(
        [
            Message(role="user", name="ada", content=("Hi",)),
            Message(role="tool", name="read", tool_call_id="c1"),
        ]
    )
    assert emitted[0]["name"] == "ada"
    assert "name" not in emitted[1]


class TestCacheBreakpoints:
    def test_mark_the_part_before_them(self) -> None:
        message = Message(
            role="system",
            content=("Long.", CacheBreakpointPart(kind="ephemeral", ttl="12h"), "Short."),
        )
        assert to_chat([message])[0]["content"] == [
            {
                "type": "text",
                "text": "Long.",
                "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"},
            },
            {"type": "text", "text": "Short."},
        ]

    def test_leave_out_the_ttls_of_other_providers(self) -> None:
        message = Message(role="system", content=("Long.", CacheBreakpointPart(ttl="5m")))
        assert to_chat([message])[0]["content"][0]["prompt_cache_breakpoint"] == {
            "mode": "explicit"
        }

    def test_fall_back_over_output_of_the_model(self) -> None:
        emitted = to_chat(
            [
                Message(role="user", content=("Look.", PNG)),
                Message(role="assistant", content=("I see.", CacheBreakpointPart(), "A cat.")),
                Message(role="user", content=(CacheBreakpointPart(), "Why?")),
            ]
        )
        assert [part.get("prompt_cache_breakpoint") for part in emitted[0]["content"]] == [
            None,
            {"mode": "explicit"},
        ]
        assert emitted[1:] == [
            {"role": "assistant", "content": texts("I see.", "A cat.")},
            {"role": "user", "content": "Why?"},
        ]

    def test_mark_tool_results(self) -> None:
        emitted = to_chat(
            [Message(role="tool", tool_call_id="c1", content=("print(1)", CacheBreakpointPart()))]
        )
        assert emitted[0]["content"][0]["prompt_cache_breakpoint"] == {"mode": "explicit"}

    def test_with_nothing_before_them_are_left_out(self) -> None:
        assert to_chat([Message(role="user", content=(CacheBreakpointPart(), "Hi"))]) == [
            {"role": "user", "content": "Hi"}
        ]

    def test_are_all_left_out_where_the_model_knows_none(self) -> None:
        message = Message(role="system", content=("Long.", CacheBreakpointPart(), " Short."))
        assert to_chat([message], cache=False) == [
            {"role": "system", "content": texts("Long.", " Short.")}
        ]


def texts(*values: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": value} for value in values]


class TestUnsupportedContent:
    @pytest.mark.parametrize(
        ("message", "says"),
        [
            (
                Message(role="system", content=(PNG,)),
                r"messages\[1\] \(system\) has an image.*Chat Completions.*user message",
            ),
            (
                Message(role="assistant", content=(PDF,)),
                r"messages\[1\] \(assistant\) has a document.*user message",
            ),
            (Message(role="tool"), r"messages\[1\] \(tool\) has no tool_call_id.*set it"),
            (
                Message(role="user", tool_calls=(CALL,)),
                r"messages\[1\] \(user\) has tool calls.*role assistant",
            ),
        ],
    )
    def test_is_rejected_with_its_place_and_advice(self, message: Message, says: str) -> None:
        with pytest.raises(EmitError, match=says):
            to_chat([Message(role="user", content=("Hi",)), message])


def test_images_of_tool_results_follow_them_in_a_user_message() -> None:
    calls = tuple(ToolCall(id=name, name="shot", arguments="{}") for name in ("c1", "c2"))
    sent = to_chat(
        [
            Message(role="assistant", tool_calls=calls),
            Message(role="tool", tool_call_id="c1", content=("Taken.", PNG)),
            Message(role="tool", tool_call_id="c2", content=(PDF,)),
            Message(role="user", content=("And now?",)),
        ]
    )
    assert [message["role"] for message in sent] == ["assistant", "tool", "tool", "user", "user"]
    assert sent[1]["content"] == "Taken.\n[an image, shown in the message behind the results]"
    assert "shown in the message behind the results" in sent[2]["content"]
    assert [part["type"] for part in sent[3]["content"]] == ["image_url", "file"]


def test_an_error_behind_moved_images_names_the_messages_place() -> None:
    messages = [
        Message(role="tool", tool_call_id="c1", content=(PNG,)),
        Message(role="system", content=(PNG,)),
    ]
    with pytest.raises(EmitError, match=r"messages\[1\] \(system\)"):
        to_chat(messages)


def test_what_is_emitted_may_be_changed_without_changing_the_message() -> None:
    value: dict[str, Json] = {"type": "text", "text": "Hi", "more": [{"a": 1}]}
    message = Message(role="user", content=(OpaquePart(value=value),))
    to_chat([message])[0]["content"][0]["more"][0]["a"] = 2
    assert value["more"] == [{"a": 1}]


def test_tool_definitions_leave_out_what_they_do_not_say() -> None:
    full = ToolDefinition(
        name="read",
        description="Reads.",
        parameters=MappingProxyType({"type": "object"}),
        strict=True,
    )
    assert tools_to_chat([full, ToolDefinition(name="now")]) == [
        {
            "type": "function",
            "function": {
                "name": "read",
                "description": "Reads.",
                "parameters": {"type": "object"},
                "strict": True,
            },
        },
        {"type": "function", "function": {"name": "now"}},
    ]
