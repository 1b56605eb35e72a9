"""Turns and system blocks of Anthropic's Messages API, by example."""

from __future__ import annotations

import base64

import pytest

from promptkit.errors import EmitError
from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    Role,
    ToolCall,
    ToolDefinition,
)
from promptkit.wire import to_anthropic, tools_to_anthropic

THINKING = OpaquePart(
    value={"type": "thinking", "thinking": "…", "signature": "x"}, provider="anthropic"
)


def say(role: Role, *content: Part) -> Message:
    return Message(role=role, content=content)


def call(*ids: str, arguments: str = "{}") -> Message:
    return Message(
        role="assistant",
        tool_calls=tuple(ToolCall(id=id_, name="read", arguments=arguments) for id_ in ids),
    )


def result(id_: str, *content: Part) -> Message:
    return Message(role="tool", tool_call_id=id_, content=content)


def user_content(*content: Part) -> list[object]:
    blocks: list[object] = to_anthropic([say("user", *content)])["messages"][0]["content"]
    return blocks


class TestTurns:
    def test_instructions_at_the_start_are_the_system_blocks(self) -> None:
        assert to_anthropic(
            [say("system", "Be terse."), say("system", "Be kind."), say("user", "Hi")]
        ) == {
            "system": [{"type": "text", "text": "Be terse."}, {"type": "text", "text": "Be kind."}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        }

    def test_without_instructions_there_is_no_system_key(self) -> None:
        assert list(to_anthropic([say("system", " "), say("user", "Hi")])) == ["messages"]

    def test_a_later_instruction_is_user_text_at_its_place(self) -> None:
        turns = to_anthropic(
            [
                say("user", "Hi"),
                say("assistant", "Hello"),
                say("system", "Be terse."),
                say("user", "Why?"),
            ]
        )["messages"]
        assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
        assert turns[2]["content"] == [
            {"type": "text", "text": "Be terse."},
            {"type": "text", "text": "Why?"},
        ]

    def test_messages_of_one_role_are_one_turn_and_empty_ones_none(self) -> None:
        turns = to_anthropic([say("user", "a"), say("assistant", "\n"), say("user", "b", "c")])[
            "messages"
        ]
        assert turns == [
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "bc"}],
            }
        ]

    def test_parallel_results_stand_first_in_the_turn_after_their_calls(self) -> None:
        turns = to_anthropic(
            [
                call("c1", "c2"),
                result("c2", "two"),
                say("system", "Hurry."),
                result("c1"),
                say("user", "And?"),
            ]
        )["messages"]
        assert [block["id"] for block in turns[0]["content"]] == ["c1", "c2"]
        assert turns[1]["content"] == [
            {"type": "tool_result", "tool_use_id": "c2", "content": "two"},
            {"type": "tool_result", "tool_use_id": "c1"},
            {"type": "text", "text": "Hurry."},
            {"type": "text", "text": "And?"},
        ]

    def test_a_late_result_moves_to_its_call(self) -> None:
        turns = to_anthropic(
            [
                call("c1"),
                say("user", "a"),
                say("assistant", "b"),
                result("c1", "late"),
                say("user", "c"),
            ]
        )["messages"]
        assert turns[1]["content"][0] == {
            "type": "tool_result",
            "tool_use_id": "c1",
            "content": "late",
        }
        assert [turn["role"] for turn in turns] == ["assistant", "user", "assistant", "user"]

    def test_an_id_that_comes_again_belongs_to_the_latest_call(self) -> None:
        turns = to_anthropic(
            [call("c1"), result("c1", "first"), call("c1"), result("c1", "second")]
        )["messages"]
        assert [turn["content"][0].get("content") for turn in turns] == [
            None,
            "first",
            None,
            "second",
        ]


