"""A fallback takes the place of what was pruned, and is counted before it does."""

from __future__ import annotations

import pytest

from promptkit import (
    AssistantMessage,
    Child,
    Chunk,
    Group,
    KeepWith,
    Rendered,
    Text,
    TextChunk,
    TokenLimit,
    ToolCall,
    ToolMessage,
    UserMessage,
    count_request,
    render,
)
from promptkit.testing import WordTokenizer


def rendered(prompt: Child, budget: int) -> Rendered:
    return render(prompt, budget=budget, tokenizer=WordTokenizer())


def texts(prompt: Child, budget: int) -> list[str]:
    return [message.text for message in rendered(prompt, budget).messages]


def test_a_marker_stands_where_the_pruned_stood() -> None:
    prompt = UserMessage()[
        TextChunk()["a"],
        TextChunk(priority=1, fallback=TextChunk()["[omitted]"])["b b b"],
        TextChunk()["c"],
    ]
    assert texts(prompt, 5) == ["a\nb b b\nc"]
    assert texts(prompt, 4) == ["a\n[omitted]\nc"]


def test_a_fallback_is_as_prunable_as_the_element_was() -> None:
    prompt = UserMessage()[
        TextChunk(priority=1, fallback="short")["long long"], TextChunk(priority=2)["c"]
    ]
    assert [texts(prompt, budget) for budget in (3, 2, 1)] == [
        ["long long\nc"],
        ["short\nc"],
        ["c"],
    ]


def test_a_fallback_may_have_a_fallback() -> None:
    prompt = UserMessage()[
        TextChunk(priority=1, fallback=TextChunk(fallback="s")["m m"])["l l l"],
        TextChunk(priority=2)["c"],
    ]
    assert [texts(prompt, budget) for budget in (4, 3, 2, 1)] == [
        ["l l l\nc"],
        ["m m\nc"],
        ["s\nc"],
        ["c"],
    ]


def test_a_group_is_replaced_only_when_all_of_it_has_gone() -> None:
    prompt = UserMessage()[
        Group(priority=1, fallback="gone")[TextChunk()["a a"], TextChunk()["b b"]],
        TextChunk(priority=2)["c"],
    ]
    assert [texts(prompt, budget) for budget in (5, 3, 2, 1)] == [
        ["a a\nb b\nc"],
        ["b b\nc"],
        ["gone\nc"],
        ["c"],
    ]


def test_a_chunk_is_replaced_as_a_whole() -> None:
    prompt = UserMessage()[
        Chunk(priority=1, fallback="gone")["a a ", Text()["b b"]], TextChunk(priority=2)["c"]
    ]
    assert texts(prompt, 4) == ["gone\nc"]


def test_a_message_is_replaced_by_a_message() -> None:
    prompt = (
        UserMessage(priority=1, fallback=UserMessage()["[older turn]"])["a b c d"],
        UserMessage(priority=2)["e"],
    )
    assert texts(prompt, 4) == ["[older turn]", "e"]


def test_removing_what_stands_around_it_removes_the_fallback_too() -> None:
    prompt = UserMessage()[
        Chunk(priority=1)[TextChunk(fallback="short")["long long"]], TextChunk(priority=2)["c"]
    ]
    assert texts(prompt, 2) == ["c"]


def test_a_fallback_keeps_its_parent_from_being_empty() -> None:
    prompt = (
        UserMessage(priority=1)[TextChunk(fallback="short")["long long"]],
        UserMessage(priority=2)["c"],
    )
    assert texts(prompt, 2) == ["short", "c"]


def test_what_leaves_with_its_group_is_replaced_too() -> None:
    prompt = UserMessage()[
        KeepWith(group=1, priority=1)["a a"],
        KeepWith(group=1, priority=9, fallback="short")["b b"],
        TextChunk(priority=5)["c"],
    ]
    assert texts(prompt, 4) == ["short\nc"]


