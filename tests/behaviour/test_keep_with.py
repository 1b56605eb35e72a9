"""Members of a KeepWith group leave together."""

from __future__ import annotations

import pytest

from promptkit import (
    AssistantMessage,
    Child,
    KeepWith,
    TextChunk,
    TokenLimit,
    ToolCall,
    ToolMessage,
    UserMessage,
    render,
)
from promptkit.errors import BadPropError
from promptkit.testing import WordTokenizer


def texts(prompt: Child, budget: int) -> list[str]:
    return [
        message.text
        for message in render(prompt, budget=budget, tokenizer=WordTokenizer()).messages
    ]


def test_the_last_of_a_member_takes_the_others_along() -> None:
    prompt = UserMessage()[
        KeepWith(group=1, priority=1)[TextChunk(priority=1)["a"], TextChunk(priority=2)["b"]],
        KeepWith(group=1, priority=2)[TextChunk()["c"]],
        TextChunk(priority=3)["d"],
    ]
    assert [texts(prompt, budget) for budget in (4, 3, 2, 1)] == [
        ["a\nb\nc\nd"],
        ["b\nc\nd"],
        ["d"],
        ["d"],
    ]


def test_groups_inside_of_a_member_are_taken_along_in_turn() -> None:
    prompt = (
        KeepWith(group=1, priority=1)[UserMessage()["a"]],
        KeepWith(group=1, priority=2)[KeepWith(group=2)[UserMessage()["b"]], UserMessage()["c"]],
        KeepWith(group=2, priority=3)[UserMessage()["d"]],
        UserMessage(priority=4)["e"],
    )
    assert texts(prompt, 4) == ["e"]


def test_a_member_that_rendered_nothing_takes_nobody_along_before_it_is_pruned_itself() -> None:
    prompt = UserMessage()[
        KeepWith(group=1, priority=0),
        KeepWith(group=1, priority=9)["a"],
        TextChunk(priority=1)["b"],
    ]
    assert texts(prompt, 2) == ["a\nb"]
    # as in prompt-tsx: the empty member is the lowest, and its group goes with it
    assert texts(prompt, 1) == ["b"]


def test_a_call_leaves_with_the_group_and_its_result_with_the_call() -> None:
    prompt = (
        AssistantMessage(tool_calls=[ToolCall(id="1", name="f")], keep_with={"1": "turn"})["said"],
        ToolMessage(tool_call_id="1")["result"],
        KeepWith(group="turn", priority=0)[UserMessage()["note"]],
        UserMessage(required=True)["q"],
    )
    made = render(prompt, budget=3, tokenizer=WordTokenizer())
    assert [(message.text, message.tool_calls) for message in made.messages] == [
        ("said", ()),
        ("q", ()),
    ]


def test_groups_are_told_apart_by_their_value() -> None:
    prompt = UserMessage(priority=1)[
        KeepWith(group=("a", 1), priority=0)["x"],
        KeepWith(group=("a", 2))["y"],
        KeepWith(group=("a", 1))["z"],
    ]
    assert texts(prompt, 2) == ["y"]


def test_a_limit_that_leaves_with_a_group_around_it_is_kept() -> None:
    inner = UserMessage()["w1 ", "w2 ", KeepWith(group=1, priority=0)["w3"]]
    prompt = (KeepWith(group=1)[TokenLimit(max_tokens=1)[inner]], UserMessage()["x"])
    assert texts(prompt, 9) == ["x"]


@pytest.mark.parametrize(
    "prompt",
    [
        UserMessage()[KeepWith(group=[1])["a"]],  # type: ignore[arg-type]  # what the test is about
        AssistantMessage(tool_calls=[ToolCall(id="1", name="f")], keep_with={"1": [1]}),  # type: ignore[dict-item]  # as above
    ],
)
def test_a_group_that_is_not_hashable_is_refused_with_its_place(prompt: Child) -> None:
    with pytest.raises(
        BadPropError,
        match=r"(KeepWith|AssistantMessage).* must be hashable, not a list: use a text",
    ):
        texts(prompt, 9)