class TestBlocks:
    def test_images_are_base64_or_url_sources(self) -> None:
        assert user_content(
            ImagePart(url="data:image/JPG;name=a;base64,/9j/", detail="low"),
            ImagePart(url="data:;base64,R0lG", media_type="image/gif"),
            ImagePart(url="HTTPS://example.org/a.png"),
        ) == [
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/jpeg", "data": "/9j/"},
            },
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/gif", "data": "R0lG"},
            },
            {"type": "image", "source": {"type": "url", "url": "HTTPS://example.org/a.png"}},
        ]

    def test_documents_are_pdf_or_text_sources(self) -> None:
        text = DocumentPart(
            data=base64.b64encode("Größe".encode()).decode(),
            media_type="text/markdown; charset=utf-8",
        )
        assert user_content(
            DocumentPart(data="JVBERi0=", media_type="application/pdf", name="report.pdf"), text
        ) == [
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
                "title": "report.pdf",
            },
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "Größe"},
            },
        ]

    def test_results_may_hold_images(self) -> None:
        turns = to_anthropic(
            [call("c1"), result("c1", "A plot:", ImagePart(url="https://example.org/a.png"), " ")]
        )["messages"]
        assert turns[1]["content"][0]["content"] == [
            {"type": "text", "text": "A plot:"},
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        ]

    def test_a_blank_result_has_no_content(self) -> None:
        assert to_anthropic([call("c1"), result("c1", " \n")])["messages"][1]["content"] == [
            {"type": "tool_result", "tool_use_id": "c1"}
        ]

    def test_opaque_parts_go_out_verbatim_and_those_of_others_not_at_all(self) -> None:
        other = OpaquePart(value={"type": "reasoning"}, provider="responses")
        assert to_anthropic([say("assistant", THINKING, other, "Done.")])["messages"][0][
            "content"
        ] == [
            {"type": "thinking", "thinking": "…", "signature": "x"},
            {"type": "text", "text": "Done."},
        ]

    def test_a_call_stands_after_the_text_of_its_message_with_its_input_as_an_object(self) -> None:
        message = Message(
            role="assistant",
            content=("I look.",),
            tool_calls=(ToolCall(id="c1", name="read", arguments='{"n": 1}'),),
        )
        assert to_anthropic([message])["messages"][0]["content"] == [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "c1", "name": "read", "input": {"n": 1}},
        ]


class TestCacheBreakpoints:
    def test_mark_the_block_before_them(self) -> None:
        emitted = to_anthropic(
            [
                say("system", "Long.", CacheBreakpointPart(kind="ephemeral", ttl="1h"), "Short."),
                say("user", "Hi", CacheBreakpointPart()),
            ]
        )
        assert emitted.get("system", [])[0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
        assert "cache_control" not in emitted.get("system", [])[1]
        assert emitted["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral"}

    def test_leave_out_the_types_and_ttls_of_other_providers(self) -> None:
        emitted = to_anthropic(
            [say("system", "Long.", CacheBreakpointPart(kind="explicit", ttl="30m"))]
        )
        assert emitted.get("system", [])[0]["cache_control"] == {"type": "ephemeral"}

    def test_fall_back_over_opaque_and_blank_blocks_and_to_earlier_messages(self) -> None:
        emitted = to_anthropic(
            [say("system", "Long."), say("user", "\n", THINKING, CacheBreakpointPart(), "Hi")]
        )
        assert emitted.get("system", [])[0]["cache_control"] == {"type": "ephemeral"}
        assert all("cache_control" not in block for block in emitted["messages"][0]["content"])

    def test_at_the_end_of_a_result_mark_it_and_inside_mark_what_stands_before(self) -> None:
        messages = [
            call("c1"),
            result("c1", "a", CacheBreakpointPart()),
            call("c2"),
            result("c2", "b", CacheBreakpointPart(), "c"),
        ]
        marked = [
            ["cache_control" in block for block in turn["content"]]
            for turn in to_anthropic(messages)["messages"]
        ]
        assert marked == [[False], [True], [True], [False]]

    def test_are_all_left_out_on_demand(self) -> None:
        assert user_content("a", CacheBreakpointPart(), "b") == [
            {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "b"},
        ]
        blocks = to_anthropic([say("user", "a", CacheBreakpointPart(), "b")], cache=False)[
            "messages"
        ][0]["content"]
        assert blocks == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]

    def test_with_nothing_before_them_are_left_out(self) -> None:
        assert "cache_control" not in str(to_anthropic([say("user", CacheBreakpointPart(), "Hi")]))

    def test_of_more_than_four_the_first_and_the_last_three_stay(self) -> None:
        emitted = to_anthropic(
            [
                say("system", "0", CacheBreakpointPart()),
                *(
                    say("user", str(n), CacheBreakpointPart(), CacheBreakpointPart())
                    for n in range(1, 7)
                ),
            ]
        )
        blocks = emitted.get("system", []) + emitted["messages"][0]["content"]
        assert [block["text"] for block in blocks if "cache_control" in block] == [
            "0",
            "4",
            "5",
            "6",
        ]

    def test_leave_room_for_breakpoints_inside_opaque_parts(self) -> None:
        own = OpaquePart(
            value={"type": "text", "text": "own", "cache_control": {"type": "ephemeral"}}
        )
        emitted = to_anthropic(
            [
                say(
                    "user",
                    own,
                    own,
                    *(part for n in range(4) for part in (str(n), CacheBreakpointPart())),
                )
            ]
        )
        blocks = emitted["messages"][0]["content"]
        assert [block["text"] for block in blocks if "cache_control" in block] == [
            "own",
            "own",
            "0",
            "3",
        ]

    def test_never_ask_for_an_hour_after_a_shorter_ttl(self) -> None:
        emitted = to_anthropic(
            [
                say(
                    "user",
                    "a",
                    CacheBreakpointPart(ttl="1h"),
                    "b",
                    CacheBreakpointPart(),
                    "c",
                    CacheBreakpointPart(ttl="1h"),
                )
            ]
        )
        lives = [block["cache_control"].get("ttl") for block in emitted["messages"][0]["content"]]
        assert lives == ["1h", None, None]


