from __future__ import annotations

import attrs
import pytest

from promptkit.compaction.policy.state import (
    CACHE_SECONDS,
    SUFFICIENT_RATIO,
    AttemptOutcome,
    Attempts,
    PolicyState,
    Rereading,
    is_cache_warm,
    judge_attempt,
)
from promptkit.tokens.budget import ContextBudget

BUDGET = ContextBudget(window=1_000, reserved_output_tokens=0)


@pytest.mark.spec("E55")
@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (900, 300, "reduced"),
        (900, 779, "reduced"),
        (900, 780, "not enough"),
        (900, 899, "not enough"),
        (900, 900, "not reduced"),
        (900, 1_200, "not reduced"),
        (300, 299, "reduced"),
        (300, 301, "not reduced"),
    ],
)
def test_a_compaction_is_judged_by_what_it_came_to(
    before: int, after: int, outcome: AttemptOutcome
) -> None:
    assert judge_attempt(before, after, budget=BUDGET) == outcome
    assert SUFFICIENT_RATIO == 0.78


def test_without_a_window_smaller_is_enough() -> None:
    assert judge_attempt(900, 899, budget=ContextBudget()) == "reduced"


@pytest.mark.spec("E31")
def test_only_progress_renews_the_attempts() -> None:
    spent = Attempts(unsuccessful=1, consecutive_unsuccessful=2, last="failed")
    assert spent.after_attempt("reduced") == Attempts(last="reduced", ended_this_turn=1)
    outcomes: tuple[AttemptOutcome, ...] = ("not reduced", "not enough", "failed")
    for outcome in outcomes:
        assert spent.after_attempt(outcome) == Attempts(
            unsuccessful=2, consecutive_unsuccessful=3, last=outcome, ended_this_turn=1
        )


def test_a_message_of_the_user_frees_one_attempt_and_not_the_breaker() -> None:
    assert Attempts(
        unsuccessful=1, consecutive_unsuccessful=2, last="failed", ended_this_turn=1
    ).after_user_message() == Attempts(
        unsuccessful=0, consecutive_unsuccessful=2, last="failed", user_messages_since=1
    )


def test_the_rest_since_the_last_attempt_is_counted_anew_after_each() -> None:
    assert Attempts(consecutive_unsuccessful=3, last="failed", user_messages_since=3).after_attempt(
        "failed"
    ) == Attempts(unsuccessful=1, consecutive_unsuccessful=4, last="failed", ended_this_turn=1)


@pytest.mark.spec("E33")
def test_a_background_pass_that_failed_counts_for_the_breaker_only() -> None:
    assert Attempts().after_attempt("failed", background=True) == Attempts(
        unsuccessful=0, consecutive_unsuccessful=1, last="failed", ended_this_turn=1
    )
    assert Attempts().after_attempt("not enough", background=True) == Attempts(
        unsuccessful=1, consecutive_unsuccessful=1, last="not enough", ended_this_turn=1
    )


@pytest.mark.parametrize(
    ("seconds", "share", "mid_turn", "warm"),
    [
        (None, 0.9, True, False),  # no request was sent yet
        # as in VS Code where nothing is reported: warm once a round is complete
        (0.0, None, False, False),
        (0.0, None, True, True),
        (0.0, 0.9, False, True),
        (0.0, 0.5, True, True),
        (0.0, 0.49, True, False),
        (0.0, 0.0, True, False),
        (CACHE_SECONDS, 0.9, True, True),
        (CACHE_SECONDS + 1, 0.9, True, False),
        (CACHE_SECONDS + 1, None, True, False),
    ],
)
def test_a_cache_is_warm_if_the_provider_says_so_and_not_for_long(
    seconds: float | None, share: float | None, mid_turn: bool, warm: bool
) -> None:
    assert (
        is_cache_warm(seconds_since_request=seconds, cached_share=share, mid_turn=mid_turn) is warm
    )
    assert CACHE_SECONDS == 300


def test_a_provider_that_keeps_prompts_for_an_hour_keeps_the_cache_warm_for_an_hour() -> None:
    assert is_cache_warm(
        seconds_since_request=3_500, cached_share=0.9, mid_turn=False, cache_seconds=3_600
    )


def test_what_is_not_said_of_a_state_is_unknown_or_nothing() -> None:
    state = PolicyState(phase="idle", budget=BUDGET)
    numbers = {
        name: value
        for name, value in attrs.asdict(state, recurse=False).items()
        if type(value) in {int, float} and name != "cache_seconds"
    }
    assert state.cache_seconds == CACHE_SECONDS
    assert numbers == dict.fromkeys(
        (
            "fixed_tokens",
            "prunable_tokens",
            "superseded_tokens",
            "reasoning_tokens",
            "request_tokens",
            "messages",
            "idle_seconds",
        ),
        0,
    )
    assert {
        name for name, value in attrs.asdict(state, recurse=False).items() if value is True
    } == {"enabled"}
    assert (state.tokens, state.ratio, state.rereading, state.attempts) == (
        None,
        None,
        Rereading(),
        Attempts(),
    )
