"""`promptkit chat` without a key: a script that uses the tools, summaries beside it, commands, and a file that is gone on with."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

from promptkit import Message
from promptkit.cli.main import main
from promptkit.transcript.log.entries import Checkpoint
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.store import JsonlStore
from tests.examples import keep_first
from tests.unit.cli.chat.chatting import NAMES, SCRIPT, chat, environment, fill

if TYPE_CHECKING:
    from pathlib import Path

LONG = [part for name in NAMES for part in ("-m", f"read {name}.md")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder to talk about; transcripts lie beside it."""
    fill(tmp_path / "docs")
    return tmp_path


def answers(*messages: str) -> list[str]:
    return [part for message in messages for part in ("-m", message)]


class TestWithoutAKey:
    def test_it_explains_itself_and_really_reads(self, folder: Path) -> None:
        done = chat(folder, "--folder", "docs", "-m", "What is in alpha.md?")

        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert lines[0].startswith("OPENAI_API_KEY is not set, so a scripted model answers")
        assert lines.index("> What is in alpha.md?") <= 5
        assert "  · read_file alpha.md → 38 lines of 81" in lines
        assert "    alpha 1: nothing but a line of alpha, one after the other." in lines
        assert max(map(len, lines)) <= 80

    def test_a_pipe_is_one_line_a_message_and_plain(self, folder: Path) -> None:
        done = chat(
            folder, "--folder", "docs", lines="list the files\n\n/quit\nnobody hears this\n"
        )

        assert (done.returncode, done.stderr) == (0, "")
        assert "alpha.md  " in done.stdout
        assert "\x1b" not in done.stdout
        assert "nobody" not in done.stdout
        assert [line for line in done.stdout.splitlines() if line.startswith("> ")] == [
            "> list the files",
            "> /quit",
        ]

    def test_asked_for_the_script_answers_even_with_a_key(self, folder: Path) -> None:
        done = chat(
            folder,
            "--demo",
            "-m",
            "hello",
            OPENAI_API_KEY="none",
            OPENAI_BASE_URL="http://127.0.0.1:9",
        )

        assert done.returncode == 0
        assert done.stdout.startswith("A scripted model answers.\n")
        assert "I am a scripted model" in done.stdout

    def test_quiet_prints_the_answers_alone(self, folder: Path) -> None:
        done = chat(folder, "--folder", "docs", "--quiet", "-m", "read alpha.md")

        assert done.stdout.splitlines()[0] == "alpha.md gave 39 lines, which begin with:"
        assert "context" not in done.stdout

    def test_nothing_is_left_of_a_conversation_without_a_file(self, folder: Path) -> None:
        scratch = folder / "scratch"
        scratch.mkdir()
        chat(folder, "-m", "hello", TMPDIR=str(scratch))

        assert list(scratch.iterdir()) == []
        assert sorted(each.name for each in folder.iterdir()) == ["docs", "scratch"]


class TestSummaries:
    def test_one_is_begun_ready_and_in_place_and_the_rest_can_be_looked_up(
        self, folder: Path
    ) -> None:
        done = chat(
            folder,
            "talk.jsonl",
            "--folder",
            "docs",
            *LONG,
            *answers("hello", "look up ahpla", "/receipt"),
        )

        assert (done.returncode, done.stderr) == (0, "")
        steps = [
            "> read epsilon.md",
            "messages, in the background",
            "the summary is ready",
            "> hello",
        ]
        steps += [
            "summary applied (extractive): ",
            "> look up ahpla",
            "  · search 'ahpla' in the transcript → ",
            "summaries: 1",
        ]
        places = [done.stdout.find(step) for step in steps]
        assert -1 not in places
        assert places == sorted(places)
        (checkpoint,) = [
            entry.payload
            for entry in Transcript(JsonlStore(folder / "talk.jsonl")).entries
            if isinstance(entry.payload, Checkpoint)
        ]
        assert checkpoint.trigger == "background"
        assert (checkpoint.tokens_after or 0) < (checkpoint.tokens_before or 0) / 2
        assert json.dumps(str(folder / "talk.jsonl")) in checkpoint.summary

    def test_the_same_lines_are_the_same_conversation(self, folder: Path) -> None:
        shown: list[str] = []
        for _ in range(2):
            shown.append(
                chat(folder, "talk.jsonl", "--folder", "docs", *LONG, "-m", "hello").stdout
            )
            (folder / "talk.jsonl").unlink()

        assert shown[0] == shown[1]
        assert "summary applied" in shown[0]

    def test_where_no_summary_is_to_be_had_the_receipt_says_what_was_left_out(
        self, folder: Path
    ) -> None:
        done = chat(folder, "--folder", "docs", "--window", "750", *LONG[:6], "-m", "/receipt")

        assert done.returncode == 0
        assert "no summary was made: " in done.stdout
        assert (
            "the oldest messages were removed from this request (/receipt lists them)"
            in done.stdout
        )
        receipt = done.stdout.partition("> /receipt\n")[2].splitlines()
        assert receipt[1].startswith("removed or shortened before rendering, in this order: ")
        assert receipt[2].endswith(" tokens  user       read alpha.md")
        assert receipt[3].endswith(' tokens  assistant  → read_file {"path": "alpha.md"}')
        assert receipt[-1] == "summaries: none yet"


