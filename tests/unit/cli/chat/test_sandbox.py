"""The file tools of `promptkit chat` stay inside of their folder, whatever a model asks for."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit import ToolCall
from promptkit.agent.session.tools import ToolRunner
from promptkit.cli.chat import tools as chat_tools
from promptkit.cli.chat.tools import MAX_READ_BYTES, Folder, RefusedError, file_tools

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from promptkit import Message

HIDDEN = "what nobody may read"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder with files and links, and beside it a secret."""
    root = tmp_path / "inside"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "notes.md").write_text("one\ntwo\nthree\nfour\n", encoding="utf-8")
    (root / "src" / "parser.py").write_text(
        "def parse():\n    return None  # TODO\n", encoding="utf-8"
    )
    (root / "src" / "deep" / "old.py").write_text("# todo: remove\n", encoding="utf-8")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(HIDDEN, encoding="utf-8")
    (root / "link.txt").symlink_to(outside / "secret.txt")
    (root / "linked").symlink_to(outside)
    return Folder(root.resolve(), transcript=(outside / "talk.jsonl").resolve())


def unheard(call: str, outcome: str) -> None:
    """What a person would be shown of a call."""


def use(folder: Folder, name: str, **arguments: object) -> str:
    """What the model is told by one call."""
    return call(folder, name, arguments)


def call(
    folder: Folder,
    name: str,
    arguments: dict[str, object],
    *,
    write: bool = True,
    characters: int = 4_000,
) -> str:
    tools = {
        tool.definition.name: tool
        for tool in file_tools(folder, characters=characters, write=write, on_tool_call=unheard)
    }
    answers: list[Message] = []

    def hear(messages: Sequence[Message]) -> None:
        answers.extend(messages)

    asyncio.run(
        ToolRunner(tools=tools).run(
            [ToolCall(id="c", name=name, arguments=json.dumps(arguments))], hear
        )
    )
    return answers[0].text


WAYS_OUT = [
    "../outside/secret.txt",
    "src/../../outside/secret.txt",
    "src/deep/../../../outside/secret.txt",
    "link.txt",
    "linked/secret.txt",
    "./linked/./secret.txt",
    "linked/../../outside/secret.txt",
    "{outside}/secret.txt",
    "{root}/../outside/secret.txt",
    "{root}/link.txt",
    "{root}side/secret.txt",
    "//{outside}/secret.txt",
    " ../outside/secret.txt",
    "secret.txt\0.md",
]


class TestConfined:
    @pytest.mark.parametrize("way", WAYS_OUT)
    @pytest.mark.parametrize("tool", ["read_file", "search", "edit_file", "write_file"])
    def test_no_path_leads_out(self, folder: Folder, way: str, tool: str) -> None:
        outside = folder.root.parent / "outside"
        path = way.format(root=folder.root, outside=outside)
        arguments = {
            "search": {"text": "nobody"},
            "edit_file": {"old": HIDDEN, "new": "x"},
            "write_file": {"content": "x"},
        }

        said = use(folder, tool, path=path, **arguments.get(tool, {}))

        assert HIDDEN not in said
        assert "what nobody" not in said
        assert (outside / "secret.txt").read_text(encoding="utf-8") == HIDDEN
        assert sorted(each.name for each in outside.iterdir()) == ["secret.txt"]
        assert said.startswith("Error: ") or (tool == "write_file" and not path.startswith("."))

    @pytest.mark.parametrize("way", ["..", "linked", "/", "src/../..", "{outside}", "linked/."])
    def test_no_folder_outside_is_listed_or_searched(self, folder: Folder, way: str) -> None:
        path = way.format(outside=folder.root.parent / "outside")

        assert use(folder, "list_files", path=path).startswith("Error: ")
        assert use(folder, "search", path=path, text="nobody").startswith("Error: ")

    def test_a_search_through_everything_follows_no_links(self, folder: Folder) -> None:
        assert use(folder, "search", text="nobody") == "No match."

    def test_a_link_that_is_put_in_the_place_of_a_folder_leads_nowhere(
        self, folder: Folder
    ) -> None:
        """Somebody swaps a folder for a link to the outside, over and over, while it is read."""
        swapped, kept, outside = (
            folder.root / "src",
            folder.root / "kept",
            folder.root.parent / "outside",
        )
        (swapped / "secret.txt").write_text("escape_control_chars", encoding="utf-8")
        done = threading.Event()

        def swap() -> None:
            while not done.is_set():
                swapped.rename(kept)
                swapped.symlink_to(outside)
                swapped.unlink()
                kept.rename(swapped)

        swapping = threading.Thread(target=swap)
        swapping.start()
        try:
            read = set[bytes]()
            for _ in range(300):
                with suppress(RefusedError), folder.open_text("src/secret.txt") as file:
                    read.add(file.read())
        finally:
            done.set()
            swapping.join()
        assert read <= {b"escape_control_chars"}

    def test_what_is_written_replaces_a_link_to_the_outside_by_nothing(
        self, folder: Folder
    ) -> None:
        assert "is not a file" in use(folder, "write_file", path="link.txt", content="x")
        assert (folder.root / "link.txt").is_symlink()


