"""`promptkit replay`: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from promptkit.cli.main import main
from promptkit.lab.replay.policies import POLICY_GROUPS
from promptkit.testing.server import serve
from tests.conversations import summary_reply
from tests.examples import keep_first
from tests.unit.lab.replay.conversations import long_conversation, write_transcript

if TYPE_CHECKING:
    from pathlib import Path

CODE = "import sys; from promptkit.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_transcript(tmp_path / "talk.jsonl", long_conversation(16))


def run(*arguments: object) -> int:
    return main([str(argument) for argument in ("replay", *arguments)])


def test_a_table_has_a_line_for_each_policy_within_80_columns(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(file.name, "--window", "8k", "--policy", "vscode,naive") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "talk.jsonl: 1 conversation, 128 messages"
    assert [line.split()[0] for line in lines[2:7]] == [
        "vscode",
        "drop_oldest",
        "trim_last",
        "prompt_poet",
        "langchain",
    ]
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "8k window, prices of gpt-5, cache rules: openai"


def test_the_policies_are_listed_with_the_versions_that_they_follow(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("--list") == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert list(lines) == list(POLICY_GROUPS["all"])
    assert lines["pi"].endswith("follows pi, badlogic/pi-mono 83378aa of 2026-03-15")
    assert lines["off"].endswith("follows no system")


@pytest.mark.slow
def test_the_json_is_the_same_however_many_processes_play(file: Path, tmp_path: Path) -> None:
    other = write_transcript(tmp_path / "other.jsonl", long_conversation(5))
    for workers in (1, 2):
        assert (
            run(
                file.name,
                other.name,
                "--window",
                "8k",
                "--policy",
                "vscode,pi,gsv,langchain",
                "--workers",
                workers,
                "-o",
                f"{workers}.json",
            )
            == 0
        )
    one, two = (json.loads((tmp_path / f"{workers}.json").read_bytes()) for workers in (1, 2))
    assert one == two
    assert [each["file"] for each in one["files"]] == ["talk.jsonl", "other.jsonl"]
    default = one["files"][0]["policies"][0]
    assert default["policy"] == "vscode"
    assert default["checkpoints"] > 0
    assert default["invalid_requests"] == default["overflows"] == 0


def test_json_on_stdout_is_all_of_it(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file.name, "--window", "8k", "--policy", "vscode", "--json") == 0
    assert list(json.loads(capsys.readouterr().out)) == ["total", "files"]


def test_each_file_has_a_table_of_its_own_where_that_is_wanted(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_transcript(tmp_path / "other.jsonl", long_conversation(2))
    assert run(file.name, other.name, "--policy", "vscode", "--each", "--workers", 1) == 0
    out = capsys.readouterr().out
    assert [
        name in out for name in ("talk.jsonl: 1 conv", "other.jsonl: 1 conv", "2 files: 2 conv")
    ] == [True] * 3


@pytest.mark.parametrize("form", keep_first(1, "svg", "png", "html"))
def test_a_timeline_is_drawn(file: Path, tmp_path: Path, form: str) -> None:
    assert (
        run(file.name, "--window", "8k", "--policy", "vscode,langchain", "--plot", f"replay.{form}")
        == 0
    )
    assert (tmp_path / f"replay.{form}").stat().st_size > 5_000


def test_a_user_prices_their_own_model(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.toml").write_text("[models.mine]\ninput = 1\noutput = 0\n")
    assert (
        run(
            file.name,
            "--policy",
            "vscode",
            "--model",
            "mine",
            "--prices",
            "own.toml",
            "--json",
        )
        == 0
    )
    (row,) = json.loads(capsys.readouterr().out)["files"][0]["policies"]
    assert row["price"] == pytest.approx(row["input_tokens"] / 1e6, abs=1e-6)


def test_a_model_writes_the_summaries_where_that_is_wanted(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(after=lambda _: summary_reply("All rows were mended.")) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert (
            run(
                file.name,
                "--policy",
                "vscode",
                "--window",
                "8k",
                "--summaries",
                "model",
                "--json",
            )
            == 0
        )
    (row,) = json.loads(capsys.readouterr().out)["files"][0]["policies"]
    assert row["checkpoints"] > 0
    assert row["summary_tokens"] < 100 * row["checkpoints"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["none.jsonl"], "there is no file none.jsonl"),
        (["talk.jsonl", "--policy", "vscod"], "Did you mean 'vscode'"),
        (["talk.jsonl", "--policy", ","], "--policy is empty"),
        (
            ["talk.jsonl", "--policy", "break_even:beta=x"],
            "promptkit: break_even: beta: it must be a number, not 'x'.",
        ),
        (
            ["talk.jsonl", "--policy", "break_even:"],
            "promptkit: break_even: unknown setting; known are enabled, beta,",
        ),
        (["talk.jsonl", "--advise", "--each"], "--advise prints recommendations only"),
        (["talk.jsonl", "--advise", "-o", "rows.jsonl"], "--advise prints recommendations only"),
        (
            ["talk.jsonl", "--advise", "--policy", "pi"],
            "--advise compares presets of its own: leave out --policy.",
        ),
        (["talk.jsonl", "--ttl", "nan"], "--ttl must be a number of seconds, not nan."),
        (["talk.jsonl", "--model", "my-model"], "no price for the model 'my-model'"),
        (["talk.jsonl", "--prices", "none.json"], "cannot read"),
        (["talk.jsonl", "--window", "10"], "at least 1,000 tokens"),
        (["talk.jsonl", "--plot", "x.gif"], "'.gif'"),
        (["list.json", "-o", "list.json"], "is also an input: name another file."),
        (["*.json", "-o", "list.json"], "is also an input: name another file."),
        (["talk.jsonl", "-o", "list.json"], "list.json already exists"),
        (["talk.jsonl", "--plot", "list.svg"], "list.svg already exists"),
        (
            ["t*.jsonl", "-o", "talk.jsonl", "--force"],
            "talk.jsonl is also an input: name another file.",
        ),
        (
            ["t*.jsonl", "-o", "../{folder}/talk.jsonl", "--force"],
            "talk.jsonl is also an input: name another file.",
        ),
        (["talk.jsonl", "-o", "nowhere/x.json"], "cannot write nowhere/x.json"),
        (["talk.jsonl", "--summaries", "model"], "OPENAI_API_KEY"),
        (["bad.txt"], "promptkit: bad.txt:1: the file has no known format."),
    ],
)
def test_mistakes_are_said_in_one_line(
    file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    why: str,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    file.with_name("bad.txt").write_text("nothing\n")
    for name in ("list.json", "list.svg"):
        file.with_name(name).write_text('[{"role": "user", "content": "A drawing."}]')
    arguments = [argument.format(folder=file.parent.name) for argument in arguments]
    before = file.read_bytes()
    assert run(*arguments) == 2
    assert file.read_bytes() == before
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert why in captured.err


def test_a_file_that_cannot_be_played_does_not_keep_others_from_it(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.with_name("bad.txt").write_text("nothing\n")
    assert run(file.name, "bad.txt", "--policy", "vscode", "-o", "out.json", "--workers", 1) == 1
    captured = capsys.readouterr()
    assert "talk.jsonl: 1 conversation" in captured.out
    assert captured.err.startswith("promptkit: bad.txt:1: the file has no known format.")
    assert "error" in json.loads(file.with_name("out.json").read_bytes())["files"][1]


@pytest.mark.slow
def test_processes_start_from_a_real_program(file: Path, tmp_path: Path) -> None:
    other = write_transcript(tmp_path / "other.jsonl", long_conversation(4))
    command = [
        sys.executable,
        "-c",
        CODE,
        "replay",
        file.name,
        other.name,
        "--workers",
        "2",
        "--policy",
        "vscode",
        "--window",
        "8k",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("2 files: 2 conversations, 160 messages")


def test_the_optimum_and_look_ups_have_columns_and_figures(
    file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    policies = "vscode,break_even:beta=1"
    assert (
        run(
            file.name,
            "--window",
            "8k",
            "--policy",
            policies,
            "--oracle",
            "--lookups",
            2,
            "--workers",
            1,
            "-o",
            "all.json",
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "No policy can cost less than $" in out
    assert "the planned optimum" in out
    assert all(
        word in out
        for word in ("ratio", "look-ups $", "break_even:beta=1", "2 look-ups for each answer")
    )
    total = json.loads((tmp_path / "all.json").read_bytes())["total"]
    assert total["lower_bound"] > 0
    for row in total["policies"]:
        assert total["lower_bound"] < min(row["planned_optimum"], row["price"])
        assert row["over_planned"] == pytest.approx(row["price"] / row["planned_optimum"], abs=1e-3)
        assert row["price_with_lookups"] >= row["price"]


@pytest.mark.long
def test_advice_on_a_short_recording_says_that_it_is_too_little(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(file.name, "--advise", "--window", "64k", "--workers", 1) == 0
    assert capsys.readouterr().out.startswith("64,000 tokens: the recordings are too few to tell.")


def test_several_windows_are_for_advice_only(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(file.name, "--window", "8k", "--window", "16k") == 2
    assert "--advise" in capsys.readouterr().err
