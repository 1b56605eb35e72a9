from __future__ import annotations

import pytest

from promptkit.compaction.planning.plan import Plan, SummaryTask
from promptkit.compaction.summarizers.prompts import suggest_word_count


@pytest.mark.parametrize(
    ("most", "aim", "words"),
    [
        (100, 100, 70),
        (500, 500, 370),
        (1_999, 500, 370),
        (4_000, 1_000, 750),
        (16_384, 2_000, 1_500),
        (5, 5, 10),
    ],
)
def test_a_summary_aims_at_a_quarter_of_what_it_may_have(most: int, aim: int, words: int) -> None:
    task = SummaryTask(plan=Plan(leaf="e1"), max_tokens=most)
    assert (task.target_tokens, suggest_word_count(task)) == (aim, words)
