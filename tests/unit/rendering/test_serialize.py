"""A tree that went through JSON renders as the tree that it was made of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from promptkit.elements.builtin import (
    AssistantMessage,
    CacheBreakpoint,
    Expandable,
    Group,
    KeepWith,
    Metadata,
    Reference,
    Tag,
    TextChunk,
    TokenLimit,
    ToolMessage,
    UserMessage,
)
from promptkit.elements.component import component
from promptkit.elements.element import Child, PromptElement, Sizing
from promptkit.errors import TreeError
from promptkit.fitting.history import History
from promptkit.messages import Message, ToolCall
from promptkit.rendering.renderer import render
from promptkit.rendering.serialize import from_json, to_json
from promptkit.testing import WordTokenizer
from promptkit.tokens.tokenizer import Count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import Json, ToolDefinition


def shown(prompt: Child, budget: int = 100) -> tuple[Message, ...]:
    """The messages at a budget. Where nothing fits, there are none in prompt-tsx."""
    return render(prompt, budget=budget, tokenizer=WordTokenizer(), defaults="prompt-tsx").messages


def there_and_back(prompt: Child) -> PromptElement:
    return from_json(to_json(prompt, tokenizer=WordTokenizer()))


def component_named(name: str) -> PromptElement:
    """A user's component that is called like something else."""

    class Own(PromptElement):
        def render(self, sizing: Sizing) -> Child:
            return TextChunk(priority=1)["a b c"], TextChunk(priority=2)["d e"]

    Own.__name__ = name
    return component(Own)()


def test_a_recorded_conversation_is_written_as_plain_json() -> None:
    prompt = History(turns=[Message(role="user", content="a b"), Message(role="user", content="c")])
    written = json.dumps(to_json(prompt, tokenizer=WordTokenizer()), allow_nan=False)
    assert [shown(from_json(json.loads(written)), budget) for budget in range(12)] == [
        shown(prompt, budget) for budget in range(12)
    ]


@pytest.mark.parametrize("omitted_marker", [True, False])
def test_the_marker_of_a_recorded_conversation_is_shown_as_before(*, omitted_marker: bool) -> None:
    prompt = History(
        turns=[Message(role="user", content=(f"{name} " * 9,)) for name in "abc"],
        omitted_marker=omitted_marker,
        shorten=False,
    )
    travelled = there_and_back(prompt)
    texts = [[message.text for message in shown(travelled, budget)] for budget in range(30)]
    whole = render(prompt, budget=99, tokenizer=WordTokenizer(), defaults="prompt-tsx")
    assert texts == [
        [message.text for message in whole.at_budget(budget).messages] for budget in range(30)
    ]
    assert (["[2 messages omitted]", "c " * 9] in texts) == omitted_marker


def test_a_value_that_is_no_json_is_refused() -> None:
    with pytest.raises(TreeError, match="is not JSON"):
        there_and_back(UserMessage()["q", Metadata(value=float("nan"))])


LIMITED = to_json(
    UserMessage()[TokenLimit(max_tokens=5, priority=1)["a b"]], tokenizer=WordTokenizer()
)


@pytest.mark.parametrize(
    "changes", [{"version": 99}, {"nodes": []}, {"nodes": "text"}, {"nodes": None}]
)
def test_what_is_no_tree_of_this_version_is_refused(changes: dict[str, Json]) -> None:
    with pytest.raises(TreeError, match="this is not a JSON tree of version"):
        from_json({**LIMITED, **changes})


@pytest.mark.parametrize("value", [None, True, [5]])
def test_a_number_that_is_none_is_refused_with_the_number_of_its_node(value: Json) -> None:
    text = json.dumps(LIMITED)
    assert text.count('"max_tokens": 5') == 1
    damaged = json.loads(text.replace('"max_tokens": 5', f'"max_tokens": {json.dumps(value)}'))
    with pytest.raises(TreeError, match=r"node \d of the JSON tree is damaged.*max_tokens must be"):
        from_json(damaged)


@pytest.mark.parametrize(
    "tag",
    [Tag(tag="a"), Tag(tag="a", attributes={"b": "c"}), Tag(tag="a")["x"], Tag(tag="a")[None]],
)
def test_a_tag_stays_as_empty_as_it_was(tag: Tag) -> None:
    prompt = UserMessage()["one ", tag, "two"]
    assert shown(there_and_back(prompt)) == shown(prompt)


