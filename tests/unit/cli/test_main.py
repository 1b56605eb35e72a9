"""The program as a shell sees it: what it prints, where, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from promptkit.cli.main import main

SCRIPT = Path(sys.executable).parent / "promptkit"

PROMPT = """
from promptkit import Child, PromptElement, Sizing, SystemMessage, UserMessage, component

@component
class Review(PromptElement):
    query: str
    notes: int = 3

    def render(self, sizing: Sizing) -> Child:
        return (
            SystemMessage(required=True)["You review code."],
            [UserMessage(priority=number)[f"Note {number}: " + "something long " * 10] for number in range(self.notes)],
            UserMessage(required=True)[self.query],
        )

@component
class Broken(PromptElement):
    def render(self, sizing: Sizing) -> Child:
        return {}["missing"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "prompt.py").write_text(PROMPT, encoding="utf-8")
    (tmp_path / "props.json").write_text('{"query": "Is it right?"}', encoding="utf-8")
    (tmp_path / "list.json").write_text("[]", encoding="utf-8")
    (tmp_path / "torn.json").write_text('{"query": ', encoding="utf-8")
    (tmp_path / "latin.json").write_bytes(b'{"query": "\xe9"}')
    (tmp_path / "page.j2").write_text("Hello {{ name }}!", encoding="utf-8")
    (tmp_path / "chat.j2").write_text(
        "{% system %}Be brief.{% endsystem %}\n{% user %}Hello {{ name }}!{% enduser %}",
        encoding="utf-8",
    )
    (tmp_path / "name.json").write_text('{"name": "Ada"}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


RENDER = ["render", "prompt.py:Review", "--props", "props.json"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.usefixtures("folder")
class TestRender:
    def test_prints_the_messages_to_read(self, capsys: pytest.CaptureFixture[str]) -> None:
        status, out, err = run(capsys, *RENDER, "--budget", "60")
        assert (status, err) == (0, "")
        lines = out.splitlines()
        assert next(line for line in lines if line.startswith("──")).startswith("── system ───")
        assert "You review code." in lines
        assert "Is it right?" in lines
        assert lines[-1].endswith("of 60 tokens, 3 messages, 2 removed")

    def test_prints_the_body_of_a_request(self, capsys: pytest.CaptureFixture[str]) -> None:
        _, out, _ = run(capsys, *RENDER, "--budget", "1k", "--to", "chat")
        assert json.loads(out)[0] == {"role": "system", "content": "You review code."}
        assert (
            json.loads(run(capsys, *RENDER, "--budget", "1k", "--to", "responses")[1])[-1]["role"]
            == "user"
        )
        assert "You review code." in str(
            json.loads(run(capsys, *RENDER, "--budget", "1k", "--to", "anthropic")[1])["system"]
        )

    def test_prints_the_tree(self, capsys: pytest.CaptureFixture[str]) -> None:
        status, out, _ = run(capsys, *RENDER, "--to", "tree")
        assert status == 0
        assert "Note 0" in json.dumps(json.loads(out))

    def test_reports_to_machines(self, capsys: pytest.CaptureFixture[str]) -> None:
        _, out, _ = run(capsys, *RENDER, "--budget", "60", "--json")
        report = json.loads(out)
        assert list(report) == ["tokens", "budget", "exact", "messages", "removals"]
        assert report["tokens"] <= report["budget"] == 60
        assert [removal["priority"] for removal in report["removals"]] == [0, 1]
        assert all(isinstance(removal["tokens"], int) for removal in report["removals"])

    def test_explains_on_stderr(self, capsys: pytest.CaptureFixture[str]) -> None:
        _, out, err = run(capsys, *RENDER, "--budget", "60", "--explain", "--json")
        assert json.loads(out)
        assert "UserMessage" in err

    def test_renders_a_template_with_and_without_messages(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        _, page, _ = run(
            capsys, "render", "page.j2", "--props", "name.json", "--budget", "1k", "--json"
        )
        assert [message["role"] for message in json.loads(page)["messages"]] == ["user"]
        _, chat, _ = run(
            capsys, "render", "chat.j2", "--props", "name.json", "--budget", "1k", "--json"
        )
        assert [message["role"] for message in json.loads(chat)["messages"]] == ["system", "user"]
        assert "Hello Ada!" in page
        assert "Hello Ada!" in chat


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["render"], "Missing argument"),
        (["rendre"], "No such command 'rendre'"),
        (["render", "missing.py:Review"], "there is no file missing.py."),
        (
            ["render", "prompt.py:Review", "--props", "missing.json"],
            "cannot read missing.json: No such file or directory.",
        ),
        (
            ["render", "prompt.py:Review", "--props", "torn.json"],
            "torn.json:1:11: invalid JSON: Expecting value.",
        ),
        (["render", "prompt.py:Review", "--props", "latin.json"], "latin.json is not UTF-8 text."),
        (
            ["render", "prompt.py:Review", "--props", "list.json"],
            "list.json contains a JSON list: use an object",
        ),
        (
            ["render", "prompt.py:Review"],
            "prompt.py:Review needs the prop 'query': add it to --props FILE.json.",
        ),
        ([*RENDER, "--budget", "8q"], "invalid token count '8q': use 8000, 8k or 1m."),
        ([*RENDER, "--model", "no-such-model"], "no-such-model"),
        ([*RENDER, "--budget", "5"], "required tokens do not fit a budget of 5"),
        (["render", "prompt.py:Broken", "--budget", "1k"], "prompt.py:19: KeyError: 'missing'"),
        (["render", "page.j2", "--budget", "1k"], "page.j2:1: 'name' is undefined"),
        (["demo", "no-such-demo"], "there is no demo 'no-such-demo': use agent"),
        (["demo", "--budget", "10"], "required tokens do not fit"),
    ],
)
def test_a_mistake_is_one_line_on_stderr(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert err.startswith("promptkit: ")
    assert err.count("\n") == 1


@pytest.mark.usefixtures("folder")
def test_the_traceback_is_shown_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyError):
        main(["--traceback", "render", "prompt.py:Broken", "--budget", "1k"])
    monkeypatch.setenv("PROMPTKIT_TRACEBACK", "1")
    with pytest.raises(KeyError):
        main(["render", "prompt.py:Broken", "--budget", "1k"])


