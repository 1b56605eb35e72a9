"""What was recorded from the reference holds for promptkit, but for the deviations listed by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conformance.cases import OWN, check, deviations, read
from tests.conformance.differences import differences
from tests.paths import ROOT, SHARED, needs_shared

if TYPE_CHECKING:
    from tests.conformance.schema import Job

PEER_CASES = SHARED / "conformance" / "prompt_tsx.jsonl"


def cases(file: Path) -> list[Job]:
    return read(file) if file.is_file() else []


def names(file: Path) -> list[str]:
    return [case["name"] for case in cases(file)]


@pytest.mark.parametrize("case", cases(OWN), ids=names(OWN))
def test_renders_as_the_reference_does(case: Job) -> None:
    assert check(case) == []


@needs_shared("conformance", "prompt_tsx.jsonl")
@pytest.mark.parametrize("case", cases(PEER_CASES), ids=names(PEER_CASES))
def test_agrees_with_the_shared_recordings(case: Job) -> None:
    assert check(case) == []


def test_every_listed_deviation_says_which_and_why() -> None:
    for listed in deviations().values():
        assert listed["deviation"] in {f"D{number}" for number in range(1, 11)}
        assert listed["reason"]
        assert {"messages", "steps", "error"} & listed["expected"].keys()


def test_a_difference_in_messages_or_tokens_is_seen() -> None:
    recorded = {"messages": [{"role": "user", "text": "a"}], "tokenCount": 1}
    assert differences(recorded, recorded) == []
    assert differences(recorded, {**recorded, "tokenCount": 2})
    assert differences(recorded, {**recorded, "messages": []})
    assert differences(
        {"steps": [{"budget": 3, **recorded}]}, {"steps": [{"budget": 2, **recorded}]}
    )
    assert differences(recorded, {"error": "does not fit"})
    assert differences(recorded, {"crash": "Traceback"})


def test_the_command_line_counts_and_fails(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    case = '{"name": "%s", "tokenizer": "words", "budget": 1, "spec": {"type": "user", "children": ["a"]}, "expected": %s}\n'
    file.write_text(
        case % ("right", '{"messages": [{"role": "user", "text": "a"}], "tokenCount": 1}')
        + case % ("wrong", '{"messages": [], "tokenCount": 0}'),
        encoding="utf-8",
    )
    ran = subprocess.run(
        [sys.executable, "-m", "tests.conformance", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "FAILED wrong" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "1 passed, 1 failed"
