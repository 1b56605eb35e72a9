"""Recorded cases, and the deviations that promptkit takes on purpose."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conformance.differences import differences
from tests.conformance.outcome import outcome

if TYPE_CHECKING:
    from tests.conformance.schema import Job, Outcome

__all__ = ["OWN", "check", "deviations", "expected_of", "read"]

HERE = Path(__file__).parent
OWN = HERE / "own.jsonl"
"""Cases recorded from jobs of our own."""


def read(file: Path) -> list[Job]:
    """The cases of a file, one JSON object a line."""
    return [
        json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()
    ]


@cache
def deviations() -> dict[str, dict[str, Any]]:  # Any: JSON
    """By the name of a case: which deviation, why, and what promptkit promises instead."""
    return tomllib.loads((HERE / "deviations.toml").read_text(encoding="utf-8"))


def expected_of(case: Job) -> Outcome:
    """What a case should come to: what was recorded, unless a deviation is listed for it."""
    listed = deviations().get(case["name"])
    if listed is None:
        recorded: Outcome = case["expected"]
        return recorded
    promised: Outcome = listed["expected"]
    return promised


def check(case: Job) -> list[str]:
    """What differs, in readable lines; empty if the case passes."""
    return differences(expected_of(case), outcome(case))
