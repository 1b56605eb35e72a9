"""`python -m tests.conformance.record COUNT [SEED]`: random jobs with what prompt-tsx makes of them, one JSON object a line.

Without a SEED, 0 is taken. prompt-tsx is run by `harness.mjs`, from the folder that `folder()`
names.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from benchmarks.peers.environments import default_folder
from tests.conformance.generate import generate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.conformance.schema import Job

__all__ = ["folder", "jobs", "missing", "record"]

FOLDER = "PROMPT_TSX"
HARNESS = Path(__file__).with_name("harness.mjs")


def folder() -> Path:
    """Where prompt-tsx is installed: what PROMPT_TSX names, or else the environment of `python -m benchmarks.peers.setup`."""
    return Path(os.environ.get(FOLDER) or default_folder() / "prompt-tsx").resolve()


def missing() -> str:
    """What is not there to run prompt-tsx with, and how to get it; empty if it is all there."""
    if shutil.which("node") is None:
        return "there is no node to run prompt-tsx with"
    if not (folder() / "node_modules" / "@vscode" / "prompt-tsx").is_dir():
        return (
            f"there is no @vscode/prompt-tsx in {folder()}: run `python -m benchmarks.peers.setup --peers prompt-tsx`, "
            f"or `npm install @vscode/prompt-tsx` in a folder that {FOLDER} names"
        )
    return ""


def jobs(count: int, seed: int) -> list[Job]:
    """The first jobs of a seed; job i is the same however many are asked for."""
    return [
        generate(Random(seed * 1_000_003 + index), f"fuzz {seed}.{index}") for index in range(count)
    ]


def record(wanted: Sequence[Job]) -> Iterator[Job]:
    """The jobs as cases: with `expected`, what the reference made of them."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "jobs.jsonl"
        file.write_text("".join(json.dumps(job) + "\n" for job in wanted), encoding="utf-8")
        command = ["node", str(HARNESS), str(folder()), str(file)]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8")
    for job, line in zip(wanted, ran.stdout.splitlines(), strict=True):
        outcome: Job = json.loads(line)
        del outcome["name"]
        yield {**job, "expected": outcome}


if __name__ == "__main__":
    # an optional argument
    amount, start = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    if reason := missing():
        sys.exit(reason)
    for case in record(jobs(amount, start)):
        print(json.dumps(case, ensure_ascii=False))
