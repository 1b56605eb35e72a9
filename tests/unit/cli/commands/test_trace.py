"""`promptkit trace`: what it writes, what it says, and how it ends."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from promptkit.cli.main import main

SCRIPT = Path(sys.executable).parent / "promptkit"

PROMPT = """
from promptkit import Child, PromptElement, Sizing, SystemMessage, TokenLimit, UserMessage, component

@component
class Review(PromptElement):
    query: str

    def render(self, sizing: Sizing) -> Child:
        return (
            SystemMessage(required=True)["You review code."],
            [UserMessage(priority=number)[f"Note {number}: " + "something long " * 10] for number in range(3)],
            UserMessage(required=True)[self.query],
        )

limited = UserMessage()[TokenLimit(max_tokens=1, required=True)["far more than one token"]]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "prompt.py").write_text(PROMPT, encoding="utf-8")
    (tmp_path / "props.json").write_text('{"query": "Is it right?"}', encoding="utf-8")
    (tmp_path / "page.j2").write_text("Hello {{ name }}!", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


TRACE = ["trace", "prompt.py:Review", "--props", "props.json"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    out, err = capsys.readouterr()
    return status, out, err


def record(page: str) -> Any:
    (data,) = re.findall(r'id="record">(.*?)</script>', page, re.DOTALL)
    return json.loads(data)


def test_writes_a_page_and_says_what_it_shows(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, *TRACE, "--budget", "60", "-o", "review.html")
    assert (status, err) == (0, "")
    assert re.fullmatch(r"review\.html: \d\d of 60 tokens, 2 of 3 removals\n", out)
    shown = record((folder / "review.html").read_text(encoding="utf-8"))
    assert (shown["title"], shown["budget"], shown["state"]) == ("prompt.py:Review", 60, 2)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_writes_to_the_folder_at_hand_without_being_told_where(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "name.json").write_text('{"name": "Ada"}', encoding="utf-8")
    assert run(capsys, "trace", "page.j2", "--props", "name.json", "--model", "gpt-4o")[
        1
    ].startswith("trace.html: ")
    shown = record((folder / "trace.html").read_text(encoding="utf-8"))
    assert (shown["model"], "Hello Ada!" in shown["items"]["text"]) == ("gpt-4o", True)


@pytest.mark.long
def test_a_dash_writes_the_page_and_nothing_else_to_stdout(folder: Path) -> None:
    done = subprocess.run(
        [str(SCRIPT), *TRACE, "--budget", "60", "-o", "-"], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    page = done.stdout.decode()
    assert page.startswith("<!DOCTYPE html>")
    assert page.endswith("</html>\n")
    assert record(page)["budget"] == 60
    assert not (folder / "trace.html").exists()


def test_a_prompt_that_does_not_fit_gives_a_page_and_an_exit_status(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, *TRACE, "--budget", "10", "-o", "review.html")
    assert (status, out) == (2, "")
    assert err.startswith("promptkit: ")
    assert "do not fit a budget of 10" in err
    assert err.endswith(" review.html shows what is required.\n")
    assert err.count("\n") == 1
    assert record((folder / "review.html").read_text(encoding="utf-8"))["state"] is None


def test_a_limit_that_does_not_hold_gives_no_page(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run(capsys, "trace", "prompt.py:limited", "--budget", "100")
    assert status == 2
    assert "the limit of 1 at" in err
    assert not (folder / "trace.html").exists()


@pytest.mark.parametrize(
    ("output", "why"), [("no/such/page.html", "there is no folder"), (".", "is a directory")]
)
def test_a_page_that_cannot_be_written_is_said_in_one_line(
    output: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run(capsys, *TRACE, "--budget", "60", "-o", output)
    assert (status, err.count("\n")) == (2, 1)
    assert why in err
