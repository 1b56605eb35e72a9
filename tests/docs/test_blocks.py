"""Every code block of the documentation runs and prints what the page says that it prints.

- A `python` block runs in a namespace of its own; one that begins with `# continues` goes on with
  the block before it.
- A `text` block right after it holds what it prints.
- In a `console` block each line `$ promptkit ...` or `$ pytest ...` runs, and `$ cat FILE` shows a
  file; the lines below it, if there are any, are its output. How long pytest took is written as
  0.10 s.
- A `jinja` block is parsed.
- `file=NAME` after the language writes the block to that file, in a folder that the page's blocks
  run in; it is not run. It is there for the blocks below it.
- `in=NAME` after `python` runs the block in a process of its own, in the environment of that
  framework (`benchmarks.frameworks`). Where it is not installed, the test is skipped after all
  other blocks. Such a page is a slow test.
- Other languages are for reading.

Run with `PROMPTKIT_DOCS=write` in the environment, a page that prints something else is rewritten,
and the test fails once.
"""

from __future__ import annotations

import ast
import importlib.util
import io
import os
import re
import shlex
import sys
import tomllib
import types
from contextlib import redirect_stdout
from pathlib import Path
from typing import Literal, NamedTuple

import jinja2
import pytest

from benchmarks.frameworks import find_framework, missing_reason, run_python as run_framework
from promptkit import PromptKitError, Template, render
from tests.paths import ROOT
from tests.processes import run_program

PAGES = [
    path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if path.exists()
]


class Block(NamedTuple):
    """A fenced block.

    `line` is that of its first line; `attached`: only blank lines stand between it and the block
    before it.
    """

    language: str
    file: str | None
    framework: str | None
    text: str
    line: int
    attached: bool


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    end = 0
    for match in re.finditer(r"^(`{3,})([^\n`]*)\n(.*?)^\1[ ]*$", text, re.MULTILINE | re.DOTALL):
        language, _, rest = match[2].strip().partition(" ")
        name, framework = (re.fullmatch(rf"{key}=(\S+)", rest.strip()) for key in ("file", "in"))
        attached = bool(found) and not text[end : match.start()].strip()
        line = text.count("\n", 0, match.start(3)) + 1
        found.append(
            Block(
                language,
                name[1] if name else None,
                framework[1] if framework else None,
                match[3],
                line,
                attached,
            )
        )
        end = match.end()
    return found


def mark_slow(page: Path) -> tuple[pytest.MarkDecorator, ...]:
    """A framework takes seconds to start."""
    return (pytest.mark.slow,) if any(block.framework for block in blocks(page)) else ()


@pytest.mark.long
@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.name, marks=mark_slow(page)) for page in PAGES]
)
def test_the_blocks_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    found = blocks(page)
    skip_without_modules(found)
    stale: list[tuple[Block, str]] = []
    missing = find_missing(found)
    module = types.ModuleType("page")
    for block, following in zip(found, [*found[1:], None], strict=False):
        if block.file:
            Path(block.file).parent.mkdir(parents=True, exist_ok=True)
            Path(block.file).write_text(block.text, encoding="utf-8")
        if block.language == "jinja":
            parse_template(block)
        elif block.language == "console" and (printed := run_console(block)) != block.text:
            stale.append((block, printed))
        elif block.language == "python" and not block.file and block.framework not in missing:
            if not block.text.startswith("# continues"):
                module = types.ModuleType(f"page_{block.line}")
            printed = (
                run_elsewhere(page, block, tmp_path)
                if block.framework
                else run_python(page, block, module, monkeypatch)
            )
            if (
                following
                and following.attached
                and following.language == "text"
                and printed != following.text
            ):
                stale.append((following, printed))
    if os.environ.get("PROMPTKIT_DOCS") == "write":
        write(page, stale)
    assert not stale, "\n".join(
        f"{page.name}:{block.line} should read:\n{text}" for block, text in stale
    )
    if missing:
        pytest.skip(missing_reason(missing[0]))


def find_missing(found: list[Block]) -> list[str]:
    """The frameworks of blocks whose environments are not installed."""
    return [
        block.framework
        for block in found
        if block.framework and find_framework(block.framework).python is None
    ]


