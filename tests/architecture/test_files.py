"""What every file of the tree keeps to."""

from __future__ import annotations

import ast
import importlib
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

import promptkit

ROOT = Path(__file__).resolve().parents[2]
LINES = 300
TOOLS = Path(sys.executable).parent
SKIPPED = {"__pycache__", "node_modules", "dist", "build"}


def files(*tops: str) -> list[Path]:
    """The files below these folders, without what tools leave behind."""
    found: list[Path] = []
    for top in tops:
        paths = [ROOT / top] if (ROOT / top).is_file() else (ROOT / top).rglob("*")
        found += [path for path in paths if path.is_file() and not SKIPPED & set(path.relative_to(ROOT).parts)]
    return sorted(found)


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("arguments", [["check", "--output-format", "concise"], ["format", "--check", "--quiet"]], ids=["lint", "format"])
def test_the_tree_is_in_style(arguments: list[str]) -> None:
    done = subprocess.run([str(TOOLS / "ruff"), *arguments, "."], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_file_is_longer_than_it_can_be_read_at_once() -> None:
    long = {shown(path): lines for path in files("promptkit", "components") if path.suffix == ".py" and (lines := _lines(path)) > LINES}
    assert long == {}


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_the_facade_is_sorted_and_complete() -> None:
    assert promptkit.__all__ == sorted(promptkit.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    tree = ast.parse((ROOT / "promptkit" / "__init__.py").read_text(encoding="utf-8"))
    sources = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("promptkit")
        for alias in node.names
    }
    assert set(promptkit.__all__) == set(sources)
    for name, module in sources.items():
        assert getattr(promptkit, name) is getattr(importlib.import_module(str(module)), name), name


def test_the_facade_knows_no_other_names() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'rendr'"):
        getattr(promptkit, "rendr")  # noqa: B009  # a checker would refuse the attribute


def module_names() -> list[str]:
    names: list[str] = []
    for path in files("promptkit", "components"):
        if path.suffix == ".py":
            parts = path.relative_to(ROOT).with_suffix("").parts
            names.append(".".join(parts[1:] if parts[0] == "components" else parts).removesuffix(".__init__"))
    return names


@pytest.fixture(scope="module")
def used() -> dict[str, set[str]]:
    """Module → the names that other modules of the tree import from it."""
    found: dict[str, set[str]] = {}
    for path in files("promptkit", "components"):
        if path.suffix == ".py":
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    found.setdefault(node.module, set()).update(alias.name for alias in node.names)
    return found


@pytest.mark.parametrize("module", module_names())
def test_a_module_offers_what_others_use_of_it(module: str, used: dict[str, set[str]]) -> None:
    loaded = importlib.import_module(module)
    tree = ast.parse(Path(str(loaded.__file__)).read_text(encoding="utf-8"))
    if not any(isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign) for node in tree.body):
        return
    offered: list[str] = loaded.__all__  # its order is the linter's matter
    assert len(offered) == len(set(offered))
    assert [name for name in offered if not hasattr(loaded, name)] == []
    submodules = {name for name in used.get(module, set()) if f"{module}.{name}" in module_names()}
    assert used.get(module, set()) - submodules - set(offered) == set()


# Written in pieces, so that this file does not hold what it looks for.
FORBIDDEN = {
    "the name belongs to another package on the index": r"pip install +(?:-[\w-]+ +)*" + r"promptkit\b(?!\[)",
    "a registry's address": "|".join([r"pypi\." + "org", r"python" + "hosted", r"registry\." + "npmjs", "index" + "-url"]),
    "a path of one machine": r"(?<![\w.~/-])/(?:" + "root|wor" + r"k)/\w",
}


@pytest.mark.parametrize("why", FORBIDDEN)
def test_nothing_of_one_machine_or_registry_is_in_the_tree(why: str) -> None:
    found: list[str] = []
    for path in files("promptkit", "components", "tests", "benchmarks", "docs", "README.md", "pyproject.toml", ".ci"):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{shown(path)}: {match[0]}" for match in re.finditer(FORBIDDEN[why], text)]
    assert found == []


def test_every_exception_from_the_checkers_has_a_reason() -> None:
    bare: list[str] = []
    for path in files("promptkit", "components", "tests", "benchmarks"):
        if path.suffix != ".py":
            continue
        for line, text in _comments(path):
            exempted = re.match(r"#\s*(noqa|type: ignore|pyright: ignore)", text)
            if exempted and not re.match(r"# (?:noqa: [\w, ]+|type: ignore\[[\w, -]+\]|pyright: ignore\[\w+(?:, \w+)*\])  # \S", text):
                bare.append(f"{shown(path)}:{line}: {text}")
    assert bare == []


def _comments(path: Path) -> list[tuple[int, str]]:
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
    return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]


def test_every_way_round_the_types_has_a_reason() -> None:
    bare: list[str] = []
    for path in files("promptkit", "components"):
        if path.suffix != ".py":
            continue
        names: set[str] = set()
        commented = False
        for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
            if token.type == tokenize.NAME:
                names.add(token.string)
            commented = commented or token.type == tokenize.COMMENT
            if token.type == tokenize.NEWLINE:
                if names & {"Any", "cast"} and "import" not in names and not commented:
                    bare.append(f"{shown(path)}:{token.start[0]}")
                names, commented = set[str](), False
    assert bare == []
