"""The key and the address from the environment: what cannot be one is refused in a line, and a key is never shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from promptkit import JsonlStore, Message, Transcript
from promptkit.cli.main import main
from promptkit.testing.server import serve
from tests.conversations import summary_reply

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    transcript = Transcript(JsonlStore(tmp_path / "talk.jsonl"))
    for number in range(6):
        transcript.append_messages(
            Message(role="user", content=(f"Question {number}: " + "word " * 60,))
        )
        transcript.append_messages(
            Message(role="assistant", content=(f"Answer {number}: " + "word " * 60,))
        )
    return tmp_path / "talk.jsonl"


@pytest.mark.parametrize(
    "command",
    [["chat", "-m", "hello"], ["compact", "talk.jsonl", "--model", "gpt-4.1"]],
    ids=["chat", "compact"],
)
class TestRefused:
    @pytest.mark.parametrize(
        "address",
        [
            "127.0.0.1:8123/v1",
            "http://[::1",
            "http://",
            "ftp://127.0.0.1",
            "http://127.0.0.1:many/v1",
            "nowhere",
        ],
    )
    def test_what_is_no_address_is_one_line(
        self,
        file: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        command: list[str],
        address: str,
    ) -> None:
        before = file.read_bytes()
        monkeypatch.setenv("OPENAI_BASE_URL", address)

        assert main(command) == 2
        out, err = capsys.readouterr()
        assert (out, err) == (
            "",
            "promptkit: invalid OPENAI_BASE_URL: use a URL with a host that starts with http:// or https://.\n",
        )
        assert file.read_bytes() == before

    @pytest.mark.parametrize("key", ["secret\n", "s\u00e9cret", "\u201csecret\u201d"])
    def test_what_is_no_key_is_one_line_in_which_it_is_not_shown(
        self,
        file: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        command: list[str],
        key: str,
    ) -> None:
        before = file.read_bytes()
        monkeypatch.setenv("OPENAI_API_KEY", key)

        assert main(command) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("promptkit: OPENAI_API_KEY contains a character that no API key has")
        assert err.count("\n") == 1
        assert "cret" not in err
        assert file.read_bytes() == before


def test_a_server_of_ones_own_summarizes_without_a_key(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve(script=[summary_reply("Six questions were answered.")]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert main(["compact", str(file), "--model", "local", "--json"]) == 0

    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (err, found["mode"], found["model"], found["note"]) == ("", "full", "local", None)


class TestClaude:
    def test_it_is_asked_over_its_own_api(
        self, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with serve(script=[summary_reply("Six questions were answered.")]) as server:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.anthropic_url)
            assert main(["compact", str(file), "--model", "claude-opus-5-5", "--json"]) == 0
            assert [exchange.path for exchange in server.requests] == ["/v1/messages"]
        assert json.loads(capsys.readouterr().out)["model"] == "claude-opus-5-5"

    def test_a_server_that_speaks_openai_s_protocol_goes_before(
        self, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with serve(script=[summary_reply("Six questions were answered.")]) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
            assert main(["compact", str(file), "--model", "claude-opus-5-5"]) == 0
            assert [exchange.path for exchange in server.requests] == ["/v1/chat/completions"]

    def test_a_key_that_is_not_set_is_named(
        self, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        assert main(["compact", str(file), "--model", "claude-opus-5-5", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["note"].startswith(
            "ANTHROPIC_API_KEY is not set"
        )
