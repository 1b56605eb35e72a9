from __future__ import annotations

import pytest
from hypothesis import assume, given, strategies as st

from promptkit.compaction.summarizers.defaults import (
    MAX_FILL,
    QUESTION_TOKENS,
    compute_max_summary_tokens,
)
from promptkit.tokens.budget import ContextBudget


@given(window=st.integers(4_000, 2_000_000), share=st.floats(0, 0.5))
def test_a_summary_has_room_behind_a_conversation_that_is_nearly_full(
    window: int, share: float
) -> None:
    budget = ContextBudget(window=window, reserved_output_tokens=int(window * share))
    most = compute_max_summary_tokens(budget)
    assert budget.summary_tokens // 4 <= most <= budget.summary_tokens
    assume(most > budget.summary_tokens // 4)
    assert int((budget.base or 0) * MAX_FILL) + QUESTION_TOKENS + most <= window


@pytest.mark.parametrize("budget", [ContextBudget(), ContextBudget(window=200_000)])
def test_where_there_is_room_or_no_window_is_known_the_budget_decides(
    budget: ContextBudget,
) -> None:
    assert compute_max_summary_tokens(budget) == budget.summary_tokens
