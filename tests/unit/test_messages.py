"""Messages are checked when they are made: what can be read becomes parts, everything else is refused with what to write."""

from __future__ import annotations

import json
from enum import Enum
from types import MappingProxyType
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessageFunctionToolCall

from promptkit import (
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    ToolCall,
    render,
)
from promptkit.elements import element_from_message
from promptkit.errors import InvalidArgumentError
from promptkit.messages import CacheBreakpointPart, Usage
from promptkit.transcript.stores.jsonl.format import message_from_json, message_to_json
from promptkit.wire import to_anthropic, to_chat, to_responses

PNG = "data:image/png;base64,iVBORw0KGgo="
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "s"}


class TestContent:
    def test_a_string_is_one_text(self) -> None:
        assert Message(role="user", content="Hello").content == ("Hello",)

    @pytest.mark.parametrize("nothing", ["", None, (), []])
    def test_nothing_is_no_part(self, nothing: Any) -> None:
        assert Message(role="assistant", content=nothing).content == ()

    def test_a_list_is_a_tuple_of_its_parts(self) -> None:
        image = ImagePart(url=PNG)
        assert Message(role="user", content=["a", image]).content == ("a", image)

    @pytest.mark.parametrize(
        ("block", "parts"),
        [
            ({"type": "text", "text": "Hello"}, ("Hello",)),
            ({"type": "input_text", "text": "Hello"}, ("Hello",)),
            ({"type": "output_text", "text": "Hello", "annotations": []}, ("Hello",)),
            (
                {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
                ("a", CacheBreakpointPart(kind="ephemeral", ttl="1h")),
            ),
            (
                {"type": "text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}},
                ("a", CacheBreakpointPart()),
            ),
            (
                {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
                (ImagePart(url=PNG, detail="low"),),
            ),
            (
                {"type": "input_image", "image_url": PNG, "detail": "auto"},
                (ImagePart(url=PNG, detail="auto"),),
            ),
            (
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
                },
                (ImagePart(url=PNG, media_type="image/png"),),
            ),
            (
                {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
                (ImagePart(url="https://example.org/a.png"),),
            ),
            (
                {
                    "type": "file",
                    "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"},
                },
                (DocumentPart(data="JVBE", media_type="application/pdf", name="a.pdf"),),
            ),
            (
                {
                    "type": "input_file",
                    "filename": "a.pdf",
                    "file_data": "data:application/pdf;base64,JVBE",
                },
                (DocumentPart(data="JVBE", media_type="application/pdf", name="a.pdf"),),
            ),
            (
                {
                    "type": "document",
                    "title": "a",
                    "source": {"type": "text", "media_type": "text/plain", "data": "Hi"},
                },
                (DocumentPart(data="SGk=", media_type="text/plain", name="a"),),
            ),
        ],
    )
    def test_content_parts_of_providers_are_parts(
        self, block: dict[str, Any], parts: tuple[object, ...]
    ) -> None:
        assert Message(role="user", content=[block]).content == parts

    @pytest.mark.parametrize(
        ("block", "provider"),
        [
            (THINKING, "anthropic"),
            ({"type": "document", "source": {"type": "file", "file_id": "f"}}, "anthropic"),
            ({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}, "chat"),
            ({"type": "file", "file": {"file_id": "f"}}, "chat"),
            ({"type": "input_image", "file_id": "f", "detail": "low"}, "responses"),
            ({"type": "hologram", "data": [1]}, None),
            ({"type": "text", "text": "a", "colour": "red"}, None),
        ],
    )
    def test_what_parts_cannot_hold_is_opaque_and_unchanged(
        self, block: dict[str, Any], provider: str | None
    ) -> None:
        assert Message(role="user", content=[block]).content == (
            OpaquePart(value=block, provider=provider),
        )

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            (5, "content must be a string, or a list of parts"),
            (b"Hello", "content must be a string"),
            ({"type": "text", "text": "Hello"}, "content must be a string, or a list"),
            ({"a", "b"}, "content must be a string"),
            ([5], "a part of content must be a string"),
            ([b"Hello"], "a part of content must be"),
            ([ImagePart], "a part of content must be"),
            ([Message(role="user")], "a part of content must be"),
        ],
    )
    def test_anything_else_is_refused_by_its_type(self, content: Any, says: str) -> None:
        with pytest.raises(TypeError, match=says):
            Message(role="user", content=content)

    @pytest.mark.parametrize(
        ("block", "says"),
        [
            ({"text": "Hello"}, "must have a type"),
            ({"role": "user", "content": "Hello"}, "must have a type"),
            (
                {"type": "tool_use", "id": "c", "name": "n", "input": {}},
                r"write tool_calls=\[ToolCall",
            ),
            ({"type": "tool_result", "tool_use_id": "c"}, r"write Message\(role='tool'"),
            ({"type": "hologram", "data": float("nan")}, "must be JSON"),
        ],
    )
    def test_a_part_that_is_no_content_is_refused_with_what_to_write(
        self, block: dict[str, Any], says: str
    ) -> None:
        with pytest.raises(InvalidArgumentError, match=says):
            Message(role="user", content=[block])


