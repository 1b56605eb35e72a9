"""`promptkit.testing` imports what is asked for and nothing else."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from promptkit import testing

HEAVY = {"hypothesis", "pytest", "_pytest", "syrupy", "openai", "jinja2", "asyncio"}


def loaded(code: str) -> set[str]:
    """The modules that a fresh process has after running some code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_importing_it_loads_nothing_of_it() -> None:
    modules = loaded("import promptkit.testing")
    assert {name for name in modules if name.startswith("promptkit.testing")} == {
        "promptkit.testing"
    }
    assert modules & HEAVY == set()


SNAPSHOTS = {"MessagesSnapshot", "PromptSnapshot", "ReceiptSnapshot", "WireSnapshot"}
"""The types of the snapshot fixtures, which are built on syrupy."""


def test_no_name_needs_a_test_framework() -> None:
    names = ", ".join(name for name in testing.__all__ if name not in SNAPSHOTS)
    assert loaded(f"from promptkit.testing import {names}") & HEAVY == set()


def test_is_sorted_and_complete() -> None:
    assert dir(testing) == sorted(testing.__all__)
    stub = ast.parse(Path(testing.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    sources = {
        alias.name: f"promptkit.testing.{node.module}"
        for node in ast.walk(stub)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(testing.__all__) == set(sources)
    for name, module in sources.items():
        assert getattr(testing, name) is getattr(importlib.import_module(module), name), name


def test_knows_no_other_names() -> None:
    with pytest.raises(AttributeError, match="WordsTokenizer"):
        getattr(testing, "WordsTokenizer")  # noqa: B009  # a checker would refuse the attribute
