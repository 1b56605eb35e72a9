"""Messages that are read from a provider's format are emitted as they were: whatever the installed SDKs' types allow."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from anthropic.types import Message as AnthropicReply
from hypothesis import given, strategies as st
from openai.types.chat import ChatCompletionMessage
from openai.types.responses import Response

from promptkit import (
    ImagePart,
    Message,
    OpaquePart,
    ToolCall,
)
from promptkit.errors import InvalidArgumentError
from promptkit.wire import (
    messages_from_anthropic,
    messages_from_chat,
    messages_from_responses,
    to_anthropic,
    to_chat,
    to_responses,
)
from tests.unit.wire.sdk import adapter
from tests.unit.wire.strategies import conversations

if TYPE_CHECKING:
    from collections.abc import Callable

Wire: TypeAlias = dict[str, Any]
PNG = "data:image/png;base64,iVBORw0KGgo="
PDF = "data:application/pdf;base64,JVBE"

words = st.sampled_from(["Hello.", "Größe", "{", " x"])


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    # The first use of an adapter takes seconds, which hypothesis would hold against the test.
    for kind in ("chat", "responses", "anthropic", "anthropic system"):
        adapter(kind)


def record(required: Wire, **optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Wire]:
    """Objects with all of the required fields and some of the optional ones.

    A value that is no strategy is itself.
    """
    fields: dict[str, st.SearchStrategy[Any]] = {
        key: value if isinstance(value, st.SearchStrategy) else st.just(value)
        for key, value in required.items()
    }
    return st.fixed_dictionaries(fields, optional=optional)


def some(*items: st.SearchStrategy[Wire]) -> st.SearchStrategy[list[Wire]]:
    return st.lists(st.one_of(*items), min_size=1, max_size=3)


def with_ids(calls: list[Wire], key: str, number: int) -> list[Wire]:
    return [call | {key: f"call_{number}_{index}"} for index, call in enumerate(calls)]


marks = st.just({"mode": "explicit"}) | st.just({"mode": "explicit", "ttl": "30m"})
chat_text = record({"type": "text", "text": words}, prompt_cache_breakpoint=marks)
chat_image = record(
    {"type": "image_url", "image_url": record({"url": PNG}, detail=st.just("low"))},
    prompt_cache_breakpoint=marks,
)
chat_file = record(
    {
        "type": "file",
        "file": st.sampled_from(
            [
                {"file_id": "f"},
                {"filename": "a.pdf", "file_data": PDF},
                {"filename": "a", "file_data": "?"},
            ]
        ),
    },
    prompt_cache_breakpoint=marks,
)
chat_audio = st.just({"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}})
chat_refusal = st.just({"type": "refusal", "refusal": "No."})
chat_call = record(
    {
        "type": "function",
        "function": record(
            {"name": "read", "arguments": st.sampled_from(["{}", '{"a" :1}', "broken"])}
        ),
    }
)
custom_call = record({"type": "custom", "custom": record({"name": "shell", "input": words})})


@st.composite
def chat_messages(draw: st.DrawFn) -> list[Wire]:
    messages: list[Wire] = []
    for number in range(draw(st.integers(1, 4))):
        instructions = record(
            {"role": st.sampled_from(["system", "developer"]), "content": words | some(chat_text)},
            name=st.just("ada"),
        )
        user = record(
            {"role": "user", "content": words | some(chat_text, chat_image, chat_file, chat_audio)},
            name=st.just("ada"),
        )
        answer = record(
            {"role": "assistant", "content": words | some(chat_text, chat_refusal)},
            name=st.just("ada"),
            refusal=st.just("No."),
            audio=st.just({"id": "a"}),
            function_call=st.just({"name": "old", "arguments": "{}"}),
        )
        function: st.SearchStrategy[Wire] = st.just(
            {"role": "function", "name": "old", "content": "done"}
        )
        message: Wire = draw(st.one_of(instructions, user, answer, function))
        messages.append(message)
        if message["role"] == "assistant" and draw(st.booleans()):
            message["tool_calls"] = with_ids(draw(some(chat_call, custom_call)), "id", number)
            messages += [
                {
                    "role": "tool",
                    "tool_call_id": call["id"],
                    "content": draw(words | some(chat_text)),
                }
                for call in message["tool_calls"]
            ]
    return messages


response_text = record({"type": "input_text", "text": words}, prompt_cache_breakpoint=marks)
response_image = st.sampled_from(
    [
        {"type": "input_image", "detail": "auto", "image_url": PNG},
        {"type": "input_image", "detail": "low", "file_id": "f"},
    ]
)
response_file = st.sampled_from(
    [
        {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
        {"type": "input_file", "file_url": "https://example.org/a.pdf"},
        {"type": "input_file", "filename": "a.pdf", "file_data": PDF, "detail": "low"},
    ]
)
output_text = record(
    {
        "type": "output_text",
        "text": words,
        "annotations": st.sampled_from([[], [{"type": "file_path", "file_id": "f", "index": 1}]]),
    }
)
states = st.sampled_from(["completed", "incomplete"])


@st.composite
def response_items(draw: st.DrawFn) -> list[Wire]:
    items: list[Wire] = []
    attached = some(response_text, response_image, response_file)
    for number in range(draw(st.integers(1, 7))):
        message = record(
            {
                "type": "message",
                "role": st.sampled_from(["user", "system", "developer"]),
                "content": words | attached,
            }
        )
        stored = record(
            {
                "type": "message",
                "role": st.sampled_from(["user", "system", "developer"]),
                "content": attached,
            },
            status=states,
        )
        easy = record(
            {"type": "message", "role": "assistant", "content": words}, phase=st.just("commentary")
        )
        output = record(
            {
                "type": "message",
                "role": "assistant",
                "id": f"msg_{number}",
                "status": states,
                "content": some(output_text, chat_refusal),
            },
            phase=st.just("final_answer"),
        )
        call = record(
            {
                "type": "function_call",
                "call_id": f"call_{number}",
                "name": "read",
                "arguments": st.sampled_from(["{}", "broken"]),
            },
            id=st.just("fc_1"),
            status=states,
        )
        result = record(
            {"type": "function_call_output", "call_id": "call_0", "output": words | attached},
            id=st.just("o"),
            status=states,
        )
        other = st.sampled_from(
            [
                {
                    "type": "reasoning",
                    "id": "rs_1",
                    "summary": [{"type": "summary_text", "text": "Hm."}],
                    "encrypted_content": "x",
                },
                {"type": "item_reference", "id": "i"},
                {"type": "custom_tool_call", "call_id": "k", "name": "shell", "input": "ls"},
                {"type": "compaction", "encrypted_content": "x"},
            ]
        )
        items.append(draw(st.one_of(message, stored, easy, output, call, call, result, other)))
    return items


cached = st.just({"type": "ephemeral"})
block_text = record({"type": "text", "text": words})
block_image = record(
    {
        "type": "image",
        "source": st.sampled_from(
            [
                {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
                {"type": "url", "url": "https://example.org/a.png"},
                {"type": "file", "file_id": "f"},
            ]
        ),
    }
)
block_document = record(
    {
        "type": "document",
        "source": st.sampled_from(
            [
                {"type": "base64", "media_type": "application/pdf", "data": "JVBE"},
                {"type": "text", "media_type": "text/plain", "data": "Größe"},
                {"type": "url", "url": "https://example.org/a.pdf"},
                {"type": "content", "content": "text"},
            ]
        ),
    },
    title=st.just("a"),
    context=st.just("b"),
    citations=st.just({"enabled": True}),
)
block_search = st.just(
    {
        "type": "search_result",
        "source": "s",
        "title": "t",
        "content": [{"type": "text", "text": "found"}],
    }
)
block_cited = st.just(
    {
        "type": "text",
        "text": "cited",
        "citations": [
            {
                "type": "char_location",
                "cited_text": "c",
                "document_index": 0,
                "document_title": None,
                "start_char_index": 0,
                "end_char_index": 1,
            }
        ],
    }
)
block_thinking = st.sampled_from(
    [
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
    ]
)
block_server = st.just(
    {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "q"}}
)
block_call = record(
    {
        "type": "tool_use",
        "name": "read",
        "input": st.sampled_from([{}, {"a": [1, 2.5, None]}, {"n": 10**20}]),
    },
    caller=st.just({"type": "direct"}),
)


@st.composite
def anthropic_turns(draw: st.DrawFn) -> tuple[list[Wire], list[Wire]]:
    """The system blocks and the turns, with at most four cache breakpoints."""
    turns: list[Wire] = []
    open_calls: list[Wire] = []
    for number in range(draw(st.integers(1, 3))):
        results = [
            draw(
                record(
                    {
                        "type": "tool_result",
                        "tool_use_id": call["id"],
                        "content": words
                        | some(block_text, block_image, block_document, block_search),
                    },
                    is_error=st.just(True),
                )
            )
            for call in open_calls
        ]
        turns.append(
            {
                "role": "user",
                "content": results
                + draw(some(block_text, block_image, block_document, block_search)),
            }
        )
        answer = draw(some(block_text, block_cited, block_thinking, block_server, block_call))
        answer = [
            block | {"id": f"call_{number}_{index}"} if block["type"] == "tool_use" else block
            for index, block in enumerate(answer)
        ]
        open_calls = [block for block in answer if block["type"] == "tool_use"]
        turns.append({"role": "assistant", "content": answer})
        if draw(st.booleans()) and not open_calls:
            turns.append({"role": "system", "content": draw(some(block_text))})
            turns.append({"role": "assistant", "content": draw(some(block_text, block_thinking))})
    # no block is there twice
    system, turns = json.loads(json.dumps([draw(st.lists(block_text, max_size=3)), turns]))
    blocks = [block for turn in [{"content": system}, *turns] for block in turn["content"]]
    can_be_marked = [
        index
        for index, block in enumerate(blocks)
        if block["type"] in ("text", "tool_result", "tool_use", "image", "document")
    ]
    for index in draw(st.sets(st.sampled_from(can_be_marked), max_size=4)):
        blocks[index]["cache_control"] = draw(cached)
    return system, turns


class TestRoundTrips:
    @given(chat_messages())
    def test_chat_messages_are_emitted_as_they_were(self, wire: list[Wire]) -> None:
        assert adapter("chat").validate_python(wire, strict=True) == wire
        assert to_chat(messages_from_chat(wire)) == [
            message | {"content": as_chat_content(message)} for message in wire
        ]

    @given(response_items())
    def test_items_are_emitted_as_they_were(self, wire: list[Wire]) -> None:
        assert adapter("responses").validate_python(wire, strict=True) == wire
        assert to_responses(messages_from_responses(wire)) == [as_item(item) for item in wire]

    @given(anthropic_turns())
    def test_blocks_and_turns_are_emitted_as_they_were(
        self, wire: tuple[list[Wire], list[Wire]]
    ) -> None:
        system, turns = wire
        assert adapter("anthropic").validate_python(turns, strict=True) == turns
        emitted = to_anthropic(messages_from_anthropic(turns, system=system))
        assert emitted.get("system", []) == system
        assert emitted["messages"] == [
            {**turn, "content": [as_block(block) for block in turn["content"]]} for turn in turns
        ]

    @given(conversations())
    def test_what_is_emitted_is_emitted_again(self, messages: list[Message]) -> None:
        chat, items, turns = to_chat(messages), to_responses(messages), to_anthropic(messages)
        assert to_chat(messages_from_chat(chat)) == chat
        assert to_responses(messages_from_responses(items)) == items
        assert to_anthropic(messages_from_anthropic(**turns)) == turns


def as_chat_content(message: Wire) -> Any:
    """One text alone is a string."""
    match message["content"]:
        case [{"type": "text", "text": text, **rest}] if not rest:
            return text
        case content:
            return content


def as_item(item: Wire) -> Wire:
    key = "output" if item["type"] == "function_call_output" else "content"
    match item.get(key):
        case [{"type": "input_text", "text": text, **rest}] if not rest:
            return item | {key: text}
        case _:
            return item


def as_block(block: Wire) -> Wire:
    match block:
        case {"type": "tool_result", "content": [{"type": "text", "text": text}]}:
            return block | {"content": text}
        case _:
            return block


class TestReading:
    def test_chat_messages_become_parts_and_calls(self) -> None:
        call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        assert messages_from_chat(
            [
                {"role": "system", "content": "Be brief."},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Look."},
                        {"type": "image_url", "image_url": {"url": PNG}},
                    ],
                },
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": "print()"},
            ]
        ) == [
            Message(role="system", content="Be brief."),
            Message(role="user", content=["Look.", ImagePart(url=PNG)]),
            Message(role="assistant", tool_calls=[ToolCall(id="c", name="read")]),
            Message(role="tool", tool_call_id="c", content="print()"),
        ]

    def test_items_of_one_answer_become_one_message(self) -> None:
        reasoning: Wire = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"}
        items: list[Wire] = [
            {"role": "user", "content": "Look."},
            reasoning,
            {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "print()"},
        ]
        assert messages_from_responses(items) == [
            Message(role="user", content="Look."),
            Message(
                role="assistant",
                content=[OpaquePart(value=reasoning, provider="responses")],
                tool_calls=[ToolCall(id="c", name="read")],
            ),
            Message(role="tool", tool_call_id="c", content="print()"),
        ]

    def test_results_of_a_turn_become_tool_messages(self) -> None:
        turns: list[Wire] = [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c", "name": "read", "input": {}}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c", "content": "print()"},
                    {"type": "text", "text": "Well?"},
                ],
            },
        ]
        assert messages_from_anthropic(turns, system="Be brief.") == [
            Message(role="system", content="Be brief."),
            Message(role="assistant", tool_calls=[ToolCall(id="c", name="read")]),
            Message(role="tool", tool_call_id="c", content="print()"),
            Message(role="user", content="Well?"),
        ]

    def test_a_developer_stays_one_in_both_formats_of_openai(self) -> None:
        wire = [{"role": "developer", "content": "Be brief."}]
        assert (
            messages_from_chat(wire)
            == messages_from_responses(wire)
            == [Message(role="developer", content="Be brief.")]
        )

    def test_objects_of_the_sdks_are_read_without_their_empty_fields(self) -> None:
        call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        chat = ChatCompletionMessage.model_validate(
            {
                "role": "assistant",
                "content": "Hm.",
                "refusal": None,
                "annotations": [],
                "tool_calls": [call],
            }
        )
        assert messages_from_chat([chat]) == [
            Message(role="assistant", content="Hm.", tool_calls=[ToolCall(id="c", name="read")])
        ]
        output: list[Wire] = [
            {
                "type": "message",
                "id": "m",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Hm.", "annotations": []}],
            },
            {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"},
        ]
        response = Response.model_validate(
            {
                "id": "r",
                "created_at": 0,
                "model": "m",
                "object": "response",
                "output": output,
                "parallel_tool_calls": True,
                "tool_choice": "auto",
                "tools": [],
            }
        )
        assert to_responses(messages_from_responses(response.output)) == output
        reply = AnthropicReply.model_validate(
            {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "model": "claude",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                    {"type": "text", "text": "Yes.", "citations": None},
                ],
                "stop_reason": "end_turn",
                "usage": {"input_tokens": 1, "output_tokens": 1},
            }
        )
        thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
        assert messages_from_anthropic([reply]) == [
            Message(
                role="assistant", content=[OpaquePart(value=thinking, provider="anthropic"), "Yes."]
            )
        ]


class TestErrors:
    @pytest.mark.parametrize(
        "read", [messages_from_chat, messages_from_responses, messages_from_anthropic]
    )
    def test_a_message_that_is_none_is_named_by_its_place(
        self, read: Callable[[Any], list[Message]]
    ) -> None:
        good = {"role": "user", "content": "Hello"}
        with pytest.raises(TypeError, match=r"\[1\] must be a dict or an SDK object, not 5"):
            read([good, 5])
        with pytest.raises(
            InvalidArgumentError, match=r"\[1\] must have the role .*, not 'speaker'"
        ):
            read([good, {"role": "speaker", "content": "Hello"}])
        with pytest.raises(InvalidArgumentError, match=r"the content of .*\[1\]"):
            read([good, {"role": "user", "content": 5}])
        with pytest.raises(
            InvalidArgumentError, match=r"the content of .*\[1\]: a content part must have a type"
        ):
            read([good, {"role": "user", "content": [{"text": "Hello"}]}])
        with pytest.raises(TypeError, match="must be a list of dicts or SDK objects"):
            read(good)