class TestRole:
    def test_developer_is_a_system_message_that_only_openai_is_sent_as_developer(self) -> None:
        message = Message(role="developer", content="Be brief.")
        assert (message.role, message.text) == ("system", "Be brief.")
        assert to_chat([message]) == [{"role": "developer", "content": "Be brief."}]
        assert to_responses([message]) == [
            {"type": "message", "role": "developer", "content": "Be brief."}
        ]
        assert to_anthropic([message]).get("system") == [{"type": "text", "text": "Be brief."}]
        assert message_from_json(json.loads(json.dumps(message_to_json(message)))) == message

    def test_a_developer_stays_one_through_a_render_and_costs_no_more(self) -> None:
        developer, system = (
            render(element_from_message(Message(role=role, content="Be brief.")), budget=100)
            for role in ("developer", "system")
        )
        assert to_chat(developer.messages) == [{"role": "developer", "content": "Be brief."}]
        assert developer.tokens == system.tokens

    @pytest.mark.parametrize("role", ["speaker", "function", "", None, 5, [], "System"])
    def test_any_other_role_is_refused(self, role: Any) -> None:
        with pytest.raises(
            InvalidArgumentError,
            match="role must be 'system', 'developer', 'user', 'assistant' or 'tool', not",
        ):
            Message(role=role, content="Hello")

    def test_a_role_of_an_enum_is_its_plain_text(self) -> None:
        class Author(str, Enum):  # noqa: UP042  # as SDKs write it
            USER = "user"

        user: Any = Author.USER
        assert type(Message(role=user).role) is str


class TestToolCalls:
    def test_a_mapping_of_arguments_becomes_json(self) -> None:
        call = ToolCall(
            id="c", name="n", arguments=MappingProxyType({"path": "ä.py", "lines": (1, 2)})
        )
        assert call.arguments == '{"path": "ä.py", "lines": [1, 2]}'

    def test_text_of_arguments_is_left_as_it_is(self) -> None:
        assert ToolCall(id="c", name="n", arguments='{"a":1, }').arguments == '{"a":1, }'

    @pytest.mark.parametrize("arguments", [None, 5, ["a"], b"{}"])
    def test_other_arguments_are_refused(self, arguments: Any) -> None:
        with pytest.raises(
            TypeError, match=r"arguments must be JSON text such as '\{\}', or a mapping"
        ):
            ToolCall(id="c", name="n", arguments=arguments)

    @pytest.mark.parametrize("value", [float("inf"), {1}, b"", object()])
    def test_arguments_that_are_no_json_are_refused(self, value: object) -> None:
        with pytest.raises(InvalidArgumentError, match="arguments cannot be written as JSON"):
            ToolCall(id="c", name="n", arguments={"a": value})

    @pytest.mark.parametrize(
        "call",
        [
            {"id": "c", "type": "function", "function": {"name": "n", "arguments": '{"a":1}'}},
            {
                "type": "function_call",
                "id": "fc",
                "call_id": "c",
                "name": "n",
                "arguments": '{"a":1}',
            },
            ChatCompletionMessageFunctionToolCall.model_validate(
                {"id": "c", "type": "function", "function": {"name": "n", "arguments": '{"a":1}'}}
            ),
            ToolCall(id="c", name="n", arguments='{"a":1}'),
        ],
    )
    def test_calls_of_providers_are_tool_calls(self, call: Any) -> None:
        assert Message(role="assistant", tool_calls=[call]).tool_calls == (
            ToolCall(id="c", name="n", arguments='{"a":1}'),
        )

    def test_the_input_of_a_block_is_json_text(self) -> None:
        block = {"type": "tool_use", "id": "c", "name": "n", "input": {"a": 1}}
        assert Message(role="assistant", tool_calls=[block]).tool_calls == (
            ToolCall(id="c", name="n", arguments='{"a": 1}'),
        )

    def test_anything_else_is_refused(self) -> None:
        with pytest.raises(InvalidArgumentError, match="a tool call must be a ToolCall"):
            Message(role="assistant", tool_calls=[{"name": "n"}])
        with pytest.raises(TypeError, match="tool_calls must be a list such as"):
            Message(role="assistant", tool_calls=ToolCall(id="c", name="n"))  # type: ignore[arg-type]  # what is tested


