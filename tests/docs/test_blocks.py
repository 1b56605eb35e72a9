"""Every code block of the documentation runs and prints what the page says that it prints.

- A `python` block runs in a namespace of its own; one that begins with `# continues` goes on with the block before it.
- A `text` block right after it holds what it prints.
- In a `console` block each line `$ promptkit ...` runs; the lines below it, if there are any, are its output.
- A `jinja` block is parsed.
- `file=NAME` after the language writes the block to that file, in a folder that the page's blocks run in; it is not run.
- Other languages are for reading.
"""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
import types
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

import jinja2
import pytest

from promptkit import PromptKitError, Template, render

ROOT = Path(__file__).resolve().parents[2]
PAGES = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if path.exists()]


class Block(NamedTuple):
    """A fenced block. `line` is that of its first line; `attached`: only blank lines stand between it and the block before it."""

    language: str
    file: str | None
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
        name = re.fullmatch(r"file=(\S+)", rest.strip())
        attached = bool(found) and not text[end : match.start()].strip()
        found.append(Block(language, name[1] if name else None, match[3], text.count("\n", 0, match.start(3)) + 1, attached))
        end = match.end()
    return found


def expected_after(page: list[Block], index: int) -> str | None:
    """What the block at this index should print, if the page says so."""
    following = page[index + 1] if index + 1 < len(page) else None
    return following.text if following and following.attached and following.language == "text" else None


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    found = blocks(page)
    for block in found:
        if block.file:
            Path(block.file).parent.mkdir(parents=True, exist_ok=True)
            Path(block.file).write_text(block.text, encoding="utf-8")
    module = types.ModuleType("page")
    for index, block in enumerate(found):
        if block.language == "jinja":
            parse_template(block)
        elif block.language == "console":
            run_console(page, block)
        elif block.language == "python" and not block.file:
            if not block.text.startswith("# continues"):
                module = types.ModuleType(f"page_{block.line}")
            printed = run_python(page, block, module, monkeypatch)
            expected = expected_after(found, index)
            assert expected is None or printed == expected, f"{page.name}:{block.line} prints:\n{printed}"


def parse_template(block: Block) -> None:
    try:
        render(Template(source=block.text), budget=1_000_000)
    except PromptKitError as error:  # its values are not given here, and it may be a part of a message
        if isinstance(error.__cause__, jinja2.TemplateSyntaxError):
            raise


def run_python(page: Path, block: Block, module: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(sys.modules, module.__name__, module)  # classes look for the module that they were made in
    # Blank lines in front make the line numbers of a traceback those of the page.
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True)
    with redirect_stdout(io.StringIO()) as printed:
        exec(code, module.__dict__)  # noqa: S102  # the documentation is ours
    return printed.getvalue()


def run_console(page: Path, block: Block) -> None:
    for match in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n?)*)", block.text, re.MULTILINE):
        command, expected = shlex.split(match[1]), match[2]
        where = f"{page.name}:{block.line}: $ {match[1]}"
        assert command[0] == "promptkit", f"{where}: only promptkit is run here"
        script = [str(Path(sys.executable).parent / "promptkit"), *command[1:]]
        done = subprocess.run(
            script, capture_output=True, text=True, check=False, env={"COLUMNS": "80", "NO_COLOR": "1", "PYTHONUTF8": "1"}
        )
        printed = "\n".join(line.rstrip() for line in (done.stdout + done.stderr).splitlines())
        assert done.returncode == 0 or expected.strip(), f"{where}\n{done.stderr}"
        assert not expected.strip() or printed.strip() == expected.strip(), f"{where} prints:\n{printed}"


def test_the_gate_runs_what_the_readme_says() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^python3 -m venv .*pytest.*$", readme, re.MULTILINE)
    steps = [step.strip().removeprefix(".venv/bin/") for step in command.split("&&")[1:]]
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").replace('"$venv/bin/pip"', "pip").replace('"$venv/bin/pytest"', "pytest")
    assert steps == ["pip install -e '.[dev]'", "pytest"]
    assert all(re.search(rf"^{re.escape(step)}\b", script, re.MULTILINE) or f"\n{step} " in script for step in steps)


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []
