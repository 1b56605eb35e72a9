"""What the emitters write is what the installed SDKs' own types ask for, and nothing gets lost on the way."""

from __future__ import annotations

import copy
import json
from collections import Counter
from itertools import pairwise
from typing import Any, TypeAlias, cast

import pytest
from hypothesis import given
from pydantic import ValidationError

from promptkit.messages import Message, ToolCall, ToolDefinition
from promptkit.wire import (
    to_anthropic,
    to_chat,
    to_responses,
    tools_to_anthropic,
    tools_to_chat,
    tools_to_responses,
)
from tests.unit.wire.sdk import Kind, adapter
from tests.unit.wire.strategies import calls_of, conversations, tools, without_breakpoints

ROUND = [
    Message(role="system", content=("Be terse.",)),
    Message(role="user", content=("Read it.",)),
    Message(
        role="assistant", tool_calls=(ToolCall(id="c1", name="read", arguments='{"path": "a.py"}'),)
    ),
    Message(role="tool", tool_call_id="c1", content=("print(1)",)),
]


KINDS: tuple[Kind, ...] = (
    "chat",
    "responses",
    "anthropic",
    "anthropic system",
    "chat tools",
    "responses tools",
    "anthropic tools",
)


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    # The first use of an adapter takes seconds, which hypothesis would hold against the test.
    for kind in KINDS:
        adapter(kind)


Wrong: TypeAlias = list[tuple[tuple[str | int, ...], Any]]
"""Where something is put that does not belong there."""

WRONG_CHAT: Wrong = [
    ((0, "colour"), "red"),
    ((1, "role"), "speaker"),
    ((1, "content"), [{"type": "text", "text": "Read it.", "cache_control": {}}]),
    ((1, "content"), [{"type": "image_url", "image_url": {"link": "https://example.org/a.png"}}]),
    ((1, "content"), [{"type": "text", "text": 5}]),
    ((2, "tool_calls", 0, "function", "arguments"), {"path": "a.py"}),
    ((2, "tool_calls", 0, "function", "input"), "{}"),
    ((3, "name"), "read"),
]
WRONG_ITEMS: Wrong = [
    ((1, "content"), [{"type": "text", "text": "Read it."}]),
    ((1, "content"), [{"type": "input_image", "image_url": "https://example.org/a.png"}]),
    ((2, "arguments"), {"path": "a.py"}),
    ((2, "tool_call_id"), "c1"),
    ((3, "output"), [{"type": "output_text", "text": "", "annotations": []}]),
]
WRONG_TURNS: Wrong = [
    ((0, "name"), "ada"),
    ((0, "content", 0, "cache_control"), {"type": "persistent"}),
    ((0, "content", 0, "cache_control"), {"type": "ephemeral", "ttl": "30m"}),
    ((1, "content", 0, "input"), '{"path": "a.py"}'),
    (
        (2, "content", 0, "content"),
        [{"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": ""}}],
    ),
    ((2, "content", 0, "tool_call_id"), "c1"),
]


class TestTheCheckItself:
    """A check that lets everything pass would prove nothing: each of these is wrong in one place."""

    @pytest.mark.parametrize(("at", "value"), WRONG_CHAT)
    def test_fails_on_one_wrong_key_or_value_in_chat_messages(
        self, at: tuple[str | int, ...], value: object
    ) -> None:
        fails("chat", changed(to_chat(ROUND), at, value))

    @pytest.mark.parametrize(("at", "value"), WRONG_ITEMS)
    def test_fails_on_one_wrong_key_or_value_in_input_items(
        self, at: tuple[str | int, ...], value: object
    ) -> None:
        fails("responses", changed(to_responses(ROUND), at, value))

    @pytest.mark.parametrize(("at", "value"), WRONG_TURNS)
    def test_fails_on_one_wrong_key_or_value_in_turns(
        self, at: tuple[str | int, ...], value: object
    ) -> None:
        fails("anthropic", changed(to_anthropic(ROUND)["messages"], at, value))


class TestTypes:
    @given(conversations())
    def test_chat_messages_are_the_sdks_own(self, messages: list[Message]) -> None:
        emitted = to_chat(messages)
        assert adapter("chat").validate_python(emitted, strict=True) == emitted

    @given(conversations())
    def test_input_items_are_the_sdks_own(self, messages: list[Message]) -> None:
        emitted = to_responses(messages)
        assert adapter("responses").validate_python(emitted, strict=True) == emitted

    @given(conversations())
    def test_system_blocks_and_turns_are_the_sdks_own(self, messages: list[Message]) -> None:
        emitted = to_anthropic(messages)
        assert (
            adapter("anthropic").validate_python(emitted["messages"], strict=True)
            == emitted["messages"]
        )
        assert adapter("anthropic system").validate_python(
            emitted.get("system", []), strict=True
        ) == emitted.get("system", [])

    @given(tools)
    def test_tool_definitions_are_the_sdks_own(self, definitions: list[ToolDefinition]) -> None:
        emitted: dict[Kind, list[Any]] = {
            "chat tools": tools_to_chat(definitions),
            "responses tools": tools_to_responses(definitions),
            "anthropic tools": tools_to_anthropic(definitions),
        }
        for kind, value in emitted.items():
            assert adapter(kind).validate_python(value, strict=True) == value