class TestUnsupportedContent:
    @pytest.mark.parametrize(
        ("message", "says"),
        [
            (
                say("system", ImagePart(url="https://example.org/a.png")),
                r"messages\[0\] \(system\) has an image.*Anthropic.*user message",
            ),
            (
                say("assistant", DocumentPart(data="", media_type="application/pdf")),
                r"\(assistant\) has a document",
            ),
            (say("user", ImagePart(url="data:image/bmp;base64,Qk0=")), r"type image/bmp.*convert"),
            (say("user", ImagePart(url="data:image/png,%89PNG")), r"without base64.*encode"),
            (say("user", ImagePart(url="data:;base64,AAAA")), r"type nothing.*convert"),
            (say("user", ImagePart(url="file:///a.png")), r"'file:///a.png'.*data: URL"),
            (
                say("user", DocumentPart(data="UEs=", media_type="application/zip")),
                r"application/zip.*PDF or as text",
            ),
            (say("user", DocumentPart(data="/w==", media_type="text/plain")), r"UTF-8"),
            (say("user", DocumentPart(data="not base64", media_type="text/plain")), r"base64"),
            (Message(role="tool"), r"has no tool_call_id"),
            (Message(role="user", tool_calls=(ToolCall(id="c1", name="read"),)), r"has tool calls"),
            (
                call("c7", arguments="[1]"),
                r"messages\[0\] \(assistant\) has a tool call 'c7' of read.*not an object.*correct",
            ),
        ],
    )
    def test_is_rejected_with_its_place_and_advice(self, message: Message, says: str) -> None:
        with pytest.raises(EmitError, match=says):
            to_anthropic([message])


def test_tool_definitions_have_an_object_schema_always() -> None:
    full = ToolDefinition(
        name="read",
        description="Reads.",
        parameters={"type": "object", "properties": {}},
        strict=True,
    )
    assert tools_to_anthropic(
        [
            full,
            ToolDefinition(name="now"),
            ToolDefinition(name="put", parameters={"properties": {}}),
        ]
    ) == [
        {
            "name": "read",
            "input_schema": {"type": "object", "properties": {}},
            "description": "Reads.",
            "strict": True,
        },
        {"name": "now", "input_schema": {"type": "object"}},
        {"name": "put", "input_schema": {"type": "object", "properties": {}}},
    ]
