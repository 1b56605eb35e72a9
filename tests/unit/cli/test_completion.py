"""Shell completion, as docs/shell-completion.md sets it up."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from promptkit.cli.main import main
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


def test_the_page_prints_the_script_of_every_shell(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "shell-completion.md").read_text(encoding="utf-8")
    assert set(re.findall(r"promptkit completion (\w+)", page)) == {"bash", "zsh", "fish"}
    for shell, start in {
        "bash": "complete -o nosort -F",
        "zsh": "#compdef promptkit",
        "fish": "complete --no-files",
    }.items():
        assert main(["completion", shell]) == 0
        assert start in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("promptkit re", ["plain,render", "plain,replay"]),
        ("promptkit render --t", ["plain,--to"]),
        (
            "promptkit export talk.jsonl --to ",
            ["plain,chat", "plain,anthropic", "plain,promptkit"],
        ),
        ("promptkit render pro", ["file,pro"]),
        ("promptkit chat --preset co", ["plain,copilot_cli", "plain,codex"]),
        ("promptkit replay talk.jsonl --policy naive,copi", ["plain,naive,copilot_cli"]),
        ("promptkit transcript view talk.jsonl --policy rec", ["plain,recorded"]),
        ("promptkit fit talk.json --model gpt-4o-mini-2024", ["plain,gpt-4o-mini-2024-07-18"]),
        ("promptkit bench pro", ["file,pro"]),
        ("promptkit trace pro", ["file,pro"]),
    ],
)
def test_commands_options_values_and_files_are_offered(line: str, offered: list[str]) -> None:
    assert complete(line) == offered


def test_names_of_a_python_file_are_offered_and_its_code_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompt.py").write_text(
        "raise SystemExit\nclass Review: ...\ndef review(): ...\nrevised = 1\ndef _hidden(): ...\n"
    )
    assert complete("promptkit render prompt.py:rev") == [
        "plain,prompt.py:review",
        "plain,prompt.py:revised",
    ]
    (tmp_path / "prompt.py").write_text("no Python(")
    assert complete("promptkit render prompt.py:rev") == ["file,prompt.py:rev"]


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
        'eval "$(promptkit completion bash)"; COMP_WORDS=(promptkit re); COMP_CWORD=1; '
        '_promptkit_completion promptkit; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    environment = os.environ | {"PATH": f"{SCRIPT.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [bash, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.split() == ["render", "replay"]
