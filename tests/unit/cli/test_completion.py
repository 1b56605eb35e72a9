"""Shell completion, as docs/shell-completion.md sets it up."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

SCRIPT = Path(sys.executable).parent / "promptkit"


def run(**variables: str) -> str:
    return subprocess.run(
        [SCRIPT], capture_output=True, text=True, check=False, env=os.environ | variables
    ).stdout


def complete(line: str) -> list[str]:
    """Return what click offers for the last word of a command line, each as `type,value`."""
    words = line.split(" ")
    return run(
        _PROMPTKIT_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1)
    ).split()


def test_the_page_prints_the_script_of_every_shell() -> None:
    page = (ROOT / "docs" / "shell-completion.md").read_text(encoding="utf-8")
    assert set(re.findall(r"_PROMPTKIT_COMPLETE=(\w+) promptkit", page)) == {
        "bash_source",
        "zsh_source",
        "fish_source",
    }
    for shell, start in {
        "bash": "complete -o nosort -F",
        "zsh": "#compdef promptkit",
        "fish": "complete --no-files",
    }.items():
        assert start in run(_PROMPTKIT_COMPLETE=f"{shell}_source")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("promptkit re", ["plain,render", "plain,replay"]),
        ("promptkit render --f", ["plain,--format"]),
        (
            "promptkit export talk.jsonl --to ",
            ["plain,openai", "plain,anthropic", "plain,promptkit"],
        ),
        ("promptkit render pro", ["file,pro"]),
        ("promptkit bench pro", ["file,pro"]),
        ("promptkit trace pro", ["file,pro"]),
    ],
)
def test_commands_options_values_and_files_are_offered(line: str, offered: list[str]) -> None:
    assert complete(line) == offered


def test_bash_completes_with_the_script() -> None:
    bash = shutil.which("bash")
    if (
        bash is None
        or subprocess.run(
            [bash, "-c", "((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404))"], check=False
        ).returncode
    ):
        pytest.skip("the script needs bash 4.4")
    code = (
        'eval "$(_PROMPTKIT_COMPLETE=bash_source promptkit)"; COMP_WORDS=(promptkit re); COMP_CWORD=1; '
        '_promptkit_completion promptkit; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    environment = os.environ | {"PATH": f"{SCRIPT.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [bash, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.split() == ["render", "replay"]
