"""`First` renders the first child that fits its share."""

from __future__ import annotations

import pytest

from promptkit import (
    AssistantMessage,
    Child,
    First,
    Group,
    Message,
    PromptElement,
    SystemMessage,
    Text,
    TextChunk,
    UserMessage,
    render,
)
from promptkit.testing import WordTokenizer

CHOICES = (Text()["whole file with six words"], Text()["an outline"], Text()["name"])


def texts(prompt: Child, budget: int) -> list[str]:
    return [
        message.text
        for message in render(prompt, budget=budget, tokenizer=WordTokenizer()).messages
    ]


@pytest.mark.parametrize(
    ("budget", "chosen"),
    [
        (9, "whole file with six words"),
        (5, "whole file with six words"),
        (4, "an outline"),
        (2, "an outline"),
        (1, "name"),
    ],
)
def test_the_first_that_fits_is_rendered(budget: int, chosen: str) -> None:
    assert texts(UserMessage()[First()[CHOICES]], budget) == [chosen]


def test_where_none_fits_it_is_the_last_and_prunable() -> None:
    prompt = (UserMessage(priority=1)[First()[Text()["a b c"], Text()["d e"]]], UserMessage()["x"])
    assert texts(prompt, 2) == ["x"]


def test_none_at_the_end_renders_nothing_instead() -> None:
    assert texts((UserMessage()[First()[Text()["a b c"], None]], SystemMessage()["x"]), 2) == ["x"]


def test_what_stands_before_it_is_counted() -> None:
    assert texts(UserMessage()["already three words ", First()[CHOICES]], 5)[0].split()[3:] == [
        "an",
        "outline",
    ]


def test_siblings_of_one_group_share_the_room() -> None:
    made = texts(UserMessage()[First()[CHOICES], First()[CHOICES]], 6)
    assert made[0].split() == ["an", "outline", "an", "outline"]


def test_a_choice_may_be_a_whole_message() -> None:
    prompt = First()[UserMessage()["four words are here"], UserMessage()["short"]]
    assert (texts(prompt, 4), texts(prompt, 3)) == (["four words are here"], ["short"])


@pytest.mark.parametrize(
    "short",
    [
        UserMessage(priority=5)["short"],
        UserMessage(priority=5)["short", TextChunk(priority=9)["text"]],
        Group(priority=5)[UserMessage()["short"]],
    ],
)
def test_a_choice_is_pruned_as_if_the_ones_before_it_were_not_there(short: PromptElement) -> None:
    def prune(*choices: Child) -> list[tuple[tuple[Message, ...], list[float | None]]]:
        first = First(pass_priority=True)[choices]
        prompt = first, AssistantMessage(priority=3)["other"], UserMessage()["x"]
        made = render(prompt, budget=9, tokenizer=WordTokenizer())
        return [
            (pruned.messages, [removal.priority for removal in pruned.removals])
            for pruned in map(made.at_budget, range(1, 6))
        ]

    assert prune(UserMessage(priority=1)["a " * 20], short) == prune(short)


def test_strings_are_choices_too() -> None:
    assert texts(UserMessage()[First()["a b c", "d"]], 2) == ["d"]


def test_the_choice_is_pruned_like_anything_else() -> None:
    prompt = UserMessage()[
        Group(priority=1)[First()[TextChunk()["a a"], TextChunk()["b"]]],
        TextChunk(priority=2, flex_grow=1)["c c"],
    ]
    assert texts(prompt, 2) == ["c c"]


def test_a_choice_is_counted_with_all_that_is_below_it() -> None:
    choice = First()[
        Group()[Group()[UserMessage()["whole file with six words"]]], UserMessage()["name"]
    ]
    rendered = [
        render(choice, budget=budget, model="gpt-4o").messages[0].text for budget in (100, 10)
    ]
    assert rendered == ["whole file with six words", "name"]