class TestNothingIsLost:
    @given(conversations())
    def test_chat_keeps_roles_texts_calls_and_ids(self, messages: list[Message]) -> None:
        emitted = to_chat(messages)
        assert [wire["role"] for wire in emitted] == [message.role for message in messages]
        assert [text_of(wire["content"]) for wire in emitted] == [
            message.text for message in messages
        ]
        assert [wire.get("tool_call_id") for wire in emitted] == [
            message.tool_call_id for message in messages
        ]
        calls = [call for wire in emitted for call in wire.get("tool_calls", [])]
        assert [ToolCall(id=call["id"], **call["function"]) for call in calls] == calls_of(messages)

    @given(conversations())
    def test_input_items_keep_texts_calls_and_ids_in_order(self, messages: list[Message]) -> None:
        emitted = to_responses(messages)
        calls = [item for item in emitted if item["type"] == "function_call"]
        assert [
            ToolCall(id=call["call_id"], name=call["name"], arguments=call["arguments"])
            for call in calls
        ] == calls_of(messages)
        results = [
            (item["call_id"], text_of(item["output"]))
            for item in emitted
            if item["type"] == "function_call_output"
        ]
        assert results == [
            (message.tool_call_id, message.text) for message in messages if message.role == "tool"
        ]
        said = [
            (item["role"], text_of(item["content"]))
            for item in emitted
            if item["type"] == "message"
        ]
        assert [text for text in said if text[1]] == [
            (m.role, m.text) for m in messages if m.role != "tool" and m.text
        ]

    @given(conversations())
    def test_turns_keep_texts_calls_and_ids(self, messages: list[Message]) -> None:
        emitted = to_anthropic(messages)
        blocks = [block for turn in emitted["messages"] for block in turn["content"]]
        calls = [block for block in blocks if block["type"] == "tool_use"]
        assert [(call["id"], call["name"], call["input"]) for call in calls] == [
            (call.id, call.name, json.loads(call.arguments)) for call in calls_of(messages)
        ]
        results = Counter(
            (block["tool_use_id"], text_of(block.get("content")).strip())
            for block in blocks
            if block["type"] == "tool_result"
        )
        assert results == Counter(
            (message.tool_call_id, message.text.strip())
            for message in messages
            if message.role == "tool"
        )
        said = "".join(
            block["text"]
            for block in [*emitted.get("system", []), *blocks]
            if block["type"] == "text"
        )
        assert "".join(said.split()) == "".join(
            "".join(message.text for message in messages if message.role != "tool").split()
        )

    @given(conversations())
    def test_every_call_is_answered_at_the_start_of_the_next_turn(
        self, messages: list[Message]
    ) -> None:
        turns: list[Any] = to_anthropic(messages)["messages"]
        assert all(first["role"] != second["role"] for first, second in pairwise(turns))
        for number, turn in enumerate(turns):
            asked = {block["id"] for block in turn["content"] if block["type"] == "tool_use"}
            following: Any = turns[number + 1]["content"] if asked else []
            assert {block["tool_use_id"] for block in following[: len(asked)]} == asked

    @given(conversations())
    def test_no_block_is_empty_and_at_most_four_carry_breakpoints(
        self, messages: list[Message]
    ) -> None:
        emitted = to_anthropic(messages)
        blocks = [
            *emitted.get("system", []),
            *(block for turn in emitted["messages"] for block in turn["content"]),
        ]
        assert all(block["text"].strip() for block in blocks if block["type"] == "text")
        controls = [block["cache_control"] for block in blocks if "cache_control" in block]
        assert len(controls) <= 4
        lives = [control.get("ttl", "5m") for control in controls]
        assert lives == sorted(lives)  # "1h" sorts before "5m"

    @given(conversations())
    def test_without_breakpoints_no_cache_fields_are_sent(self, messages: list[Message]) -> None:
        bare = without_breakpoints(messages)
        for emit in (to_chat, to_responses, to_anthropic):
            for emitted in (emit(bare), emit(messages, cache=False)):
                assert "cache_control" not in json.dumps(emitted)
                assert "prompt_cache_breakpoint" not in json.dumps(emitted)

    @given(conversations())
    def test_the_texts_are_the_same_with_and_without_cache_breakpoints(
        self, messages: list[Message]
    ) -> None:
        for emit in (to_chat, to_responses, to_anthropic):
            assert sent_texts(emit(messages, cache=False)) == sent_texts(emit(messages))


def fails(kind: Kind, emitted: object) -> None:
    with pytest.raises(ValidationError):
        adapter(kind).validate_python(emitted, strict=True)


def changed(emitted: list[Any], at: tuple[str | int, ...], value: object) -> list[Any]:
    wrong: Any = copy.deepcopy(emitted)
    *path, last = at
    holder = wrong
    for key in path:
        holder = holder[key]
    holder[last] = value
    return cast("list[Any]", wrong)  # a copy of the list that was given


def text_of(content: str | list[Any] | None) -> str:
    return (
        content
        if isinstance(content, str)
        else "".join(part.get("text", "") for part in content or [])
    )


def sent_texts(emitted: Any) -> list[str]:  # Any: the emitters' own types hold Any
    """Every text of a request, each as it is sent: as one string."""
    found: list[str] = []
    stack: list[Any] = [emitted]
    while stack:
        value = stack.pop()
        if type(value) is list:
            stack += reversed(cast("list[object]", value))  # of a request
        elif type(value) is dict:
            fields = cast("dict[str, Any]", value)
            found += [
                fields[key]
                for key in ("content", "output", "text")
                if isinstance(fields.get(key), str)
            ]
            stack += reversed(fields.values())
    return found
