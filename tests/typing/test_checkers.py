"""Type checkers accept the project, what its users may write, and reject what they may not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
pytestmark = pytest.mark.static


def test_the_whole_tree_is_clean(checker: Callable[..., list[tuple[str, int, str]]]) -> None:
    found = checker()
    assert not found, "\n".join(f"{file}:{line}: {message}" for file, line, message in found)


def test_what_users_write_is_accepted(checker: Callable[..., list[tuple[str, int, str]]]) -> None:
    assert checker(HERE / "good.py") == []
    assert checker(HERE / "good_language.py") == []


@pytest.mark.parametrize("name", ["bad", "bad_language"])
def test_every_mistake_is_rejected_where_it_stands(
    checker: Callable[..., list[tuple[str, int, str]]], tmp_path: Path, name: str
) -> None:
    # Kept as text: a Python file full of errors would be found by every tool that looks at the
    # tree.
    text = (HERE / f"{name}.py.txt").read_text(encoding="utf-8")
    copy = tmp_path / f"{name}.py"
    copy.write_text(text, encoding="utf-8")
    expected = {
        number
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(r"# rejected: ", line)
    }
    found = checker(copy)
    assert {line for _, line, _ in found} == expected, found
    assert len(expected) >= 10