def test_a_shorter_result_of_the_same_call_keeps_the_call() -> None:
    prompt = (
        AssistantMessage(tool_calls=[ToolCall(id="1", name="f")])["a"],
        ToolMessage(tool_call_id="1", priority=1, fallback=ToolMessage(tool_call_id="1")["[cut]"])[
            "r r r r"
        ],
    )
    made = rendered(prompt, 3)
    assert [(message.role, message.text) for message in made.messages] == [
        ("assistant", "a"),
        ("tool", "[cut]"),
    ]
    assert [call.id for call in made.messages[0].tool_calls] == ["1"]


def test_a_fallback_that_costs_more_than_it_saves_is_counted_before_it_is_chosen() -> None:
    prompt = (
        UserMessage(priority=1, fallback=UserMessage()["x x x x x x"])["a b c"],
        UserMessage(priority=2)["d"],
    )
    assert [texts(prompt, budget) for budget in (10, 4, 3)] == [
        ["a b c", "d"],
        ["a b c", "d"],
        ["d"],
    ]


def test_nothing_is_pruned_where_everything_fits_even_if_a_fallback_would_be_larger() -> None:
    prompt = (UserMessage(), UserMessage(fallback=UserMessage()["one two three"])["w"])
    made = rendered(prompt, 2)
    assert [message.text for message in made.messages] == ["w"]
    assert made.removals == ()


def test_the_fallback_of_a_result_leaves_with_its_call() -> None:
    prompt = (
        UserMessage()["q"],
        AssistantMessage(priority=0, tool_calls=[ToolCall(id="1", name="f")]),
        ToolMessage(tool_call_id="1", fallback=ToolMessage(tool_call_id="1")["[cut]"])["r r"],
    )
    assert texts(prompt, 1) == ["q"]


def test_a_limit_with_a_fallback_still_holds() -> None:
    prompt = (
        TokenLimit(max_tokens=1, fallback=UserMessage()["[left out]"])[UserMessage()["a b c"]],
        UserMessage()["d"],
    )
    assert texts(prompt, 9) == ["[left out]", "d"]


LONG = "word " * 160
EMPTY = KeepWith(group="g", fallback=LONG)
IN_AN_EMPTY_MESSAGE: dict[str, Child] = {
    "in a message": UserMessage()[EMPTY],
    "in groups": UserMessage()[Group()[Group()[EMPTY]]],
    "between blanks": UserMessage()[" ", Group()[EMPTY], "\n"],
    "in an assistant message": AssistantMessage(priority=3)[EMPTY],
}


@pytest.mark.parametrize("message", IN_AN_EMPTY_MESSAGE.values(), ids=IN_AN_EMPTY_MESSAGE.keys())
@pytest.mark.parametrize("budget", [7, 20, 100, 167, 200, 1_000])
def test_a_fallback_that_fills_an_empty_message_is_counted_with_the_message(
    message: Child, budget: int
) -> None:
    prompt = (
        UserMessage(priority=4)["q"],
        message,
        KeepWith(group="g", priority=1)[UserMessage()["partner " * 400]],
    )
    # which sends no message where none fits
    made = render(prompt, budget=budget, defaults="prompt-tsx")
    sent = count_request({"messages": made.to_chat()}).tokens if made.messages else 0
    assert sent == made.tokens <= budget
    assert ("word" in "".join(message.text for message in made.messages)) == (budget == 200)


def test_a_group_that_a_fallback_fills_keeps_its_message() -> None:
    prompt = (
        UserMessage()[
            TextChunk(priority=2)["b b b b"],
            Group(priority=9)[KeepWith(group=1, fallback="short")[()]],
        ],
        KeepWith(group=1, priority=1)[UserMessage()["a a a a a a"]],
    )
    assert [texts(prompt, budget) for budget in (10, 5, 1)] == [
        ["b b b b", "a a a a a a"],
        ["b b b b\nshort"],
        ["short"],
    ]
