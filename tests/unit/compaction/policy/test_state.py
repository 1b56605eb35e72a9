from __future__ import annotations

import pytest

from promptkit.compaction.budget import Budget
from promptkit.compaction.policy.state import ENOUGH, AttemptOutcome, Attempts, judge_attempt

BUDGET = Budget(window=1_000, reply_tokens=0)


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
def test_E55_a_compaction_is_judged_by_what_it_came_to(before: int, after: int, outcome: AttemptOutcome) -> None:
    assert judge_attempt(before, after, budget=BUDGET) == outcome
    assert ENOUGH == 0.78


def test_without_a_window_smaller_is_enough() -> None:
    assert judge_attempt(900, 899, budget=Budget()) == "reduced"


def test_E31_only_progress_renews_the_attempts() -> None:
    spent = Attempts(failed=1, in_a_row=2, last="failed")
    assert spent.after_attempt("reduced") == Attempts(last="reduced", done=1)
    outcomes: tuple[AttemptOutcome, ...] = ("not reduced", "not enough", "failed")
    for outcome in outcomes:
        assert spent.after_attempt(outcome) == Attempts(failed=2, in_a_row=3, last=outcome, done=1)


def test_a_message_of_the_person_frees_one_attempt_and_not_the_breaker() -> None:
    assert Attempts(failed=1, in_a_row=2, last="failed", done=1).after_user_message() == Attempts(
        failed=0, in_a_row=2, last="failed", rested=1
    )


def test_the_rest_since_the_last_attempt_is_counted_anew_after_each() -> None:
    assert Attempts(in_a_row=3, last="failed", rested=3).after_attempt("failed") == Attempts(failed=1, in_a_row=4, last="failed", done=1)


def test_E33_a_background_pass_that_failed_counts_for_the_breaker_only() -> None:
    assert Attempts().after_attempt("failed", background=True) == Attempts(failed=0, in_a_row=1, last="failed", done=1)
    assert Attempts().after_attempt("not enough", background=True) == Attempts(failed=1, in_a_row=1, last="not enough", done=1)
