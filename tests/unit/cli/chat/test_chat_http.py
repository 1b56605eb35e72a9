"""`promptkit chat` with a model over HTTP: what it sends, what it shows, and that no failure ends the conversation."""

from __future__ import annotations

import re
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from benchmarks.conversation_script import is_summary_request
from promptkit import Message, ToolCall
from promptkit.cli.main import main
from promptkit.compaction.summarizers.summarizer import HANDOFF_SECTIONS
from promptkit.testing import summary_answer
from promptkit.testing.server import Hang, Rule, api_error, serve
from promptkit.transcript.log.entries import Checkpoint
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.store import JsonlStore
from tests.unit.cli.chat.chatting import SCRIPT, chat, environment, fill

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from promptkit.testing.server.journal import Answer

READ = ToolCall(id="c1", name="read_file", arguments='{"path": "docs/alpha.md", "start": 81}')


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fill(tmp_path / "docs")
    return tmp_path


def said(file: Path) -> list[str]:
    return [
        f"{message.role}: {message.text}"
        for entry in Transcript(JsonlStore(file)).path()
        if (message := entry.message)
    ]


def until(found: Callable[[], bool]) -> None:
    """Wait until something is so; a run that hangs is ended by the limit of the whole test."""
    for _ in range(2_000):
        if found():
            return
        time.sleep(0.01)
    pytest.fail("it never happened")


class TestModel:
    @pytest.mark.long
    def test_a_handoff_is_a_new_conversation_that_goes_on_with_a_goal(self, folder: Path) -> None:
        document = summary_answer("Begin with the lexer.", sections=HANDOFF_SECTIONS)
        options = ("--model", "local", "--window", "16k")
        goal = "/handoff new.jsonl Mend the lexer."
        with serve(script=["The lexer is broken.", document, "I begin."]) as server:
            done = chat(
                folder,
                *("talk.jsonl", *options, "-m", "What is broken?", "-m", goal),
                OPENAI_BASE_URL=server.url,
            )
            chat(folder, "new.jsonl", *options, "-m", "Go on.", OPENAI_BASE_URL=server.url)

        assert "To continue there: promptkit chat new.jsonl" in done.stdout
        assert "Begin with the lexer." in str(server.requests[-1].body)
        assert "What is broken?" not in said(folder / "new.jsonl")

    def test_without_a_key_a_server_of_ones_own_is_asked_and_its_calls_are_made(
        self, folder: Path
    ) -> None:
        answer = Message(role="assistant", content=("Let me look.",), tool_calls=(READ,))
        with serve(script=[answer, "Its word is \x1b[31mahpla\x07."]) as server:
            done = chat(
                folder,
                "talk.jsonl",
                "--model",
                "local",
                "--window",
                "16k",
                "-m",
                "What is the word?",
                OPENAI_BASE_URL=server.url,
            )

        assert (done.returncode, done.stderr) == (0, "")
        shown = done.stdout.splitlines()
        assert shown[:4] == [
            "> What is the word?",
            "Let me look.",
            "  · read_file docs/alpha.md → 1 line of 81",
            "Its word is \\x1b[31mahpla\\x07.",
        ]
        assert shown[4].startswith("context ")
        assert "of 12,000 tokens" in shown[4]
        assert "script" not in done.stdout
        first, second = server.requests
        assert (first.path, first.body["model"], first.body["stream"]) == (
            "/v1/chat/completions",
            "local",
            True,
        )
        assert second.text == "The word of alpha is ahpla."
        assert said(folder / "talk.jsonl")[-1] == "assistant: Its word is \x1b[31mahpla\x07."

    def test_a_file_whose_name_is_no_text_does_not_stop_the_conversation(
        self, folder: Path
    ) -> None:
        (folder / "docs" / "odd\udcff.md").touch()
        call = ToolCall(id="c1", name="list_files", arguments='{"path": "docs"}')
        with serve(script=[call, "Five, and an odd one.", "Yes."]) as server:
            done = chat(
                folder,
                "--model",
                "gpt-4.1",
                "-m",
                "How many files?",
                "-m",
                "Are you sure?",
                OPENAI_BASE_URL=server.url,
            )

        assert (done.returncode, done.stderr) == (0, "")
        assert "odd\ufffd.md" in server.requests[1].text
        assert len(server.requests) == 3

    def test_the_tools_write_only_where_it_is_allowed(self, folder: Path) -> None:
        offered: list[set[str]] = []
        for more in ([], ["--write"]):
            with serve(script=["Yes."]) as server:
                chat(folder, *more, "-m", "hello", OPENAI_BASE_URL=server.url)
            tools = server.requests[0].body["tools"]
            offered.append(set(re.findall(r"'name': '(\w+)'", str(tools))))

        reading = {"list_files", "read_file", "search", "recall"}
        assert offered == [reading, reading | {"write_file", "edit_file"}]

    def test_instructions_take_the_place_of_the_usual_ones(self, folder: Path) -> None:
        with serve(script=["Yes."]) as server:
            chat(
                folder,
                "--instructions",
                "Answer in rhymes.",
                "-m",
                "hello",
                OPENAI_BASE_URL=server.url,
            )

        assert server.requests[0].messages[0]["content"] == "Answer in rhymes."

    def test_the_meter_shows_the_share_that_was_cached(self, folder: Path) -> None:
        with serve(after=lambda exchange: "word " * 400) as server:
            done = chat(
                folder, "--model", "gpt-4.1", *["-m", "more"] * 5, OPENAI_BASE_URL=server.url
            )

        meters = [line for line in done.stdout.splitlines() if line.startswith("context ")]
        assert len(meters) == 5
        assert "cached" not in meters[0]
        assert meters[-1].endswith("% cached")

    def test_of_a_window_that_is_not_known_it_says_so(self, folder: Path) -> None:
        with serve(after=lambda exchange: "Yes.") as server:
            done = chat(folder, "--model", "local", "-m", "hello", OPENAI_BASE_URL=server.url)

        assert "The context window of local is unknown" in done.stdout
        assert "tokens, window unknown" in done.stdout


