"""What counts as a removal, and how many tokens it had."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from promptkit import (
    AssistantMessage,
    BudgetExceededError,
    Expandable,
    Group,
    KeepWith,
    Message,
    PrioritizedList,
    Reserve,
    SystemMessage,
    Text,
    TextChunk,
    TokenLimit,
    ToolCall,
    ToolMessage,
    UserMessage,
    render,
)
from promptkit.elements.builtin import Rounds
from promptkit.fitting import RecordedMessages
from promptkit.rendering import Removal
from promptkit.rendering.paths import MAX_PATH_STEPS
from promptkit.testing import WordTokenizer

if TYPE_CHECKING:
    from promptkit import Child

QUESTION = UserMessage(required=True)["q"]
TURNS = [Message(role="assistant", content=(text,)) for text in ("a a", "b b")]
REMOVALS: dict[str, tuple[Child, int, list[str]]] = {
    "not a group of which a fallback was left": (
        Group(priority=1)[UserMessage(priority=1, fallback=UserMessage()["x"])["a b"]],
        1,
        ["Group[0] > UserMessage[0]"],
    ),
    "a member of which a fallback and a text were left": (
        UserMessage()[
            KeepWith(group=1, priority=5)[KeepWith(group=2, fallback="x")["a b"], TextChunk()["c"]],
            KeepWith(group=1, priority=2)["d"],
            KeepWith(group=2, priority=1)["e"],
            TextChunk()["f"],
        ],
        2,
        [
            "UserMessage[0] > KeepWith[2]",
            "UserMessage[0] > KeepWith[0] > KeepWith[0]",
            "UserMessage[0] > KeepWith[1]",
            "UserMessage[0] > KeepWith[0]",
        ],
    ),
    "a message with two fallbacks, which have places of their own": (
        (
            UserMessage(
                priority=1, fallback=Group(fallback=UserMessage()["x"])[UserMessage()["y y"]]
            )["a b c"],
            UserMessage(priority=2)["d"],
        ),
        1,
        ["UserMessage[0]", "UserMessage[3]"],
    ),
    "not a group that holds a reserve": (
        Group(priority=1)[Reserve(tokens=1), UserMessage()["a"]],
        2,
        ["Group[0] > UserMessage[1]"],
    ),
    "a group of a message and nothing, as a whole": (
        (Group(priority=1)[KeepWith(group=1)[()], UserMessage(priority=1)["a"]]),
        1,
        ["Group[0]"],
    ),
    "not a conversation of which the marker was left": (
        RecordedMessages(
            messages=TURNS, marker=lambda _: "x", shorten=False, keep_request=False, priority=1
        ),
        1,
        ["RecordedMessages[0] > Rounds > turn 1 · reply"] * 2,
    ),
}


@pytest.mark.parametrize("removal", REMOVALS)
def test_a_removal_is(removal: str) -> None:
    prompt, budget, paths = REMOVALS[removal]
    made = render((prompt, QUESTION), budget=budget, tokenizer=WordTokenizer())
    assert [each.path for each in made.removals] == paths


@pytest.mark.parametrize("groups", [38, 39, 40, 59])
def test_of_a_long_path_the_first_steps_and_the_last_ones_are_shown(groups: int) -> None:
    prompt: Child = UserMessage()["a", TextChunk(priority=1)["b"]]
    for number in range(groups - 1, -1, -1):
        prompt = Group(label=f"g{number}")[prompt]
    (removal,) = render(prompt, budget=1, tokenizer=WordTokenizer()).removals
    steps = [*(f"Group(g{number})" for number in range(groups)), "UserMessage"]
    if (missing := len(steps) - 2 * MAX_PATH_STEPS) > 0:
        steps[MAX_PATH_STEPS:-MAX_PATH_STEPS] = [f"… {missing} more …"]
    assert removal.path.split(" > ") == [*steps, "TextChunk[1]"]


def test_a_limit_is_emptied_in_the_same_way_when_an_expandable_has_grown() -> None:
    def removals(text: Child) -> list[list[Removal]]:
        limit = TokenLimit(max_tokens=1)[TextChunk(priority=1)["a"], TextChunk(priority=2)["b"]]
        prompt = UserMessage(priority=1)[Group()[limit]], UserMessage()["q ", text]
        made = render(prompt, budget=99, tokenizer=WordTokenizer())
        return [[*made.at_budget(budget).removals] for budget in range(2, 5)]

    grown = removals(Expandable(value=lambda _: "x"))
    assert grown == removals(Text()["x"])
    assert len(grown[0]) == 2


def test_the_source_of_a_marker_is_the_conversation() -> None:
    rounds = Rounds(
        rounds=TURNS, order=[0, 1], priorities=[0, 1], marker=lambda count: f"{count}-gone"
    )
    made = render((rounds, QUESTION), budget=5, tokenizer=WordTokenizer())
    assert [message.text for message in made.messages] == ["a a", "b b", "q"]
    made = made.at_budget(4)
    assert [(span.message, span.path) for span in made.source_map] == [
        (0, "Rounds[0] > marker"),
        (1, "Rounds[0] > turn 1 · reply"),
        (2, "UserMessage[1]"),
    ]


def test_blank_messages_of_a_conversation_cost_none_of_the_others_their_place() -> None:
    turns = [Message(role="user", content=(" ",)), *TURNS]
    rounds = Rounds(rounds=turns, order=[0, 1, 2], priorities=[0, 1, 2])
    made = render((rounds, QUESTION), budget=3, tokenizer=WordTokenizer())
    assert [message.text for message in made.messages] == ["b b", "q"]


@pytest.mark.parametrize("is_marked", [True, False])
@pytest.mark.parametrize("turns", [TURNS, TURNS[:1]])
def test_a_conversation_of_which_nothing_is_left_takes_what_is_around_it_along(
    turns: list[Message], *, is_marked: bool
) -> None:
    conversation = RecordedMessages(
        messages=turns,
        marker=(lambda _: "x x") if is_marked else None,
        shorten=False,
        keep_request=False,
        priority=1,
    )
    prompt = (
        Group(fallback=UserMessage(required=True)["gone"])[conversation],
        QUESTION,
    )
    made = render(prompt, budget=4, tokenizer=WordTokenizer(per_message=1))
    assert [message.text for message in made.messages] == ["gone", "q"]


def test_a_group_that_was_emptied_has_the_reason_of_what_left_it() -> None:
    prompt = (
        KeepWith(group=1, priority=1)[UserMessage()["a"]],
        Group()[Group()[KeepWith(group=1)[UserMessage()["b"]]]],
        QUESTION,
    )
    made = render(prompt, budget=1, tokenizer=WordTokenizer())
    assert [(each.path, each.reason, each.partner) for each in made.removals] == [
        ("KeepWith[0]", "budget", None),
        ("Group[1]", "kept-with", "KeepWith[0]"),
    ]


def test_an_empty_group_is_a_removal() -> None:
    with pytest.raises(BudgetExceededError) as caught:
        render((Group(priority=1), QUESTION), budget=0, tokenizer=WordTokenizer())
    assert [each.path for each in caught.value.removed if isinstance(each, Removal)] == ["Group[0]"]


def test_a_removed_call_had_the_tokens_that_its_message_is_smaller_without_it() -> None:
    prompt = (
        AssistantMessage(tool_calls=[ToolCall(id=each, name="f") for each in "12"])["text"],
        ToolMessage(tool_call_id="1", priority=1)["a a"],
        ToolMessage(tool_call_id="2", priority=2)["b"],
        QUESTION,
    )
    made = render(prompt, budget=4, tokenizer=WordTokenizer(per_message=1, per_call=3))
    assert [(each.path.rpartition(" > ")[2], each.tokens) for each in made.removals] == [
        ("ToolMessage[1]", 3),
        ("call 1", 3),
        ("ToolMessage[2]", 2),
        ("call 2", 3),
    ]


def test_the_system_message_that_stays_is_the_one_whose_outermost_container_leaves_last() -> None:
    prompt = (
        Group(priority=1)[UserMessage(priority=0)["u"], SystemMessage()["a"]],
        Group(priority=5)[SystemMessage()["b"]],
        UserMessage(priority=9)["q"],
    )
    kept = [
        [
            message.text
            for message in render(prompt, budget=tokens, tokenizer=WordTokenizer()).messages
        ]
        for tokens in (4, 3, 2)
    ]
    assert kept == [["u", "a", "b", "q"], ["a", "b", "q"], ["b", "q"]]


@pytest.mark.parametrize(("descending", "priorities"), [(True, [-2, -1]), (False, [-3, -2])])
def test_a_list_without_a_priority_gives_its_children_those_up_to_0_or_below(
    *, descending: bool, priorities: list[int]
) -> None:
    children = PrioritizedList(descending=descending)["one", "two", "three"]
    made = render((UserMessage()[children], QUESTION), budget=1, tokenizer=WordTokenizer())
    assert [removal.priority for removal in made.removals] == [*priorities, None]
