"""`promptkit mcp` as a process, and the SDK's own client at its stdin and stdout."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from promptkit import JsonlStore, Message, ToolCall, Transcript
from promptkit.cli.commands.mcp import TranscriptFile, build_server
from promptkit.cli.main import main
from promptkit.transcript import redact_secrets
from tests.paths import ROOT

if TYPE_CHECKING:
    from mcp import Client

SCRIPT = str(Path(sys.executable).parent / "promptkit")


def write(file: Path, *, result: str) -> Transcript:
    ids = (f"{file.stem}-{number}" for number in itertools.count(1))
    transcript = Transcript(JsonlStore(file), new_id=lambda: next(ids))
    transcript.append_messages(Message(role="user", content="Why does the login fail?"))
    transcript.append_messages(
        Message(
            role="assistant",
            tool_calls=[
                ToolCall(id="c1", name="read_file", arguments={"path": "src/session_store.py"})
            ],
        ),
        Message(role="tool", content=result, tool_call_id="c1"),
    )
    return transcript


def client(*arguments: object) -> Client:
    pytest.importorskip("mcp", reason="the server of transcripts needs mcp: pip install '.[mcp]'")
    from mcp import Client, StdioServerParameters, stdio_client

    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'components'}"}
    return Client(
        stdio_client(
            StdioServerParameters(
                command=SCRIPT, args=["mcp", *map(str, arguments)], env=environment
            )
        )
    )


async def call(connected: Client, **arguments: object) -> tuple[str, bool]:
    result = await connected.call_tool("recall", dict(arguments))
    (content,) = result.content
    assert content.type == "text"
    return content.text, result.is_error


def test_an_agent_searches_reads_pages_and_sees_what_was_appended(tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    lines = "\n".join(f"line {number}: TIMEOUT_{number} = {number * 7919}" for number in range(200))
    transcript = write(file, result=lines)

    async def talk() -> None:
        async with client(file, "--max-tokens", "500", "--redact") as connected:
            (tool,) = (await connected.list_tools()).tools
            assert tool.name == "recall"
            assert sorted(tool.input_schema["properties"]) == ["entry", "page", "pattern", "query"]
            found, failed = await call(connected, query="session_store.py")
            assert (
                found
                == '[assistant, entry talk-2]\nread_file {"path": "src/session_store.py"} → entry talk-3'
            )
            assert not failed
            second, _ = await call(connected, entry="talk-3", page=2)
            assert second.startswith("[result of read_file, entry talk-3, page 2]\n")
            assert second.endswith('[there is more: recall({"entry": "talk-3", "page": 3})]')
            assert await call(connected, entry="nowhere") == (
                "Error: there is no entry 'nowhere': use an id that a search returned.",
                True,
            )
            transcript.append_messages(
                Message(
                    role="assistant",
                    content="It is the kumquat, with sk-proj-abcdefghij0123456789klmn.",
                )
            )
            assert await call(connected, query="kumquat") == (
                "[assistant, entry talk-4]\nIt is the kumquat, with [redacted: api key].",
                False,
            )
            file.unlink()
            assert (await call(connected, query="kumquat"))[1]

    anyio.run(talk)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".talk.jsonl.lock"]  # the writer's


def test_a_text_that_is_no_unicode_is_served_with_question_marks(tmp_path: Path) -> None:
    write(tmp_path / "talk.jsonl", result="the kumquat \ud83d is half a picture")

    async def talk() -> None:
        async with client(tmp_path / "talk.jsonl") as connected:
            assert (await call(connected, query="kumquat"))[0].endswith(
                "kumquat ? is half a picture"
            )
            assert (await call(connected, entry="talk-3"))[0].endswith(
                "kumquat ? is half a picture"
            )

    anyio.run(talk)


def test_one_of_several_transcripts_is_named(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the server of transcripts needs mcp: pip install '.[mcp]'")
    for name in ("one", "two"):
        write(tmp_path / f"{name}.jsonl", result=f"It is {name}.")

    async def talk() -> None:
        from mcp import Client

        server = build_server(
            [TranscriptFile(tmp_path / f"{name}.jsonl") for name in ("one", "two")],
            max_tokens=500,
            redactor=None,
        )
        async with Client(server) as connected:
            (tool,) = (await connected.list_tools()).tools
            assert tool.input_schema["properties"]["transcript"]["enum"] == [
                "one.jsonl",
                "two.jsonl",
            ]
            assert tool.input_schema["required"] == ["transcript"]
            assert (await call(connected, transcript="two.jsonl", pattern="It is"))[0].endswith(
                "It is two."
            )
            assert await call(connected, pattern="It is") == (
                "Error: name one of the transcripts: one.jsonl, two.jsonl.",
                True,
            )

    anyio.run(talk)


def test_no_page_and_no_search_serves_a_piece_of_a_private_key(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the server of transcripts needs mcp: pip install '.[mcp]'")
    body = [f"{number:02}{'aB3/' * 15}" for number in range(25)]
    key = "\n".join(
        ["-----BEGIN RSA PRIVATE KEY-----", *body, "-----END RSA PRIVATE KEY-----", "the end"]
    )
    write(tmp_path / "talk.jsonl", result=key)

    async def talk() -> None:
        from mcp import Client

        server = build_server(
            [TranscriptFile(tmp_path / "talk.jsonl")], max_tokens=300, redactor=redact_secrets
        )
        async with Client(server) as connected:
            pages = [(await call(connected, entry="talk-3", page=page))[0] for page in (1, 2, 3)]
            found, _ = await call(connected, pattern="[A-Za-z0-9+/]{60}")
        assert pages[0].endswith("\n[redacted: private key]\nthe end")
        assert not any(line in text for line in body for text in (*pages, found))

    anyio.run(talk)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["missing.jsonl"], "cannot read missing.jsonl: No such file or directory."),
        (["text.jsonl"], "this is not a transcript"),
        (["empty.jsonl", "--max-tokens", "0"], "--max-tokens must be at least 1."),
        ([], "Missing argument"),
    ],
)
def test_a_file_that_cannot_be_served_is_one_line_on_stderr(
    arguments: list[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.jsonl").write_text("text\n", encoding="utf-8")
    Path("empty.jsonl").touch()
    assert main(["mcp", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert problem in err


def test_without_the_sdk_it_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "talk.jsonl", result="x")
    monkeypatch.setitem(sys.modules, "mcp.server.stdio", None)
    assert main(["mcp", str(tmp_path / "talk.jsonl")]) == 2
    assert "pip install '.[mcp]'" in capsys.readouterr().err


@pytest.mark.slow
def test_it_ends_when_its_input_does(tmp_path: Path) -> None:
    write(tmp_path / "talk.jsonl", result="x")
    done = subprocess.run(
        [SCRIPT, "mcp", tmp_path / "talk.jsonl"],
        input="",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