class TestFailures:
    def test_a_failure_is_one_line_and_the_conversation_goes_on(self, folder: Path) -> None:
        with serve(
            script=[api_error(401, "That is \x1b[31mno key."), "Now it works.", "And again."]
        ) as server:
            done = chat(
                folder, "talk.jsonl", lines="hello\n/resume\nand?\n", OPENAI_BASE_URL=server.url
            )

        lines = done.stdout.splitlines()
        (error,) = [line for line in lines if line.startswith("error: ")]
        assert "That is \\x1b[31mno key." in error
        assert lines.index(error) < lines.index("Now it works.") < lines.index("And again.")
        assert (done.returncode, done.stderr) == (1, "")
        assert said(folder / "talk.jsonl") == [
            "user: hello",
            "assistant: Now it works.",
            "user: and?",
            "assistant: And again.",
        ]

    @pytest.mark.parametrize(
        "answer", ["I cannot help with that.", api_error(400, "That is refused.")]
    )
    def test_a_summary_that_no_model_wrote_is_one_line_and_the_conversation_goes_on(
        self, folder: Path, answer: Answer
    ) -> None:
        rule = Rule(match=is_summary_request, answer=answer)
        with serve(rules=[rule], after=lambda exchange: "word " * 800) as server:
            done = chat(
                folder,
                "talk.jsonl",
                "--model",
                "gpt-4.1",
                lines="one\ntwo\n/compact\nthree\n",
                OPENAI_BASE_URL=server.url,
            )

        (error,) = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
        assert error.startswith("error: no summary: ")
        assert done.stdout.index(error) < done.stdout.index("> three")
        assert (done.returncode, done.stderr) == (1, "")
        assert [
            line.split(maxsplit=2)[1]
            for line in said(folder / "talk.jsonl")
            if line.startswith("user")
        ] == ["one", "two", "three"]
        assert not any(
            isinstance(entry.payload, Checkpoint)
            for entry in Transcript(JsonlStore(folder / "talk.jsonl")).entries
        )

    @pytest.mark.long
    def test_a_window_that_is_smaller_than_was_thought_is_recovered_from(
        self, folder: Path
    ) -> None:
        with serve(window=4_000, rules=[], after=lambda exchange: "word " * 700) as server:
            done = chat(
                folder, "--model", "gpt-4.1", *["-m", "more"] * 8, OPENAI_BASE_URL=server.url
            )

        assert done.returncode == 0
        assert "error: " not in done.stdout
        assert server.stats.overflows >= 1

    @pytest.mark.slow
    def test_where_nobody_listens_that_is_said(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
        monkeypatch.chdir(folder)
        assert main(["chat", "-m", "hello"]) == 1
        out, err = capsys.readouterr()
        assert err == ""
        assert out.startswith("This conversation is not kept: ")
        assert sum(line.startswith("error: ") for line in out.splitlines()) == 1


class TestKilled:
    @pytest.mark.slow
    def test_in_the_middle_of_a_turn_nothing_that_was_said_is_lost(self, folder: Path) -> None:
        with serve(script=["I am here.", READ, Hang(), "Its word is ahpla."]) as server:
            at_work = subprocess.Popen(
                [SCRIPT, "chat", "talk.jsonl", "--model", "gpt-4.1"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                cwd=folder,
                env=environment(OPENAI_BASE_URL=server.url),
            )
            try:
                assert at_work.stdin is not None
                at_work.stdin.write(b"hello\nWhat is the word?\n")
                at_work.stdin.flush()
                until(lambda: len(server.requests) == 3)
            finally:
                at_work.kill()
                at_work.communicate()
            before = [
                "user: hello",
                "assistant: I am here.",
                "user: What is the word?",
                "assistant: ",
                "tool: The word of alpha is ahpla.",
            ]
            assert said(folder / "talk.jsonl") == before
            assert main(["transcript", "validate", str(folder / "talk.jsonl")]) == 0

            done = chat(
                folder,
                "talk.jsonl",
                "--model",
                "gpt-4.1",
                "-m",
                "/resume",
                OPENAI_BASE_URL=server.url,
            )

        assert done.returncode == 0
        assert (
            "The last turn was interrupted: /resume continues it, or send another message."
            in done.stdout
        )
        assert said(folder / "talk.jsonl") == [*before, "assistant: Its word is ahpla."]
        assert server.requests[-1].text == "The word of alpha is ahpla."
