"""What the fuzzer has found stays mended, and the fuzzer finds what is broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import strategies as st

from tests.fuzz.engine import CORPUS, fuzz
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS
from tests.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

KEPT = [
    (folder.name, file) for folder in sorted(CORPUS.iterdir()) for file in sorted(folder.iterdir())
]


@pytest.mark.parametrize(("name", "file"), KEPT, ids=[f"{name}-{file.name}" for name, file in KEPT])
def test_an_input_that_failed_once_no_longer_does(name: str, file: Path) -> None:
    TARGETS[name].check(file.read_bytes())


def _refuse(case: bytes) -> None:
    if b"x" in case:
        raise ValueError(len(case))


def _die(case: bytes) -> None:
    os._exit(9)


BROKEN = Target(
    check=_refuse, cases=st.binary(max_size=30).map(lambda case: case + b"x" * (len(case) > 5))
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each target runs in a fork")
class TestEngine:
    @pytest.mark.long
    def test_a_way_to_fail_is_found_once_and_made_small(self) -> None:
        outcome = fuzz(BROKEN, seconds=2, seed=1, engine="hypothesis")
        assert outcome.inputs > 10
        assert [failure.case for failure in outcome.failures] == [b"x"]
        assert "ValueError: 1" in outcome.failures[0].error

    def test_a_process_that_dies_is_a_failure_with_its_input(self) -> None:
        outcome = fuzz(attrs.evolve(BROKEN, check=_die), seconds=1, seed=1, engine="hypothesis")
        assert [failure.error for failure in outcome.failures] == [
            "the process ended with status 9"
        ]

    def test_what_holds_has_no_failures(self) -> None:
        assert (
            fuzz(attrs.evolve(BROKEN, check=len), seconds=0.1, seed=1, engine="hypothesis").failures
            == ()
        )


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["hypothesis", "atheris"])
def test_every_target_holds_for_some_seconds(engine: str) -> None:
    if engine == "atheris":
        pytest.importorskip(
            "atheris",
            reason="the coverage-guided engine needs atheris, which has wheels for few Pythons",
        )
    command = [sys.executable, "-m", "tests.fuzz", "--seconds", "28", "--json", "--engine", engine]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)  # Any: JSON
    assert found["engine"] == engine
    assert found["targets"].keys() == TARGETS.keys()
    assert all(
        figures["failures"] == 0 and figures["inputs"] > 0 for figures in found["targets"].values()
    )
