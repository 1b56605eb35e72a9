"""docs/api.md lists every public name with the first sentence of its docstring.

`PROMPTKIT_DOCS=write` writes it anew.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
from pathlib import Path

import pytest

import promptkit
from tests.paths import ROOT

PAGE = ROOT / "docs" / "api.md"

HEAD = """# Public names

The facade `promptkit` has the names of the everyday path. Everything else is in a namespace below it. Each name stands with the first sentence of its
docstring; `help(promptkit.render)` shows the rest. Names that are not listed here may change at any time.
`PROMPTKIT_DOCS=write pytest tests/docs/test_api.py` writes this page.
"""

NAMESPACES = (
    "promptkit",
    "promptkit.elements",
    "promptkit.messages",
    "promptkit.pairing",
    "promptkit.tools",
    "promptkit.rendering",
    "promptkit.fitting",
    "promptkit.tracing",
    "promptkit.tokens",
    "promptkit.wire",
    "promptkit.providers",
    "promptkit.transcript",
    "promptkit.lab.recordings",
    "promptkit.compaction",
    "promptkit.agent",
    "promptkit.integrations.langchain",
    "promptkit.integrations.litellm",
    "promptkit.integrations.llama_index",
    "promptkit.integrations.mcp",
    "promptkit.integrations.openai_agents",
    "promptkit.integrations.pydantic_ai",
    "promptkit.lab.replay",
    "promptkit.lab.corpus",
    "promptkit.lab.engines",
    "promptkit.bench",
    "promptkit.testing",
    "promptkit.errors",
)


def sources(namespace: str) -> dict[str, str]:
    """For each public name of a namespace the module that defines it."""
    spec = importlib.util.find_spec(namespace)
    assert spec, namespace
    assert spec.origin, namespace
    stub = Path(spec.origin).with_suffix(".pyi")
    if not stub.is_file():
        return dict.fromkeys(listed(Path(spec.origin)), namespace)
    imports = [
        node
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom)
    ]
    return {alias.name: f"{namespace}.{node.module}" for node in imports for alias in node.names}


def listed(path: Path) -> list[str]:
    """The names in `__all__` of a module, which is not imported: the framework of an integration takes seconds."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == "__all__"
        ):
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise AssertionError(f"{path} has no __all__")


def sentence(module: str, name: str) -> str:
    """The first sentence of the docstring of a name, also of one that is assigned."""
    spec = importlib.util.find_spec(module)
    assert spec, module
    assert spec.origin, module
    body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        text: str | None = None
        if (
            isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name == name
        ):
            text = ast.get_docstring(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                value = following.value if isinstance(following, ast.Expr) else None
                text = (
                    value.value
                    if isinstance(value, ast.Constant) and isinstance(value.value, str)
                    else None
                )
        elif (
            isinstance(node, ast.ImportFrom)
            and node.module
            and any(alias.name == name for alias in node.names)
        ):
            return sentence(node.module, name)
        if text:
            return re.split(r"(?<=[.])\s(?=[A-Z`\"]|$)", " ".join(text.split("\n\n")[0].split()))[
                0
            ].rstrip(":")
    raise AssertionError(f"{module}.{name} has no docstring")


def page() -> str:
    parts = [HEAD]
    for namespace in NAMESPACES:
        named = sources(namespace)
        spec = importlib.util.find_spec(namespace)
        assert spec, namespace
        assert spec.origin, namespace
        summary = (
            (ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or "")
            .split("\n\n")[0]
            .split("\n")
        )
        parts.append(f"\n## `{namespace}`\n\n{' '.join(summary)}\n\n| name | |\n|---|---|\n")
        parts += [
            f"| `{name}` | {sentence(named[name], name).replace('|', chr(92) + '|')} |\n"
            for name in sorted(named)
        ]
    return "".join(parts)


def test_every_public_name_is_listed_with_what_its_docstring_says() -> None:
    text = page()
    if os.environ.get("PROMPTKIT_DOCS") == "write":
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text


# their own tests import these
@pytest.mark.parametrize("namespace", [each for each in NAMESPACES if ".integrations." not in each])
def test_every_public_name_is_there(namespace: str) -> None:
    module = importlib.import_module(namespace)
    named = sources(namespace)
    assert sorted(named) == sorted(module.__all__)
    for name, source in named.items():
        assert getattr(module, name) is getattr(importlib.import_module(source), name)


def test_a_name_stands_once_in_the_facade() -> None:
    assert len(promptkit.__all__) == len(set(promptkit.__all__)) <= 70