class TestCommands:
    def test_help_names_every_command(self, folder: Path) -> None:
        done = chat(folder, "-m", "/help")

        named = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("/")}
        assert named == {
            "/help",
            "/context",
            "/receipt",
            "/compact",
            "/autocompact",
            "/pin",
            "/unpin",
            "/undo",
            "/rewind",
            "/branch",
            "/resume",
            "/fork",
            "/handoff",
            "/quit",
        }
        assert max(map(len, done.stdout.splitlines())) < 80

    def test_pin_keeps_a_passage_and_the_receipt_lists_it(self, folder: Path) -> None:
        lines = ("Use tabs. Never push.", "/pin Use tabs.", "/pin nowhere", "/receipt")
        done = chat(
            folder, *(each for line in (*lines, "/unpin 1", "/unpin 1") for each in ("-m", line))
        )

        assert "pinned: Use tabs." in done.stdout
        assert "no message contains 'nowhere'" in done.stdout + done.stderr
        assert "pin     1  user: Use tabs." in done.stdout
        assert done.stdout.count("pin 1 is no longer kept.") == 1
        assert "/unpin needs the number of a pin" in done.stdout

    def test_context_says_what_the_window_holds(self, folder: Path) -> None:
        done = chat(folder, "--window", "16k", "-m", "hello", "-m", "/context all")

        facts = {
            line[:11].strip(): line[12:]
            for line in done.stdout.partition("> /context all\n")[2].splitlines()
        }
        assert facts["model"] == "scripted"
        assert "window of 16,000" in facts["window"]
        assert facts["contents"] == "1 user message, 1 assistant message, 0 tool results"
        # a bar, with a letter for each part where there are no colours
        assert "tokens of the next request:\ni" in done.stdout
        assert {
            "i instructions",
            "t tools",
            "s summary",
            "m messages",
            "r tool results",
            ". free",
        } <= {
            line[:20].rstrip() if line[0] != "-" else ""
            for line in done.stdout.splitlines()
            if line
        }

    def test_context_shows_one_bar_and_one_limit(self, folder: Path) -> None:
        done = chat(folder, "--window", "16k", "-m", "hello", "-m", "/context")

        shown = done.stdout.partition("> /context\n")[2]
        assert "kept for the reply" not in shown
        assert "compacts at" not in shown
        assert re.findall(r"^used +[\d,]+ of 12,000 tokens", shown, re.MULTILINE)
        assert "model" not in shown

    def test_context_refuses_other_words(self, folder: Path) -> None:
        done = chat(folder, "-m", "/context everything")
        assert "/context needs all, or nothing." in done.stdout

    def test_compact_summarizes_now_and_undo_takes_it_back(self, folder: Path) -> None:
        said = answers(
            "read alpha.md",
            "read beta.md",
            "read gamma.md",
            "/compact",
            "/receipt",
            "/undo",
            "/receipt",
            "/undo",
        )
        done = chat(folder, "--folder", "docs", *said)

        assert done.returncode == 0
        assert "as you asked" in done.stdout
        (started,) = re.findall(r"summarizing (\d+) messages", done.stdout)
        assert f"a summary replaces {started} messages.\n" in done.stdout
        assert "  manual, without a model: " in done.stdout
        assert done.stdout.count("(reverted)") == 1
        assert done.stdout.endswith("there is no summary to revert.\n")

    def test_with_nothing_old_there_is_nothing_to_compact(self, folder: Path) -> None:
        assert chat(folder, "-m", "/compact").stdout.endswith(
            "there is nothing to summarize: all messages are recent.\n"
        )

    def test_rewind_goes_back_to_before_a_message(self, folder: Path) -> None:
        done = chat(
            folder,
            "talk.jsonl",
            *answers(
                "one", "two", "three", "/rewind 2", "four", "/rewind 9", f"/rewind {'9' * 5_000}"
            ),
        )

        assert "back to before: two\n" in done.stdout
        path = Transcript(JsonlStore(folder / "talk.jsonl")).path()
        assert [
            entry.message.text for entry in path if entry.message and entry.message.role == "user"
        ] == ["one", "four"]
        assert "you have sent only 2: use a smaller number." in done.stdout
        assert done.stdout.endswith("/rewind needs a number of your messages, such as /rewind 2.\n")

    def test_branch_lists_the_branches_and_goes_to_another_one(self, folder: Path) -> None:
        said = answers(
            *("/branch", "one", "two", "/rewind", "three", "/branch", "/branch 1", "four"),
            *("/branch 2", "/branch 3", "/branch 9"),
        )
        done = chat(folder, "talk.jsonl", *said)

        assert "there is no branch yet." in done.stdout
        (listed,) = re.findall(r"> /branch\n(    1  .*\n\*   2  .*)\n", done.stdout)
        assert listed.count("\n") == 1
        assert "continued after: " in done.stdout
        path = Transcript(JsonlStore(folder / "talk.jsonl")).path()
        asked = [
            entry.message.text for entry in path if entry.message and entry.message.role == "user"
        ]
        assert asked in (["one", "three"], ["one", "two", "four"])
        assert done.stdout.endswith("/branch needs a number of its list, such as /branch 2.\n")

    def test_summaries_are_made_automatically_or_not(self, folder: Path) -> None:
        done = chat(
            folder,
            *("--folder", "docs", "--window", "3k"),
            *answers("/autocompact", "/autocompact off"),
            *LONG,
            *answers("/autocompact maybe"),
        )

        assert "> /autocompact\nsummaries are made automatically.\n" in done.stdout
        assert "> /autocompact off\nno summary is made automatically" in done.stdout
        assert "summarizing" not in done.stdout
        assert done.stdout.endswith("/autocompact needs on or off, or nothing.\n")

    def test_a_handoff_needs_a_new_file_a_goal_and_a_model(self, folder: Path) -> None:
        said = answers(
            "/handoff", "/handoff talk.jsonl x", "/handoff n.jsonl", "/handoff n.jsonl x"
        )
        done = chat(folder, "talk.jsonl", "-m", "hello", *said)

        refused = [line for line in done.stdout.splitlines() if "/handoff needs" in line]
        assert refused == [
            "/handoff needs the name of a file that does not exist yet.",
            "talk.jsonl already exists: /handoff needs the name of a file that does not exist yet.",
            "/handoff needs a goal behind the file: what the new conversation is for.",
            "/handoff needs a model that writes the document; the scripted one cannot.",
        ]
        assert not (folder / "n.jsonl").exists()

    def test_a_preset_is_named(self, folder: Path) -> None:
        said = answers("read alpha.md", "/compact", "/context")
        done = chat(folder, "--folder", "docs", "--preset", "codex", *said)
        assert done.returncode == 0
        wrong = chat(folder, "--preset", "nobody", "-m", "hello")
        assert wrong.returncode == 2
        assert "preset must be a Preset or one of the names vscode" in wrong.stderr

    def test_a_fork_is_a_file_of_its_own(self, folder: Path) -> None:
        done = chat(
            folder,
            "talk.jsonl",
            *answers(
                "one",
                "/fork other.jsonl",
                "two",
                "/fork other.jsonl",
                "/fork ~nobody-of-that-name/x",
                "/fork",
            ),
        )

        assert "2 entries written to other.jsonl" in done.stdout
        assert "other.jsonl already exists" in done.stdout
        assert "error: " in done.stdout
        assert len(Transcript(JsonlStore(folder / "other.jsonl"))) == 2
        assert len(Transcript(JsonlStore(folder / "talk.jsonl"))) == 4
        assert done.returncode == 1

    def test_what_is_no_command_is_said_to_nobody(self, folder: Path) -> None:
        done = chat(folder, "talk.jsonl", *answers("/nonsense", " /etc is a folder", "/resume"))

        assert "there is no command /nonsense; /help lists them." in done.stdout
        said = [
            entry.message.text
            for entry in Transcript(JsonlStore(folder / "talk.jsonl")).path()
            if entry.message
        ]
        assert said[0] == " /etc is a folder"
        assert "nonsense" not in "".join(said)
        assert done.stdout.endswith(
            "error: there is no turn to resume: the last message is the model's reply.\n"
        )


