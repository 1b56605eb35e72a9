from __future__ import annotations

import math
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit.errors import BadPropError, UnknownModelError
from promptkit.messages import ToolDefinition
from promptkit.tokens.budget import DEFAULT_BUDGET, ContextBudget, context_budget
from promptkit.tokens.models import tokenizer_for

TOKENIZER = tokenizer_for(None)


def budget(model: str | None = None, given_: int | None = None, reply: int | None = None) -> ContextBudget:
    return context_budget(model=model, budget=given_, reply_tokens=reply, tokenizer=TOKENIZER)


def test_a_bare_budget_wins() -> None:
    assert budget("gpt-4o", 500).tokens == 500
    assert budget("no such model", 500, reply=100).tokens == 500


@pytest.mark.parametrize(
    ("model", "reply", "tokens"),
    [
        ("gpt-4o", None, 128_000 - 16_384),
        ("gpt-4o", 1_000, 127_000),
        ("gpt-4", None, 8_192 - 2_048),
        ("gpt-5", None, 272_000),
        ("gpt-5", 200_000, 200_000),
    ],
)
def test_the_window_less_the_reply_is_what_a_prompt_may_have(model: str, reply: int | None, tokens: int) -> None:
    assert budget(model, reply=reply).tokens == tokens


@given(model=st.sampled_from(["gpt-4o", "gpt-5", "gpt-5.4", "gemini-2.5-pro", "claude-opus-4-6"]), reply=st.integers(0, 100_000))
def test_prompt_and_reply_fit_the_window(model: str, reply: int) -> None:
    found = budget(model, reply=reply)
    assert found.window
    assert found.tokens + reply <= found.window
    assert found.max_input is None or found.tokens <= found.max_input


@pytest.mark.parametrize("bad", [-1, math.nan])
def test_impossible_figures_are_refused(bad: float) -> None:
    figure = cast("int", bad)  # NaN is no int, and comes all the same
    with pytest.raises(BadPropError, match="budget must be at least 0 tokens"):
        budget(given_=figure)
    with pytest.raises(BadPropError, match="reply_tokens must be at least 0 tokens"):
        budget("gpt-4o", reply=figure)


def test_a_reply_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(BadPropError, match="leave nothing of the window of gpt-4"):
        budget("gpt-4", reply=8_192)


@pytest.mark.parametrize("model", ["nobody-knows-it", "gpt-77"])
def test_without_a_window_a_budget_is_asked_for(model: str) -> None:
    with pytest.raises(UnknownModelError, match="a `budget`, or"):
        budget(model)


def test_without_anything_there_is_a_default() -> None:
    assert budget().tokens == DEFAULT_BUDGET
    assert budget(reply=200_000).tokens == 0


def test_it_prints_how_it_got_there() -> None:
    tools = [ToolDefinition(name="read")]
    with_tools = context_budget(budget=8_000, tools=tools, tokenizer=TOKENIZER)
    assert str(with_tools) == f"8,000 tokens, as given; {TOKENIZER.request(tools).tokens} of them for the request and its tools"
    assert str(budget("gpt-5")).startswith(
        "272,000 tokens: gpt-5 has a window of 400,000 tokens, less 100,000 for the reply, and takes at most 272,000 of input"
    )
    assert "default" in budget().explain()
