"""The rule that compacts when reading again has cost as much as a compaction."""

from __future__ import annotations

import inspect

import attrs
import pytest
from hypothesis import given, strategies as st

from promptkit.compaction.policy.state import Attempts, PolicyState, Rereading, StartBackground
from promptkit.compaction.policy.usage import find_summary_tokens
from promptkit.compaction.presets.break_even import (
    PREFACE_TOKENS,
    QUESTION_TOKENS,
    PriceRatios,
    compact_at_break_even,
    find_ratios,
)
from promptkit.messages import Usage
from promptkit.tokens.budget import ContextBudget
from promptkit.tokens.prices import Price
from promptkit.transcript import Checkpoint, Entry

BUDGET = ContextBudget(window=200_000, reserved_output_tokens=20_000)
RATIOS = PriceRatios(output=8.0, cached=0.1, write=1.25)


def starts(
    state: PolicyState,
    *,
    beta: float = 1.0,
    beside: int = 0,
    jitter: float = 0.0,
    draw: float = 0.5,
) -> bool:
    rule = compact_at_break_even(
        rng=lambda: draw,
        beta=beta,
        summary_tokens=1_000,
        beside_tokens=lambda _: beside,
        ratios=RATIOS,
        jitter=jitter,
    )
    return isinstance(rule(state), StartBackground)


def state_after(
    reread: int, *, tokens: int = 60_000, cached: bool | None = True, request: int = 0
) -> PolicyState:
    rereading = Rereading(tokens=reread, cached=cached, first=5_000)
    return PolicyState(
        phase="rendered",
        budget=BUDGET,
        tokens=tokens,
        fixed_tokens=4_000,
        request_tokens=request,
        rereading=rereading,
    )


@given(
    beta=st.floats(0.5, 4),
    beside=st.integers(0, 8_000),
    request=st.integers(0, 4_000),
    cached=st.sampled_from([True, False, None]),
)
def test_it_starts_exactly_when_reading_again_has_cost_as_much_as_a_compaction(
    beta: float, beside: int, request: int, cached: bool | None
) -> None:
    compaction = 1_000 * 8 + QUESTION_TOKENS + (1_000 + PREFACE_TOKENS + request + beside) * 1.25
    due = beta * compaction / (1.0 if cached is False else 0.1)

    assert starts(
        state_after(int(due) + 1, request=request, cached=cached), beta=beta, beside=beside
    )
    assert not starts(
        state_after(int(due) - 1, request=request, cached=cached), beta=beta, beside=beside
    )


def test_the_threshold_is_spread_around_beta_so_that_conversations_do_not_compact_together() -> (
    None
):
    due = int((1_000 * 8 + QUESTION_TOKENS + (1_000 + PREFACE_TOKENS) * 1.25) / 0.1)

    assert starts(state_after(int(due * 0.99)), jitter=0.04, draw=0.0)
    assert not starts(state_after(int(due * 0.99)), jitter=0.04, draw=0.999)
    assert not starts(state_after(int(due * 1.01)), jitter=0.04, draw=0.999)
    assert not starts(state_after(int(due) - 2), jitter=0.04, draw=0.5)
    assert starts(state_after(int(due) + 2), jitter=0.04, draw=0.5)


def test_what_costs_exactly_as_much_starts() -> None:
    due = 1_000 * 8 + QUESTION_TOKENS + (1_000 + PREFACE_TOKENS) * 1.25
    assert starts(state_after(int(due), cached=False))
    assert not starts(state_after(int(due) - 1, cached=False))


def test_the_figures_are_by_default_those_of_the_documentation() -> None:
    assert (QUESTION_TOKENS, PREFACE_TOKENS) == (600, 400)
    assert PriceRatios() == PriceRatios(output=5.0, cached=0.1, write=1.0)
    figures = {
        name: each.default
        for name, each in inspect.signature(compact_at_break_even).parameters.items()
    }
    beside = figures.pop("beside_tokens")
    assert figures == {
        "rng": inspect.Parameter.empty,
        "beta": 1.0,
        "summary_tokens": 1_000,
        "ratios": None,
        "jitter": 0.05,
        "breaker": 3,
    }
    assert beside(BUDGET) == 0


def test_without_ratios_the_price_of_the_model_decides() -> None:
    rule = compact_at_break_even(rng=lambda: 0.5)
    ratios = find_ratios("gpt-5")
    due = int(
        (1_000 * ratios.output + QUESTION_TOKENS + (1_000 + PREFACE_TOKENS) * ratios.write)
        / ratios.cached
    )
    assert ratios != PriceRatios()
    assert rule(attrs.evolve(state_after(due + 2), model="gpt-5")) is not None
    assert rule(attrs.evolve(state_after(due - 2), model="gpt-5")) is None
    assert rule(state_after(due - 2)) is not None  # a cheaper summary, where the model is unknown


def test_an_attempt_that_failed_does_not_keep_the_next_from_starting() -> None:
    assert starts(
        attrs.evolve(state_after(10_000_000), attempts=Attempts(unsuccessful=1, last="failed"))
    )


def test_a_conversation_that_a_summary_would_not_make_smaller_is_left_alone() -> None:
    assert starts(state_after(10_000_000))
    assert not starts(state_after(10_000_000, tokens=4_000 + 1_000 + PREFACE_TOKENS))


