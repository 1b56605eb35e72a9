"""`python -m tests.conformance.record COUNT [SEED]`: random jobs with what prompt-tsx makes of them, one JSON object a line.

The environment variable PROMPT_TSX_HARNESS names the reference harness: a script for Node that reads jobs from a file and
writes outcomes. Without a SEED, 0 is taken.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.conformance.generate import generate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.conformance.schema import Job

__all__ = ["HARNESS", "jobs", "record"]

HARNESS = "PROMPT_TSX_HARNESS"
LEFT_OUT = ("name", "ms", "removed", "stats", "epochs")


def jobs(count: int, seed: int) -> list[Job]:
    """The first jobs of a seed; job i is the same however many are asked for."""
    return [generate(Random(seed * 1_000_003 + index), f"fuzz {seed}.{index}") for index in range(count)]


def record(wanted: Sequence[Job], harness: str) -> Iterator[Job]:
    """The jobs as cases: with `expected`, what the reference made of them."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "jobs.jsonl"
        file.write_text("".join(json.dumps(job) + "\n" for job in wanted), encoding="utf-8")
        ran = subprocess.run(["node", harness, str(file)], capture_output=True, text=True, check=True, encoding="utf-8")
    for job, line in zip(wanted, ran.stdout.splitlines(), strict=True):
        yield {**job, "expected": _without(json.loads(line))}


def _without(outcome: Job) -> Job:
    """An outcome without what is not compared, and without the stop at the first error that every smaller budget repeats."""
    kept = {key: value for key, value in outcome.items() if key not in LEFT_OUT}
    if "steps" in kept:
        kept["steps"] = [_without(step) for step in kept["steps"]]
    return kept


if __name__ == "__main__":
    amount, start = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0  # an optional argument
    for case in record(jobs(amount, start), os.environ[HARNESS]):
        print(json.dumps(case, ensure_ascii=False))
