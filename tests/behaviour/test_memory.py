"""What a Renderer remembers is never what has changed."""

from __future__ import annotations

from promptkit import (
    Child,
    PromptElement,
    Reference,
    Renderer,
    Sizing,
    Text,
    TextChunk,
    Truncate,
    UserMessage,
    component,
    render,
)
from promptkit.testing import WordTokenizer


@component
class Turns(PromptElement):
    turns: list[str]

    def render(self, sizing: Sizing) -> Child:
        return [UserMessage()[turn] for turn in self.turns]


@component
class CappedView(PromptElement):
    value: object

    def render(self, sizing: Sizing) -> Child:
        return UserMessage()[str(self.value)]


def test_a_list_that_the_caller_appends_to_is_looked_at_again() -> None:
    renderer = Renderer(budget=50, tokenizer=WordTokenizer())
    turns = ["a"]
    renderer.render(Turns(turns=turns))
    turns.append("b")
    assert [message.text for message in renderer.render(Turns(turns=turns)).messages] == ["a", "b"]


def test_equal_values_of_other_types_are_other_props() -> None:
    renderer = Renderer(budget=50, tokenizer=WordTokenizer())
    assert [
        renderer.render(CappedView(value=value)).messages[0].text for value in (1, True, 1.0)
    ] == ["1", "True", "1.0"]


def test_whatif_may_be_asked_again_and_again() -> None:
    made = render([UserMessage()[f"message number {index}"] for index in range(20)], budget=10_000)
    asked = [made.at_budget(budget).tokens for budget in (100, 50, 100)]
    assert asked == [
        render([UserMessage()[f"message number {index}"] for index in range(20)], budget=b).tokens
        for b in (100, 50, 100)
    ]


def test_a_cut_turn_never_exceeds_the_budget_nor_brings_back_what_it_dropped() -> None:
    renderer = Renderer(budget=400, prune_step=100)
    dropped: set[str] = set()
    history: list[UserMessage] = []
    for turn in range(120):
        history.append(UserMessage(priority=turn)[f"message number {turn} with some words"])
        made = renderer.render((UserMessage(priority=-1)["note " * (turn * 7 % 60 + 1)], history))
        kept = {message.text for message in made.messages}
        assert made.tokens <= 400
        assert not kept & dropped
        dropped |= {f"message number {each} with some words" for each in range(turn + 1)} - kept
    assert dropped


def test_what_is_required_but_says_nothing_does_not_hold_its_message() -> None:
    prompt = (
        UserMessage()["a"],
        UserMessage(priority=1)[Text(required=True)[""], TextChunk(priority=1)["notes " * 9]],
    )
    for budget in range(3, 15):
        made = render(prompt, budget=budget, tokenizer=WordTokenizer(per_message=2))
        assert (
            made.tokens == sum(2 + len(message.text.split()) for message in made.messages) <= budget
        )


def test_what_is_shown_after_a_cut_keeps_its_references() -> None:
    made = render(
        UserMessage()[Truncate(max_tokens=50)[Text()["text", Reference(to="a")]]], budget=99
    )
    assert [reference.to for reference in made.references] == ["a"]