@pytest.mark.parametrize(
    "change",
    [
        {"phase": "before_render"},
        {"enabled": False},
        {"background": "running"},
        {"background": "ready"},
        {"compacted": True},
        {"pruned": True},
        {"tokens": None},
        {"attempts": Attempts(unsuccessful=1, last="not enough")},
    ],
    ids=str,
)
def test_nothing_starts_where_a_summary_is_under_way_or_not_allowed(
    change: dict[str, object],
) -> None:
    state = attrs.evolve(state_after(10_000_000), **change)  # type: ignore[arg-type]  # the values above have the fields' types
    assert not starts(state)


def test_prices_come_from_the_models_name_and_a_gateways_prefix_is_ignored() -> None:
    assert find_ratios("gpt-5") == PriceRatios(output=8.0, cached=0.1, write=1.0)
    assert find_ratios("openai/gpt-5") == find_ratios("gpt-5")
    claude = find_ratios("claude-sonnet-4-5")
    assert (claude.output, claude.cached, claude.write) == pytest.approx((5.0, 0.1, 1.25))
    assert find_ratios("a model of my own") == PriceRatios()


def test_a_model_without_a_price_for_cached_input_pays_the_full_one_and_a_free_one_divides_by_nothing() -> (
    None
):
    assert PriceRatios.from_price(Price(input=2.0, output=6.0)) == PriceRatios(
        output=3.0, cached=1.0, write=1.0
    )
    assert PriceRatios.from_price(Price(input=0.0, output=0.0)).output == 0.0
    assert PriceRatios.from_price(Price(input=0.0, output=3.0)).output == 3.0


def test_a_sum_of_what_was_read_again_begins_anew_with_each_checkpoint() -> None:
    rereading = Rereading()
    for tokens, checkpoint in (
        (1_000, None),
        (1_500, None),
        (900, None),
        (2_000, "c1"),
        (2_100, "c1"),
    ):
        rereading = rereading.after_request(tokens, cached=None, checkpoint_id=checkpoint)
    assert (rereading.tokens, rereading.first, rereading.checkpoint_id) == (100, 2_000, "c1")
    before = (
        Rereading()
        .after_request(1_000, cached=None, checkpoint_id=None)
        .after_request(1_500, cached=None, checkpoint_id=None)
    )
    assert before.tokens == 500
    assert before.after_request(900, cached=None, checkpoint_id=None).tokens == 500


def test_a_request_that_its_cache_missed_was_read_again_at_the_full_price() -> None:
    rereading = Rereading()
    for tokens, cached in ((1_000, False), (3_000, True), (4_000, False), (5_000, True)):
        rereading = rereading.after_request(tokens, cached=cached, checkpoint_id=None)
    assert (rereading.tokens, rereading.missed) == (9_000, 3_000)
    spent = 9_000 * 0.1 + 3_000 * 0.9
    compaction = 1_000 * 8 + QUESTION_TOKENS + (1_000 + PREFACE_TOKENS) * 1.25
    state = attrs.evolve(state_after(0), rereading=attrs.evolve(rereading, first=5_000))
    assert starts(state, beta=spent / compaction - 0.01)
    assert not starts(state, beta=spent / compaction + 0.01)


def test_a_summary_costs_what_this_model_reported_for_those_of_the_conversation() -> None:
    compaction = 2_600 * 8 + QUESTION_TOKENS + (2_600 + PREFACE_TOKENS) * 1.25
    for reread, is_due in ((int(10 * compaction) + 20, True), (int(10 * compaction) - 20, False)):
        state = attrs.evolve(state_after(reread), summary_tokens=2_600)
        assert starts(state) is is_due


def test_the_summaries_of_this_model_are_learned_from_their_usage() -> None:
    def summary(tokens: int, model: str | None = "gpt-5") -> Entry:
        usage = Usage(input_tokens=1, output_tokens=tokens)
        payload = Checkpoint(summary="s", model=model, usage=usage)
        return Entry(id=str(tokens), parent_id=None, time=0, payload=payload)

    path = [summary(900), summary(9_000, "gpt-5-mini"), summary(2_600), summary(4_400)]
    assert find_summary_tokens(path, "gpt-5") == 2_600
    assert find_summary_tokens([], "gpt-5") is None


@pytest.mark.parametrize(("model", "is_due"), [("claude-opus-4-5", False), ("gpt-5", True)])
def test_a_request_below_the_models_minimum_for_caching_is_not_compacted(
    model: str, *, is_due: bool
) -> None:
    state = attrs.evolve(state_after(10_000_000, tokens=4_000), fixed_tokens=500, model=model)
    assert starts(state) is is_due


def test_the_cache_counts_as_unused_only_where_the_provider_says_so() -> None:
    first = Rereading().after_request(1_000, cached=False, checkpoint_id=None)
    assert first.cached is None  # nothing was there before the first request
    assert first.after_request(1_100, cached=None, checkpoint_id=None).cached is None
    assert first.after_request(1_100, cached=False, checkpoint_id=None).cached is False
    assert (
        first.after_request(1_100, cached=True, checkpoint_id=None)
        .after_request(1_200, cached=False, checkpoint_id=None)
        .cached
        is True
    )