@pytest.mark.parametrize(
    "name", ["Chunk", "Document", "Image", "Tag", "UserMessage", "KeepWith", "Metadata"]
)
def test_a_component_may_have_the_name_of_an_element(name: str) -> None:
    prompt = UserMessage()[component_named(name)]
    assert [shown(there_and_back(prompt), budget) for budget in range(6)] == [
        shown(prompt, budget) for budget in range(6)
    ]
    assert shown(prompt, 2)[0].text == "d e"


@component
class OwnChunk(TextChunk):
    pass


@component
class OwnBreakpoint(CacheBreakpoint):
    pass


@component
class OwnReference(Reference):
    pass


def test_an_element_that_extends_one_of_the_grammar_is_written_as_that() -> None:
    prompt = UserMessage()[
        "a",
        OwnChunk(priority=1)["b"],
        OwnBreakpoint(),
        OwnReference(to="file:a"),
        Metadata(value=1),
    ]
    made = render(there_and_back(prompt), budget=100, tokenizer=WordTokenizer())
    expected = render(prompt, budget=100, tokenizer=WordTokenizer())
    assert made.messages == expected.messages
    assert [reference.to for reference in made.references] == ["file:a"]


def test_a_fallback_competes_as_before() -> None:
    prompt = UserMessage()[
        Group(priority=1, fallback=TextChunk(priority=5)["fall back"])[
            TextChunk(priority=2)["a b c d e f"]
        ],
        Group(priority=1)[TextChunk(priority=7)["one two"]],
    ]
    assert [shown(there_and_back(prompt), budget) for budget in range(10)] == [
        shown(prompt, budget) for budget in range(10)
    ]
    assert shown(prompt, 3)[0].text == "one two"  # the fallback's lowest child is the lower one


@component
class ShowsBudget(PromptElement):
    def render(self, sizing: Sizing) -> Child:
        return str(sizing.token_budget)


class Primed(WordTokenizer):
    """The reply is primed with 3 tokens."""

    def count_overhead(
        self, tools: Sequence[ToolDefinition] = (), *, system: bool | str = False
    ) -> Count:
        return Count(3)


@pytest.mark.parametrize(("budget", "shown_budget"), [(100, "97"), (3, "0"), (1, "0")])
def test_components_get_the_budget_that_a_render_would_give_them(
    budget: int, shown_budget: str
) -> None:
    assert (
        from_json(to_json(ShowsBudget(), budget=budget, tokenizer=Primed()))
        == Group()[Group()[shown_budget]]
    )
    if budget == 100:
        assert (
            render(UserMessage()[ShowsBudget()], budget=budget, tokenizer=Primed()).messages[0].text
            == shown_budget
        )


def test_an_expandable_is_written_once_and_does_not_grow() -> None:
    asked: list[int] = []

    def value(sizing: Sizing) -> str:
        asked.append(sizing.token_budget)
        return "text"

    data = to_json(
        UserMessage()["one two", Expandable(value=value)], budget=10, tokenizer=WordTokenizer()
    )
    assert asked == [8]
    assert shown(from_json(data))[0].text == "one twotext"


def test_each_component_keeps_a_keep_with_group_of_its_own() -> None:
    @component
    def box(name: str) -> Child:
        return (
            KeepWith(group="tags")[TextChunk()[f"<{name}>"]],
            KeepWith(group="tags", priority=1)[TextChunk()["x"]],
        )

    prompt = UserMessage()[
        box("a").layout(priority=1), box("b").layout(priority=2), TextChunk()["end"]
    ]
    for budget in range(1, 7):
        assert shown(there_and_back(prompt), budget) == shown(prompt, budget)
    assert [message.text for message in shown(there_and_back(prompt), 3)] == ["<b>\nx\nend"]


def test_each_component_keeps_the_group_of_its_tool_calls() -> None:
    @component
    def turn(number: str) -> Child:
        call = ToolCall(id=number, name="f")
        return (
            AssistantMessage(tool_calls=[call], keep_with={number: "turn"})[number],
            ToolMessage(tool_call_id=number)["result"],
            KeepWith(group="turn", priority=int(number))[UserMessage()["note"]],
        )

    prompt = Group()[turn("1"), turn("2"), UserMessage(required=True)["q"]]
    for budget in range(1, 10):
        assert shown(there_and_back(prompt), budget) == shown(prompt, budget)
