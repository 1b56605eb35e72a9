"""What the error of a prompt that is too large tells: what stays, what left, and which limit it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, note

from promptkit import (
    AssistantMessage,
    BudgetExceededError,
    Group,
    SystemMessage,
    TextChunk,
    TokenLimit,
    UserMessage,
    render,
)
from promptkit.elements import Metadata, Reserve
from promptkit.rendering import Removal
from promptkit.testing import WordTokenizer
from promptkit.tokens.tokenizer import count_message
from tests.behaviour.assembly import assembled
from tests.behaviour.oracle import oracle
from tests.behaviour.strategies import prompts, tokenizers
from tests.behaviour.tokenizers import Bounded
from tests.behaviour.trees import planted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from promptkit import Child
    from promptkit.tokens import Tokenizer


def failure(prompt: Child, budget: int, tokenizer: Tokenizer | None = None) -> BudgetExceededError:
    with pytest.raises(BudgetExceededError) as caught:
        render(prompt, budget=budget, tokenizer=tokenizer or WordTokenizer())
    return caught.value


def told(removals: Iterable[object]) -> list[tuple[str, str, float | None, int]]:
    return [
        (each.path, each.reason, each.priority, each.tokens)
        for each in removals
        if isinstance(each, Removal)
    ]


@given(prompts(), tokenizers())
def test_what_stays_and_what_left_is_what_the_oracle_finds(
    prompt: Child, tokenizer: Tokenizer
) -> None:
    note(f"prompt = {prompt!r}\ntokenizer = {tokenizer!r}")
    answers = oracle(prompt, tokenizer)
    last = answers.states[-1]
    least = min(state.tokens + state.reserved for state in answers.states)
    assume(answers.fits and least)
    error = failure(prompt, least - 1, tokenizer)
    required = last.tokens + last.reserved
    assert (error.budget, error.required, error.where) == (least - 1, required, "")
    sizes = [*(count_message(each, tokenizer) for each in last.messages), last.reserved]
    assert list(error.largest.values()) == sorted(filter(None, sizes), reverse=True)[:3]
    assert error.messages == assembled(planted(prompt, tokenizer, text_encloses=True).root)
    made = render(prompt, budget=required, tokenizer=tokenizer)
    assert told(error.removed)[: len(made.removals)] == told(made.removals)


class TestOfALimit:
    def test_without_messages_in_it_the_limit_is_the_largest(self) -> None:
        error = failure(
            UserMessage()[TokenLimit(max_tokens=1)[TextChunk(required=True)["a b"]]], 99
        )
        assert error.largest == {error.where: 2} == {"UserMessage > TokenLimit": 2}

    def test_with_messages_in_it_these_are_the_largest(self) -> None:
        error = failure(TokenLimit(max_tokens=1)[UserMessage(required=True)["a b"]], 99)
        assert error.largest == {"TokenLimit > UserMessage": 2}

    def test_neither_a_reserve_nor_the_tools_count(self) -> None:
        error = failure(
            (TokenLimit(max_tokens=1)[UserMessage(required=True)["a b"]], Reserve(tokens=9)), 99
        )
        assert (error.required, error.largest) == (2, {"TokenLimit[0] > UserMessage": 2})

    def test_what_it_removed_was_removed_for_the_limit(self) -> None:
        limit = TokenLimit(max_tokens=1)[
            UserMessage(priority=1)["x y z"], UserMessage(required=True)["a b"]
        ]
        assert told(failure(limit, 99).removed) == [("TokenLimit > UserMessage[0]", "limit", 1, 3)]

    def test_what_it_removed_is_told_also_around_another_limit(self) -> None:
        limit = TokenLimit(max_tokens=3)[
            TokenLimit(priority=9, max_tokens=2)[UserMessage(priority=9)["x"]],
            UserMessage(priority=1)["a"],
            UserMessage(required=True)["a b c d"],
        ]
        error = failure((limit, UserMessage()["q"]), 99, Bounded())
        assert [(path.split(" > ")[-1], reason) for path, reason, _, _ in told(error.removed)] == [
            ("UserMessage[1]", "limit"),
            ("TokenLimit[0]", "limit"),
        ]


def test_the_messages_are_those_from_before_any_limit_in_another_one() -> None:
    inner = TokenLimit(priority=9, max_tokens=2)[
        UserMessage(priority=1)["a b"], UserMessage(priority=2)["c d"]
    ]
    outer = TokenLimit(max_tokens=4)[
        inner,
        UserMessage(priority=1)["e f"],
        UserMessage(priority=2)[TextChunk()["g h"]],
        UserMessage(priority=3)["i j"],
    ]
    error = failure((outer, UserMessage(required=True)["k l m"]), 2, Bounded())
    texts = [message.text for message in error.messages]
    assert texts == ["a b", "c d", "e f", "g h", "i j", "k l m"]


@pytest.mark.parametrize("tokens", [0, 2])
def test_limits_that_leave_no_user_message_tell_the_prompt_as_it_was(tokens: int) -> None:
    prompt = (
        SystemMessage()["rules", Metadata(value="of the rules")],
        AssistantMessage()[TokenLimit(max_tokens=1)["also left out"]],
        UserMessage(priority=1)[TokenLimit(max_tokens=tokens)["far too long"]],
        Group()[Metadata(value="of the rest")],
    )
    error = failure(prompt, 99)
    assert (error.budget, error.required, error.over) == (tokens, 3, 3 - tokens)
    assert (error.where, error.last_message) == ("UserMessage[2] > TokenLimit", "UserMessage[2]")
    assert error.largest == {"UserMessage[2]": 3}
    assert [message.text for message in error.messages] == [
        "rules",
        "also left out",
        "far too long",
    ]
    assert error.metadata == ("of the rules", "of the rest")
    assert [(path, reason) for path, reason, _, _ in told(error.removed)] == [
        ("UserMessage[2]", "limit"),
        ("AssistantMessage[1]", "limit"),
    ]
