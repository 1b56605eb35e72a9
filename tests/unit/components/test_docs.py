"""What docs/components.md and the docstrings show is what comes out."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import re

import pytest

from tests.paths import ROOT

DOCS = ROOT / "docs" / "components.md"
BLOCK = re.compile(
    r"^```python\n(.*?)^```\n(?:\n?(?P<fence>`{3,})text\n(?P<output>.*?)^(?P=fence)\n)?",
    re.DOTALL | re.MULTILINE,
)
MODULES = [
    "agent_prompt",
    "attachments",
    "file_tree",
    "instructions",
    "reminder",
    "tool_calls",
    "workspace",
]


def blocks() -> list[tuple[str, str]]:
    return [
        (found[1], found["output"] or "")
        for found in BLOCK.finditer(DOCS.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize(("code", "output"), blocks(), ids=range(len(blocks())))
def test_an_example_prints_what_the_page_says(code: str, output: str) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, str(DOCS), "exec"), {"__name__": "__main__"})  # noqa: S102  # the page is ours
    assert printed.getvalue().rstrip() == output.rstrip()


@pytest.mark.parametrize("name", MODULES)
def test_an_example_in_a_docstring_prints_what_it_says(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"promptkit_components.{name}"))
    assert tried
    assert not failed
