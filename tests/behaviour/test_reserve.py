"""`Reserve` keeps room free."""

from __future__ import annotations

import pytest

from promptkit import BudgetExceededError, Group, Reserve, TextChunk, UserMessage, render
from promptkit.testing import WordTokenizer


def test_room_is_kept_free_and_reported() -> None:
    made = render((UserMessage(priority=1)["a b"], UserMessage(priority=2)["c d"], Reserve(tokens=3)), budget=6, tokenizer=WordTokenizer())
    assert [message.text for message in made.messages] == ["c d"]
    assert (made.tokens, made.reserved, made.budget) == (2, 3, 6)


def test_it_is_no_part_of_the_tokens_of_the_request() -> None:
    made = render((UserMessage()["a b"], Reserve(tokens=3)), budget=6, tokenizer=WordTokenizer())
    assert (made.tokens, made.reserved) == (2, 3)


def test_several_add_up() -> None:
    made = render((Reserve(tokens=3), Group()[Reserve(tokens=4)], UserMessage()["a"]), budget=10, tokenizer=WordTokenizer())
    assert made.reserved == 7


def test_it_is_never_pruned_whatever_its_priority() -> None:
    prompt = (Group(priority=0)[Reserve(tokens=3, priority=0)], UserMessage(priority=1)["a b"], UserMessage()["c"])
    made = render(prompt, budget=4, tokenizer=WordTokenizer())
    assert (made.tokens, made.reserved) == (1, 3)


def test_more_than_the_budget_does_not_fit() -> None:
    with pytest.raises(BudgetExceededError):
        render((UserMessage()["a"], Reserve(tokens=7)), budget=6, tokenizer=WordTokenizer())


def test_its_siblings_share_what_it_leaves() -> None:
    text = TextChunk(break_on_whitespace=True)["a b c d e f g h"]
    made = render((Reserve(tokens=3), UserMessage(flex_grow=1)[text]), budget=10, tokenizer=WordTokenizer())
    assert made.tokens == 7


def test_a_look_at_another_budget_keeps_the_reserve() -> None:
    made = render((UserMessage(priority=1)["a b"], UserMessage()["c"], Reserve(tokens=3)), budget=6, tokenizer=WordTokenizer())
    assert (made.at_budget(4).tokens, made.at_budget(4).reserved) == (1, 3)