class TestWhatIsSaid:
    BYTES = "one \udcff byte"
    """What an argument that is no UTF-8 becomes."""

    def test_what_is_no_text_is_said_as_text_that_a_provider_takes(self, folder: Path) -> None:
        done = chat(folder, "talk.jsonl", "-m", self.BYTES)

        assert (done.returncode, done.stderr) == (0, "")
        assert Transcript(JsonlStore(folder / "talk.jsonl")).entries[0].message == Message(
            role="user", content=("one \ufffd byte",)
        )

    @pytest.mark.long
    @pytest.mark.parametrize("errors", keep_first(1, "strict", "surrogateescape"))
    def test_a_stray_byte_in_a_pipe_ends_nothing(self, folder: Path, errors: str) -> None:
        done = subprocess.run(
            [SCRIPT, "chat", "talk.jsonl"],
            input=b"one \xff byte\nanother line\n",
            capture_output=True,
            check=False,
            cwd=folder,
            env=environment(PYTHONIOENCODING=f"utf-8:{errors}"),
            timeout=60,
        )

        assert (done.returncode, done.stderr) == (0, b"")
        said = [
            entry.message
            for entry in Transcript(JsonlStore(folder / "talk.jsonl")).path()
            if entry.message
        ]
        assert [message.text for message in said if message.role == "user"] == [
            "one \ufffd byte",
            "another line",
        ]

    @pytest.mark.long
    def test_where_stdin_is_closed_nothing_is_said(self, folder: Path) -> None:
        code = "import sys; sys.stdin = None; from promptkit.cli.main import main; sys.exit(main(['chat', 'talk.jsonl', '--demo']))"
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env=environment(),
        )

        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "A scripted model answers.\n"


