"""Limits in limits leave what the slow oracle leaves; one that removes the request is refused with what it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from promptkit import (
    AssistantMessage,
    BudgetExceededError,
    CacheBreakpoint,
    Group,
    KeepWith,
    Message,
    TextChunk,
    TokenLimit,
    ToolCall,
    ToolMessage,
    UserMessage,
    render,
)
from promptkit.elements import Metadata
from promptkit.fitting import RecordedMessages
from promptkit.testing import WordTokenizer
from promptkit.tokens import tokenizer_for
from tests.behaviour.test_oracle_equality import check
from tests.behaviour.tokenizers import Bounded

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit import Child

STAYS = UserMessage(required=True)["z"]


def said(priority: float, words: int = 2) -> Child:
    return UserMessage(priority=priority)["w " * words]


def chunk(priority: float) -> Child:
    return TextChunk(priority=priority)["v w"]


def lines(priority: float, *inner: float) -> Child:
    return UserMessage(priority=priority)[[chunk(each) for each in inner]]


def asked(name: str, priority: float) -> Child:
    return AssistantMessage(priority=priority, tool_calls=[ToolCall(id=name, name="f")])


def answered(name: str, priority: float) -> Child:
    return ToolMessage(priority=priority, tool_call_id=name)["a result of it"]


NESTED: dict[str, Callable[[int], Child]] = {
    "of messages": lambda most: [
        TokenLimit(max_tokens=most)[
            TokenLimit(max_tokens=14)[said(1), said(2), said(3)], said(1.5), said(4), said(0.5)
        ],
        STAYS,
    ],
    "of lines": lambda most: [
        TokenLimit(max_tokens=most)[
            TokenLimit(max_tokens=18)[lines(2, 3, 1, 2), lines(1, 5, 4)],
            lines(3, 2, 1),
            lines(1, 2, 3),
        ],
        STAYS,
    ],
    "in groups": lambda most: [
        TokenLimit(max_tokens=most)[
            Group(priority=2)[TokenLimit(max_tokens=16)[said(1), said(2), said(3)], said(1)],
            Group(priority=1)[TokenLimit(max_tokens=10)[said(2), lines(1, 2, 1)], said(3)],
        ],
        STAYS,
    ],
    "side by side": lambda most: [
        TokenLimit(max_tokens=most)[
            TokenLimit(max_tokens=10)[said(1), said(2)], TokenLimit(max_tokens=12)[said(2), said(1)]
        ],
        TokenLimit(max_tokens=8)[said(1), said(2)],
        STAYS,
    ],
    "with calls answered outside": lambda most: [
        TokenLimit(max_tokens=most)[
            TokenLimit(max_tokens=28)[asked("c1", 1), asked("c2", 2), said(0)],
            answered("c1", 4),
            said(3),
            answered("c2", 1),
        ],
        STAYS,
    ],
    "with messages kept with others outside": lambda most: [
        TokenLimit(max_tokens=18)[KeepWith(group=1)[said(5)], said(1), said(6)],
        TokenLimit(max_tokens=most)[
            TokenLimit(max_tokens=12)[KeepWith(group=1)[said(2)], said(3), said(1)],
            KeepWith(group=1)[said(1), lines(2, 1, 2)],
            said(4),
        ],
        STAYS,
    ],
    "with messages kept with those of a limit before": lambda most: [
        TokenLimit(max_tokens=most)[
            TokenLimit(max_tokens=9)[KeepWith(group=1, priority=1)[said(1)], said(2)],
            TokenLimit(max_tokens=14)[KeepWith(group=1)[said(5)], said(3), said(4)],
            said(4),
        ],
        STAYS,
    ],
    "in messages": lambda most: [
        UserMessage()[
            TokenLimit(max_tokens=most // 3)[
                TokenLimit(max_tokens=5)[chunk(1), chunk(3), chunk(2)], chunk(2), chunk(4)
            ],
            chunk(5),
        ],
        UserMessage(priority=9)[
            TokenLimit(max_tokens=most // 4)[chunk(1), Group()[chunk(3), chunk(2)], chunk(2)]
        ],
        STAYS,
    ],
    "in messages with texts kept with others outside": lambda most: [
        UserMessage()[
            KeepWith(group=2)[chunk(5)],
            TokenLimit(max_tokens=most // 3)[
                KeepWith(group=1, priority=1)["a b"], KeepWith(group=2, priority=2)["c"], chunk(3)
            ],
            KeepWith(group=1)[chunk(4)],
            chunk(5),
        ],
        STAYS,
    ],
    "with a fallback": lambda most: [
        TokenLimit(max_tokens=most)[
            TokenLimit(max_tokens=14)[said(1), said(2), said(3)],
            UserMessage(priority=1, fallback=UserMessage()["instead of it"])["v " * 7],
            said(4),
        ],
        STAYS,
    ],
    "with a cache breakpoint": lambda most: [
        TokenLimit(max_tokens=most)[
            TokenLimit(max_tokens=24)[
                said(1), UserMessage(priority=2)["x", CacheBreakpoint()], said(0)
            ],
            said(3),
            said(1),
        ],
        said(1),
        STAYS,
    ],
}


@pytest.mark.parametrize("name", NESTED)
def test_limits_in_limits_leave_what_the_oracle_leaves_at_every_budget(name: str) -> None:
    for most in range(9, 45, 5):
        check(NESTED[name](most), Bounded(per_message=4, per_call=8))
        check(NESTED[name](most), tokenizer_for(None))


def test_a_message_whose_fallback_a_limit_took_back_still_leaves_as_a_whole() -> None:
    replaced = Group(priority=1, fallback="s t")["a b c d"]
    for most in (2, 5):
        message = UserMessage(priority=1)[TokenLimit(max_tokens=most)[replaced]]
        check((message, STAYS), WordTokenizer(per_message=1))


def test_a_limit_that_leaves_the_marker_of_a_conversation_alone_is_refused() -> None:
    turns = [Message(role="user", content=("one two three",))]
    prompt = (
        TokenLimit(max_tokens=1)[
            RecordedMessages(messages=turns, marker=lambda _: "omitted", shorten=False)
        ],
        AssistantMessage()["before"],
    )
    with pytest.raises(BudgetExceededError, match="the last user message"):
        render(prompt, budget=100, tokenizer=WordTokenizer())


def test_a_limit_that_removes_the_request_is_refused_with_what_it_needs_and_what_there_was() -> (
    None
):
    prompt = (
        AssistantMessage(priority=1)["before"],
        TokenLimit(max_tokens=3)[
            UserMessage(priority=1)["one two three four", Metadata(value="seen")]
        ],
    )
    with pytest.raises(BudgetExceededError) as caught:
        render(prompt, budget=100, tokenizer=WordTokenizer(per_message=1))
    error = caught.value
    assert (error.budget, error.required) == (3, 5)
    assert list(error.largest.values()) == [5]
    assert [message.text for message in error.messages] == ["before", "one two three four"]
    assert list(error.metadata) == ["seen"]
    assert "TokenLimit" in str(error)
    assert "UserMessage" in str(error)
