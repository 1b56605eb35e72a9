"""A Renderer kept between turns answers what a fresh one would."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, note, settings, strategies as st
from promptkit_components import Attachment, Attachments, ToolCalls

from promptkit import (
    BudgetExceededError,
    Child,
    Expandable,
    History,
    ImagePart,
    Message,
    OpaquePart,
    PromptElement,
    Rendered,
    Renderer,
    Sizing,
    Text,
    ToolCall,
    ToolRound,
    UserMessage,
    component,
    render,
)
from promptkit.elements.builtin import Rounds
from promptkit.errors import InvalidArgumentError
from promptkit.fitting import RecordedMessages
from promptkit.rendering.tree import Node
from promptkit.testing import WordTokenizer
from tests.behaviour.strategies import prompts, tokenizers
from tests.examples import examples

if TYPE_CHECKING:
    from promptkit.tokens import Tokenizer


def answer(renderer: Renderer, prompt: Child) -> Rendered | None:
    try:
        return renderer.render(prompt)
    except BudgetExceededError:
        return None


@settings(max_examples=examples(40))
@given(
    st.lists(prompts(size=5), min_size=1, max_size=5),
    tokenizers(),
    st.integers(0, 60),
    st.booleans(),
)
def test_appended_turns_render_as_if_from_scratch(
    turns: list[Child], tokenizer: Tokenizer, budget: int, rebuilt: bool
) -> None:
    note(f"{turns!r}\n{tokenizer!r}, {budget}")
    renderer = Renderer(budget=budget, tokenizer=tokenizer)
    for count in range(1, len(turns) + 1):
        prompt = tuple(turns[:count])
        kept = answer(renderer, copy.deepcopy(prompt) if rebuilt else prompt)
        fresh = answer(Renderer(budget=budget, tokenizer=tokenizer), prompt)
        assert kept == fresh
        if kept and fresh:
            assert kept.removals == fresh.removals
            assert kept.source_map == fresh.source_map


@component
class Counted(PromptElement):
    """Notes that it ran; reads its budget if told to."""

    key: str
    runs: Callable[[str], None]
    reads: bool = False

    def render(self, sizing: Sizing) -> Child:
        self.runs(self.key)
        return f"{self.key} {sizing.token_budget}" if self.reads else self.key


@component(pure=True)
class Pure(Counted):
    """The same, declared pure."""


@component
class Derived(Pure):
    """A subclass of a pure component, which is not declared pure."""


@component(pure=True)
class Late(PromptElement):
    """Reads its budget after its render has returned, in the function of an Expandable."""

    runs: Callable[[str], None]

    def render(self, sizing: Sizing) -> Child:
        self.runs("late")
        return Expandable(value=lambda _: f"of {sizing.token_budget}")


def test_a_round_whose_later_messages_are_others_is_shown_anew() -> None:
    renderer = Renderer(budget=100, tokenizer=WordTokenizer())
    calling = Message(role="assistant", content=("a",), tool_calls=(ToolCall(id="c", name="f"),))
    results = [Message(role="tool", content=(text,), tool_call_id="c") for text in ("b", "c", "d")]
    question = UserMessage()["q"]
    for rest in ([0], [1], [0, 1], [0, 1, 2], [0, 2, 1], [0, 2], [2]):
        messages = [calling, *(results[place] for place in rest)]
        made = renderer.render((Rounds(rounds=[messages], order=[0], priorities=[0]), question))
        assert made.messages[:-1] == tuple(messages)


@pytest.mark.parametrize("recorded", [True, False])
def test_what_was_shown_long_ago_is_forgotten(recorded: bool) -> None:
    renderer = Renderer(budget=100, tokenizer=WordTokenizer())
    shown: list[weakref.ref[object]] = []
    for turn in range(25):
        texts = [f"{turn} {index}" for index in range(100)]
        prompt: Child
        if recorded:
            messages = [Message(role="user", content=(text,)) for text in texts]
            prompt = RecordedMessages(messages=messages)
            shown.append(weakref.ref(messages[-1]))
            del messages
        else:
            elements = [UserMessage()[text] for text in texts]
            prompt = UserMessage()[Counted(key="component", runs=list[str]().append)], elements
            shown.append(weakref.ref(elements[-1]))
            del elements
        renderer.render(prompt)
        del prompt
    gc.collect()
    alive = [turn for turn, each in enumerate(shown) if each() is not None]
    assert 24 in alive
    assert len(alive) <= 15


class TestPureComponents:
    def test_run_once_for_the_same_element_object(self) -> None:
        runs: list[str] = []
        renderer = Renderer(budget=100, tokenizer=WordTokenizer())
        turns = [UserMessage()[Pure(key=f"turn{index}", runs=runs.append)] for index in range(5)]
        for count in range(1, 6):
            renderer.render(tuple(turns[:count]))
        assert runs == [f"turn{index}" for index in range(5)]

    def test_run_again_for_an_equal_object_at_the_same_place(self) -> None:
        runs: list[str] = []
        renderer = Renderer(budget=100, tokenizer=WordTokenizer())
        for _ in range(3):
            renderer.render(UserMessage()[Pure(key="same", runs=runs.append)])
        assert runs == ["same"] * 3

    def test_run_once_for_each_place_of_one_object(self) -> None:
        runs: list[str] = []
        element = Pure(key="same", runs=runs.append)
        renderer = Renderer(budget=100, tokenizer=WordTokenizer())
        once, twice = UserMessage()[element], UserMessage()[element, element]
        for prompt, count in ((once, 1), ((once, twice), 3), ((once, twice), 3), (twice, 3)):
            renderer.render(prompt)
            assert runs == ["same"] * count

    def test_run_again_for_another_budget_if_they_read_it(self) -> None:
        runs: list[str] = []
        renderer = Renderer(budget=100, tokenizer=WordTokenizer())
        reader = Pure(key="reader", runs=runs.append, reads=True)
        whole = UserMessage()[reader]
        halves = (whole, UserMessage()[reader])
        assert [message.text for message in renderer.render(whole).messages] == ["reader 100"]
        assert [message.text for message in renderer.render(halves).messages] == ["reader 50"] * 2
        assert runs == ["reader"] * 3

    def test_are_known_for_each_budget_that_they_read_in_one_render(self) -> None:
        runs: list[str] = []
        renderer = Renderer(budget=100, tokenizer=WordTokenizer())
        reader = Pure(key="reader", runs=runs.append, reads=True)
        prompt = UserMessage()[reader], UserMessage(flex_basis=3)[reader]
        for _ in range(3):
            assert [message.text for message in renderer.render(prompt).messages] == [
                "reader 25",
                "reader 75",
            ]
        assert runs == ["reader"] * 2

    def test_run_again_for_another_budget_if_a_function_of_theirs_read_it(self) -> None:
        runs: list[str] = []
        renderer = Renderer(budget=100, tokenizer=WordTokenizer())
        late = Late(runs=runs.append)
        assert renderer.render(UserMessage()[late]).messages[0].text == "of 100"
        assert (
            renderer.render((UserMessage()["three more words"], UserMessage(flex_grow=1)[late]))
            .messages[1]
            .text
            == "of 97"
        )

    def test_are_forgotten_once_a_render_does_without_them(self) -> None:
        runs: list[str] = []
        renderer = Renderer(budget=100, tokenizer=WordTokenizer())
        element = Pure(key="away", runs=runs.append)
        for prompt in (element, element, Counted(key="other", runs=list[str]().append), element):
            renderer.render(UserMessage()[prompt])
        assert runs == ["away", "away"]

    def test_show_the_same_child_objects_again(self) -> None:
        @component(pure=True)
        class Notes(PromptElement):
            def render(self, sizing: Sizing) -> Child:
                return [UserMessage()[text] for text in ("a", "b")]

        notes, tokenizer = Notes(), WordTokenizer()
        renderer = Renderer(budget=100, tokenizer=tokenizer)
        first, second = renderer.render(notes), renderer.render(notes)
        assert first.messages == second.messages
        assert all(one is other for one, other in zip(first.messages, second.messages, strict=True))

    def test_hold_no_tree_of_the_render_in_which_they_ran(self) -> None:
        renderer = Renderer(budget=1_000, tokenizer=WordTokenizer())
        turns: list[PromptElement] = []
        for index in range(20):
            turns.append(UserMessage()[Pure(key=f"turn{index}", runs=list[str]().append)])
            renderer.render(tuple(turns))
        gc.collect()
        nodes = sum(isinstance(each, Node) and each.element in turns for each in gc.get_objects())
        assert nodes <= 2 * len(turns), "the nodes of at most two renders are alive"

    def test_a_subclass_is_pure_only_if_it_is_declared_so(self) -> None:
        runs: list[str] = []
        renderer = Renderer(budget=100, tokenizer=WordTokenizer())
        prompt = UserMessage()[
            Derived(key="derived", runs=runs.append), Counted(key="counted", runs=runs.append)
        ]
        for _ in range(2):
            renderer.render(prompt)
        assert runs == ["derived", "counted"] * 2

    def test_what_a_pure_component_awaits_is_asked_again(self) -> None:
        runs: list[int] = []

        async def load() -> Child:
            runs.append(1)
            return "loaded"

        @component(pure=True)
        class Loading(PromptElement):
            def render(self, sizing: Sizing) -> Child | Awaitable[Child]:
                return load()

        renderer, prompt = Renderer(budget=100, tokenizer=WordTokenizer()), UserMessage()[Loading()]
        for _ in range(2):
            assert renderer.render(prompt).messages[0].text == "loaded"
        assert runs == [1, 1]

    @pytest.mark.parametrize("inherited", [False, True])
    def test_an_async_render_cannot_be_declared_pure(self, *, inherited: bool) -> None:
        class Search(PromptElement):
            async def render(self, sizing: Sizing) -> Child:
                return "found"

        class Derived(Search):
            """A search."""

        with pytest.raises(
            InvalidArgumentError,
            match=r"(Search|Derived) cannot be pure, .*: write @component without pure=True\.",
        ):
            component(pure=True)(Derived if inherited else Search)

    def test_the_components_of_the_library_take_a_copy_of_their_lists(self) -> None:
        messages = [Message(role="user", content=("a",))]
        attached = [Attachment(path="a.py", text="a")]
        elements = [
            History(turns=messages),
            RecordedMessages(messages=messages),
            ToolCalls(
                rounds=(
                    rounds := [
                        ToolRound(
                            calls=[ToolCall(id="c1", name="f", arguments="{}")],
                            results={"c1": "done"},
                        )
                    ]
                )
            ),
            UserMessage()[
                Attachments(
                    files=attached,
                    images=(
                        images := [ImagePart(url="https://example.org/a.png", width=8, height=8)]
                    ),
                )
            ],
        ]
        renderer = Renderer(budget=1_000, tokenizer=WordTokenizer())
        before = [renderer.render(element).messages for element in elements]
        messages *= 2
        attached *= 2
        rounds.clear()
        images.clear()
        assert [renderer.render(element).messages for element in elements] == before
        assert [
            render(element, budget=1_000, tokenizer=WordTokenizer()).messages
            for element in elements
        ] == before


def test_what_did_not_read_its_budget_is_not_run_again_for_other_budgets() -> None:
    runs: list[str] = []
    prompt = UserMessage()[Counted(key="once", runs=runs.append), Text(priority=1)[" more words"]]
    rendered = render(prompt, budget=100, tokenizer=WordTokenizer())
    assert [rendered.at_budget(budget).tokens for budget in (3, 1)] == [3, 1]
    assert runs == ["once"]


class TestStablePrefix:
    def test_the_first_render_has_nothing_to_be_compared_with(self) -> None:
        assert (
            Renderer(budget=10, tokenizer=WordTokenizer())
            .render(UserMessage()["a b"])
            .stable_prefix
            == 0
        )

    def test_appending_keeps_the_whole_of_the_render_before(self) -> None:
        renderer = Renderer(budget=10, tokenizer=WordTokenizer(per_message=1))
        first = UserMessage()["a b"]
        renderer.render(first)
        assert renderer.render((first, UserMessage()["c"])).stable_prefix == 3

    def test_a_change_at_the_front_keeps_nothing(self) -> None:
        renderer = Renderer(budget=10, tokenizer=WordTokenizer(per_message=1))
        renderer.render(UserMessage()["a b"])
        assert renderer.render((UserMessage()["x"], UserMessage()["a b"])).stable_prefix == 0


@pytest.mark.slow
@settings(max_examples=examples(1_000))
@given(st.lists(prompts(size=6), min_size=1, max_size=6), tokenizers(), st.integers(0, 80))
def test_appended_turns_render_as_if_from_scratch_thoroughly(
    turns: list[Child], tokenizer: Tokenizer, budget: int
) -> None:
    renderer = Renderer(budget=budget, tokenizer=tokenizer)
    for count in range(1, len(turns) + 1):
        assert answer(renderer, tuple(turns[:count])) == answer(
            Renderer(budget=budget, tokenizer=tokenizer), tuple(turns[:count])
        )


def test_a_round_of_an_equal_message_is_shown_as_it_is_and_not_as_the_one_before() -> None:
    call = ToolCall(id="a", name="count")
    asking = Message(role="assistant", tool_calls=(call,))
    renderer = Renderer(budget=100, tokenizer=WordTokenizer())
    for value in (1, True, 1.0):
        part = OpaquePart(value={"n": value}, tokens=1)
        result = Message(role="tool", content=(part,), tool_call_id="a")
        made = renderer.render(Rounds(rounds=[(asking, result)]))
        assert repr(made.messages[1].content[0]) == repr(part)