class TestTheFile:
    def test_a_conversation_is_gone_on_with(self, folder: Path) -> None:
        chat(folder, "talk.jsonl", "-m", "read docs/alpha.md")
        done = chat(folder, "talk.jsonl", "-m", "hello again")

        assert (
            "Continuing talk.jsonl with 4 messages. The last of them:\n  user       read docs/alpha.md\n"
            in done.stdout
        )
        assert "I received 6 messages" in done.stdout  # the system message is one
        assert len(Transcript(JsonlStore(folder / "talk.jsonl"))) == 6

    def test_what_would_control_a_terminal_is_spelled_out(self, folder: Path) -> None:
        (folder / "bad\x1b[2J.md").write_text("\x1b[31mred\x07\x9b\n", encoding="utf-8")
        (folder / "evil.md").write_text("\x1b]0;title\x07\u202e\x1b[31mred\n", encoding="utf-8")
        said = answers(
            "list the files",
            "read evil.md",
            "say \x1b[5m",
            "/receipt \x1b",
            "/\x1b[1m",
            "/rewind",
            "/fork \x1b[7m/x",
        )
        done = chat(folder, "talk\x1b[3m.jsonl", *said)
        again = chat(folder, "talk\x1b[3m.jsonl", "-m", "/context")

        for shown in (done.stdout, done.stderr, again.stdout, again.stderr):
            assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown)
        assert "\\x1b]0;title\\x07\\u202e\\x1b[31mred" in done.stdout


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["--window", "0"], "--window must be at least 1 token"),
            (["--window", "100"], "the tool definitions take"),
            (["--folder", "nowhere"], "nowhere"),
            (["nowhere/talk.jsonl"], "there is no folder nowhere: create it first."),
            (["notes.txt"], "notes.txt"),
            (["."], "directory"),
            (["loop"], "loop cannot be read: "),
            (["--model", " "], "--model is empty: use the name of a model"),
        ],
    )
    def test_a_mistake_is_one_line(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        arguments: list[str],
        said: str,
    ) -> None:
        monkeypatch.chdir(folder)
        for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
            monkeypatch.delenv(name, raising=False)
        (folder / "notes.txt").write_text("not a transcript\n", encoding="utf-8")
        (folder / "loop").symlink_to("loop")

        status = main(["chat", *arguments, "--quiet", "-m", "hello"])

        out, err = capsys.readouterr()
        assert (status, out) == (2, "")
        assert err.startswith("promptkit: ")
        assert err.count("\n") == 1
        assert said in err

    def test_without_a_place_for_a_temporary_file_it_says_so(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(tempfile, "tempdir", None)
        monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(folder / "gone")])
        assert main(["chat", "--demo", "-m", "hello"]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert err.startswith(
            "promptkit: this conversation cannot be kept in a temporary file: No usable temporary directory found"
        )
        assert err.endswith(
            "Is the disk full? Free some space, set TMPDIR, or name a file for the transcript.\n"
        )

    def test_the_help_shows_how(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["chat", "--help"]) == 0
        out = capsys.readouterr().out
        assert "\n    promptkit chat talk.jsonl --window 16k --write\n" in out
        assert "..." not in out
