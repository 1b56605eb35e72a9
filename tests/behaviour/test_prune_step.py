"""`prune_step` removes in big bites, so that a provider's prompt cache keeps hitting."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, note, strategies as st

from promptkit import BudgetExceededError, Renderer, SystemMessage, UserMessage, render
from promptkit.errors import InvalidArgumentError
from promptkit.testing import WordTokenizer
from tests.behaviour.oracle import oracle
from tests.behaviour.strategies import prompts, tokenizers

if TYPE_CHECKING:
    from promptkit import Child
    from promptkit.testing.strategies import Feature
    from promptkit.tokens import Tokenizer

FEATURES: tuple[Feature, ...] = (
    "required",
    "breakpoint",
    "limit",
    "keep",
    "legacy",
    "tools",
    "pass",
    "media",
)


@given(prompts(FEATURES), tokenizers(), st.integers(1, 20), st.floats(0, 1))
def test_removes_the_surplus_rounded_up_to_a_multiple_of_the_step(
    prompt: Child, tokenizer: Tokenizer, step: int, share: float
) -> None:
    note(f"prompt = {prompt!r}\ntokenizer = {tokenizer!r}")
    answers = oracle(prompt, tokenizer)
    assume(answers.fits)
    full = answers.full
    budget = int(full * share)
    try:
        made = render(prompt, budget=budget, tokenizer=tokenizer, prune_step=step)
    except BudgetExceededError:
        assert all(state.tokens + state.reserved > budget for state in answers.states)
        return
    kept = made.tokens + made.reserved
    surplus = full - budget
    assert kept <= budget
    if surplus <= 0:
        assert made.messages == answers.states[0].messages
        return
    rounded = -(-surplus // step) * step
    fewest = min(state.tokens + state.reserved for state in answers.states)
    # A bite that no state of the prompt could give is not taken: what fits is kept then.
    assert full - kept >= (rounded if full - rounded >= fewest else surplus)


def test_the_first_surviving_message_changes_once_in_many_turns() -> None:
    renderer = Renderer(budget=200, tokenizer=WordTokenizer(), prune_step=60)
    turns: list[UserMessage] = []
    firsts: list[str] = []
    for index in range(60):
        turns.append(UserMessage()[f"turn{index} " + "word " * 9])
        made = renderer.render((SystemMessage(required=True)["You help."], *turns))
        assert made.tokens <= 200
        firsts.append(made.messages[1].text.split()[0])
    changes = sum(one != other for one, other in itertools.pairwise(firsts))
    # 600 tokens come in, 200 may stay: 400 leave in bites of 60 and a little more.
    assert changes <= 7
    assert firsts[-1] != "turn0"


def test_without_a_step_the_first_message_changes_with_every_turn() -> None:
    renderer = Renderer(budget=200, tokenizer=WordTokenizer())
    turns = [UserMessage()[f"turn{index} " + "word " * 9] for index in range(60)]
    firsts = [
        renderer.render(tuple(turns[: count + 1])).messages[0].text.split()[0]
        for count in range(30, 60)
    ]
    assert len(set(firsts)) == 30


def test_what_was_dropped_stays_dropped() -> None:
    renderer = Renderer(budget=20, tokenizer=WordTokenizer(), prune_step=10)
    old = [UserMessage()[f"turn{index} b c d e"] for index in range(5)]
    kept = renderer.render(tuple(old)).messages
    again = renderer.render(tuple(old)).messages
    assert kept == again


def test_a_negative_step_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="prune_step"):
        Renderer(budget=10, tokenizer=WordTokenizer(), prune_step=-1)
