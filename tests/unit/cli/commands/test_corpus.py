"""Commands that work on many files: replay, fit and import with globs, rows, and folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from promptkit import count_request
from promptkit.cli.main import main
from tests.conversations import words
from tests.unit.lab.replay.conversations import long_conversation, write_transcript


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "logs" / "deep"
    folder.mkdir(parents=True)
    write_transcript(folder / "talk.jsonl", long_conversation(3))
    for name in ("a", "b"):
        talk = [
            {"role": "system", "content": "Review."},
            {"role": "user", "content": words(900)},
            {"role": "user", "content": name},
        ]
        (tmp_path / "logs" / f"{name}.json").write_text(json.dumps(talk))
    return tmp_path / "logs"


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def rows(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


@pytest.mark.usefixtures("logs")
def test_a_replay_writes_a_row_for_each_conversation_and_policy_and_prints_the_sum(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ("replay", "logs/**/*.json*", "--policy", "vscode,drop_oldest", "--workers", 1)
    assert run(*arguments, "-o", "rows.jsonl") == 0
    out = capsys.readouterr().out
    assert out.startswith("3 files: 3 conversations, 30 messages\n")
    assert [(row["file"], row["policy"]) for row in rows("rows.jsonl")] == [
        (f"logs/{name}", policy)
        for name in ("a.json", "b.json", "deep/talk.jsonl")
        for policy in ("vscode", "drop_oldest")
    ]
    assert run(*arguments) == 0
    assert capsys.readouterr().out == out
    assert run(*arguments, "-o", "rows.jsonl") == 2
    assert "rows.jsonl already exists" in capsys.readouterr().err
    assert run(*arguments, "-o", "rows.jsonl", "--force") == 0


def test_a_file_that_cannot_be_read_is_a_row_and_the_exit_status_says_so(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (logs / "bad.json").write_text("{")
    for command in (
        ("replay", "--policy", "vscode"),
        ("fit", "--budget", "8k"),
        ("import", "--rows"),
    ):
        options = command[1:-1] if command[-1] == "--rows" else command[1:]
        place = "--rows" if command[-1] == "--rows" else "-o"
        assert (
            run(command[0], "logs/*.json", *options, place, f"{command[0]}.jsonl", "--workers", 1)
            == 1
        )
        found = [row for row in rows(f"{command[0]}.jsonl") if "error" in row]
        assert [row["file"] for row in found] == ["logs/bad.json"]
        err = capsys.readouterr().err.splitlines()
        assert err[-1].startswith("promptkit: logs/bad.json:1: ")


@pytest.mark.usefixtures("logs")
def test_windows_have_a_receipt_of_what_was_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(
            "fit",
            "logs/**/*.json*",
            "--budget",
            300,
            "--model",
            "gpt-4o",
            "-o",
            "windows.jsonl",
            "--workers",
            1,
        )
        == 0
    )
    assert capsys.readouterr().err == "3 windows of 3 files written to windows.jsonl.\n"
    for row in rows("windows.jsonl"):
        assert (
            row["tokens"]
            == count_request({"messages": row["messages"]}, model="gpt-4o").tokens
            <= row["budget"]
            == 300
        )
        assert row["tokens_before"] > row["tokens"]
        assert (row["conversation"], row["model"], row["tokenizer"], row["exact"]) == (
            0,
            "gpt-4o",
            "o200k_base",
            True,
        )
        assert len(row["sha256"]) == 64
    first = rows("windows.jsonl")[0]
    assert (first["kept"], first["changed"], first["removed"], first["messages_before"]) == (
        "0, 2",
        "1",
        "",
        3,
    )


def test_a_conversation_that_does_not_fit_is_a_row_of_its_own(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (logs / "a.json").write_text(
        json.dumps([{"role": "system", "content": words(500)}, {"role": "user", "content": "Go."}])
    )
    assert (
        run(
            "fit",
            "logs/a.json",
            "logs/b.json",
            "--budget",
            300,
            "-o",
            "windows.jsonl",
            "--workers",
            1,
        )
        == 1
    )
    bad, good = rows("windows.jsonl")
    assert (bad["file"], bad["conversation"]) == ("logs/a.json", 0)
    assert "do not fit a budget of 300" in bad["error"]
    assert good["tokens"] <= 300
    assert "1 window of 2 files written to " in capsys.readouterr().err


@pytest.mark.usefixtures("logs")
def test_many_recordings_become_transcripts_in_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run("import", "logs/**/*.json*", "-o", "talks", "--rows", "counts.jsonl", "--workers", 1)
        == 0
    )
    out = capsys.readouterr().out
    assert out.startswith("3 files\n")
    assert ["messages", "30"] in [line.split() for line in out.splitlines()]
    assert out.endswith("3 transcripts written to talks.\n")
    written = sorted(str(path) for path in Path("talks").rglob("*.jsonl"))
    assert written == ["talks/a.json.jsonl", "talks/b.json.jsonl", "talks/deep/talk.jsonl"]
    assert [row["transcript"] for row in rows("counts.jsonl")] == written
    assert sum(row["messages"] for row in rows("counts.jsonl")) == 30
    assert run("import", "logs/**/*.json*", "-o", "talks", "--workers", 1) == 2
    assert "talks already exists" in capsys.readouterr().err
    assert run("import", "logs/**/*.json*", "--json", "--workers", 1) == 0
    assert json.loads(capsys.readouterr().out)["messages"] == 30


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            ("replay", "logs", "-o", "x.jsonl"),
            "there is no file logs; it is a folder: write 'logs/**/*.jsonl' for the files in it.",
        ),
        (("replay", "logs/*.none", "-o", "x.jsonl"), "no file matches 'logs/*.none'."),
        (("replay", "logs/*.none"), "no file matches 'logs/*.none'."),
        (
            ("replay", "logs/a.json", "-o", "x.jsonl", "--json"),
            "--json, --plot and --each hold all results in memory",
        ),
        (("replay", "logs/a.json", "--state", "s"), "--state needs --output OUT"),
        (
            ("replay", "logs/a.json", "-o", "x.csv"),
            "name x.csv with the suffix .jsonl or .parquet.",
        ),
        (
            ("replay", "logs/a.json", "--engine", "spark"),
            "there is no engine 'spark': write local, dask, ray, dask://HOST:PORT or ray://",
        ),
        (
            ("fit", "logs/a.json", "logs/b.json", "--budget", "8k"),
            "name the file of the windows, such as --output windows.jsonl.",
        ),
        (
            ("fit", "logs/*.json", "--budget", "8k", "--leaf", "x", "-o", "x.jsonl"),
            "--leaf is of one conversation",
        ),
        (("fit", "logs/a.json", "--budget", "8k", "--state", "x"), "--state needs an OUT"),
        (
            ("import", "logs/*.json", "-o", "s3://b/talks#1"),
            "s3://b/talks#1 is one conversation: leave out what follows the #",
        ),
        (("import", "logs/a.json", "--state", "x"), "--state is for several files"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    logs: Path, arguments: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert logs.is_dir()
    assert run(*arguments) == 2
    err = capsys.readouterr().err
    assert why in err
    assert err.count("\n") == 1
    # no file of unfinished work
    assert sorted(path.name for path in logs.parent.iterdir()) == ["logs"]


def test_a_recording_is_not_replaced_by_its_own_transcript(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = logs / "talk.jsonl"
    recording.write_text('{"role": "user", "content": "Hello"}\n')
    assert run("import", "logs/*.jsonl", "-o", "logs", "--force", "--workers", 1) == 2
    assert (
        "logs/talk.jsonl would be written to logs/talk.jsonl, which is an input"
        in capsys.readouterr().err
    )
    assert recording.read_text() == '{"role": "user", "content": "Hello"}\n'
