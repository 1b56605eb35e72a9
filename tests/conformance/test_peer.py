"""Random prompts come out as the reference renders them, wherever promptkit does not deviate on purpose."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.conformance.differences import differences
from tests.conformance.excluded import excluded
from tests.conformance.outcome import outcome
from tests.conformance.record import HARNESS, jobs, record

SEEDS = (0, 1)
COUNT = 200
"""Jobs for each seed."""

missing = not (os.environ.get(HARNESS) and shutil.which("node"))


@pytest.mark.peer
@pytest.mark.skipif(missing, reason=f"{HARNESS} does not name the reference harness, or there is no node to run it")
@pytest.mark.parametrize("seed", SEEDS)
def test_renders_random_prompts_as_the_reference_does(seed: int) -> None:
    compared = 0
    for case in record(jobs(COUNT, seed), str(Path(os.environ[HARNESS]).resolve())):
        if excluded(case):
            continue
        compared += 1
        assert differences(case["expected"], outcome(case)) == [], case
    assert compared > COUNT / 2


def test_a_job_is_the_same_however_many_are_asked_for() -> None:
    assert jobs(3, 7) == jobs(5, 7)[:3]