def skip_without_modules(found: list[Block]) -> None:
    """Skip a page whose blocks import, in this process, a module that is not installed."""
    # Files of a page with a framework are for the framework's own environment.
    elsewhere = any(block.framework for block in found)
    written = {Path(block.file).parts[0].removesuffix(".py") for block in found if block.file}
    names = {
        name.partition(".")[0]
        for block in found
        if block.language == "python" and not block.framework and not (elsewhere and block.file)
        for node in ast.walk(ast.parse(block.text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else list_names(node))
    }
    absent = sorted(name for name in names - written if importlib.util.find_spec(name) is None)
    if absent:
        pytest.skip(f"{', '.join(absent)}: not installed; pip install '.[dev]' has it")


def list_names(node: ast.Import) -> list[str]:
    return [alias.name for alias in node.names]


def write(page: Path, stale: list[tuple[Block, str]]) -> None:
    lines = page.read_text(encoding="utf-8").splitlines(keepends=True)
    for block, text in reversed(stale):
        start = block.line - 1
        lines[start : start + block.text.count("\n")] = text.splitlines(keepends=True)
    page.write_text("".join(lines), encoding="utf-8")


def parse_template(block: Block) -> None:
    try:
        render(Template(source=block.text), budget=1_000_000)
    except PromptKitError as error:
        # its values are not given here, and it may be a part of a message
        if isinstance(error.__cause__, jinja2.TemplateSyntaxError):
            raise


def run_python(
    page: Path, block: Block, module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> str:
    # classes look for the module that they were made in
    monkeypatch.setitem(sys.modules, module.__name__, module)
    # Blank lines in front make the line numbers of a traceback those of the page.
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True)
    with redirect_stdout(io.StringIO()) as printed:
        exec(code, module.__dict__)  # noqa: S102  # the documentation is ours
    return printed.getvalue()


def run_elsewhere(page: Path, block: Block, folder: Path) -> str:
    assert block.framework is not None
    done = run_framework(
        block.framework, ["-W", "ignore", "-c", block.text], folder=folder, path=[folder]
    )
    assert done.returncode == 0, f"{page.name}:{block.line}\n{done.stdout}{done.stderr}"
    return done.stdout


def run_console(block: Block) -> str:
    """The block as it should read."""
    shown: list[str] = []
    for match in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE):
        command, expected = shlex.split(match[1]), match[2]
        printed = run_command(command, match[1], may_fail=bool(expected))
        shown.append(f"$ {match[1]}\n{printed if expected else ''}")
    return "".join(shown)


def run_command(command: list[str], written: str, *, may_fail: bool) -> str:
    assert command[0] in {"promptkit", "pytest", "cat"}, (
        f"only promptkit, pytest and cat are run here: {written}"
    )
    if command[0] == "cat":
        return "".join(Path(name).read_text(encoding="utf-8") for name in command[1:])
    # What this session of pytest sets is none of the page's. A module is written twice within a
    # second: no cache of it would notice.
    passed_on = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    environment = passed_on | {
        "COLUMNS": "80",
        "NO_COLOR": "1",
        "PYTHONUTF8": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # which take longer to load than the tests
    environment["PYTEST_ADDOPTS"] = "-p no:cacheprovider -p no:benchmark -p no:hypothesispytest"
    program: Literal["promptkit", "pytest"] = "promptkit" if command[0] == "promptkit" else "pytest"
    done = run_program(program, *command[1:], folder=Path.cwd(), environment=environment)
    assert done.returncode == 0 or may_fail, f"{written}\n{done.stdout}{done.stderr}"
    printed = "".join(f"{line.rstrip()}\n" for line in (done.stdout + done.stderr).splitlines())
    return re.sub(r"(?<= in )\d+\.\d\ds\b", "0.10s", printed) if command[0] == "pytest" else printed


def test_the_gate_runs_what_the_readme_says() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^python3 -m venv .*pytest.*$", readme, re.MULTILINE)
    steps = [step.strip().removeprefix(".venv/bin/") for step in command.split("&&")[1:]]
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert steps == ["pip install -e '.[test]'", "pytest"]
    first, then, everything = (
        script.index(line)
        for line in (
            "\ninstall install -e '.[test]'\n",
            '\nstep "tests" 1200 "$venv/bin/pytest"\n',
            "\ninstall install -e '.[dev]'\n",
        )
    )
    assert first < then < everything


def test_the_readme_names_every_extra() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    assert [extra for extra in extras if f"`{extra}`" not in readme and extra != "dev"] == []


def test_no_page_has_a_place_that_was_left_to_be_filled() -> None:
    left = re.compile(r"^(?:[A-Z]{3,}|TODO\b.*|TBD\b.*)$", re.MULTILINE)
    assert [
        f"{page.name}: {found}"
        for page in PAGES
        for found in left.findall(page.read_text(encoding="utf-8"))
    ] == []


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []
