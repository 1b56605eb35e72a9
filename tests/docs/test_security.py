"""What the page on security says is tested is there: files, tests and targets."""

from __future__ import annotations

import re

from tests.fuzz.targets import TARGETS
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_the_tests_that_the_page_names_are_there() -> None:
    names = set(re.findall(r"`(test_\w+)`", PAGE))
    found = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8"))
    }
    assert len(names) > 5
    assert names - found == set()


def test_the_files_that_the_page_names_are_there() -> None:
    assert [
        path for path in re.findall(r"`(tests/[\w/.]+)`", PAGE) if not (ROOT / path).exists()
    ] == []


def test_the_targets_that_the_page_names_are_there() -> None:
    named = {
        name
        for sentence in re.findall(r"targets? ((?:`\w+`(?: and )?)+)", PAGE)
        for name in re.findall(r"\w+", sentence)
        if name != "and"
    }
    assert len(named) > 4
    assert named - set(TARGETS) == set()
