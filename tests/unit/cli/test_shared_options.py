"""Options that every command has, and the files that commands write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from promptkit.cli.main import main, program
from tests.processes import run_program

PROMPT = "from promptkit import UserMessage\ndef prompt(): return UserMessage()['Hello']\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompt.py").write_text(PROMPT)
    return tmp_path


def list_commands(group: click.Group = program) -> list[click.Command]:
    """All commands, those of groups among them."""
    return [
        each
        for command in group.commands.values()
        for each in (list_commands(command) if isinstance(command, click.Group) else [command])
    ]


@pytest.mark.parametrize("command", list_commands(), ids=lambda command: command.name)
def test_every_command_has_the_same_names_for_the_same_options(command: click.Command) -> None:
    options = {name: each for each in command.params for name in each.opts}
    assert {"-q", "--quiet", "--color"} <= options.keys()
    assert getattr(options.get("--json"), "is_flag", True)
    assert ("--force" in options) == ("--output" in options)


def test_a_quiet_command_prints_no_note(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "prompt.py"]) == 0
    assert "trace.html: 8 of 128,000 tokens" in capsys.readouterr().out
    assert main(["trace", "prompt.py", "-q"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("wanted", "variables", "coloured"),
    [
        ("always", {"NO_COLOR": "1"}, True),
        ("never", {"FORCE_COLOR": "1"}, False),
        ("auto", {"FORCE_COLOR": "1"}, True),
        ("auto", {}, False),
    ],
)
def test_color_decides_over_the_environment(
    folder: Path, wanted: str, variables: dict[str, str], *, coloured: bool
) -> None:
    environment = {name: value for name, value in os.environ.items() if "COLOR" not in name}
    done = run_program(
        "promptkit",
        *("render", "prompt.py", "--color", wanted),
        folder=folder,
        environment=environment | {"TERM": "xterm-256color"} | variables,
    )
    assert done.returncode == 0
    assert ("\x1b[" in done.stdout) is coloured


def test_color_leaves_the_environment_as_it_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "yes")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert main(["render", "prompt.py", "--color", "always"]) == 0
    assert os.environ["NO_COLOR"] == "yes"
    assert "FORCE_COLOR" not in os.environ


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".svg", ".png", ".html"])
def test_a_picture_of_promptkit_is_replaced_and_another_file_only_with_force(
    folder: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    picture = folder / f"picture{suffix}"
    bench = ["bench", "prompt.py", "--budgets", "1k", "--repeat", "0", "--plot", picture.name]
    assert main(bench) == 0
    picture.write_bytes(picture.read_bytes() + b"\n")
    assert main(bench) == 0
    picture.write_bytes(b"a drawing of mine about promptkit")
    assert main(bench) == 2
    assert "pass --force to replace it" in capsys.readouterr().err
    assert picture.read_bytes() == b"a drawing of mine about promptkit"
    assert main([*bench, "--force"]) == 0
    assert picture.read_bytes() != b"a drawing of mine about promptkit"


def test_a_page_of_promptkit_is_replaced_and_another_file_only_with_force(folder: Path) -> None:
    page = folder / "trace.html"
    assert main(["trace", "prompt.py"]) == 0
    assert main(["trace", "prompt.py"]) == 0
    page.write_text("<html>mine</html>")
    assert main(["trace", "prompt.py"]) == 2
    assert page.read_text() == "<html>mine</html>"
    assert main(["trace", "prompt.py", "--force"]) == 0


@pytest.mark.long
def test_files_are_written_although_nobody_reads_the_table(folder: Path) -> None:
    code = "import sys; from promptkit.cli.main import main; sys.exit(main())"
    arguments = ["bench", "prompt.py", "--budgets", "1k", "--repeat", "0", "-o", "run.json"]
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, cwd=folder
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60) in (0, 1)
    assert (folder / "run.json").read_text().startswith("{")


def test_a_file_with_one_function_and_no_component_renders_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["render", "prompt.py"]) == 0
    assert "Hello" in capsys.readouterr().out
    (folder / "two.py").write_text(f"{PROMPT}def other(): ...\n")
    assert main(["render", "two.py"]) == 2
    assert "two.py has 2 functions: use two.py:NAME. Its functions: other, prompt." in (
        capsys.readouterr().err
    )


def test_an_unknown_model_is_answered_with_options(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["render", "prompt.py", "--model", "gpt-9"]) == 2
    assert "Give --budget, such as --budget 8k, or another --model." in capsys.readouterr().err


def test_a_url_of_no_store_says_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (
        ["transcript", "show"],
        ["transcript", "list"],
        ["transcript", "view"],
        ["export", "--to", "chat"],
        ["replay"],
        ["import"],
    ):
        assert main([*command, "mysql://host/talks"]) in (1, 2)
        assert "mysql:// is no store of transcripts" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["chat", "compact"])
@pytest.mark.parametrize("address", ["mysql://host/talks", "sqlite:///talks.db#42"])
def test_a_command_that_writes_to_a_file_takes_no_url_for_a_path(
    command: str, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, address]) == 2
    assert f"{address} is a URL, and this command takes a file" in capsys.readouterr().err


def test_colours_that_are_wanted_in_a_pipe_leave_no_control_characters_of_a_prompt(
    folder: Path,
) -> None:
    (folder / "wild.py").write_text(
        "from promptkit import UserMessage\ndef p():\n    return UserMessage()['a\\x1b]0;owned\\x07b']\n"
    )
    done = run_program(
        "promptkit",
        "render",
        "wild.py:p",
        "--color",
        "always",
        folder=folder,
        environment=dict(os.environ),
    )
    assert done.returncode == 0
    assert "a\\x1b]0;owned\\x07b" in done.stdout
