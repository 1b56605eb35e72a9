"""`promptkit transcript`: what it prints of a file, and how it ends."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest

from promptkit import Message, ToolCall, Usage
from promptkit.cli.main import main
from promptkit.cli.output.terminal import clip, escape_control_chars
from promptkit.transcript.log.entries import (
    BranchSummary,
    Checkpoint,
    CustomEntry,
    CustomMessage,
    Edit,
    Label,
    MessageEntry,
    Observation,
    Reset,
    Setting,
    UnknownEntry,
)
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.store import JsonlStore

if TYPE_CHECKING:
    from pathlib import Path


def user(text: str) -> Message:
    return Message(role="user", content=(text,))


def talk(path: Path) -> Transcript:
    return Transcript(
        JsonlStore(path),
        clock=lambda: 1_767_225_600.0,
        new_id=iter(f"e{number}" for number in range(10_000)).__next__,
    )


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two branches, a label, a checkpoint, tools."""
    monkeypatch.chdir(tmp_path)
    transcript = talk(tmp_path / "talk.jsonl")
    call = Message(
        role="assistant",
        content=("I look.",),
        tool_calls=(ToolCall(id="c", name="read", arguments='{"path":"a.py"}'),),
    )
    transcript.append_messages(user("Where is the\nbug?"))
    transcript.append(
        MessageEntry(message=call, usage=Usage(input_tokens=30, output_tokens=5, cached_tokens=10))
    )
    transcript.append_messages(
        Message(role="tool", tool_call_id="c", content=("def f():\n    raise TypeError\n",))
    )
    transcript.append(Label(target="e0", label="start"))
    transcript.rewind("e0")
    transcript.append(
        Checkpoint(
            summary="We looked.",
            trigger="background",
            first_kept="e0",
            tokens_before=9_000,
            tokens_after=80,
        )
    )
    return "talk.jsonl"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["transcript", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


class TestShow:
    def test_shows_the_path_to_the_leaf(
        self, file: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(capsys, "show", file) == (
            0,
            (
                "talk.jsonl: 6 entries, 2 branches, leaf e5\n"
                "  line  id        role        text\n"
                "     2  e0        user        [start] Where is the bug?\n"
                '     6  e4        setting     leaf = "e0"\n'
                "     7  e5        checkpoint  (background, 9,000 → 80 tokens, messages kept from e0) We looked.\n"
            ),
            "",
        )

    @pytest.mark.parametrize("leaf", ["e2", "start"])
    def test_shows_the_path_to_another_leaf(
        self, file: str, capsys: pytest.CaptureFixture[str], leaf: str
    ) -> None:
        lines = run(capsys, "show", file, "--leaf", leaf)[1].splitlines()
        assert [line.split()[1] for line in lines[2:]] == (
            ["e0", "e1", "e2"] if leaf == "e2" else ["e0"]
        )

    def test_shows_every_branch_and_where_each_begins(
        self, file: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(capsys, "show", file, "--all")[1].splitlines()[2:] == [
            "     2* e0        user        [start] Where is the bug?",
            '     3  e1        assistant   I look. → read {"path":"a.py"}',
            "     4  e2        tool        def f(): raise TypeError",
            "     5  e3        label       start = e0",
            "         after e0:",
            '     6* e4        setting     leaf = "e0"',
            "     7* e5        checkpoint  (background, 9,000 → 80 tokens, messages kept from e0) We looked.",
        ]

    def test_shows_all_that_was_said(self, file: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(capsys, "show", file, "--full", "--leaf", "e2")[1].splitlines()[2:] == [
            "     2  e0        user        [start] ",
            "         Where is the",
            "         bug?",
            "     3  e1        assistant   ",
            "         I look.",
            '         → read {"path":"a.py"}',
            "     4  e2        tool        ",
            "         def f():",
            "             raise TypeError",
            "         ",
        ]

    def test_folds_the_middle_of_a_long_conversation(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "long.jsonl"
        talk(path).append_messages(*(user(f"{number}") for number in range(100)))
        lines = run(capsys, "show", str(path))[1].splitlines()
        assert len(lines) == 2 + 10 + 1 + 20
        assert lines[12].strip() == "…  70 more entries; --full shows them"
        assert len(run(capsys, "show", str(path), "--full")[1].splitlines()) == 2 + 200

    def test_gives_one_json_object_a_line(
        self, file: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        lines = [json.loads(line) for line in run(capsys, "show", file, "--json")[1].splitlines()]
        assert [line["id"] for line in lines] == ["e0", "e4", "e5"]
        assert lines[0] == {
            "line": 2,
            "id": "e0",
            "parent_id": None,
            "kind": "message",
            "time": 1_767_225_600.0,
            "data": {"message": {"role": "user", "content": ["Where is the\nbug?"]}},
        }

    def test_reads_archives_too(
        self, file: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        JsonlStore(tmp_path / file).archive(through="e1")
        lines = run(capsys, "show", file, "--leaf", "e2")[1].splitlines()
        assert [line.strip() for line in (lines[2], lines[5])] == [
            "in talk.0001.jsonl.gz:",
            "in the file itself:",
        ]
        assert (
            json.loads(run(capsys, "show", file, "--json")[1].splitlines()[0])["archive"]
            == "talk.0001.jsonl.gz"
        )

    def test_a_missing_archive_is_one_problem(
        self, file: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        (tmp_path / JsonlStore(tmp_path / file).archive(through="e1").file).unlink()
        assert run(capsys, "show", file)[1].splitlines()[-1].startswith("problems: 1;")

    def test_has_a_word_for_every_kind(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "kinds.jsonl"
        transcript = talk(path)
        transcript.append(
            CustomMessage(name="hook", message=user("mind it")),
            CustomEntry(name="c", data=[1]),
            Observation(name="o"),
            Reset(),
            MessageEntry(message=Message(role="assistant"), finish="aborted"),
        )
        transcript.append(
            BranchSummary(summary="it failed", leaf="e0"),
            Edit(target="e0", content=("short",), reason="pruned"),
            Setting(name="m", value=1),
        )
        transcript.append(UnknownEntry(kind="novel", data={"a": "é"}))
        assert [line[18:] for line in run(capsys, "show", str(path))[1].splitlines()[2:]] == [
            "custom_message  hook: mind it",
            "custom      c = [1]",
            "observation  o",
            "reset       manual",
            "assistant   (aborted)",
            "branch_summary  summary of the branch that ends with e0: it failed",
            "edit        pruned: e0 is replaced by short",
            "setting     m = 1",
            'novel       {"a": "é"}',
        ]

    def test_says_what_is_missing(
        self, file: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        assert run(capsys, "show", "none.jsonl") == (
            2,
            "",
            "promptkit: there is no file none.jsonl.\n",
        )
        assert run(capsys, "show", file, "--leaf", "x") == (
            2,
            "",
            "promptkit: --leaf 'x' matches no entry and no label of talk.jsonl.\n",
        )
        assert run(capsys, "show", file, "--leaf", "e") == (
            2,
            "",
            "promptkit: --leaf 'e' matches 6 entries of talk.jsonl.\n",
        )
        (tmp_path / "other.txt").write_text("hello\n", encoding="utf-8")
        status, _, err = run(capsys, "show", "other.txt")
        assert (
            status,
            err.count("\n"),
            "this is not a transcript: the first line must be" in err,
        ) == (2, 1, True)

    def test_mentions_problems(
        self, file: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        with (tmp_path / file).open("a") as out:
            out.write("bad\n")
        assert (
            run(capsys, "show", file)[1].splitlines()[-1]
            == "problems: 1; list them with: promptkit transcript validate talk.jsonl"
        )


class TestHarmless:
    NASTY = "\x1b[31mred\x07 \x9b2J \u202eflipped\u2066 \u2028\x7f\r back\udc00"

    def test_text_cannot_drive_a_terminal(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "nasty.jsonl"
        transcript = talk(path)
        transcript.append(
            Setting(name=self.NASTY, value=1),
            Label(target=transcript.append_messages(user(self.NASTY))[0].id, label=self.NASTY),
        )
        transcript.append(UnknownEntry(kind=self.NASTY, data={}))
        path.write_bytes(path.read_bytes() + b'{"\x1b[2J": 1, "id": "\x1b"}\n')
        for arguments in (
            ["show"],
            ["show", "--full"],
            ["show", "--all"],
            ["validate"],
            ["stats"],
            ["grep", "."],
        ):
            command, *options = arguments
            out = run(capsys, command, *options, str(path))[1]
            assert escape_control_chars(out) == out, arguments
            if command in {"show", "grep"}:
                assert "\\x1b[31mred\\x07" in out

    def test_leaves_what_is_harmless(self) -> None:
        assert (
            escape_control_chars("a\tb\nGrüße 日本語 👩\u200d👩") == "a\tb\nGrüße 日本語 👩\u200d👩"
        )

    def test_clips_to_columns(self) -> None:
        assert clip("日本語", 6) == "日本語"
        assert clip("日本語x", 6) == "日本…"
        assert clip("abcdef", 3) == "ab…"


class TestValidate:
    def test_a_sound_file(self, file: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(capsys, "validate", file) == (0, "talk.jsonl: 7 lines, no problems\n", "")
        assert json.loads(run(capsys, "validate", file, "--json")[1]) == {
            "file": file,
            "lines": 7,
            "torn_bytes": 0,
            "problems": [],
        }

    def test_a_file_that_was_cut_short_is_sound(
        self, file: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        with (tmp_path / file).open("a") as out:
            out.write('{"id": "x')
        status, out_, _ = run(capsys, "validate", file)
        assert status == 0
        assert (
            out_.splitlines()[0]
            == "talk.jsonl: the last 9 bytes are an incomplete write, and are ignored."
        )

    def test_problems_have_their_lines_and_end_it_with_1(
        self, file: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        with (tmp_path / file).open("a") as out:
            out.write(
                'bad\n{"id": "e0", "parent_id": null, "kind": "reset", "time": 0, "data": {}}\n'
            )
        assert run(capsys, "validate", file) == (
            1,
            (
                "talk.jsonl:8: the line is not JSON: Expecting value at column 1.\n"
                "talk.jsonl:9: the id 'e0' was used by an earlier entry; this entry is ignored.\n"
                "talk.jsonl: 9 lines, 2 problems\n"
            ),
            "",
        )
        status, out_, _ = run(capsys, "validate", file, "--json")
        assert (status, [problem["line"] for problem in json.loads(out_)["problems"]]) == (
            1,
            [8, 9],
        )

    def test_leaves_the_folder_as_it_was(
        self, file: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        before = {place: place.read_bytes() for place in tmp_path.iterdir()}
        (tmp_path / ".talk.jsonl.lock").unlink(missing_ok=True)
        for command in (["validate"], ["show"], ["stats"], ["grep", "x"]):
            run(capsys, *command, file)
        assert {place.name for place in tmp_path.iterdir()} == {place.name for place in before} - {
            ".talk.jsonl.lock"
        }
        assert all(
            place.read_bytes() == content for place, content in before.items() if place.exists()
        )


class TestGrep:
    def test_finds_results_calls_and_summaries(
        self, file: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(capsys, "grep", "TypeError|a\\.py|looked", file) == (
            0,
            '3:e1:assistant: → read {"path":"a.py"}\n4:e2:tool:     raise TypeError\n7:e5:checkpoint: We looked.\n',
            "",
        )

    def test_without_a_match_ends_with_1(
        self, file: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(capsys, "grep", "nowhere", file) == (1, "", "")

    def test_can_ignore_case_and_take_the_pattern_as_it_is(
        self, file: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(capsys, "grep", "typeerror", file)[0] == 1
        assert run(capsys, "grep", "-i", "typeerror", file)[0] == 0
        assert run(capsys, "grep", "f.)", file)[0] == 2
        assert run(capsys, "grep", "-F", "f()", file)[1] == "4:e2:tool: def f():\n"

    def test_gives_one_json_object_a_line(
        self, file: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found = [
            json.loads(line) for line in run(capsys, "grep", "bug", file, "--json")[1].splitlines()
        ]
        assert found == [{"line": 2, "archive": None, "id": "e0", "role": "user", "text": "bug?"}]

    def test_refuses_a_pattern_that_is_none(
        self, file: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        status, out, err = run(capsys, "grep", "(", file)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert "invalid regular expression" in err

    def test_shows_of_a_long_line_what_stands_around_the_match(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "long.jsonl"
        talk(path).append_messages(user("x" * 5_000 + "needle" + "y" * 5_000))
        line = run(capsys, "grep", "needle", str(path))[1]
        assert "needle" in line
        assert len(line) < 300

    def test_names_the_archive_of_a_line(
        self, file: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        JsonlStore(tmp_path / file).archive(through="e1")
        assert run(capsys, "grep", "bug", file)[1] == "talk.0001.jsonl.gz:2:e0:user: bug?\n"


class TestStats:
    def test_as_a_table(
        self, file: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        size = (tmp_path / file).stat().st_size
        assert run(capsys, "stats", file)[1].splitlines() == [
            f"file          {size:,} bytes, 7 lines",
            "entries       6 (3 message, 1 label, 1 setting, 1 checkpoint)",
            "messages      3 (1 user, 1 assistant, 1 tool)",
            "tool calls    1",
            "tokens        46 (25 assistant, 11 tool, 10 user)",
            "billed tokens 30 input (10 of them cached), 5 output",
            "current view  2 messages, 25 tokens, after a checkpoint",
            "checkpoints   1",
            "branches      2",
            "written       2026-01-01 00:00:00 to 2026-01-01 00:00:00",
        ]

    def test_has_a_table_of_the_requests_with_bars(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "talk.jsonl"
        write_requests(path, 100)
        lines = run(capsys, "stats", str(path), "--model", "gpt-5")[1].splitlines()
        at = next(at for at, line in enumerate(lines) if line.startswith("requests"))
        assert lines[at].startswith("requests      100, 1 of them after a checkpoint, $")
        rows = lines[at + 2 : -1]
        assert len(rows) <= 24
        assert [row.split()[0] for row in rows][:: len(rows) - 1] == ["1", "100"]
        (after,) = (at for at, row in enumerate(rows) if row.startswith("▼"))
        assert rows[after].split()[:2] == ["▼", "51"]
        assert rows[after - 1].split()[0] == "50"
        assert rows[after - 1].count("u") > 10 * rows[after].count("u")
        assert lines[-1] == "S summary, u user, a assistant; ▼ after a checkpoint"
        listed = json.loads(run(capsys, "stats", str(path), "--model", "gpt-5", "--json")[1])[
            "requests"
        ]["list"]
        assert [row["tokens"] for row in listed] == [sum(row["parts"].values()) for row in listed]
        assert [number for number, row in enumerate(listed) if row["checkpoint"]] == [50]
        assert lines[at].endswith(f"${listed[-1]['price_so_far']:.4f} at the prices of gpt-5")

    def test_of_a_recording_in_another_format_has_the_table_alone(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "talk.json"
        path.write_text(
            json.dumps(
                [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]
            )
        )
        lines = run(capsys, "stats", str(path), "--model", "gpt-5")[1].splitlines()
        assert lines[0] == f"file          {path.stat().st_size:,} bytes"
        assert lines[2].startswith("requests      1, $")
        figures = json.loads(run(capsys, "stats", str(path), "--json")[1])
        assert len(figures["requests"]["list"]) == 1

    @pytest.mark.spec("E103")
    def test_the_size_of_a_conversation_is_measured_after_its_last_boundary(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "big.jsonl"
        transcript = talk(path)
        transcript.append_messages(user("long " * 5_000))
        transcript.append(Checkpoint(summary="It was long."))
        figures = json.loads(run(capsys, "stats", str(path), "--json")[1])
        assert figures["tokens"]["user"] > 4_000
        assert figures["view"]["tokens"] < 100
        assert figures["bytes"] > 20_000

    def test_as_json(self, file: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        JsonlStore(tmp_path / file).archive(through="e1")
        figures = json.loads(run(capsys, "stats", file, "--json", "--model", "gpt-4o")[1])
        assert figures["archives"][0]["entries"] == 2
        assert figures["archives"][0]["bytes"] == (tmp_path / "talk.0001.jsonl.gz").stat().st_size
        assert figures["kinds"] == {"message": 3, "label": 1, "setting": 1, "checkpoint": 1}
        assert figures["usage"] == {
            "input_tokens": 30,
            "output_tokens": 5,
            "cached_tokens": 10,
            "written_tokens": 0,
            "written_1h_tokens": 0,
        }

    @pytest.mark.parametrize("content", [b"", b'{"promptkit":"transcript","version":1}\n'])
    def test_of_nothing(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
    ) -> None:
        path = tmp_path / "empty.jsonl"
        path.write_bytes(content)
        for command in ("stats", "show", "validate"):
            assert run(capsys, command, str(path))[0] == 0


def write_requests(path: Path, count: int) -> None:
    """A transcript with so many requests, and a checkpoint in the middle."""
    transcript = talk(path)
    for number in range(count):
        (question,) = transcript.append_messages(user(f"Question {number}? " + "word " * 40))
        if number == count // 2:
            transcript.append(Checkpoint(summary="Much was asked.", first_kept=question.id))
        transcript.append_messages(Message(role="assistant", content=(f"Answer {number}.",)))


class TestView:
    def test_writes_a_page(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path, page = tmp_path / "talk.jsonl", tmp_path / "page.html"
        write_requests(path, 6)
        status, out, _ = run(
            capsys,
            "view",
            str(path),
            "-o",
            str(page),
            "--policy",
            "recorded",
            "--policy",
            "drop_oldest",
            "--window",
            "8k",
        )
        assert status == 0
        lines = out.splitlines()
        assert lines[0].startswith(f"{page}: recorded: 6 requests, 1 checkpoint, $")
        assert lines[1].startswith(f"{page}: drop_oldest: 6 requests, 0 checkpoints, $")
        assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            (("--policy", "vs_code"), "there is no policy 'vs_code'. Did you mean 'vscode'?"),
            (
                ("--policy", "vscode", "--policy", "codex", "--policy", "pi"),
                "a page shows at most 2 policies side by side, and 3 are named.",
            ),
            (("-o", "talk.jsonl"), "talk.jsonl is the recording itself: name another file."),
            (
                ("-o", "nowhere/page.html"),
                "cannot write nowhere/page.html: there is no folder nowhere.",
            ),
            (
                ("--conversation", "3"),
                "talk.jsonl: there is no conversation 3. The file has 1, counted from 1.",
            ),
        ],
    )
    def test_says_in_a_line_what_is_wrong(
        self, options: tuple[str, ...], error: str, file: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        status, _, err = run(capsys, "view", file, *options)
        assert status == 2
        assert error in err
        assert len(err.splitlines()) == 1


@pytest.mark.slow
def test_a_large_file_is_gone_through_and_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tracemalloc

    path = tmp_path / "large.jsonl"
    transcript = talk(path)
    for _ in range(10):
        transcript.append_messages(*(user("x" * 20_000) for _ in range(50)))
    monkeypatch.setattr("sys.stdout", io.StringIO())
    for arguments in (["show"], ["show", "--json"], ["validate"], ["grep", "y"]):
        command, *options = arguments
        main(["transcript", command, *options, str(path)])
        tracemalloc.start()
        main(["transcript", command, *options, str(path)])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        if arguments != ["show", "--json"]:
            assert peak < path.stat().st_size / 3, arguments
