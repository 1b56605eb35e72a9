"""Members of a KeepWith group leave together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeAlias

import attrs
import pytest

from promptkit import (
    AssistantMessage,
    BudgetExceededError,
    CacheBreakpoint,
    Child,
    Children,
    Chunk,
    Group,
    KeepWith,
    Provide,
    Renderer,
    Sizing,
    TextChunk,
    TokenLimit,
    ToolCall,
    ToolMessage,
    UserMessage,
    component,
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


def test_the_member_directly_behind_a_cache_breakpoint_leaves_with_the_others() -> None:
    prompt = UserMessage()[
        "x",
        CacheBreakpoint(),
        KeepWith(group=1, priority=5)["a b"],
        KeepWith(group=1, priority=1)["c d"],
    ]
    assert texts(prompt, 4) == ["x"]


def test_a_member_before_a_cache_breakpoint_keeps_the_others() -> None:
    prompt = (
        KeepWith(group=1)[UserMessage()["a"]],
        UserMessage()["x", CacheBreakpoint()],
        KeepWith(group=1, priority=1)[UserMessage()["b"]],
        UserMessage(priority=2)["c"],
    )
    assert texts(prompt, 3) == ["a", "x", "b"]


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


@component
def box(children: Children, name: str, group: Hashable = "tags") -> Child:
    """Two tags that leave with the content between them."""
    return (
        KeepWith(group=group)[TextChunk()[f"<{name}>"]],
        KeepWith(group=group, priority=1)[children],
        KeepWith(group=group)[TextChunk()[f"</{name}>"]],
    )


@component
def member(name: str, group: Hashable) -> Child:
    return KeepWith(group=group)[TextChunk()[f"in_{name}"]]


@attrs.frozen
class Settings:
    group: Hashable


@component
def reads_settings(settings: Settings, name: str) -> Child:
    return member(name, settings.group)


@component
def reads_nested(groups: Mapping[str, Sequence[Sequence[Hashable]]], name: str) -> Child:
    return member(name, groups[name][0][0])


@component
def reads_provided(sizing: Sizing, name: str) -> Child:
    return member(name, sizing.get(Settings).group)


@component
def calls(make: Callable[[], Child]) -> Child:
    return make()


Carrier: TypeAlias = Callable[[Hashable, str], Child]

CARRIERS: list[Carrier] = [
    lambda group, name: member(name, group),
    lambda group, name: reads_nested({name: [[group]]}, name),
    lambda group, name: reads_settings(Settings(group), name),
    lambda group, name: Provide(Settings(group))[reads_provided(name)],
    lambda group, name: calls(lambda: member(name, group)),
]


class TestScope:
    def test_each_instance_of_a_component_has_groups_of_its_own(self) -> None:
        prompt = UserMessage()[
            box("a").layout(priority=1)[TextChunk()["first"]],
            box("b").layout(priority=2)[TextChunk()["second"]],
        ]
        assert texts(prompt, 6) == ["<a>\nfirst\n</a>\n<b>\nsecond\n</b>"]
        assert texts(prompt, 5) == texts(prompt, 3) == ["<b>\nsecond\n</b>"]

    def test_one_element_at_two_places_has_two_groups(self) -> None:
        element = box("a")[TextChunk()["same"]]
        prompt = UserMessage()[Chunk(priority=1)[element], Chunk(priority=2)[element]]
        renderer = Renderer(budget=3, tokenizer=WordTokenizer())
        for _ in range(2):
            assert [message.text for message in renderer.render(prompt).messages] == [
                "<a>\nsame\n</a>"
            ]

    def test_a_pure_component_that_is_not_run_again_has_groups_of_its_own_at_each_place(
        self,
    ) -> None:
        @component(pure=True)
        def pair() -> Child:
            group = KeepWith.group()
            return KeepWith(group=group)["a"], KeepWith(group=group)[TextChunk()["b"]]

        element = pair()
        prompt = UserMessage()[
            Chunk(priority=1)[element], Chunk(priority=2)[element], TextChunk()["end"]
        ]
        renderer = Renderer(budget=3, tokenizer=WordTokenizer())
        for _ in range(2):
            assert [message.text for message in renderer.render(prompt).messages] == ["a\nb\nend"]

    def test_children_belong_to_the_component_that_wrote_them(self) -> None:
        # the members stand inside two instances of box, but the prompt wrote both
        prompt = UserMessage()[
            box("a")[KeepWith(group=1, priority=1)[TextChunk()["x"]], TextChunk()["y"]],
            box("b")[KeepWith(group=1, priority=2)[TextChunk()["z"]], TextChunk(priority=1)["w"]],
        ]
        assert texts(prompt, 8) == ["<a>\nx\ny\n</a>\n<b>\nz\nw\n</b>"]
        assert texts(prompt, 6) == ["<a>\ny\n</a>\n<b>\nw\n</b>"]

    def test_children_passed_through_two_components_belong_to_the_one_that_wrote_them(self) -> None:
        @component
        def wrapper(children: Children) -> Child:
            return Group()[box("inner")[children]]

        prompt = UserMessage()[
            wrapper()[KeepWith(group="tags", priority=1)["x"], TextChunk()["y"]],
            KeepWith(group="tags", priority=2)[TextChunk()["z"]],
        ]
        assert texts(prompt, 5) == ["<inner>\nx\ny\n</inner>\nz"]
        assert texts(prompt, 4) == ["<inner>\ny\n</inner>"]

    def test_a_plain_value_does_not_reach_into_a_component_that_a_made_group_reaches(self) -> None:
        def show(group: Hashable, budget: int) -> list[str]:
            return texts(
                UserMessage()[
                    KeepWith(group=group, priority=1)[TextChunk()["head"]],
                    box("a", group=group).layout(priority=2)[TextChunk()["body"]],
                    TextChunk(priority=3)["end"],
                ],
                budget,
            )

        assert show("plain", 4) == ["<a>\nbody\n</a>\nend"]
        assert show(KeepWith.group(), 5) == ["head\n<a>\nbody\n</a>\nend"]
        assert show(KeepWith.group(), 4) == ["end"]

    def test_a_group_made_by_a_component_is_shared_with_those_that_it_passes_it_to(self) -> None:
        @component
        def outer(name: str) -> Child:
            group = KeepWith.group()
            return (
                KeepWith(group=group)[TextChunk()[f"{name}:"]],
                box(name, group=group),
            )

        prompt = UserMessage()[
            outer("a").layout(priority=1), outer("b").layout(priority=2), TextChunk()["end"]
        ]
        assert texts(prompt, 7) == ["a:\n<a>\n</a>\nb:\n<b>\n</b>\nend"]
        assert texts(prompt, 6) == texts(prompt, 4) == ["b:\n<b>\n</b>\nend"]
        assert texts(prompt, 3) == ["end"]

    @pytest.mark.parametrize("carry", CARRIERS)
    def test_a_made_group_is_one_group_however_it_is_carried(self, carry: Carrier) -> None:
        @component
        def outer(name: str) -> Child:
            group = KeepWith.group()
            head = KeepWith(group=group, priority=1)[TextChunk()[f"{name}:"]]
            return head, carry(group, name)

        prompt = UserMessage()[
            outer("a").layout(priority=1), outer("b").layout(priority=2), TextChunk()["end"]
        ]
        assert texts(prompt, 5) == ["a:\nin_a\nb:\nin_b\nend"]
        assert texts(prompt, 4) == ["b:\nin_b\nend"]

    def test_a_made_group_of_the_prompt_reaches_every_component(self) -> None:
        group = KeepWith.group()
        prompt = UserMessage()[
            member("a", group).layout(priority=1),
            member("b", group).layout(priority=2),
            TextChunk()["end"],
        ]
        assert texts(prompt, 3) == ["in_a\nin_b\nend"]
        assert texts(prompt, 2) == ["end"]

    def test_a_member_in_a_nested_list_belongs_to_the_component_that_wrote_it(self) -> None:
        @component
        def show(*, parts: Child) -> Child:
            return parts, KeepWith(group="x")[TextChunk()["own"]]

        prompt = UserMessage()[
            show(parts=[["w", [KeepWith(group="x", priority=1)[TextChunk()["given"]]]]]),
            KeepWith(group="x", priority=2)[TextChunk()["outside"]],
        ]
        assert texts(prompt, 3) == ["w\nown"]

    def test_calls_belong_to_the_component_that_wrote_their_message(self) -> None:
        @component
        def turn(number: str) -> Child:
            return (
                AssistantMessage(
                    tool_calls=[ToolCall(id=number, name="f")], keep_with={number: "turn"}
                )[number],
                ToolMessage(tool_call_id=number)["result"],
                KeepWith(group="turn", priority=int(number))[UserMessage()["note"]],
            )

        prompt = turn("1"), turn("2"), UserMessage(required=True)["q"]
        made = render(prompt, budget=6, tokenizer=WordTokenizer())
        assert [(message.text, len(message.tool_calls)) for message in made.messages] == [
            ("1", 0),
            ("2", 1),
            ("result", 0),
            ("note", 0),
            ("q", 0),
        ]


def test_a_message_of_calls_stays_as_long_as_one_of_its_calls() -> None:
    prompt = (
        AssistantMessage(tool_calls=[ToolCall(id=each, name="f") for each in "12"]),
        ToolMessage(tool_call_id="1", priority=1)["a a"],
        ToolMessage(tool_call_id="2")["b"],
        UserMessage()["q"],
    )
    made = render(prompt, budget=3, tokenizer=WordTokenizer())
    assert [message.text for message in made.messages] == ["", "b", "q"]
    assert [call.id for call in made.messages[0].tool_calls] == ["2"]


@pytest.mark.parametrize(
    "member",
    [KeepWith(group=1)["lit"], Group()[KeepWith(group=1)["lit", TextChunk(priority=1)["x"]]]],
)
def test_what_is_kept_with_a_text_of_the_last_user_message_stays_too(member: Child) -> None:
    prompt = (
        AssistantMessage(priority=1)[KeepWith(group=1)["gone gone"]],
        UserMessage()[member, TextChunk()["q"]],
    )
    for budget in range(4, 7):
        made = render(prompt, budget=budget, tokenizer=WordTokenizer())
        answer, question = (message.text.split() for message in made.messages)
        assert (answer, question) in (
            (["gone", "gone"], ["lit", "q"]),
            (["gone", "gone"], ["lit", "x", "q"]),
        )
    with pytest.raises(BudgetExceededError, match="4 required tokens"):
        render(prompt, budget=3, tokenizer=WordTokenizer())
