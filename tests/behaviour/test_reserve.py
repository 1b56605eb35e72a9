"""`Reserve` keeps room free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from promptkit import (
    AssistantMessage,
    BudgetExceededError,
    Child,
    Chunk,
    Expandable,
    Group,
    Reserve,
    SystemMessage,
    TextChunk,
    TokenLimit,
    UserMessage,
    count_request,
    render,
)
from promptkit.testing import WordTokenizer
from tests.behaviour.tokenizers import Bounded

if TYPE_CHECKING:
    from promptkit.tokens import Tokenizer


@pytest.mark.parametrize("tokenizer", [WordTokenizer(), Bounded()], ids=["", "with bounds"])
def test_room_is_kept_free_and_reported(tokenizer: Tokenizer) -> None:
    around = tokenizer.count_overhead().tokens
    made = render(
        (UserMessage(priority=1)["a b"], UserMessage(priority=2)["c d"], Reserve(tokens=3)),
        budget=6 + around,
        tokenizer=tokenizer,
    )
    assert [message.text for message in made.messages] == ["c d"]
    assert (made.tokens, made.reserved, made.budget) == (2 + around, 3, 6 + around)


def test_it_is_no_part_of_the_tokens_of_the_request() -> None:
    made = render((UserMessage()["a b"], Reserve(tokens=3)), budget=6, tokenizer=WordTokenizer())
    assert (made.tokens, made.reserved) == (2, 3)


def test_several_add_up() -> None:
    made = render(
        (Reserve(tokens=3), Group()[Reserve(tokens=4)], UserMessage()["a"]),
        budget=10,
        tokenizer=WordTokenizer(),
    )
    assert made.reserved == 7


def test_it_is_never_pruned_whatever_its_priority() -> None:
    prompt = (
        Group(priority=0)[Reserve(tokens=3, priority=0)],
        UserMessage(priority=1)["a b"],
        UserMessage()["c"],
    )
    made = render(prompt, budget=4, tokenizer=WordTokenizer())
    assert (made.tokens, made.reserved) == (1, 3)


def test_more_than_the_budget_does_not_fit() -> None:
    with pytest.raises(BudgetExceededError):
        render((UserMessage()["a"], Reserve(tokens=7)), budget=6, tokenizer=WordTokenizer())


def test_its_siblings_share_what_it_leaves() -> None:
    text = TextChunk(break_on_whitespace=True)["a b c d e f g h"]
    made = render(
        (Reserve(tokens=3), UserMessage(flex_grow=1)[text]), budget=10, tokenizer=WordTokenizer()
    )
    assert made.tokens == 7


def test_a_look_at_another_budget_keeps_the_reserve() -> None:
    made = render(
        (UserMessage(priority=1)["a b"], UserMessage()["c"], Reserve(tokens=3)),
        budget=6,
        tokenizer=WordTokenizer(),
    )
    assert (made.at_budget(4).tokens, made.at_budget(4).reserved) == (1, 3)


QUESTION = UserMessage()["What now?"]
IN_MESSAGES: dict[str, Child] = {
    "beside a text": SystemMessage(priority=5)["a parser ", Reserve(tokens=1)],
    "in a group": SystemMessage(priority=5)[
        Group()[Reserve(tokens=1), "a parser"], TextChunk()["in Python"]
    ],
    "in a chunk": SystemMessage(priority=5)[Chunk()["a parser ", Reserve(tokens=1)]],
    "beside a blank text": AssistantMessage(priority=5)[
        " ", TextChunk()["a parser"], Reserve(tokens=1)
    ],
    "beside nothing": AssistantMessage()[Reserve(tokens=1)],
    "before another system message": (
        SystemMessage(priority=5)["a parser", Reserve(tokens=1)],
        SystemMessage(priority=9)["be brief"],
    ),
    "in a user message": UserMessage(priority=5)["a parser", Reserve(tokens=1)],
    "in a limit": TokenLimit(max_tokens=1)[
        AssistantMessage()["a parser that is too long", Reserve(tokens=1)]
    ],
}


@pytest.mark.parametrize("message", IN_MESSAGES.values(), ids=IN_MESSAGES.keys())
def test_a_message_of_which_only_it_is_left_costs_nothing_and_its_room_stays_free(
    message: Child,
) -> None:
    whole = render((message, QUESTION), budget=100)
    smallest = render(QUESTION, budget=100).tokens + 1
    for budget in range(smallest, whole.tokens + 2):
        made = whole.at_budget(budget)
        assert (made.tokens, made.reserved) == (
            count_request({"messages": made.to_chat(), "model": "gpt-4o"}).tokens,
            1,
        )
    assert [message.text for message in whole.at_budget(smallest).messages] == ["What now?"]
    with pytest.raises(BudgetExceededError) as caught:
        whole.at_budget(smallest - 1)
    assert caught.value.required == smallest


def test_it_does_not_stand_for_the_last_user_message() -> None:
    prompt = (
        AssistantMessage(required=True)["a"],
        UserMessage(priority=1)["the question", Reserve(tokens=1)],
    )
    with pytest.raises(BudgetExceededError) as caught:
        render(prompt, budget=2, tokenizer=WordTokenizer())
    assert caught.value.last_message == "UserMessage[1]"
    users = (
        UserMessage(required=True)["a"],
        UserMessage()["the question"],
        UserMessage()[Reserve(tokens=1)],
    )
    with pytest.raises(BudgetExceededError) as caught:
        render(users, budget=2, tokenizer=WordTokenizer())
    assert caught.value.required == 4


def test_its_room_stays_free_when_the_tree_grows_after_a_limit_has_removed_its_message() -> None:
    limited = TokenLimit(max_tokens=6)[
        AssistantMessage()["a text of one word too many", Reserve(tokens=5)]
    ]
    grows = UserMessage()[Expandable(value=lambda sizing: "x " * sizing.token_budget)]
    made = render((limited, grows), budget=20, tokenizer=WordTokenizer())
    assert (made.tokens, made.reserved) == (15, 5)
