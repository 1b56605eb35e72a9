"""The engine, clever as it is, answers what the slow oracle answers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, note, settings

from promptkit import BudgetExceededError, render
from promptkit.tokens import tokenizer_for
from tests.behaviour.oracle import DoesNotFitError, Oracle, State, oracle
from tests.behaviour.strategies import FEATURES, prompts, tokenizers
from tests.examples import examples

if TYPE_CHECKING:
    from promptkit import Child
    from promptkit.rendering.renderer import Defaults
    from promptkit.testing.strategies import Feature
    from promptkit.tokens import Tokenizer


def budgets(answers: Oracle) -> list[int]:
    """Every budget at which the answer may change, and its neighbours."""
    sizes = {state.tokens + state.reserved for state in answers.states}
    return sorted(
        {budget for size in sizes for budget in (size - 1, size, size + 1) if budget >= 0} | {0},
        reverse=True,
    )


def check(prompt: Child, tokenizer: Tokenizer, *, defaults: Defaults = "promptkit") -> None:
    # hypothesis prints values without their children
    note(f"prompt = {prompt!r}\ntokenizer = {tokenizer!r}")
    answers = oracle(prompt, tokenizer, prompt_tsx=defaults == "prompt-tsx")
    for budget in budgets(answers):
        try:
            want = answers.at(budget)
        except DoesNotFitError:
            want = None
        try:
            rendered = render(prompt, budget=budget, tokenizer=tokenizer, defaults=defaults)
        except BudgetExceededError:
            got = None
        else:
            got = State(rendered.messages, rendered.tokens, rendered.reserved)
        assert got == want, f"at {budget}: want {[s.tokens for s in answers.states]}"


@given(prompts(), tokenizers())
def test_equals_the_oracle_at_every_budget(prompt: Child, tokenizer: Tokenizer) -> None:
    check(prompt, tokenizer)


@settings(max_examples=examples(30))
@given(prompts(), tokenizers())
def test_equals_the_oracle_at_every_budget_with_the_defaults_of_prompt_tsx(
    prompt: Child, tokenizer: Tokenizer
) -> None:
    check(prompt, tokenizer, defaults="prompt-tsx")


@settings(max_examples=examples(30))
@given(prompts(size=10))
def test_equals_the_oracle_in_a_real_vocabulary(prompt: Child) -> None:
    check(prompt, tokenizer_for(None))


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.slow
def test_equals_the_oracle_at_every_budget_feature_by_feature(feature: Feature) -> None:
    @settings(max_examples=int(os.environ.get("EXAMPLES", "60")))
    @given(prompts((feature,)), tokenizers())
    def law(prompt: Child, tokenizer: Tokenizer) -> None:
        check(prompt, tokenizer)
        check(prompt, tokenizer, defaults="prompt-tsx")

    law()
