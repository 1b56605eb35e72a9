"""Every command at a narrow terminal, without colours, with a device as its output file, and as a module."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import threading
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len

from promptkit import JsonlStore, Message, Transcript
from promptkit.cli.main import main, program
from promptkit.transcript import MessageEntry
from tests.examples import keep_first

if TYPE_CHECKING:
    from collections.abc import Callable

SCRIPT = Path(sys.executable).parent / "promptkit"

PROMPT = """
from promptkit import Child, PromptElement, Sizing, SystemMessage, UserMessage, component

@component
class Review(PromptElement):
    def render(self, sizing: Sizing) -> Child:
        return (
            SystemMessage(required=True)["You review code."],
            [UserMessage(priority=number)[f"Note {number}: " + "something long " * 100] for number in range(30)],
            UserMessage(required=True)["Is it right?"],
        )
"""

WIDTH = 60


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompt.py").write_text(PROMPT, encoding="utf-8")
    return tmp_path


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording of the demo, as a transcript."""
    folder = tmp_path_factory.mktemp("talk")
    recording = folder / "recording.jsonl"
    recording.write_bytes((files("promptkit_components") / "demo.jsonl").read_bytes())
    assert main(["import", str(recording), "-o", str(folder / "talk.jsonl")]) == 0
    return folder / "talk.jsonl"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    return out + err


def too_wide(text: str) -> list[str]:
    return [line for line in text.splitlines() if cell_len(line) > WIDTH]


