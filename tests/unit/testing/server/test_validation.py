"""The server refuses what the real endpoint would refuse, and says so in its words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_type_hints

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.input_token_count_params import InputTokenCountParams
from openai.types.responses.response_compact_params import ResponseCompactParams
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

from promptkit.testing.server.openai_api import IllFormedRequestError, check_chat, check_responses

if TYPE_CHECKING:
    from collections.abc import Callable

USER = {"role": "user", "content": "Hello."}
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
FLAT = {"type": "function", "name": "read", "parameters": None, "strict": None}


def call(*ids: str) -> dict[str, Any]:
    calls = [
        {"id": call_id, "type": "function", "function": {"name": "read", "arguments": "{}"}}
        for call_id in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "x"}


def item(call_id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "read", "arguments": "{}"}


def output(call_id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": "x"}


THOUGHT: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}

GOOD_CHAT: list[dict[str, Any]] = [
    {"messages": [USER]},
    {"messages": [{"role": "developer", "content": "Be terse."}, USER]},
    {
        "messages": [USER, call("a", "b"), result("b"), result("a"), USER],
        "tools": [TOOL],
        "tool_choice": "none",
    },
    {"messages": [USER, call("a"), result("a"), call("a"), result("a")]},
    {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "x"},
                    {"type": "image_url", "image_url": {"url": "u"}},
                ],
            }
        ]
    },
    {"messages": [USER, {"role": "assistant", "content": None, "refusal": "No."}]},
    {"messages": [USER], "stream": True, "stream_options": {"include_usage": True}},
]

BAD_CHAT: list[tuple[dict[str, Any], str, str | None]] = [
    ({"messages": []}, "empty array", "messages"),
    ({}, "Missing required parameter: 'messages'", "messages"),
    ({"messages": USER}, "expected an array", "messages"),
    ({"messages": [USER], "model": ""}, "model", None),
    ({"messages": [USER], "colour": "red"}, "Unknown parameter: 'colour'", "colour"),
    (
        {"messages": [{"role": "speaker", "content": "x"}]},
        "Invalid value: 'speaker'",
        "messages[0].role",
    ),
    ({"messages": [{"role": "user"}]}, "expected one of a string", "messages[0].content"),
    ({"messages": [{"role": "user", "content": 5}]}, "got a int", "messages[0].content"),
    (
        {"messages": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}]},
        "Invalid value",
        "messages[0].content[0].type",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        "Missing required",
        "messages[0].content[0].text",
    ),
    ({"messages": [USER, {"role": "assistant"}]}, "got null", "messages[1].content"),
    (
        {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": []}]},
        "at least one",
        "messages[1].tool_calls",
    ),
    ({"messages": [{**call("a"), "role": "user"}]}, "only an assistant", "messages[0].tool_calls"),
    ({"messages": [call("a")]}, "did not have response messages: a", "messages.[1].role"),
    ({"messages": [call("a"), USER]}, "did not have response messages: a", "messages.[1].role"),
    (
        {"messages": [call("a", "b"), result("a"), USER, result("b")]},
        "did not have response messages: b",
        "messages.[2].role",
    ),
    ({"messages": [USER, result("a")]}, "must be a response", "messages.[1].role"),
    (
        {"messages": [call("a"), result("a"), result("a")]},
        "must be a response",
        "messages.[2].role",
    ),
    ({"messages": [call("a"), result("b")]}, "must be a response", "messages.[1].role"),
    (
        {"messages": [call("a"), {"role": "tool", "content": "x"}]},
        "tool_call_id",
        "messages[1].tool_call_id",
    ),
    (
        {"messages": [call("a"), {**result("a"), "content": None}]},
        "got null",
        "messages[1].content",
    ),
    (
        {"messages": [call("a" * 41), result("a" * 41)]},
        "maximum length 40",
        "messages[0].tool_calls[0].id",
    ),
    (
        {
            "messages": [
                {
                    **call(),
                    "tool_calls": [
                        {"id": "a", "type": "function", "function": {"name": "r", "arguments": {}}}
                    ],
                },
                result("a"),
            ]
        },
        "expected a string, but got dict",
        "messages[0].tool_calls[0].function.arguments",
    ),
    ({"messages": [USER], "tool_choice": "none"}, "only allowed when 'tools'", "tool_choice"),
    (
        {"messages": [USER], "tools": [], "parallel_tool_calls": True},
        "only allowed when 'tools'",
        "parallel_tool_calls",
    ),
    ({"messages": [USER], "tools": [FLAT]}, "does not match pattern", "tools[0].function.name"),
    (
        {"messages": [USER], "tools": [{"type": "function", "function": {"name": "größe"}}]},
        "does not match pattern",
        "tools[0].function.name",
    ),
    ({"messages": [USER], "tools": "all"}, "expected an array", "tools"),
    ({"messages": [USER], "tools": [TOOL] * 129}, "maximum length 128", "tools"),
    ({"messages": [USER], "temperature": 3}, "between 0 and 2", "temperature"),
    ({"messages": [USER], "max_completion_tokens": 0}, "below minimum", "max_completion_tokens"),
    ({"messages": [USER], "stream_options": {}}, "only allowed when 'stream'", "stream_options"),
]

GOOD_RESPONSES: list[dict[str, Any]] = [
    {"input": "Hello."},
    {"input": [USER]},
    {
        "input": [USER, item("a"), item("b"), output("b"), output("a")],
        "tools": [FLAT],
        "tool_choice": "required",
    },
    {"input": [USER, item("a"), {"role": "user", "content": "Wait."}, output("a")]},
    {
        "input": [
            USER,
            THOUGHT,
            item("a"),
            output("a"),
            THOUGHT,
            {"role": "assistant", "content": "Done."},
            USER,
        ]
    },
    {"input": [{"type": "compaction", "encrypted_content": "x"}, USER]},
    {
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "x"},
                    {"type": "input_image", "image_url": "u"},
                ],
            }
        ]
    },
]

BAD_RESPONSES: list[tuple[dict[str, Any], str, str | None]] = [
    ({}, "Missing required parameter: 'input'", "input"),
    ({"input": []}, "Missing required parameter: 'input'", "input"),
    ({"input": 5}, "expected a string", "input"),
    ({"input": [{"role": "tool", "content": "x"}]}, "Invalid value: 'tool'", "input[0].role"),
    ({"input": [{"type": "nothing"}]}, "Invalid value: 'nothing'", "input[0].type"),
    (
        {"input": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]},
        "Invalid value: 'text'",
        "input[0].content[0].type",
    ),
    (
        {"input": [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}]},
        "Invalid value",
        "input[0].content[0].type",
    ),
    ({"input": [item("a")]}, "No tool output found for function call a.", "input"),
    (
        {"input": [USER, output("a")]},
        "No tool call found for function call output with call_id a.",
        "input",
    ),
    ({"input": [output("a"), item("a")]}, "No tool call found", "input"),
    ({"input": [item("a"), output("a"), output("a")]}, "No tool call found", "input"),
    (
        {"input": [{**item("a"), "arguments": {}}, output("a")]},
        "Invalid type",
        "input[0].arguments",
    ),
    (
        {"input": [{"type": "function_call", "name": "r", "arguments": "{}"}]},
        "Missing",
        "input[0].call_id",
    ),
    ({"input": [item("a" * 65), output("a" * 65)]}, "maximum length 64", "input[0].call_id"),
    ({"input": [{**item("a")}, {**output("a"), "output": None}]}, "got null", "input[1].output"),
    ({"input": [USER, THOUGHT]}, "without its required following item", "input"),
    ({"input": [THOUGHT, USER]}, "without its required following item", "input"),
    ({"input": [{"type": "compaction"}]}, "Missing", "input[0].encrypted_content"),
    ({"input": "x", "previous_response_id": "r"}, "not found", "previous_response_id"),
    ({"input": "x", "messages": []}, "Unknown parameter: 'messages'", "messages"),
    ({"input": "x", "tools": [TOOL]}, "does not match pattern", "tools[0].name"),
    ({"input": "x", "tool_choice": "none"}, "only allowed when 'tools'", "tool_choice"),
    ({"input": "x", "max_output_tokens": -1}, "below minimum", "max_output_tokens"),
]


@pytest.mark.parametrize("body", GOOD_CHAT, ids=range(len(GOOD_CHAT)))
def test_a_chat_request_in_order_is_taken(body: dict[str, Any]) -> None:
    check_chat({"model": "m", **body})


@pytest.mark.parametrize("body", GOOD_RESPONSES, ids=range(len(GOOD_RESPONSES)))
def test_a_request_for_a_response_in_order_is_taken(body: dict[str, Any]) -> None:
    check_responses({"model": "m", **body})


@pytest.mark.parametrize(
    ("body", "message", "param"),
    BAD_CHAT,
    ids=[f"{n} {case[1]}" for n, case in enumerate(BAD_CHAT)],
)
def test_a_chat_request_with_one_fault_is_refused(
    body: dict[str, Any], message: str, param: str | None
) -> None:
    refused(check_chat, body, message, param)


@pytest.mark.parametrize(
    ("body", "message", "param"),
    BAD_RESPONSES,
    ids=[f"{n} {case[1]}" for n, case in enumerate(BAD_RESPONSES)],
)
def test_a_request_for_a_response_with_one_fault_is_refused(
    body: dict[str, Any], message: str, param: str | None
) -> None:
    refused(check_responses, body, message, param)


def refused(
    check: Callable[[dict[str, Any]], None], body: dict[str, Any], message: str, param: str | None
) -> None:
    with pytest.raises(IllFormedRequestError) as caught:
        check({"model": "m", **body})
    assert message in caught.value.message
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("check", "start", "kinds"),
    [
        (check_chat, {"messages": [USER]}, [CompletionCreateParamsStreaming]),
        (
            check_responses,
            {"input": "x"},
            [ResponseCreateParamsStreaming, InputTokenCountParams, ResponseCompactParams],
        ),
    ],
)
def test_every_parameter_that_the_sdk_has_is_known(
    check: Callable[[dict[str, Any]], None], start: dict[str, Any], kinds: list[Any]
) -> None:
    for name in {name for kind in kinds for name in get_type_hints(kind)} - {"model", *start}:
        check({"model": "m", **start, name: None})
