"""The body that each option and each message gives: as the SDK's own types want it, and as the model accepts it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings

from promptkit import Message, OpaquePart, ToolCall
from promptkit.errors import EmitError
from promptkit.providers.anthropic.api import build_body, default_output_tokens
from promptkit.testing.server.anthropic_api import check_messages
from promptkit.testing.strategies import conversations
from promptkit.wire import to_anthropic
from tests.unit.providers.anthropic.asking import HELLO, MODEL, READ, check_body

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from promptkit.providers.model import Effort, ModelOptions

HEADERS = {
    "anthropic-version": "2026-10-21",
    "anthropic-beta": "thinking-binding-controls-2026-08-01",
}
BINDING = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
THOUGHT = OpaquePart(
    value={"type": "thinking", "thinking": "Hm.", "signature": "x"}, provider="anthropic"
)
CALL = ToolCall(id="toolu_1", name="read", arguments="{}")
RESULT = Message(role="tool", tool_call_id="toolu_1", content=("x = 1",))

MODELS = (
    "claude-3-7-sonnet-20250219",
    "claude-opus-4-20250514",
    "claude-haiku-4-5-20251001",
    "us.anthropic.claude-opus-4-6-v1:0",
    "claude-opus-4-7",
    "claude-sonnet-5",
    "claude-fable-5",
    "claude-opus-5-5",
    "claude-sonnet-5-5",
    "claude-haiku-5-5",
    "claude-mythos-5-2",
    "kimi-k3",
)
EFFORTS: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def body_of(
    messages: Sequence[Message] = (HELLO,),
    *,
    name: str = MODEL,
    tools: Sequence[Any] = (),
    **options: Unpack[ModelOptions],
) -> dict[str, Any]:
    body = build_body(name, messages, tools, options)
    check_body(body)
    return body


class TestEveryModel:
    @pytest.mark.parametrize("name", MODELS)
    def test_no_option_makes_a_request_that_the_model_refuses(self, name: str) -> None:
        for effort in EFFORTS:
            for choice in ("auto", "none", "required", "read"):
                body = body_of(
                    name=name,
                    tools=[READ],
                    reasoning_effort=effort,
                    tool_choice=choice,
                    temperature=0,
                    parallel_tool_calls=False,
                )
                check_messages(body, HEADERS, counts=False)

    @pytest.mark.parametrize(
        ("name", "effort", "expected"),
        [
            (
                "claude-haiku-4-5",
                "high",
                {"thinking": {"type": "enabled", "budget_tokens": 16_000}},
            ),
            ("claude-haiku-4-5", "low", {"thinking": {"type": "enabled", "budget_tokens": 2_048}}),
            ("claude-haiku-4-5", "none", {"thinking": {"type": "disabled"}}),
            (
                "claude-opus-4-6",
                "xhigh",
                {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
            ),
            (
                "claude-opus-4-7",
                "xhigh",
                {"thinking": {"type": "adaptive"}, "output_config": {"effort": "xhigh"}},
            ),
            (
                "claude-opus-5",
                "minimal",
                {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
            ),
            ("claude-opus-5", "none", {"thinking": {"type": "disabled"}}),
            (
                "claude-fable-5",
                "none",
                {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
            ),
            (
                "claude-opus-5-5",
                "none",
                {"thinking": {"type": "adaptive", **BINDING}, "output_config": {"effort": "low"}},
            ),
            (
                "claude-opus-5-5",
                "max",
                {"thinking": {"type": "adaptive", **BINDING}, "output_config": {"effort": "max"}},
            ),
            ("claude-sonnet-5-5", "none", {"thinking": {"type": "between_tools"}}),
            ("claude-haiku-5-5", "none", {"thinking": {"type": "disabled"}}),
        ],
    )
    def test_the_effort_is_sent_as_the_model_takes_it(
        self, name: str, effort: Effort, expected: dict[str, Any]
    ) -> None:
        body = body_of(name=name, reasoning_effort=effort, max_output_tokens=32_000)
        assert {key: body[key] for key in ("thinking", "output_config") if key in body} == expected

    @pytest.mark.parametrize(
        ("name", "thinking"),
        [("claude-opus-5-5", {"type": "adaptive", **BINDING}), ("claude-opus-5", None)],
    )
    def test_without_an_effort_only_what_becomes_of_old_thoughts_is_said(
        self, name: str, thinking: object
    ) -> None:
        body = body_of(name=name)
        assert (body.get("thinking"), body.get("output_config")) == (thinking, None)

    @pytest.mark.parametrize(
        ("name", "limit"),
        [
            ("claude-opus-5-5", 32_000),
            ("claude-haiku-4-5", 32_000),
            ("claude-opus-9", 8_192),
            ("kimi-k3", 8_192),
        ],
    )
    def test_a_request_has_an_output_limit(self, name: str, limit: int) -> None:
        assert default_output_tokens(name) == limit
        assert body_of(name=name)["max_tokens"] == limit
        assert body_of(name=name, max_output_tokens=77)["max_tokens"] == 77


class TestThinkingWithABudget:
    """Models up to 4.5."""

    def test_it_takes_at_most_half_of_the_output(self) -> None:
        body = body_of(name="claude-haiku-4-5", reasoning_effort="max", max_output_tokens=5_000)
        assert body["thinking"]["budget_tokens"] == 2_500

    def test_there_is_none_where_the_output_is_too_small(self) -> None:
        assert "thinking" not in body_of(
            name="claude-haiku-4-5", reasoning_effort="high", max_output_tokens=2_000
        )

    def test_there_is_none_with_a_forced_call(self) -> None:
        assert "thinking" not in body_of(
            name="claude-haiku-4-5", reasoning_effort="high", tools=[READ], tool_choice="required"
        )

    @pytest.mark.parametrize(("content", "thinks"), [((), False), ((THOUGHT,), True)])
    def test_a_round_of_calls_goes_on_as_it_began(
        self, content: tuple[OpaquePart, ...], thinks: bool
    ) -> None:
        messages = [HELLO, Message(role="assistant", content=content, tool_calls=(CALL,)), RESULT]
        assert (
            "thinking"
            in body_of(messages, name="claude-haiku-4-5", reasoning_effort="high", tools=[READ])
        ) is thinks

    def test_thinking_at_the_start_of_a_turn_is_enough_for_all_its_calls(self) -> None:
        later = ToolCall(id="toolu_2", name="read")
        messages = [
            HELLO,
            Message(role="assistant", content=(THOUGHT,), tool_calls=(CALL,)),
            RESULT,
            Message(role="assistant", tool_calls=(later,)),
            Message(role="tool", tool_call_id="toolu_2", content="y"),
        ]
        body = body_of(messages, name="claude-haiku-4-5", reasoning_effort="high", tools=[READ])
        assert body["thinking"]["type"] == "enabled"

    def test_the_next_turn_may_think_again(self) -> None:
        messages = [
            HELLO,
            Message(role="assistant", tool_calls=(CALL,)),
            RESULT,
            Message(role="assistant", content="Done."),
            HELLO,
        ]
        assert "thinking" in body_of(
            messages, name="claude-haiku-4-5", reasoning_effort="high", tools=[READ]
        )


class TestTools:
    @pytest.mark.parametrize(
        ("choice", "parallel", "expected"),
        [
            (None, None, None),
            (None, True, None),
            (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
            ("auto", None, {"type": "auto"}),
            ("none", False, {"type": "none"}),
            ("required", None, {"type": "any"}),
            ("read", False, {"type": "tool", "name": "read", "disable_parallel_tool_use": True}),
        ],
    )
    def test_which_call_the_model_makes(
        self, choice: str | None, parallel: bool | None, expected: object
    ) -> None:
        options: Any = {
            name: value
            for name, value in (("tool_choice", choice), ("parallel_tool_calls", parallel))
            if value is not None
        }
        assert body_of(name="claude-opus-5", tools=[READ], **options).get("tool_choice") == expected

    def test_a_model_that_cannot_be_forced_decides_itself(self) -> None:
        assert body_of(tools=[READ], tool_choice="required")["tool_choice"] == {"type": "auto"}

    def test_without_tools_nothing_is_said_of_them(self) -> None:
        assert {"tools", "tool_choice"}.isdisjoint(
            body_of(tool_choice="required", parallel_tool_calls=False)
        )


class TestMessages:
    def test_arguments_that_no_object_can_hold_are_sent_as_text_in_one(self) -> None:
        messages = [
            HELLO,
            Message(
                role="assistant",
                tool_calls=(ToolCall(id="toolu_1", name="read", arguments="not json"),),
            ),
            RESULT,
        ]
        with pytest.raises(EmitError):
            to_anthropic(messages)
        assert body_of(messages)["messages"][1]["content"][0]["input"] == {"arguments": "not json"}

    def test_ids_of_other_providers_are_made_acceptable_on_both_sides(self) -> None:
        call = ToolCall(id="functions.read:0", name="read")
        body = body_of(
            [
                HELLO,
                Message(role="assistant", tool_calls=(call,)),
                Message(role="tool", tool_call_id=call.id, content=("x",)),
            ]
        )
        assert (
            body["messages"][1]["content"][0]["id"]
            == body["messages"][2]["content"][0]["tool_use_id"]
            == "functions_read_0"
        )

    def test_half_of_a_surrogate_pair_is_replaced(self) -> None:
        assert (
            body_of([Message(role="user", content=("a\ud800b",))])["messages"][0]["content"][0][
                "text"
            ]
            == "a\ufffdb"
        )

    @pytest.mark.parametrize("name", ["claude-haiku-4-5", "claude-opus-5-5"])
    @settings(max_examples=15)
    @given(messages=conversations())
    def test_a_conversation_that_the_format_can_hold_is_accepted(
        self, name: str, messages: list[Message]
    ) -> None:
        messages = [*messages, HELLO]
        body = body_of(messages, name=name, tools=[READ], reasoning_effort="high")
        check_messages(body, HEADERS, counts=False)
