"""`promptkit chat` as a process of its own, with what it needs to be found and none of the host's keys."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.processes import run_program

if TYPE_CHECKING:
    import subprocess

__all__ = ["NAMES", "SCRIPT", "chat", "environment", "fill"]

SCRIPT = str(Path(sys.executable).parent / "promptkit")

NAMES = ("alpha", "beta", "gamma", "delta", "epsilon")


def environment(**more: str) -> dict[str, str]:
    """The environment of a person without a key, on a terminal of 80 columns."""
    known = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPENAI_", "ANTHROPIC_"))
    }
    return {**known, "COLUMNS": "80", "PYTHONUTF8": "1", **more}


def chat(
    folder: Path, *arguments: str, lines: str | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """A conversation in a folder, from options or from a pipe, to its end."""
    return run_program(
        "promptkit",
        "chat",
        *arguments,
        folder=folder,
        environment=environment(**more),
        lines=lines or "",
    )


def fill(folder: Path) -> None:
    """Files that together are larger than the script's window."""
    folder.mkdir(exist_ok=True)
    for name in NAMES:
        lines = (
            f"{name} {number}: nothing but a line of {name}, one after the other."
            for number in range(1, 80)
        )
        (folder / f"{name}.md").write_text(
            "\n".join([f"# {name}", *lines, f"The word of {name} is {name[::-1]}."]),
            encoding="utf-8",
        )
