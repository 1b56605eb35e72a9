"""A Renderer kept between turns answers what a fresh one would."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, note, settings, strategies as st

from promptkit import BudgetExceededError, Child, PromptElement, Rendered, Renderer, Sizing, Text, UserMessage, component, render
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
@given(st.lists(prompts(size=5), min_size=1, max_size=5), tokenizers(), st.integers(0, 60), st.booleans())
def test_appended_turns_render_as_if_from_scratch(turns: list[Child], tokenizer: Tokenizer, budget: int, rebuilt: bool) -> None:
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
    """Notes that it ran; looks at its budget if told to."""

    key: str
    runs: Callable[[str], None]
    reads: bool = False

    def render(self, sizing: Sizing) -> Child:
        self.runs(self.key)
        return f"{self.key} {sizing.token_budget}" if self.reads else self.key


RUNS: list[str] = []


@component
class Plain(PromptElement):
    """Notes that it ran, where no prop of it can change."""

    key: str

    def render(self, sizing: Sizing) -> Child:
        RUNS.append(self.key)
        return self.key


class TestWhatComponentsRemember:
    def test_what_did_not_read_its_budget_is_not_run_again(self) -> None:
        runs: list[str] = []
        renderer = Renderer(budget=100, tokenizer=WordTokenizer())
        turns = [UserMessage()[Counted(key=f"turn{index}", runs=runs.append)] for index in range(5)]
        for count in range(1, 6):
            renderer.render(tuple(turns[:count]))
        assert runs == [f"turn{index}" for index in range(5)]

    def test_an_equal_component_built_anew_is_not_run_again_either(self) -> None:
        RUNS.clear()
        renderer = Renderer(budget=100, tokenizer=WordTokenizer())
        for _ in range(3):
            renderer.render(UserMessage()[Plain(key="same")])
        assert RUNS == ["same"]

    def test_what_read_its_budget_runs_again_when_the_budget_has_changed(self) -> None:
        runs: list[str] = []
        renderer = Renderer(budget=100, tokenizer=WordTokenizer())
        reader = Counted(key="reader", runs=runs.append, reads=True, flex_grow=1)
        assert renderer.render(UserMessage()[reader]).messages[0].text == "reader 100"
        assert renderer.render((UserMessage()["three more words"], UserMessage(flex_grow=1)[reader])).messages[1].text == "reader 97"
        assert runs == ["reader", "reader"]

    def test_what_read_its_budget_is_remembered_for_that_budget(self) -> None:
        runs: list[str] = []
        renderer = Renderer(budget=100, tokenizer=WordTokenizer())
        prompt = UserMessage()[Counted(key="reader", runs=runs.append, reads=True)]
        renderer.render(prompt)
        renderer.render(prompt)
        assert runs == ["reader"]

    def test_a_look_at_other_budgets_runs_nothing(self) -> None:
        runs: list[str] = []
        rendered = render(
            UserMessage()[Counted(key="once", runs=runs.append), Text(priority=1)[" more words"]], budget=100, tokenizer=WordTokenizer()
        )
        assert [rendered.at_budget(budget).tokens for budget in (3, 1)] == [3, 1]
        assert runs == ["once"]


class TestStablePrefix:
    def test_the_first_render_has_nothing_to_be_compared_with(self) -> None:
        assert Renderer(budget=10, tokenizer=WordTokenizer()).render(UserMessage()["a b"]).stable_prefix == 0

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
def test_appended_turns_render_as_if_from_scratch_thoroughly(turns: list[Child], tokenizer: Tokenizer, budget: int) -> None:
    renderer = Renderer(budget=budget, tokenizer=tokenizer)
    for count in range(1, len(turns) + 1):
        assert answer(renderer, tuple(turns[:count])) == answer(Renderer(budget=budget, tokenizer=tokenizer), tuple(turns[:count]))
