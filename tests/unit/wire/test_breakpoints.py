"""Where a conversation's requests are marked for Anthropic's prompt cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import pytest
from hypothesis import given, strategies as st

from promptkit.messages import CacheBreakpointPart, Message, ToolDefinition
from promptkit.providers.anthropic.api import build_body
from promptkit.testing.server.journal import list_blocks
from promptkit.wire.anthropic import find_breakpoints, mark_prefix
from tests.conversations import assistant_message, call_message, result_message, user_message

if TYPE_CHECKING:
    from promptkit.providers.model import CacheTtl, ModelOptions

SYSTEM = Message(role="system", content=("Be brief.",))
TOOL = ToolDefinition(name="read")
TALK = [
    each for number in range(5) for each in (user_message(f"q{number}"), assistant_message("Yes."))
]
ASKED = [*TALK, user_message("last")]
HOUR = CacheBreakpointPart(kind="ephemeral", ttl="1h")


def marks(
    messages: list[Message],
    count: int | None = None,
    *,
    tools: bool = False,
    **options: Unpack[ModelOptions],
) -> dict[str, Any]:
    """Place → `cache_control`, in the order of the prompt."""
    options["cache_messages"] = len(messages) if count is None else count
    body = build_body("claude-opus-4-6", messages, [TOOL] if tools else [], options)
    return {
        place: block["cache_control"]
        for place, block in list_blocks(body)
        if block.get("cache_control") is not None
    }


def test_the_instructions_and_the_three_newest_ends_of_requests_are_marked() -> None:
    assert list(marks([SYSTEM, *ASKED], tools=True)) == [
        "system.0",
        "messages.6.content.0",
        "messages.8.content.0",
        "messages.10.content.0",
    ]


def test_without_instructions_the_tools_are_marked() -> None:
    assert next(iter(marks(ASKED, tools=True))) == "tools.0"
    assert len(marks(ASKED, tools=True)) == 4
    assert len(marks(ASKED)) == 3


def test_a_request_ends_with_all_results_of_a_round() -> None:
    round_ = [call_message("a", "b"), result_message("a", "x"), result_message("b", "y")]
    assert list(marks([user_message("q"), *round_])) == [
        "messages.0.content.0",
        "messages.2.content.1",
    ]


def test_a_question_after_a_request_is_not_marked() -> None:
    assert list(marks([*ASKED, user_message("Summarize.")], len(ASKED)))[-1] == (
        "messages.10.content.0"
    )
    reply = assistant_message("Yes.")
    assert list(marks([*ASKED, reply, user_message("Summarize.")], len(ASKED) + 1))[-1] == (
        "messages.10.content.0"
    )


def test_a_request_that_nothing_follows_is_not_marked() -> None:
    assert marks([SYSTEM, *ASKED], 0, tools=True) == {}


def test_a_program_can_switch_the_marks_off() -> None:
    assert marks(ASKED, tools=True, cache_breakpoints=False) == {}


def test_the_prompt_s_own_breakpoint_stays_as_it_is() -> None:
    own = Message(role="system", content=("Be brief.", HOUR))
    assert marks([own, *ASKED])["system.0"] == {"type": "ephemeral", "ttl": "1h"}
    assert marks([own, *ASKED])["messages.10.content.0"] == {"type": "ephemeral"}


@pytest.mark.parametrize("tools", [False, True])
def test_an_hour_that_the_prompt_asks_for_later_stays_an_hour(tools: bool) -> None:
    asked = user_message("first", HOUR, "second")
    found = marks([asked, *TALK[1:], user_message("last")], tools=tools)
    assert found["messages.0.content.0"] == {"type": "ephemeral", "ttl": "1h"}
    assert found["messages.10.content.0"] == {"type": "ephemeral"}
    with_system = marks([SYSTEM, asked], tools=tools)
    assert with_system["system.0"] == with_system["messages.0.content.0"]


@given(
    st.lists(
        st.sampled_from(
            [SYSTEM, user_message("u"), user_message("u", HOUR), assistant_message("a")]
        ),
        min_size=1,
        max_size=12,
    ),
    st.booleans(),
    st.sampled_from(("5m", "1h")),
)
def test_the_api_accepts_the_marks_of_every_conversation(
    messages: list[Message], tools: bool, ttl: CacheTtl
) -> None:
    found = list(marks(messages, tools=tools, cache_ttl=ttl).values())
    lives = [mark.get("ttl", "5m") for mark in found]
    assert len(found) <= 4
    assert lives == sorted(lives)  # "1h" before "5m"


def test_the_messages_of_a_conversation_stay_without_marks() -> None:
    messages = [SYSTEM, *ASKED]
    assert mark_prefix(messages, len(messages)) != messages
    assert all(isinstance(part, str) for message in messages for part in message.content)
    assert find_breakpoints([]) == []
