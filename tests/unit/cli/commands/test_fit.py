"""`promptkit fit`: what it writes, and how it ends."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from promptkit import JsonlStore, Transcript, count_request
from promptkit.cli.main import main
from tests.conversations import call_message, result_message, user_message, words

if TYPE_CHECKING:
    from pathlib import Path

MESSAGES: list[dict[str, Any]] = [  # Any: of a request
    {"role": "system", "content": "You review code."},
    {"role": "user", "content": "Read the log."},
    {
        "role": "assistant",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": words(2_000)},
    {"role": "assistant", "content": "It is long."},
    {"role": "user", "content": "What went wrong?"},
]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "messages.json"
    path.write_text(json.dumps(MESSAGES), encoding="utf-8")
    return path


def test_a_list_of_messages_fits_and_what_was_done_is_told(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", str(file), "--budget", "500", "--model", "gpt-4o"]) == 0
    out, err = capsys.readouterr()
    messages = json.loads(out)
    assert [message["role"] for message in messages] == [message["role"] for message in MESSAGES]
    tokens = count_request({"messages": messages}, model="gpt-4o").tokens
    assert 480 < tokens <= 500
    assert err.splitlines() == [
        f"{tokens} of 500 tokens ({tokens / 500:.0%}) in 6 messages",
        "kept 5 messages: 0-2, 4-5",
        "changed 1 message: 3",
    ]


def test_whole_rounds_are_removed_if_nothing_may_be_shortened(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", str(file), "--budget", "500", "--whole", "-o", "out.json"]) == 0
    assert "removed 2 messages: 2-3" in capsys.readouterr().err
    assert len(json.loads((file.parent / "out.json").read_text(encoding="utf-8"))) == 4
    assert main(["fit", str(file), "--budget", "500", "-o", "out.json"]) == 2
    assert "--force" in capsys.readouterr().err


def test_a_transcript_can_be_written_for_anthropic(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = JsonlStore(file.parent / "talk.jsonl")
    Transcript(store).append_messages(
        user_message("Go."), call_message("a"), result_message("a", words(900))
    )
    assert main(["fit", "talk.jsonl", "--budget", "300", "--to", "anthropic"]) == 0
    request = json.loads(capsys.readouterr().out)
    assert [message["role"] for message in request["messages"]] == ["user", "assistant", "user"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "give --budget"),
        (["--budget", "3"], "do not fit a budget of 3"),
        (["--budget", "much"], "--budget"),
        (["--budget", "1k", "--leaf", "nowhere"], "--leaf 'nowhere' matches no entry"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    file: Path, capsys: pytest.CaptureFixture[str], options: list[str], problem: str
) -> None:
    assert main(["fit", str(file), *options]) == 2
    out, err = capsys.readouterr()
    assert problem in err
    assert not out


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[{"role": "alien", "content": "x"}]', "has no message, but 'alien' is no role"),
        ("[]", "is an empty list: it may be a JSON list of messages"),
        ("[1, 2]", "has no messages: it may be a JSON list of messages"),
        (
            "not json",
            "is not JSON (Expecting value: line 1 column 1 (char 0)): it may be a JSON list of messages",
        ),
        ('[{"role": "user",', "stops being JSON"),
        ("", "is not JSON"),
    ],
)
def test_a_file_without_messages_is_refused_with_what_it_may_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    path = tmp_path / "messages.json"
    path.write_text(text, encoding="utf-8")
    assert main(["fit", str(path), "--budget", "500"]) == 2
    out, err = capsys.readouterr()
    assert problem in err
    assert not out


def test_what_is_left_out_of_a_list_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "messages.json"
    path.write_text(
        json.dumps([{"role": "user", "content": "x"}, {"role": "alien"}]), encoding="utf-8"
    )
    assert main(["fit", str(path), "--budget", "500"]) == 0
    assert "left out 1 of FILE: 'alien' is no role" in capsys.readouterr().err


def test_a_name_that_is_too_long_is_said_in_a_sentence(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "a" * 300
    for arguments in (
        ["fit", name, "--budget", "500"],
        ["fit", str(file), str(file), "--budget", "500", "-o", f"{name}.jsonl"],
    ):
        assert main(arguments) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"promptkit: {name}")
        assert "OSError" not in err
        assert "Errno" not in err


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such names")
def test_a_failure_of_a_file_with_a_line_break_in_its_name_is_one_line(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file.parent / "a\nb.json").write_text("{", encoding="utf-8")
    assert main(["fit", "*.json", "--budget", "500", "-o", "out.jsonl", "--workers", "1"]) == 1
    assert [line[:10] for line in capsys.readouterr().err.splitlines()] == [
        "1 window o",
        "promptkit:",
    ]
