"""`promptkit compact`: what it writes, what it prints, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from promptkit import Message, ToolCall
from promptkit.cli.main import main
from promptkit.compaction.planning.breadcrumb import strip_breadcrumb
from promptkit.testing.server import api_error, serve
from promptkit.tokens import tokenizer_for
from promptkit.transcript.log.entries import Checkpoint
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.log.view import build_view
from promptkit.transcript.stores.jsonl.store import JsonlStore
from tests.conversations import summary_reply, summary_text

if TYPE_CHECKING:
    from pathlib import Path

    from promptkit.testing.server import Exchange

SUMMARY = f"<analysis>I think.</analysis>{summary_reply('Twenty requests were answered.')}"
TURNS = 20


def said(role: str, text: str) -> Message:
    return Message(role="user" if role == "user" else "assistant", content=(text,))


def write(path: Path, turns: int = TURNS, *, words: int = 60) -> None:
    """A transcript of so many turns, with a call in the first."""
    numbers = iter(range(10_000))
    transcript = Transcript(
        JsonlStore(path), clock=lambda: 1_767_225_600.0, new_id=lambda: f"e{next(numbers)}"
    )
    call = Message(
        role="assistant",
        tool_calls=(ToolCall(id="c", name="read_file", arguments='{"path": "parser.py"}'),),
    )
    transcript.append_messages(said("user", "Mend the \x1b[31mparser\x07."))
    transcript.append_messages(call)
    transcript.append_messages(
        Message(role="tool", tool_call_id="c", content=("def parse(): ... " * words,))
    )
    transcript.append_messages(said("assistant", "Read."))
    for number in range(1, turns):
        transcript.append_messages(said("user", f"request {number} " + "word " * words))
        transcript.append_messages(said("assistant", f"answer {number} " + "word " * words))


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "talk.jsonl"
    write(path)
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["compact", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    status, out, err = run(capsys, *arguments, "--json")
    assert (status, err) == (0, "")
    found: dict[str, object] = json.loads(out)
    return found


class TestWithoutAModel:
    def test_it_says_so_and_writes_one_checkpoint(
        self, file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        before = file.read_bytes()

        status, out, err = run(capsys, "talk.jsonl")

        assert (status, err) == (
            0,
            "No --model was given: the summary is extracted from the transcript, without a model.\n",
        )
        assert file.read_bytes().startswith(before)
        transcript = Transcript(JsonlStore(file))
        (checkpoint,) = [
            entry for entry in transcript.entries if isinstance(entry.payload, Checkpoint)
        ]
        assert f"entry {checkpoint.id} written to talk.jsonl" in out
        assert (
            build_view(transcript.path())
            .messages[0]
            .text.startswith("<conversation-summary>\n1. Conversation Overview")
        )

    def test_statistics_count_the_same_tokens_before_and_after(
        self, file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def shown() -> object:
            assert main(["transcript", "stats", str(file), "--json"]) == 0
            return json.loads(capsys.readouterr().out)["view"]["tokens"]

        before = shown()
        found = as_json(capsys, str(file), "--extractive")

        assert (found["tokens_before"], found["tokens_after"]) == (before, shown())

    def test_what_is_printed_is_what_was_written(
        self, file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found = as_json(capsys, "talk.jsonl", "--extractive")

        transcript = Transcript(JsonlStore(file))
        checkpoint = transcript.entries[-1].payload
        assert isinstance(checkpoint, Checkpoint)
        assert (found["summary"], found["mode"], found["model"], found["usage"]) == (
            checkpoint.summary,
            "extractive",
            None,
            None,
        )
        assert isinstance(found["entry"], dict)
        assert found["entry"]["id"] == transcript.entries[-1].id
        assert (found["tokens_before"], found["tokens_after"]) == (
            checkpoint.tokens_before,
            checkpoint.tokens_after,
        )
        dropped, kept = found["dropped"], found["kept"]
        assert isinstance(dropped, list)
        assert isinstance(kept, list)
        assert [*dropped, *kept] == [entry.id for entry in transcript.entries[:-1]]

    def test_the_summary_has_at_most_half_of_what_it_stands_for(
        self, file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found = as_json(capsys, str(file), "--extractive")

        count = tokenizer_for(None).count
        assert (
            count(strip_breadcrumb(str(found["summary"]))) <= int(str(found["tokens_before"])) // 2
        )

    def test_asked_for_it_says_nothing_of_it(
        self, file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(capsys, str(file), "--extractive")[2] == ""

    def test_the_summary_says_where_the_rest_is(
        self, file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        summary = as_json(capsys, "talk.jsonl")["summary"]

        assert isinstance(summary, str)
        assert json.dumps(str(file)) in summary
        # without the header and the checkpoint
        assert f"{len(file.read_text().splitlines()) - 2} entries" in summary

    def test_without_a_key_no_model_is_asked(
        self, file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        status, out, err = run(
            capsys, str(file), "--model", "gpt-4.1", "--instructions", "Be brief."
        )

        assert status == 0
        assert "Summary (extractive)" in out
        assert err == (
            "OPENAI_API_KEY is not set: the summary is extracted from the transcript, without a model. --instructions has no effect.\n"
        )

    @pytest.mark.slow
    def test_a_smaller_window_makes_a_smaller_summary(
        self, file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write(file.with_name("long.jsonl"), 200)
        summaries = [
            str(as_json(capsys, "long.jsonl", "--dry-run", "--window", window)["summary"])
            for window in ("1k", "16k", "128k")
        ]

        sizes = [len(summary) for summary in summaries]
        assert sizes[0] < sizes[1] < sizes[2]

    def test_what_is_still_too_large_is_told(
        self, file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        Transcript(JsonlStore(file)).append_messages(said("user", "word " * 5_000))

        for options, told in (
            (["--window", "4k"], True),
            (["--window", "32k"], False),
            ([], False),
        ):
            _, out, _ = run(capsys, str(file), "--extractive", "--dry-run", *options)
            assert (
                "tokens: the messages that are kept are too large by themselves." in out
            ) is told

    def test_once_more_there_is_nothing_to_do(
        self, file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run(capsys, "talk.jsonl", "--extractive")
        written = file.read_bytes()

        status, out, err = run(capsys, "talk.jsonl", "--extractive")

        assert (status, err) == (0, "")
        assert out.startswith("talk.jsonl: ")
        assert out.endswith("nothing to summarize: all messages are recent.\n")
        assert file.read_bytes() == written
        assert as_json(capsys, "talk.jsonl", "--extractive")["entry"] is None

    def test_facts_are_carried_from_one_to_the_next(
        self, file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run(capsys, str(file), "--extractive")
        transcript = Transcript(JsonlStore(file))
        for number in range(20):
            transcript.append_messages(
                said("user", f"more {number} " + "word " * 60), said("assistant", "Yes. " * 60)
            )

        found = as_json(capsys, str(file), "--extractive")

        summary = found["summary"]
        assert isinstance(summary, str)
        assert "[answered] Mend the" in str(found["beside"])
        assert "[answered] more 18" in str(found["beside"])
        assert (
            summary.count("Conversation Overview")
            == summary.count("is kept in the transcript")
            == 1
        )


class TestDryRun:
    @pytest.mark.parametrize("options", [[], ["--json"]])
    def test_the_file_stays_byte_for_byte(
        self, file: Path, capsys: pytest.CaptureFixture[str], options: list[str]
    ) -> None:
        before = file.read_bytes(), sorted(path.name for path in file.parent.iterdir())

        assert run(capsys, "talk.jsonl", "--dry-run", "--extractive", *options)[0] == 0
        assert (file.read_bytes(), sorted(path.name for path in file.parent.iterdir())) == before

    def test_it_says_what_would_be_left_out_and_shows_the_summary(
        self, file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        _, out, _ = run(capsys, str(file), "--dry-run")

        lines = out.splitlines()
        assert (
            lines[0]
            == "40 messages would be replaced by a summary, 2 kept. Each with its id, role, tokens and text:"
        )
        assert lines[1].split()[:2] == ["e0", "user"]
        assert any(line.strip().startswith("…") and line.endswith(" more") for line in lines)
        assert "1. Conversation Overview" in lines
        assert lines[-1] == "nothing was written (--dry-run)"
        assert "Mend the \\x1b[31mparser\\x07." in out
        assert "\x07" not in out

    def test_it_says_what_a_real_run_then_does(
        self, file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        planned = as_json(capsys, str(file), "--dry-run")
        done = as_json(capsys, str(file))

        assert planned["entry"] is None
        assert done["entry"] is not None
        assert {**planned, "entry": None, "dry_run": None} == {
            **done,
            "entry": None,
            "dry_run": None,
        }


class TestWithAModel:
    @pytest.fixture(autouse=True)
    def _key(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        _ = file
        monkeypatch.setenv("OPENAI_API_KEY", "none")

    def test_it_writes_the_summary_and_heeds_the_instructions(
        self, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with serve(script=[SUMMARY]) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            found = as_json(
                capsys,
                "talk.jsonl",
                "--model",
                "gpt-4.1",
                "--instructions",
                "Keep the error texts.",
            )

        assert (found["mode"], found["model"], found["note"]) == ("full", "gpt-4.1", None)
        assert str(found["summary"]).startswith(
            summary_text("Twenty requests were answered.") + "\n\nEverything"
        )
        assert server.requests[0].path == "/v1/chat/completions"
        assert "Keep the error texts." in text_of(server.requests[0])
        checkpoint = Transcript(JsonlStore(file)).entries[-1].payload
        assert isinstance(checkpoint, Checkpoint)
        assert checkpoint.model == "gpt-4.1"
        assert checkpoint.instructions == "Keep the error texts."
        assert checkpoint.usage is not None

    def test_it_prints_who_wrote_it_and_what_it_cost(
        self, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with serve(script=[SUMMARY]) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            status, out, err = run(capsys, str(file), "--model", "gpt-4.1", "--dry-run")

        assert (status, err) == (0, "")
        assert "Summary (full by gpt-4.1, " in out
        assert "Twenty requests were answered." in out
        assert "input and" in out

    def test_what_does_not_fit_the_window_is_summarized_in_stretches(
        self, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write(file.with_name("long.jsonl"), 60)
        with serve(window=8_000, after=lambda _: SUMMARY) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            found = as_json(capsys, "long.jsonl", "--model", "gpt-4.1", "--window", "8k")

        assert found["mode"] == "chunked"
        assert len(server.requests) > 1
        sent = "".join(map(text_of, server.requests))
        assert all(f"request {number} " in sent for number in range(1, 59))

    @pytest.mark.parametrize(
        ("answers", "said"),
        [
            (["<summary></summary>"] * 2, "empty summary"),
            ([ToolCall(id="c1", name="read_file")] * 2, "read_file"),
            ([api_error(401, "That is no key.")] * 2, "That is no key."),
        ],
        ids=["empty", "call", "failing"],
    )
    def test_a_failure_is_one_line_and_leaves_the_file_as_it_was(
        self,
        file: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        answers: list[str],
        said: str,
    ) -> None:
        before = file.read_bytes()
        with serve(script=answers) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            status, out, err = run(capsys, str(file), "--model", "gpt-4.1")

        assert (status, out) == (2, "")
        assert err.count("\n") == 1
        assert said in err
        assert "--extractive" in err
        assert file.read_bytes() == before


def text_of(exchange: Exchange) -> str:
    return json.dumps(exchange.body, ensure_ascii=False)


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["nobody.jsonl"], "there is no file nobody.jsonl"),
            (["talk.jsonl", "--model", "gpt-4.1", "--extractive"], "--extractive uses no model"),
            (["talk.jsonl", "--window", "many"], "many"),
            (["talk.jsonl", "--window", "0"], "--window"),
            (["notes.txt"], "notes.txt"),
            (["."], "."),
            (["short.jsonl", "--extractive"], "The file was not changed."),
        ],
    )
    def test_a_mistake_is_one_line(
        self, file: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
    ) -> None:
        file.with_name("notes.txt").write_text("not a transcript\n", encoding="utf-8")
        write(file.with_name("short.jsonl"), 3, words=1)

        status, out, err = run(capsys, *arguments)

        assert (status, out) == (2, "")
        assert err.startswith("promptkit: ")
        assert err.count("\n") == 1
        assert said in err

    def test_an_empty_transcript_has_nothing_to_summarize(
        self, file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file.with_name("empty.jsonl").write_bytes(b"")

        status, out, _ = run(capsys, "empty.jsonl")

        assert (status, out) == (
            0,
            "empty.jsonl: 0 tokens, nothing to summarize: all messages are recent.\n",
        )


@pytest.mark.long
def test_the_program_needs_no_openai_to_compact_without_a_model(file: Path) -> None:
    code = (
        "import sys; sys.modules['openai'] = None; from promptkit.cli.main import main; "
        f"sys.exit(main(['compact', {str(file)!r}, '--extractive', '--dry-run']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