def test_the_module_is_the_command() -> None:
    command = subprocess.run(
        [SCRIPT, "render", "--help"], capture_output=True, text=True, check=True
    ).stdout
    module = subprocess.run(
        [sys.executable, "-m", "promptkit", "render", "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert module == command
    failed = subprocess.run(
        [sys.executable, "-m", "promptkit", "render"], capture_output=True, text=True, check=False
    )
    assert failed.returncode == 2


class TestANarrowTerminal:
    @pytest.fixture(autouse=True)
    def narrow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", str(WIDTH))

    @pytest.mark.parametrize("name", sorted(program.commands))
    def test_the_help_fits(self, capsys: pytest.CaptureFixture[str], name: str) -> None:
        assert too_wide(run(capsys, name, "--help")) == []

    def test_an_example_that_is_broken_can_still_be_copied(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        help_text = run(capsys, "replay", "--help")
        assert "--window \\\n" in help_text or "--policy vscode,langchain \\\n" in help_text
        words = help_text.replace("\\\n", " ").split()
        examples = " ".join(words[words.index("Examples:") :])
        assert (
            "promptkit replay logs/*.jsonl --policy vscode,langchain --window 64k -o replay.json"
            in examples
        )

    @pytest.mark.usefixtures("folder")
    def test_the_figures_of_bench_fit_and_are_whole(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        shown = run(
            capsys, "bench", "prompt.py:Review", "--budgets", "1k:128k:log16", "--repeat", "1"
        )
        assert too_wide(shown) == []
        lines = shown.splitlines()
        # the row goes on in a second table
        assert sum(line.split()[:1] == ["128,000"] for line in lines) == 2
        assert any(
            line.split() == ["budget", "cold", "warm"] or line.split() == ["budget", "warm"]
            for line in lines
        )

    def test_the_figures_of_replay_fit_and_are_whole(
        self, capsys: pytest.CaptureFixture[str], talk: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(talk.parent)
        narrow = run(capsys, "replay", talk.name, "--policy", "off,langchain", "--window", "16k")
        assert too_wide(narrow) == []
        monkeypatch.setenv("COLUMNS", "80")
        wide = run(capsys, "replay", talk.name, "--policy", "off,langchain", "--window", "16k")
        row = next(line for line in wide.splitlines() if line.startswith("langchain"))
        assert set(row.split()) <= {
            cell
            for line in narrow.splitlines()
            if line.startswith("langchain")
            for cell in line.split()
        }

    def test_the_demo_fits(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert too_wide(run(capsys, "demo")) == []

    def test_what_is_said_of_a_transcript_fits(
        self, capsys: pytest.CaptureFixture[str], talk: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(talk.parent)
        for arguments in (
            ["transcript", "show"],
            ["transcript", "stats"],
            ["transcript", "validate"],
            ["import"],
        ):
            assert too_wide(run(capsys, *arguments, talk.name)) == []
        assert too_wide(run(capsys, "compact", talk.name, "--dry-run").split("\nSummary")[0]) == []


class TestColours:
    @pytest.mark.long
    @pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no pseudo-terminals")
    @pytest.mark.parametrize(
        "arguments",
        keep_first(
            2,
            ["transcript", "show", "talk.jsonl"],
            ["render", "prompt.py:Review", "--budget", "1k", "--explain"],
            ["demo", "--budget", "2k"],
            ["replay", "talk.jsonl", "--window", "8k"],
            ["bench", "prompt.py:Review", "--budgets", "1k", "--repeat", "0"],
            ["render", "--help"],
        ),
        ids=lambda arguments: arguments[0],
    )
    def test_no_colour_is_written_to_a_terminal_when_none_is_wanted(
        self, folder: Path, talk: Path, arguments: list[str]
    ) -> None:
        (folder / "talk.jsonl").write_bytes(talk.read_bytes())
        shown = read_terminal(folder, *arguments, NO_COLOR="1")
        assert colours(shown) == []
        if arguments[0] not in {"render", "replay"}:
            # the check sees colours
            assert colours(read_terminal(folder, *arguments, NO_COLOR="")) != []


class TestHostileText:
    HOSTILE = "red \x1b[31m, title \x1b]0;x\x07, \x9b2J, \u202egnp.exe, \x7f"

    @pytest.mark.long
    @pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no pseudo-terminals")
    @pytest.mark.parametrize(
        "arguments",
        keep_first(
            3,
            ["render", "prompt.py:Hostile", "--budget", "1k", "--explain"],
            ["export", "talk.jsonl", "--to", "chat"],
            ["transcript", "show", "talk.jsonl", "--full"],
            ["render", "prompt.py:Hostile", "--to", "chat"],
            ["export", "talk.jsonl", "--to", "anthropic"],
            ["export", "talk.jsonl", "--to", "promptkit"],
            ["fit", "talk.jsonl", "--budget", "1k"],
        ),
        ids=" ".join,
    )
    def test_never_controls_the_terminal(self, folder: Path, arguments: list[str]) -> None:
        source = f"""
from promptkit import PromptElement, UserMessage, component
from tests.examples import keep_first

@component
class Hostile(PromptElement):
    def render(self, sizing):
        return UserMessage()[{self.HOSTILE!r}]
"""
        (folder / "prompt.py").write_text(source, encoding="utf-8")
        transcript = Transcript(JsonlStore(folder / "talk.jsonl"))
        transcript.append(MessageEntry(message=Message(role="user", content=(self.HOSTILE,))))
        shown = read_terminal(folder, *arguments)
        assert "gnp.exe" in shown
        for control in ("\x1b[31m", "\x1b]0", "\x07", "\x9b", "\u202e", "\x7f"):
            assert control not in shown, repr(control)

    def test_stays_as_it_is_for_another_program(self, folder: Path) -> None:
        transcript = Transcript(JsonlStore(folder / "talk.jsonl"))
        transcript.append(MessageEntry(message=Message(role="user", content=(self.HOSTILE,))))
        done = subprocess.run(
            [SCRIPT, "export", "talk.jsonl", "--to", "chat"],
            cwd=folder,
            capture_output=True,
            check=True,
        )
        assert json.loads(done.stdout)[0]["content"] == self.HOSTILE
        assert "\u202e".encode() in done.stdout


def test_ctrl_c_while_modules_are_loaded_ends_with_one_line(folder: Path) -> None:
    (folder / "click.py").write_text("raise KeyboardInterrupt", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "promptkit", "--help"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "promptkit: interrupted\n")


def colours(shown: str) -> list[str]:
    codes = [code for found in re.findall(r"\x1b\[([\d;]*)m", shown) for code in found.split(";")]
    return [code for code in codes if re.fullmatch(r"3[0-8]|4[0-8]|9[0-7]|10[0-7]", code)]


def read_terminal(folder: Path, *arguments: str, **more: str) -> str:
    """Run the command at a terminal, and return what it writes to stdout."""
    here, there = os.openpty()
    environment = os.environ | {"TERM": "xterm-256color"} | more
    process = subprocess.Popen(
        [SCRIPT, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=there,
        stderr=there,
        cwd=folder,
        env=environment,
    )
    os.close(there)
    shown = b""
    while True:
        try:
            data = os.read(here, 65_536)
        except OSError:  # how Linux says that the other end was closed
            break
        if not data:
            break
        shown += data
    os.close(here)
    assert process.wait() == 0
    return shown.decode()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
class TestADeviceAsOutput:
    @pytest.mark.parametrize("command", ["trace", "export", "import"])
    def test_is_written_to_and_stays_what_it_is(
        self, folder: Path, talk: Path, command: str
    ) -> None:
        commands: dict[str, Callable[[], list[str]]] = {
            "trace": lambda: ["trace", "prompt.py:Review", "--budget", "1k"],
            "export": lambda: ["export", str(talk), "--to", "chat"],
            "import": lambda: ["import", str(talk.with_name("recording.jsonl"))],
        }
        device = folder / "device"
        os.mkfifo(device)
        received: list[bytes] = []
        reader = threading.Thread(target=lambda: received.append(device.read_bytes()), daemon=True)
        reader.start()
        status = main([*commands[command](), "-o", str(device)])
        assert stat.S_ISFIFO(device.stat().st_mode)
        assert status == 0
        reader.join(10)
        assert len(received[0]) > 1_000
        assert {path.name for path in folder.iterdir()} - {"__pycache__"} == {"prompt.py", "device"}

    @pytest.mark.parametrize("command", [["export", "--to", "chat"], ["import"]])
    def test_a_file_still_needs_force(
        self, folder: Path, talk: Path, capsys: pytest.CaptureFixture[str], command: list[str]
    ) -> None:
        (folder / "out.json").write_text("mine", encoding="utf-8")
        assert main([*command, str(talk.with_name("recording.jsonl")), "-o", "out.json"]) == 2
        assert "--force" in capsys.readouterr().err
        assert (folder / "out.json").read_text(encoding="utf-8") == "mine"
