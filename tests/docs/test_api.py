"""docs/api.md lists every public name with the first sentence of its docstring. `PROMPTKIT_DOCS=write` writes it anew."""

import ast
import importlib
import importlib.util
import os
import re
from pathlib import Path

import promptkit
from tests.paths import ROOT

PAGE = ROOT / "docs" / "api.md"

HEAD = """# The names of promptkit

All that `from promptkit import …` gives, with the first sentence of each docstring; `help(promptkit.render)` shows the rest. What a program needs beyond
these stands in the modules named below. Written by `PROMPTKIT_DOCS=write pytest tests/docs/test_api.py`.
"""

GROUPS = {
    "The language": ("promptkit.element", "promptkit.elements"),
    "Rendering": ("promptkit.rendering", "promptkit.tokens"),
    "Messages and what providers are sent": ("promptkit.messages", "promptkit.emitters", "promptkit.providers"),
    "Conversations": ("promptkit.agent", "promptkit.transcript"),
    "Compaction": ("promptkit.compaction",),
    "Errors": ("promptkit.errors",),
}


def sources() -> dict[str, str]:
    """For each public name the module that defines it."""
    facade = ast.parse((ROOT / "promptkit" / "__init__.py").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(facade) if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.name: str(node.module) for node in imports for alias in node.names if alias.name in promptkit.__all__}


def sentence(module: str, name: str) -> str:
    """The first sentence of the docstring of a name, also of one that is assigned."""
    spec = importlib.util.find_spec(module)
    assert spec, module
    assert spec.origin, module
    body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        text: str | None = None
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            text = ast.get_docstring(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                value = following.value if isinstance(following, ast.Expr) else None
                text = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
        elif isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names):
            return sentence(node.module, name)
        if text:
            return re.split(r"(?<=[.])\s(?=[A-Z`\"]|$)", " ".join(text.split("\n\n")[0].split()))[0].rstrip(":")
    raise AssertionError(f"{module}.{name} has no docstring")


def page() -> str:
    named = sources()
    parts = [HEAD]
    listed: set[str] = set()
    for title, packages in GROUPS.items():
        rows = [name for name in promptkit.__all__ if any(f"{named[name]}.".startswith(f"{package}.") for package in packages)]
        listed.update(rows)
        parts.append(f"\n## {title}\n\n| name | is | from |\n|---|---|---|\n")
        parts += [f"| `{name}` | {sentence(named[name], name).replace('|', chr(92) + '|')} | `{named[name]}` |\n" for name in rows]
    assert listed == set(promptkit.__all__), f"in no group: {sorted(set(promptkit.__all__) - listed)}"
    return "".join(parts)


def test_every_public_name_is_listed_with_what_its_docstring_says() -> None:
    text = page()
    if os.environ.get("PROMPTKIT_DOCS") == "write":
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text


def test_every_public_name_is_there() -> None:
    for name, module in sources().items():
        assert getattr(promptkit, name) is getattr(importlib.import_module(module), name)