class TestFields:
    @pytest.mark.parametrize(
        ("build", "says"),
        [
            (lambda: Message(role="user", name=5), "name of Message must be a string or None"),  # type: ignore[arg-type]  # what is tested
            (lambda: Message(role="tool", tool_call_id=5), "tool_call_id of Message must be"),  # type: ignore[arg-type]  # as above
            (lambda: ToolCall(id=None, name="n"), "id of ToolCall must be a string, not None"),  # type: ignore[arg-type]  # as above
            (lambda: ImagePart(url=5), "url of ImagePart must be a string"),  # type: ignore[arg-type]  # as above
            (
                lambda: ImagePart(url="", width=True),
                "width of ImagePart must be a whole number or None",
            ),
            (
                lambda: DocumentPart(data=b"", media_type=""),  # type: ignore[arg-type]  # as above
                "data of DocumentPart must be a string",
            ),
            (lambda: OpaquePart(value=1, tokens=1.5), "tokens of OpaquePart must be"),  # type: ignore[arg-type]  # as above
            (lambda: CacheBreakpointPart(ttl=5), "ttl of CacheBreakpointPart must be"),  # type: ignore[arg-type]  # as above
            (
                lambda: Usage(input_tokens=None),  # type: ignore[arg-type]  # as above
                "input_tokens of Usage must be a whole number.*usage=None.*not None",
            ),
            (
                lambda: Usage(input_tokens=1, output_tokens=1.5),  # type: ignore[arg-type]  # as above
                "output_tokens of Usage must be a whole number",
            ),
            (
                lambda: Usage(input_tokens=1, cached_tokens=True),
                "cached_tokens of Usage must be a whole number",
            ),
        ],
    )
    def test_a_wrong_type_is_refused_with_the_name_of_the_field(
        self, build: Any, says: str
    ) -> None:
        with pytest.raises(TypeError, match=says):
            build()

    @pytest.mark.parametrize("value", [{1: "a"}, {"a": {1, 2}}, [float("nan")], b"a", [object()]])
    def test_an_opaque_value_that_is_no_json_is_refused(self, value: Any) -> None:
        with pytest.raises(InvalidArgumentError, match="the value of an OpaquePart must be JSON"):
            OpaquePart(value=value)

    def test_an_opaque_value_that_holds_itself_is_refused(self) -> None:
        value: list[Any] = []
        value.append([value, value])
        with pytest.raises(InvalidArgumentError, match="contains itself"):
            OpaquePart(value=value)

    def test_an_opaque_value_is_of_the_types_that_are_read_back(self) -> None:
        value: Any = {"a": (1, MappingProxyType({"b": 2.5}))}
        assert OpaquePart(value=value).value == {"a": [1, {"b": 2.5}]}
