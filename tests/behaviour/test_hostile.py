"""Malformed, extreme and hostile input does not crash a render."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from promptkit import (
    AssistantMessage,
    Child,
    Chunk,
    First,
    Group,
    IfEmpty,
    KeepWith,
    PromptElement,
    Renderer,
    Tag,
    Text,
    TextChunk,
    TokenLimit,
    ToolCall,
    ToolMessage,
    UserMessage,
    component,
    render,
)
from promptkit.testing import WordTokenizer
from promptkit.tokens import OpenAITokenizer
from tests.calls import count_calls
from tests.examples import keep_first

if TYPE_CHECKING:
    from collections.abc import Callable

MANY = 250_000
TEXTS = {
    "very many spaces": " " * MANY,
    "very many line breaks": "\n" * MANY,
    "very many letters": "a" * MANY,
    "a lone high surrogate": "a\ud800b",
    "a lone low surrogate": "a\udfffb",
    "NUL": "a\x00b",
    "right to left": "\u202eabc\u202c \u05e9\u05dc\u05d5\u05dd",
    "combining marks": "Z" + "\u0301" * 5_000,
    "a token that is special": "<|endoftext|><|im_start|>system<|im_end|>",
    "beyond the first plane": "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 1_000,
    "every kind of white space": "a\u00a0b\u2003c\u3000d\ufeffe\x85f\u2028g",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_the_text_arrives_as_it_was_written(text: str) -> None:
    made = render(
        UserMessage()[TextChunk(priority=1)[text], TextChunk(priority=2)["kept"]], budget=3_000_000
    )
    assert made.messages[0].text in {f"{text}\nkept", f"{text}kept"}
    assert 0 < made.tokens <= 3_000_000


@pytest.mark.slow
@pytest.mark.parametrize("character", [" ", "\n", "a"])
def test_a_million_characters_arrive_as_they_were_written(character: str) -> None:
    test_the_text_arrives_as_it_was_written(character * 1_000_000)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_the_text_can_be_pruned(text: str) -> None:
    made = render((UserMessage(priority=1)[text], UserMessage(priority=2)["kept"]), budget=12)
    assert made.tokens <= 12
    assert made.messages[-1].text == "kept"


def test_text_of_special_tokens_is_counted_as_text() -> None:
    assert (
        render(UserMessage()["<|endoftext|>"], budget=100).tokens
        > render(UserMessage()["a"], budget=100).tokens
    )


def nested(depth: int, leaf: Child) -> Child:
    for _ in range(depth):
        leaf = Group()[leaf]
    return leaf


class TestDepth:
    @pytest.mark.parametrize(("depth", "budget"), [(3_000, 2_990), (1_000, 500)])
    def test_groups_with_text_at_every_level(self, depth: int, budget: int) -> None:
        deep: Child = "x "
        for level in range(depth):
            deep = Group(priority=level)["y ", deep]
        made = render(UserMessage()[deep], budget=budget, tokenizer=WordTokenizer())
        assert made.tokens <= budget
        assert len(made.removals) >= depth - budget
        assert made.explain()

    @pytest.mark.slow
    def test_a_renderer_remembers_deep_trees(self) -> None:
        renderer = Renderer(budget=50, tokenizer=WordTokenizer())
        for _ in range(2):
            assert renderer.render(UserMessage()[nested(5_000, Text()["deep"])]).tokens == 1

    @pytest.mark.slow
    def test_values_are_compared_and_printed(self) -> None:
        one, two = nested(10_000, "a"), nested(10_000, "a")
        assert one == two
        assert isinstance(one, PromptElement)
        assert repr(one).count("Group") == 10_000


def twice_inside_each_other(depth: int, leaf: Child) -> PromptElement:
    """A tree of `depth` elements, each twice in the one around it: 2 ** depth paths."""
    made: Child = leaf
    for _ in range(depth):
        made = Group()[made, made]
    return UserMessage()[made]


@component
class Plan(PromptElement):
    """An element with a prop that may be anything."""

    steps: object = ()


def in_its_own_children() -> PromptElement:
    element = Group()["a", "b"]
    object.__setattr__(element, "children", ("a", element))
    return element


def in_a_list_of_its_own() -> PromptElement:
    steps: list[object] = ["a"]
    element = Plan(steps=steps)["b"]
    steps.append({"again": element})
    return element


def in_a_list_in_itself() -> PromptElement:
    steps: list[object] = []
    steps.append(steps)
    return Plan(steps=steps)


INSIDE_THEMSELVES = [
    (in_its_own_children, "Group()['a', Group(…)]"),
    (in_a_list_of_its_own, "Plan(steps=['a', {'again': Plan(…)}])['b']"),
    (in_a_list_in_itself, "Plan(steps=[[…]])"),
]


class TestShape:
    @pytest.mark.parametrize(("build", "shown"), INSIDE_THEMSELVES)
    def test_an_element_that_contains_itself_is_shown_and_compared(
        self, build: Callable[[], PromptElement], shown: str
    ) -> None:
        one, two = build(), build()
        assert repr(one) == shown
        assert one == two
        assert hash(one) == hash(two)
        assert one != UserMessage()["a", "b"]

    def test_two_that_contain_themselves_at_different_distances_are_compared(self) -> None:
        one, two = in_its_own_children(), Group()["a", in_its_own_children()]
        assert one == two
        object.__setattr__(one, "children", ("a", Group()["a", Group()["c", one]]))
        assert one != two

    def test_elements_that_stand_at_many_places_are_compared_and_shown_in_linear_time(self) -> None:
        one, two, other = (twice_inside_each_other(60, text) for text in ("a", "a", "b"))
        assert one == two
        assert one != other
        assert len(repr(one)) < 10_000_000

    def test_an_element_that_stands_at_two_places_is_shown_twice(self) -> None:
        shared = Group()[TextChunk()["a"]]
        assert repr(UserMessage()[shared, shared]) == f"UserMessage()[{shared!r}, {shared!r}]"

    @pytest.mark.slow
    def test_lists_and_mappings_in_props_are_shown_and_compared_at_any_depth(self) -> None:
        def build(leaf: str) -> PromptElement:
            element = Plan(steps=(leaf,))
            for _ in range(5_000):
                element = Plan(steps=[{"next": element}, ()])
            return element

        one, two, other = build("a"), build("a"), build("b")
        assert one == two
        assert one != other
        assert repr(one).count("Plan") == 5_001

    def test_lists_and_mappings_in_props_are_shown_and_compared_as_python_does(self) -> None:
        steps: list[object] = [(1, "a"), ("b",), (), [], {}, {"c": None, 2: [3]}, sys.version_info]
        assert repr(Plan(steps=steps)) == f"Plan(steps={steps!r})"
        assert Plan(steps=[1]) != Plan(steps=(1,))
        assert Plan(steps={"a": 1, "b": 2}) == Plan(steps={"b": 2, "a": 1})
        assert Plan(steps={"a": 1}) != Plan(steps={"b": 1})


ASKS_WHETHER_IT_IS_EMPTY: dict[str, Callable[[Child], Child]] = {
    "Tag": lambda child: Tag(tag="t")[child],
    "Tag with text": lambda child: Tag(tag="t")["a", child],
    "IfEmpty": lambda child: IfEmpty(alt="none")[child],
    "the alternative of IfEmpty": lambda child: IfEmpty(alt=child)[()],
}


@pytest.mark.long
@pytest.mark.parametrize(
    "wrap", keep_first(2, *ASKS_WHETHER_IT_IS_EMPTY.values()), ids=ASKS_WHETHER_IT_IS_EMPTY.keys()
)
def test_elements_that_ask_whether_they_are_empty_nest_in_linear_time(
    wrap: Callable[[Child], Child],
) -> None:
    def work(depth: int) -> int:
        deep: Child = "x"
        for _ in range(depth):
            deep = wrap(deep)
        return count_calls(
            lambda: render(UserMessage()[deep], budget=1_000_000, tokenizer=WordTokenizer())
        )

    work(10)  # what is done only once
    assert work(1_200) <= 4.5 * work(300)


FIRSTS: dict[str, Callable[[Child], Child]] = {
    "the first child": lambda child: First()[child, "other"],
    "the first child among texts": lambda child: First()[Group()["a ", child, " b"], "other"],
    "the second child": lambda child: First()["too long " * 2_000, Group()["a ", child]],
}


@pytest.mark.parametrize("wrap", keep_first(1, *FIRSTS.values()), ids=FIRSTS.keys())
def test_firsts_nest_in_linear_time(wrap: Callable[[Child], Child]) -> None:
    def work(depth: int) -> int:
        deep: Child = "x"
        for _ in range(depth):
            deep = wrap(deep)
        return count_calls(
            lambda: render(
                UserMessage()[deep],
                budget=15_000 if wrap is FIRSTS["the second child"] else 1_000_000,
            )
        )

    work(10)
    assert work(1_200) <= 4.5 * work(300)


class EncodedCharacters(OpenAITokenizer):
    """Sums the characters that were counted."""

    characters = 0

    def count(self, text: str) -> int:
        self.characters += len(text)
        return super().count(text)


HUGE = "All work and no play makes Jack a dull boy. " * 25_000
PRUNED_HUGE: dict[str, Child] = {
    "a message": UserMessage(priority=1)[HUGE],
    "a part of a message": UserMessage(priority=1)["a", TextChunk()[HUGE]],
    "a part beside another": UserMessage(priority=1)["a", TextChunk(priority=1)[HUGE]],
    "in groups": Group(priority=1)[UserMessage()[Group()[Group()[HUGE], "a"]]],
    "in a chunk": Chunk(priority=1)[UserMessage()[HUGE, "a"], UserMessage()["b"]],
    "in a group of messages": (
        KeepWith(group=1, priority=1)[UserMessage()["a"]],
        KeepWith(group=1)[UserMessage(priority=9)[HUGE]],
    ),
    "with a fallback": UserMessage(priority=1)[TextChunk(priority=1, fallback="[left out]")[HUGE]],
    "a tool result": (
        AssistantMessage(priority=1, tool_calls=[ToolCall(id="c", name="f")]),
        ToolMessage(tool_call_id="c", priority=1)[HUGE],
    ),
}


@pytest.mark.parametrize("huge", PRUNED_HUGE.values(), ids=PRUNED_HUGE.keys())
def test_a_text_that_cannot_fit_is_pruned_without_being_tokenised(huge: Child) -> None:
    counter = EncodedCharacters()
    made = render(
        (huge, UserMessage(priority=9)["kept"]),
        budget=100,
        tokenizer=counter,
    )
    assert made.messages[-1].text == "kept"
    assert made.tokens <= 100
    assert counter.characters < 1_000
    assert made.at_budget(1_000_000).tokens > 100_000


def test_a_text_that_cannot_fit_a_limit_is_pruned_without_being_tokenised() -> None:
    counter = EncodedCharacters()
    prompt = UserMessage()[TokenLimit(max_tokens=50)["a", TextChunk(priority=1)[HUGE]]]
    assert render(prompt, budget=1_000, tokenizer=counter).messages[0].text == "a"
    assert counter.characters < 1_000


def test_a_text_that_may_fit_is_counted() -> None:
    prompt = (UserMessage(priority=1)[" " * 12_000 + "a"], UserMessage(priority=9)["kept"])
    whole = render(prompt, budget=1_000_000)
    assert render(prompt, budget=whole.tokens).tokens == whole.tokens < 12_000 / 64


@given(
    st.text(),
    st.text(),
    st.text(),
    st.sampled_from(["o200k_base", "cl100k_base"]),
    st.integers(1, 300),
)
def test_the_lower_bound_of_a_text_is_one_of_every_text_around_it(
    before: str, text: str, after: str, encoding: str, times: int
) -> None:
    tokenizer = OpenAITokenizer(encoding)
    assert tokenizer.lower_bound(text * times) <= tokenizer.count(before + text * times + after)


WIDE = [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)]


class TestWidth:
    @pytest.mark.parametrize("count", WIDE)
    def test_very_many_messages(self, count: int) -> None:
        many = [UserMessage(priority=index)[f"turn {index}"] for index in range(count)]
        made = render(many, budget=1_000, tokenizer=WordTokenizer())
        assert [message.text for message in made.messages] == [
            f"turn {index}" for index in range(count - 500, count)
        ]

    @pytest.mark.long
    @pytest.mark.parametrize("count", WIDE)
    def test_very_many_texts_of_one_message(self, count: int) -> None:
        made = render(
            UserMessage(priority=1)[[f"{index} " for index in range(count)]],
            budget=10,
            tokenizer=WordTokenizer(),
        )
        assert (
            made.messages[0].text
            == " ".join(str(index) for index in range(count - 10, count)) + " "
        )


@pytest.mark.long
def test_an_endless_generator_is_no_reason_to_recurse() -> None:
    def lines() -> object:
        yield from (f"{index} " for index in range(20_000))

    made = render(UserMessage(priority=1)[lines()], budget=5, tokenizer=WordTokenizer())  # type: ignore[index]  # an iterator, as a user's generator is  # pyright: ignore[reportArgumentType]
    assert made.tokens == 5
