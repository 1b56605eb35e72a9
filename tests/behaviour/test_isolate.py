"""`Isolate` gives a subtree a budget of its own."""

from __future__ import annotations

import pytest

from promptkit import (
    AssistantMessage,
    Child,
    Expandable,
    Isolate,
    PromptElement,
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
from promptkit.testing import WordTokenizer


@component
class Told(PromptElement):
    """Renders the budget that it was told."""

    runs: list[int]

    def render(self, sizing: Sizing) -> Child:
        self.runs.append(sizing.token_budget)
        return f"budget {sizing.token_budget}"


def texts(prompt: Child, budget: int) -> list[str]:
    return [
        message.text
        for message in render(prompt, budget=budget, tokenizer=WordTokenizer()).messages
    ]


def test_the_subtree_is_pruned_to_its_own_budget() -> None:
    prompt = UserMessage()[
        Isolate(tokens=2)[
            TextChunk(priority=1)["a"], TextChunk(priority=2)["b"], TextChunk(priority=3)["c"]
        ],
        "!",
    ]
    assert texts(prompt, 100)[0].split() == ["b", "c!"]


def test_its_components_see_its_budget_whatever_the_prompt_has() -> None:
    runs: list[int] = []
    assert texts(UserMessage()[Isolate(tokens=7)[Told(runs=runs)]], 100) == ["budget 7"]
    assert texts(UserMessage()[Isolate(tokens=7)[Told(runs=runs)]], 20) == ["budget 7"]
    assert runs == [7, 7]


def test_it_is_kept_or_pruned_as_a_whole() -> None:
    prompt = UserMessage()[
        Isolate(tokens=9, priority=1)[TextChunk(priority=1)["a"], TextChunk(priority=2)["b"]],
        TextChunk(priority=2)["c"],
    ]
    assert [texts(prompt, budget) for budget in (3, 2, 1)] == [["a\nb\nc"], ["c"], ["c"]]


@component(pure=True)
class ToldOnce(Told):
    """Reads its budget, and depends on nothing else."""


@pytest.mark.parametrize(
    ("kind", "expected"), [(Told, [7] * 4), (ToldOnce, [7])], ids=["any component", "a pure one"]
)
def test_a_pure_component_in_it_is_run_once_while_the_rest_of_the_prompt_grows(
    kind: type[Told], expected: list[int]
) -> None:
    runs: list[int] = []
    renderer = Renderer(budget=50, tokenizer=WordTokenizer())
    isolated = Isolate(tokens=7)[kind(runs=runs)]
    for count in range(1, 5):
        renderer.render((UserMessage()[isolated], *(UserMessage()["turn"] for _ in range(count))))
    assert runs == expected


def test_messages_can_stand_in_it() -> None:
    prompt = (
        Isolate(tokens=3)[UserMessage(priority=1)["a a"], UserMessage(priority=2)["b b"]],
        UserMessage()["c"],
    )
    assert texts(prompt, 100) == ["b b", "c"]


def test_a_call_that_a_limit_removed_needs_no_result_when_an_expandable_is_written_again() -> None:
    call = ToolCall(id="c1", name="f")
    prompt = (
        TokenLimit(max_tokens=3)[
            AssistantMessage(tool_calls=[call])["a b"],
            ToolMessage(tool_call_id="c1", priority=0)["r r r r"],
        ],
        UserMessage()[Expandable(value=lambda _: "x")],
    )
    assert texts(prompt, 100) == ["a b", "x"]
