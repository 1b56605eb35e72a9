"""What every file of the tree keeps to."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
import tomllib
from pathlib import Path

import pytest

from tests.architecture.source import (
    PACKAGES,
    files,
    name_of,
    python_files,
    text_of,
)
from tests.paths import ROOT

TOOLS = Path(sys.executable).parent


@pytest.mark.static
@pytest.mark.parametrize(
    "arguments",
    [["check", "--output-format", "concise"], ["format", "--check", "--quiet"]],
    ids=["lint", "format"],
)
def test_the_tree_is_in_style(arguments: list[str]) -> None:
    done = subprocess.run(
        [str(TOOLS / "ruff"), *arguments, "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# Written in pieces, so that this file does not hold what it looks for.
FORBIDDEN = {
    "the name belongs to another package on the index": r"(?:(?:pip3?|pipx) install|uv add|uvx|poetry add) +(?:-[\w-]+ +)*['\"]?"
    r"promptkit\b",
    "it says to install the package by its name": "install " + r"promptkit (?:again|with)\b",
    "a registry's address": "|".join(
        [r"pypi\." + "org", r"python" + "hosted", r"registry\." + "npmjs", "index" + "-url"]
    ),
    "a path of one machine": r"(?<![\w.~/-])/(?:" + "root|wor" + r"k)/\w",
}


@pytest.mark.parametrize("why", FORBIDDEN)
def test_nothing_of_one_machine_or_registry_is_in_the_tree(why: str) -> None:
    found: list[str] = []
    for path in files(
        "promptkit",
        "components",
        "tests",
        "benchmarks",
        "docs",
        "README.md",
        "pyproject.toml",
        ".ci",
    ):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{name_of(path)}: {match[0]}" for match in re.finditer(FORBIDDEN[why], text)]
    assert found == []


def test_a_hint_names_a_requirement_of_an_extra_and_the_extra_that_has_it() -> None:
    extras: dict[str, list[str]] = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"][
        "optional-dependencies"
    ]
    hints = [
        found
        for path in python_files(*PACKAGES)
        for found in re.findall(r"`pip install '([\w.>=-]+)'`", text_of(path))
    ]
    assert len(hints) > 2
    assert [
        hint for hint in hints if not any(hint in requirements for requirements in extras.values())
    ] == []
    named = {
        found
        for path in python_files(*PACKAGES)
        for found in re.findall(r"`pip install '\.\[([\w-]+)\]'`", text_of(path))
    }
    assert (
        {"huggingface", "langchain", "mistral", "openai-agents", "plot", "testing", "otel"}
        <= named
        <= extras.keys()
    )


@pytest.mark.static
def test_every_exception_from_the_checkers_has_a_reason() -> None:
    bare: list[str] = []
    for path in python_files(*PACKAGES, "tests", "benchmarks"):
        if not re.search("noqa|type: ignore|pyright: ignore", text_of(path)):
            continue
        for line, text in _comments(path):
            exempted = re.match(r"#\s*(noqa|type: ignore|pyright: ignore)", text)
            if exempted and not re.match(
                r"# (?:noqa: [\w, ]+|type: ignore\[[\w, -]+\]|pyright: ignore\[\w+(?:, \w+)*\])  # \S",
                text,
            ):
                bare.append(f"{name_of(path)}:{line}: {text}")
    assert bare == []


def _comments(path: Path) -> list[tuple[int, str]]:
    tokens = tokenize.generate_tokens(io.StringIO(text_of(path)).readline)
    return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]


@pytest.mark.static
def test_every_way_round_the_types_has_a_reason() -> None:
    bare: list[str] = []
    for path in python_files(*PACKAGES):
        names: set[str] = set()
        commented = False
        for token in tokenize.generate_tokens(io.StringIO(text_of(path)).readline):
            if token.type == tokenize.NAME:
                names.add(token.string)
            commented = commented or token.type == tokenize.COMMENT
            if token.type == tokenize.NEWLINE:
                if names & {"Any", "cast"} and "import" not in names and not commented:
                    bare.append(f"{name_of(path)}:{token.start[0]}")
                names, commented = set[str](), False
    assert bare == []