class TestReading:
    def test_lines_by_their_numbers(self, folder: Folder) -> None:
        assert use(folder, "read_file", path="notes.md") == "one\ntwo\nthree\nfour"
        assert use(folder, "read_file", path="notes.md", start=2, end=3) == "two\nthree"
        assert use(folder, "read_file", path=str(folder.root / "notes.md"), start=4) == "four"
        assert (
            use(folder, "read_file", path="notes.md", start=9)
            == "Error: notes.md has only 4 lines."
        )

    @pytest.mark.parametrize(
        "lines", [{"start": 0}, {"start": 3, "end": 2}, {"start": "one"}, {"end": True}]
    )
    def test_numbers_that_are_none_are_refused(
        self, folder: Folder, lines: dict[str, object]
    ) -> None:
        assert use(folder, "read_file", path="notes.md", **lines).startswith("Error: ")

    def test_a_long_file_comes_in_stretches_that_join(self, folder: Folder) -> None:
        text = "".join(f"line {number}\n" for number in range(1, 501))
        (folder.root / "long.txt").write_text(text, encoding="utf-8")

        read, start = "", 1
        while True:
            said = call(folder, "read_file", {"path": "long.txt", "start": start}, characters=1_000)
            lines, _, note = said.partition("\n(lines ")
            read += f"{lines}\n"
            if not note:
                break
            assert len(said) < 1_200
            start = int(note.partition("start=")[2].rstrip(")"))
        assert read == text

    def test_a_long_line_is_cut_and_says_so(self, folder: Folder) -> None:
        (folder.root / "wide.txt").write_text("x" * 5_000, encoding="utf-8")

        said = call(folder, "read_file", {"path": "wide.txt"}, characters=1_000)

        assert said.startswith("x" * 1_000 + "\n(line 1 has 4,000 more characters")

    def test_what_is_no_text_or_no_file_is_refused(self, folder: Folder) -> None:
        (folder.root / "data.bin").write_bytes(b"PNG\0\1\2")
        os.mkfifo(folder.root / "pipe")

        for path in ("data.bin", "pipe", "src", ".", "nothing.md", "notes.md/x"):
            said = use(folder, "read_file", path=path)
            assert said.startswith("Error: ")
            assert path.split("/")[0] in said

    def test_a_file_that_is_too_large_is_refused(self, folder: Folder) -> None:
        with (folder.root / "large.txt").open("wb") as file:
            file.truncate(MAX_READ_BYTES + 1)

        assert "at most 64,000,000 are read" in use(folder, "read_file", path="large.txt")

    def test_a_search_finds_lines_in_all_files_below(self, folder: Folder) -> None:
        assert use(folder, "search", text="todo").splitlines() == [
            "src/parser.py:2: return None  # TODO",
            "src/deep/old.py:1: # todo: remove",
        ]
        assert (
            use(folder, "search", text="todo", path="src/deep")
            == "src/deep/old.py:1: # todo: remove"
        )
        assert use(folder, "search", text="three", path="notes.md") == "3: three"
        assert use(folder, "search", text="(a+)+$") == "No match."

    def test_a_search_that_finds_too_much_says_so(self, folder: Folder) -> None:
        (folder.root / "many.txt").write_text("again\n" * 1_000, encoding="utf-8")

        lines = use(folder, "search", text="again").splitlines()

        assert len(lines) == chat_tools.MAX_MATCHES + 1
        assert lines[-1] == "(and more: search for something that is rarer)"

    def test_a_folder_is_listed_with_what_its_entries_are(self, folder: Folder) -> None:
        assert use(folder, "list_files").splitlines() == [
            "link.txt  (link)",
            "linked  (link)",
            "notes.md  19 bytes",
            "src/",
        ]

    def test_the_transcript_may_be_read_wherever_it_is(self, folder: Folder) -> None:
        assert folder.transcript
        folder.transcript.write_text("first\nsecond\n", encoding="utf-8")

        assert use(folder, "read_file", path=str(folder.transcript), start=2) == "second"
        assert use(folder, "search", path=str(folder.transcript), text="SEC") == "2: second"
        assert use(
            folder, "read_file", path=str(folder.transcript.with_name("secret.txt"))
        ).startswith("Error: ")


