"""`promptkit import` and `promptkit export`: what they print and write, and how they end."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

import pytest

from promptkit import JsonlStore, Transcript
from promptkit.cli.main import main
from promptkit.transcript.stores.jsonl.reader import TranscriptReader, find_problems
from tests.unit.lab.recordings.samples import CLAUDE, SAMPLES, lines

if TYPE_CHECKING:
    from pathlib import Path

KEYS = [
    "file",
    "format",
    "conversations",
    "messages",
    "tool_calls",
    "tool_results",
    "unanswered",
    "orphaned",
    "repeated_ids",
    "images",
    "thinking",
    "compactions",
    "tool_errors",
    "attachments",
    "skipped_lines",
]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "session.jsonl"
    path.write_text(lines(CLAUDE) + "no JSON\n", encoding="utf-8")
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    out, err = capsys.readouterr()
    return status, out, err


def test_the_figures_are_printed_for_people_and_for_machines(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, "import", "session.jsonl")
    assert status == 0
    assert out.splitlines()[0] == "session.jsonl: claude_code"
    assert [line.split() for line in out.splitlines()[1:4]] == [
        ["conversations", "1"],
        ["messages", "8"],
        ["tool", "calls", "2"],
    ]
    assert "Kept beside the messages: claude_code.fields" in out
    assert err == "session.jsonl:15: no JSON: Expecting value at column 1.\n"
    status, out, _ = run(capsys, "import", "session.jsonl", "--json")
    made = json.loads(out)
    assert (status, list(made), made["skipped_lines"], made["compactions"]) == (0, KEYS, 1, 1)
    assert {path.name for path in file.parent.iterdir()} == {"session.jsonl"}


def test_the_transcript_is_written_for_its_owner_alone(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run(capsys, "import", "session.jsonl", "-o", "talk.jsonl")
    talk = file.with_name("talk.jsonl")
    assert (
        status,
        f"{len(Transcript(JsonlStore(talk)))} entries written to talk.jsonl." in out,
    ) == (0, True)
    assert list(find_problems(TranscriptReader(talk))) == []
    assert stat.S_IMODE(talk.stat().st_mode) == 0o600
    status, out, _ = run(capsys, "import", "talk.jsonl", "--json")
    assert {**json.loads(out), "file": 0, "format": 0, "skipped_lines": 1} == {
        **json.loads(run(capsys, "import", "session.jsonl", "--json")[1]),
        "file": 0,
        "format": 0,
    }


def test_a_file_is_replaced_only_by_who_says_so(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = file.with_name("talk.jsonl")
    talk.write_text("mine", encoding="utf-8")
    for arguments in (["import", "session.jsonl"], ["export", "session.jsonl", "--to", "chat"]):
        status, out, err = run(capsys, *arguments, "-o", "talk.jsonl")
        assert (status, out, talk.read_text(encoding="utf-8")) == (2, "", "mine")
        assert err.count("\n") == 1
        assert "--force" in err
    assert run(capsys, "import", "session.jsonl", "-o", "talk.jsonl", "--force")[0] == 0
    assert run(capsys, "import", "session.jsonl", "--force")[0] == 2
    status, _, err = run(capsys, "import", "session.jsonl", "-o", "session.jsonl", "--force")
    assert (status, "the recording itself" in err) == (2, True)


def test_an_import_that_fails_leaves_nothing(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("[]", encoding="utf-8")
    for arguments in (["--format", "auto"], ["--format", "claude"]):
        status, out, err = run(capsys, "import", "session.jsonl", "-o", "talk.jsonl", *arguments)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert "promptkit, claude_code, pi" in err
    assert not file.with_name("talk.jsonl").exists()
    status, _, err = run(capsys, "import", "session.jsonl", "-o", "no/folder/talk.jsonl")
    assert (status, err.count("\n")) == (2, 1)


@pytest.mark.parametrize("name", ["nothing.jsonl", "."])
def test_what_cannot_be_read_is_said_in_a_line(
    name: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["import", name], ["export", name, "--to", "chat"]):
        status, out, err = run(capsys, *command)
        assert (status, out, err.count("\n")) == (2, "", 1)


def test_an_export_is_what_a_provider_takes(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "export", "session.jsonl", "--to", "chat")
    assert (status, [message["role"] for message in json.loads(out)]) == (
        0,
        ["user", "user", "assistant"],
    )
    status, out, _ = run(capsys, "export", "session.jsonl", "--to", "anthropic", "--full")
    assert (status, json.loads(out)["messages"][0]["role"]) == (0, "user")
    status, out, _ = run(
        capsys, "export", "session.jsonl", "--to", "promptkit", "--full", "-o", "talk.jsonl"
    )
    assert (status, out) == (0, "")
    assert run(capsys, "transcript", "validate", "talk.jsonl")[0] == 0


def test_a_conversation_is_exported_by_its_name(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(SAMPLES["tau_bench"][1], encoding="utf-8")
    for leaf, second in (("task 0", "see"), ("task 1", "b")):
        _, out, _ = run(capsys, "export", "session.jsonl", "--to", "chat", "--leaf", leaf)
        assert second in json.dumps(json.loads(out)[1])
    status, _, err = run(capsys, "export", "session.jsonl", "--to", "chat", "--leaf", "zz")
    assert (status, "matches no entry and no label" in err) == (2, True)


def test_an_export_without_secrets(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = "AKIA" + "ABCDEFGHIJKLMNOP"
    file.write_text(
        json.dumps([{"role": "user", "content": f"use {key} and \ud800"}]), encoding="utf-8"
    )
    status, out, _ = run(capsys, "export", "session.jsonl", "--to", "chat", "--redact")
    assert (status, key in out, "redacted" in out) == (0, False, True)
    assert key in run(capsys, "export", "session.jsonl", "--to", "chat")[1]