class TestDemo:
    def test_reports_whole_numbers_to_machines(self, capsys: pytest.CaptureFixture[str]) -> None:
        status, out, err = run(capsys, "demo", "--budget", "2k", "--budget", "4000", "--json")
        assert (status, err) == (0, "")
        renders = json.loads(out)["renders"]
        assert [each["budget"] for each in renders] == [2_000, 4_000]
        assert all(
            type(each[name]) is int
            for each in renders
            for name in ("budget", "tokens", "messages", "removed")
        )
        assert all(0 < each["tokens"] <= each["budget"] for each in renders)
        assert renders[0]["messages"] < renders[1]["messages"]

    @pytest.mark.long
    def test_fits_80_columns_and_needs_no_colour(self) -> None:
        environment = os.environ | {"COLUMNS": "80", "PYTHONUTF8": "1"}
        done = subprocess.run(
            [SCRIPT, "demo"], capture_output=True, encoding="utf-8", check=True, env=environment
        )
        assert max(map(len, done.stdout.splitlines())) <= 80
        assert "\x1b" not in done.stdout
        assert done.stderr == ""

    @pytest.mark.slow
    def test_prints_where_only_ascii_can_be_written(self) -> None:
        environment = os.environ | {"PYTHONIOENCODING": "ascii"}
        done = subprocess.run(
            [SCRIPT, "demo", "--budget", "2k"],
            capture_output=True,
            encoding="ascii",
            check=True,
            env=environment,
        )
        assert "####" in done.stdout

    def test_lists_everything_when_asked(self, capsys: pytest.CaptureFixture[str]) -> None:
        _, folded, _ = run(capsys, "demo", "--budget", "4k")
        _, everything, _ = run(capsys, "demo", "--budget", "4k", "--all")
        assert "more messages" in folded
        assert "more" not in [
            line.split()[2] for line in everything.splitlines() if len(line.split()) > 2
        ]
        assert len(everything.splitlines()) > len(folded.splitlines())


@pytest.mark.slow
def test_a_closed_pipe_is_no_failure() -> None:
    command = f'"{SCRIPT}" demo --all | head -n 1'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1


@pytest.mark.long
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [["--version"], ["demo"], ["chat", "--demo", "-m", "hello"]])
def test_an_output_for_which_there_is_no_room_is_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [SCRIPT, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "promptkit: the output cannot be written: No space left on device. Free some space, or write to another disk."
    ]


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--help"], ["-h"], ["demo", "--help"], ["render", "-h"]):
        status, out, _ = run(capsys, *arguments)
        assert status == 0
        assert out.startswith("Usage: promptkit")
        assert "..." not in out.replace("[ARGS]...", "")
        assert (
            "\n    promptkit render prompt.py:Review --props props.json --budget 4k\n" in out
            or "render" not in arguments
        )
    assert run(capsys, "--version")[1].startswith("promptkit 0.")


HEAVY = [
    "rich",
    "jinja2",
    "openai",
    "matplotlib",
    "tiktoken",
    "asyncio",
    "cattrs",
    "promptkit.rendering",
    "promptkit.compaction",
]

IMPORTED = """
import sys
from promptkit.cli.main import main
for arguments in ({arguments}):
    main(arguments)
print(*[name for name in {heavy} if name in sys.modules])
"""


def test_help_and_version_import_nothing_heavy() -> None:
    commands = [
        "bench",
        "chat",
        "compact",
        "demo",
        "export",
        "import",
        "render",
        "replay",
        "trace",
        "transcript",
    ]
    arguments = [["--help"], ["--version"], *([command, "--help"] for command in commands)]
    code = IMPORTED.format(arguments=arguments, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""
