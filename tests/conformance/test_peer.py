"""Random prompts come out as the reference renders them, wherever promptkit does not deviate on purpose.

Each seed is 200 prompts. PROMPT_TSX_SEEDS in the environment asks for more of them than two, and
PROMPT_TSX names a folder in which `npm install @vscode/prompt-tsx` was run, if it is not the one
that `python -m benchmarks.peers.setup` made.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.conformance.cases import OWN, read
from tests.conformance.differences import differences, lacking
from tests.conformance.excluded import excluded
from tests.conformance.outcome import outcome
from tests.conformance.record import jobs, missing, record

if TYPE_CHECKING:
    from tests.conformance.schema import Job

SEEDS = int(os.environ.get("PROMPT_TSX_SEEDS", "2"))
COUNT = 200
"""Jobs for each seed."""

MORE = {"shortest prefix"}
"""Where the reference only removes more than it must, what it keeps is the least."""

without_reference = pytest.mark.skipif(bool(missing()), reason=missing())


def unlike(case: Job) -> list[str] | None:
    """What differs from the reference; None where the two cannot be compared."""
    deviations = excluded(case)
    if deviations and deviations != MORE:
        return None
    return (lacking if deviations else differences)(case["expected"], outcome(case))


@pytest.mark.peer
@without_reference
@pytest.mark.parametrize("seed", range(SEEDS))
def test_renders_random_prompts_as_the_reference_does(seed: int) -> None:
    compared = 0
    for case in record(jobs(COUNT, seed)):
        lines = unlike(case)
        compared += lines is not None
        assert not lines, "\n".join(
            [*lines, "As a line for a file of cases:", json.dumps(case, ensure_ascii=False)]
        )
    assert compared > COUNT * 3 / 4


@pytest.mark.peer
@without_reference
def test_the_recorded_cases_are_what_the_reference_gives() -> None:
    recorded = read(OWN)
    asked = [{key: value for key, value in case.items() if key != "expected"} for case in recorded]
    assert [case["expected"] for case in record(asked)] == [case["expected"] for case in recorded]


def test_a_job_is_the_same_however_many_are_asked_for() -> None:
    assert jobs(3, 7) == jobs(5, 7)[:3]


def test_what_keeps_less_than_the_reference_is_seen() -> None:
    steps = [
        {"budget": 5, "messages": ["a", "b"], "tokenCount": 5},
        {"budget": 4, "messages": ["b"], "tokenCount": 2},
    ]
    more = [
        steps[0],
        {"budget": 4, "messages": ["a"], "tokenCount": 3},
        {"budget": 2, "messages": ["b"], "tokenCount": 2},
    ]
    assert lacking({"steps": steps}, {"steps": steps}) == []
    assert lacking({"steps": steps}, {"steps": more}) == []
    assert lacking({"steps": more}, {"steps": steps})
    assert lacking({"tokenCount": 2}, {"tokenCount": 1})
    assert lacking({"tokenCount": 2}, {"error": "does not fit"})
    assert lacking({"error": "does not fit"}, {"tokenCount": 2})
    assert lacking({"tokenCount": 2}, {"crash": "Traceback"})
