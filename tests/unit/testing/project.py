"""A project of a user: a folder with a test file, in which pytest runs as on a command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import attrs

from tests.processes import run_program

__all__ = ["Project"]


# hypothesis alone takes as long to load as all else, and a cache would be one more file in the
# project.
OPTIONS = [
    "-q",
    "-W",
    "error",
    *(
        word
        for plugin in ("hypothesispytest", "benchmark", "cacheprovider")
        for word in ("-p", f"no:{plugin}")
    ),
]


def environment() -> dict[str, str]:
    """The variables of this process without those that this test session has set."""
    known = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "COV_"))
    }
    # A module that is changed within one second must not be taken from its cache.
    return {
        **known,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
        "COLUMNS": "80",
        "NO_COLOR": "1",
    }


@attrs.frozen
class Project:
    """A folder that pytest is run in."""

    folder: Path

    def write(self, text: str, name: str = "test_prompt.py") -> None:
        """A file of the project."""
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text, encoding="utf-8")

    def run(self, *arguments: str) -> str:
        """What pytest prints."""
        done = run_program(
            "pytest", *OPTIONS, *arguments, folder=self.folder, environment=environment()
        )
        return f"{done.stdout}{done.stderr}"

    def run_script(self, name: str, *arguments: str) -> str:
        """What a script of the project prints that runs pytest, in a fresh process."""
        command = [sys.executable, name, *OPTIONS, *arguments]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            encoding="utf-8",
        )
        return f"{done.stdout}{done.stderr}"

    def counts(self, *arguments: str) -> dict[str, int]:
        """How many tests and snapshots of each kind the last lines name: `{"passed": 1, "snapshot generated": 1}`."""
        printed = self.run(*arguments)
        found = re.findall(r"(\d+) ((?:snapshots? |unused snapshots? )?[a-z]+)(?=[ ,.])", printed)
        return {
            what.replace("snapshots", "snapshot"): int(number)
            for number, what in found
            if what != "in"
        }

    def files(self) -> dict[str, str]:
        """The snapshots: path and text."""
        return {
            path.relative_to(self.folder / "__snapshots__").as_posix(): path.read_text(
                encoding="utf-8"
            )
            for path in sorted((self.folder / "__snapshots__").rglob("*"))
            if path.is_file()
        }
