"""Limits in limits leave what the slow oracle leaves; one that removes the request is refused with what it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from promptkit import (
    AssistantMessage,
    BudgetExceededError,
    Group,
    KeepWith,
    TextChunk,
    TokenLimit,
    ToolCall,
    ToolMessage,
    UserMessage,
    render,
)
from promptkit.elements import Metadata
from promptkit.testing import WordTokenizer
from promptkit.tokens import tokenizer_for
from tests.behaviour.oracle import oracle

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit import Child

STAYS = UserMessage(required=True)["z"]


def said(priority: float, words: int = 2) -> Child:
    return UserMessage(priority=priority)["w " * words]


def lines(priority: float, *inner: float) -> Child:
    return UserMessage(priority=priority)[[TextChunk(priority=each)["v w"] for each in inner]]


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
}


@pytest.mark.parametrize("name", NESTED)
def test_limits_in_limits_leave_what_the_oracle_leaves(name: str) -> None:
    for most in range(9, 45, 2):
        prompt = NESTED[name](most)
        for tokenizer in (WordTokenizer(per_message=4, per_call=8), tokenizer_for(None)):
            want = oracle(prompt, tokenizer).states[0]
            made = render(prompt, budget=10_000, tokenizer=tokenizer)
            assert (made.messages, made.tokens) == (want.messages, want.tokens), most


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
