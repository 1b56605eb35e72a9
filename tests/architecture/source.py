"""The source of the tree as the guards see it: its files, its modules, and who imports what from whom."""

from __future__ import annotations

import ast
from functools import cache
from typing import TYPE_CHECKING

import attrs

from tests.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PACKAGES = ("promptkit", "components")
SINGLE_FILES = (
    "promptkit.lab.engines",
    "promptkit.errors",
    "promptkit.messages",
    "promptkit.pairing",
)
"""Documented namespaces that are one file; the others are packages with a stub that lists their
names."""

_LEFT_BY_TOOLS = {"__pycache__", "node_modules", "dist", "build"}


def files(*tops: str) -> list[Path]:
    """List the files below these folders (or these files), without what tools leave behind."""
    found: list[Path] = []
    for top in tops:
        paths = [ROOT / top] if (ROOT / top).is_file() else (ROOT / top).rglob("*")
        found += [
            path
            for path in paths
            if path.is_file() and not _LEFT_BY_TOOLS & set(path.relative_to(ROOT).parts)
        ]
    return sorted(found)


def python_files(*tops: str) -> list[Path]:
    return [path for path in files(*tops) if path.suffix == ".py"]


def name_of(path: Path) -> str:
    """The path as messages show it, from the top of the checkout."""
    return path.relative_to(ROOT).as_posix()


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def syntax_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


def lines_of(path: Path) -> int:
    return len(text_of(path).splitlines())


@cache
def modules() -> Mapping[str, Path]:
    """Dotted name → file of each module of the packages."""
    found: dict[str, Path] = {}
    for path in python_files(*PACKAGES):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[
            ".".join(parts[1:] if parts[0] == "components" else parts).removesuffix(".__init__")
        ] = path
    return found


@cache
def namespaces() -> tuple[str, ...]:
    """The documented namespaces beside the facade.

    Users and components import from these and from nothing deeper.
    """
    packages = {
        module
        for module, path in modules().items()
        if is_package(module) and path.with_suffix(".pyi").exists()
    }
    return tuple(sorted({*packages, *SINGLE_FILES} - {"promptkit"}))


def names_in_stub(namespace: str) -> dict[str, str]:
    """Name → module of each name that the stub of a namespace lists; empty where it has none."""
    stub = modules()[namespace].with_suffix(".pyi")
    if not stub.exists():
        return {}
    return {
        alias.asname or alias.name: f"{namespace}.{node.module}"
        for node in syntax_of(stub).body
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module
        for alias in node.names
    }


def is_package(module: str) -> bool:
    return modules()[module].name == "__init__.py"


@attrs.frozen
class Import:
    """A name that one module imports from another, in whatever function or `if TYPE_CHECKING` block."""

    importer: str
    imported: str
    name: str
    """The name, or an empty string where the module itself is imported."""
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.name or 'all'} from {self.imported}"


@cache
def imports() -> tuple[Import, ...]:
    """Every import of one module of the packages by another; a namespace imports what its stub lists when a name is first used."""
    written = [
        found
        for module, path in modules().items()
        for found in _imports_of(module, syntax_of(path))
    ]
    lazy = [
        Import(importer=namespace, imported=module, name=name, line=1)
        for namespace in modules()
        if is_package(namespace)
        for name, module in names_in_stub(namespace).items()
    ]
    return (*written, *lazy)


def _imports_of(module: str, syntax: ast.Module) -> Iterator[Import]:
    for node in ast.walk(syntax):
        if isinstance(node, ast.Import):
            pairs = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            pairs = [_module_and_name(node.module, alias.name) for alias in node.names]
        else:
            continue
        for imported, name in pairs:
            if imported in modules() and imported != module:
                yield Import(importer=module, imported=imported, name=name, line=node.lineno)


def _module_and_name(module: str, name: str) -> tuple[str, str]:
    return (f"{module}.{name}", "") if f"{module}.{name}" in modules() else (module, name)