class TestWriting:
    def test_without_leave_there_is_no_tool_for_it(self, folder: Folder) -> None:
        said = call(folder, "write_file", {"path": "new.md", "content": "x"}, write=False)

        assert (
            said
            == "Error: there is no tool 'write_file'. The tools are list_files, read_file, search."
        )
        assert not (folder.root / "new.md").exists()

    def test_files_are_written_and_edited_in_place(self, folder: Folder) -> None:
        script = folder.root / "run.sh"
        use(folder, "write_file", path="run.sh", content="echo one\r\n")
        script.chmod(0o750)

        assert (
            use(folder, "edit_file", path="run.sh", old="one", new="two\udc00")
            == "run.sh was edited."
        )
        assert script.read_bytes() == b"echo two?\r\n"
        assert stat.S_IMODE(script.stat().st_mode) == 0o750
        assert [each.name for each in folder.root.iterdir() if each.name.startswith(".")] == []

    @pytest.mark.parametrize(
        ("old", "times"), [("o", "3 times"), ("nine", "0 times"), ("", "0 times")]
    )
    def test_what_does_not_stand_there_once_is_not_replaced(
        self, folder: Folder, old: str, times: str
    ) -> None:
        before = (folder.root / "notes.md").read_bytes()

        assert times in use(folder, "edit_file", path="notes.md", old=old, new="x")
        assert (folder.root / "notes.md").read_bytes() == before

    def test_the_transcript_is_not_for_writing(self, folder: Folder) -> None:
        transcript = folder.root / "talk.jsonl"
        inside = Folder(folder.root, transcript=transcript)
        names = ["talk.jsonl", ".talk.jsonl.lock", "./src/../talk.jsonl", str(transcript)]

        assert all(
            "must not be written" in use(inside, "write_file", path=name, content="x")
            for name in names
        )
        assert not transcript.exists()
        transcript.write_text("kept", encoding="utf-8")
        os.link(transcript, folder.root / "twin.jsonl")
        assert all(
            use(inside, "write_file", path=name, content="x").startswith("Error: ")
            for name in [*names, "twin.jsonl"]
        )
        assert use(inside, "edit_file", path="talk.jsonl", old="kept", new="lost").startswith(
            "Error: "
        )
        assert transcript.read_text(encoding="utf-8") == "kept"

    def test_what_is_too_large_or_nowhere_is_refused(self, folder: Folder) -> None:
        assert "too large" in use(folder, "write_file", path="new.md", content="x" * 1_000_001)
        assert "there is no nowhere/new.md" in use(
            folder, "write_file", path="nowhere/new.md", content="x"
        )
        assert "is not a file" in use(folder, "write_file", path="src", content="x")


@pytest.mark.parametrize(
    "path",
    [
        ".git/config", "sub/.git/hooks/pre-commit", ".GIT/config", ".git./config", ".git /config", ".git::$INDEX_ALLOCATION/config", "GIT~1/config",
        ".g\u200cit/config", ".hg/hgrc", ".husky/pre-commit", ".vscode/tasks.json", ".bashrc", "sub/.ZSHENV", ".envrc", ".ssh/authorized_keys",
        ".claude/settings.json", "lib/x.pth", "sitecustomize.py", ".gitmodules", ".emacs.d/init.el", ".gitattributes", "src/.gitattributes",
        "lefthook.yml", "lefthook.yaml", ".lefthook.toml", ".lefthook.yaml", "lefthook-local.yml", ".lefthook.json", "mise.toml", "mise.local.toml",
        ".mise/config.toml", ".Rprofile", ".renviron", "mcp.json", "opencode.json", "my.code-workspace", "Team.sublime-project", ".pnpmfile.cjs",
        ".cargo/config.toml", ".pre-commit-config.yml",
    ],
)  # fmt: skip
def test_what_a_program_runs_by_itself_is_not_written(folder: Folder, path: str) -> None:
    place = folder.root.joinpath(*path.split("/"))
    place.parent.mkdir(parents=True, exist_ok=True)
    assert "must not be written" in use(folder, "write_file", path=path, content="evil")
    place.write_text("old", encoding="utf-8")
    assert "must not be written" in use(folder, "edit_file", path=path, old="old", new="evil")
    assert place.read_text(encoding="utf-8") == "old"


@pytest.mark.parametrize(
    "path",
    [
        "git/config",
        ".gitignore",
        "src/hooks/use.ts",
        ".github/workflows/ci.yml",
        ".editorconfig",
        "bashrc",
        "a.pth.py",
        "code-workspace",
        "mcp.json.md",
        "lefthook.md",
        "promise.toml",
        "docs/Rprofile.md",
    ],
)
def test_names_that_are_only_similar_are_written(folder: Folder, path: str) -> None:
    folder.root.joinpath(*path.split("/")).parent.mkdir(parents=True, exist_ok=True)
    assert "must not" not in use(folder, "write_file", path=path, content="fine")
    assert folder.root.joinpath(*path.split("/")).read_text(encoding="utf-8") == "fine"


def test_a_protected_path_that_the_user_names_is_written_and_its_neighbour_is_not(
    folder: Folder,
) -> None:
    (folder.root / ".vscode").mkdir()
    (folder.root / ".idea").mkdir()
    named = attrs.evolve(folder, allowed=("./.vscode",))
    assert "must not" not in use(named, "write_file", path=".vscode/tasks.json", content="{}")
    assert "must not" in use(named, "write_file", path=".idea/run.xml", content="<x/>")
    assert "must not" in use(named, "write_file", path=".vscode2/../.git/config", content="x")


@pytest.mark.parametrize("tool", ["write_file", "edit_file", "read_file", "list_files", "search"])
def test_a_name_that_is_too_long_is_told_to_the_model(folder: Folder, tool: str) -> None:
    answer = use(
        folder,
        tool,
        path="x" * 300,
        content="x",
        old="x",
        new="y",
        text="x",
        pattern="x",
        query="x",
    )
    assert "too long" in answer
    assert "Traceback" not in answer
    assert "OSError" not in answer
