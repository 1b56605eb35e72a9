"""Pages of the reference, made from the stubs of the namespaces, the docstrings and the command line.

`write_reference` writes them into a folder: a page for each namespace with every public name, the
settings of the presets, the events, the extras and the help of each command. `docs/conf.py` calls it
before each build of the site.
"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple, get_args, get_type_hints

import attrs
import click
from docstring_parser import DocstringStyle, parse

from promptkit.cli.main import program
from promptkit.compaction import PRESETS, Event, Preset
from promptkit.compaction.presets.settings import OriginalName, original_names

ROOT = Path(__file__).parent.parent

FACADE = "promptkit"

NAMESPACES: Mapping[str, str] = {
    FACADE: "The everyday path",
    "promptkit.elements": "Elements",
    "promptkit.messages": "Messages",
    "promptkit.pairing": "Calls and results",
    "promptkit.tools": "Tools",
    "promptkit.rendering": "Rendering",
    "promptkit.fitting": "Fitting messages",
    "promptkit.tracing": "Traces",
    "promptkit.tokens": "Tokens, budgets and prices",
    "promptkit.wire": "Formats of providers",
    "promptkit.providers": "Models",
    "promptkit.transcript": "Transcripts and stores",
    "promptkit.compaction": "Compaction",
    "promptkit.agent": "Sessions and context windows",
    "promptkit.integrations.langchain": "LangChain",
    "promptkit.integrations.litellm": "litellm",
    "promptkit.integrations.llama_index": "LlamaIndex",
    "promptkit.integrations.mcp": "MCP",
    "promptkit.integrations.openai_agents": "OpenAI Agents",
    "promptkit.integrations.pydantic_ai": "pydantic-ai",
    "promptkit.lab.recordings": "Recordings",
    "promptkit.lab.replay": "Replays",
    "promptkit.lab.corpus": "Many recordings",
    "promptkit.lab.engines": "Engines",
    "promptkit.bench": "Benchmarks",
    "promptkit.testing": "Tests of prompts",
    "promptkit.testing.server": "A server for tests",
    "promptkit.errors": "Errors",
}
"""The public namespaces and the titles of their pages, in the order of the reference."""

COMPONENTS = "promptkit_components"
"""The package of the finished components, which has a page like a namespace."""

ARGUMENT_GROUPS: Mapping[str, Sequence[str]] = {
    "The conversation": (
        "model",
        "transcript",
        "instructions",
        "prompt",
        "tools",
        "freeze_tools",
    ),
    "Size and tokens": ("budget", "tokenizer", "media", "defaults"),
    "Compaction": (
        "preset",
        "enabled",
        "policy",
        "summarizer",
        "keep",
        "reduce",
        "archives",
        "promotions",
        "hooks",
        "carry",
        "pin_marks",
        "compact_tool",
    ),
    "Finding what was summarized": ("recall", "recall_tokens", "read_tool"),
    "Turns": ("max_steps", "auto_continue", "turn_hooks"),
    "Privacy and observation": ("redactor", "events"),
    "Tests": ("rng", "clock"),
}
"""The arguments of `AgentSession` and `ContextWindow` by subject."""

GROUPED = ("AgentSession", "ContextWindow")
"""Classes whose arguments are shown in groups."""


WIDTH = 100
"""Columns of the help of commands."""


class Definition(NamedTuple):
    """The place where a public name is defined."""

    name: str
    module: str
    """The module with the statement that defines it."""
    docstring: str
    kind: Literal["class", "function", "data"]
    value: str = ""
    """The source of the value, for data."""

    @property
    def summary(self) -> str:
        """The first sentence of the docstring, in one line."""
        paragraph = " ".join(self.docstring.split("\n\n")[0].split())
        return re.split(r"(?<=[.])\s(?=[A-Z`\"]|$)", paragraph)[0].rstrip(":")


def list_names(namespace: str) -> dict[str, str]:
    """Return the public names of a namespace, each with the module that it comes from."""
    source = _find_source(namespace)
    stub = source.with_suffix(".pyi")
    if not stub.is_file():
        tree = _parse(source)
        return dict.fromkeys(_read_all(tree, namespace), namespace)
    statements = _parse(stub).body
    imports = [node for node in statements if isinstance(node, ast.ImportFrom)]
    return {alias.name: f"{namespace}.{node.module}" for node in imports for alias in node.names}


def list_homes() -> dict[str, str]:
    """Return the namespace whose page documents each public name: its room's, else the facade's."""
    homes = dict.fromkeys(list_names(FACADE), FACADE)
    for namespace in (*NAMESPACES, COMPONENTS):
        if namespace != FACADE:
            homes |= dict.fromkeys(list_names(namespace), namespace)
    return homes


def find_definition(module: str, name: str) -> Definition:
    """Find the statement that defines a name, and its docstring.

    Modules are read and not imported, since a framework takes seconds.

    Raises:
        LookupError: The name is not defined there, or has no docstring.
    """
    body = _parse(_find_source(module)).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if any(alias.name == name for alias in node.names):
                return find_definition(node.module, name)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name == name and (text := ast.get_docstring(node)):
                return Definition(
                    name, module, text, "class" if isinstance(node, ast.ClassDef) else "function"
                )
        elif _assigns(node, name) and (text := _read_string(following)):
            value = ast.unparse(node).split("=", 1)[1].strip()
            return Definition(name, module, text, "data", value)
    problem = f"{module}.{name} is not defined there, or has no docstring"
    raise LookupError(problem)


def write_reference(folder: Path) -> None:
    """Write the pages of the reference. A page that has not changed is not touched."""
    folder.mkdir(exist_ok=True)
    pages = dict(make_pages())
    for stale in folder.glob("*.rst"):
        if stale.stem not in pages:
            stale.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.rst"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def make_pages() -> Iterator[tuple[str, str]]:
    """Make the pages of the reference: pairs of a name and reStructuredText."""
    homes = list_homes()
    for namespace, title in (*NAMESPACES.items(), (COMPONENTS, "Components")):
        yield namespace, _make_namespace(namespace, title, homes)
    yield "command-line", _make_command_line()
    yield "settings", _make_settings()
    yield "events", _make_events()
    yield "extras", _make_extras()


def convert_docstring(text: str) -> str:
    """Convert the Markdown tables and the trees of a docstring to reStructuredText.

    The section `Props` of an element goes, since the props are listed as its attributes.
    """
    text = re.sub(r"^(?:Props:\n(?:[ ]+.*\n?)*|Set the props\.)", "", text, flags=re.MULTILINE)
    paragraphs: list[str] = []
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        if re.search(r"^  x ", paragraph, re.MULTILINE):
            lines = [".. code-block:: text", "", *_indent(paragraph)]
        elif len(lines) > 1 and re.fullmatch(r"[|-]+", lines[1].strip()):
            head, _, *rows = [
                [cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines
            ]
            lines = _table(head, rows)
        paragraphs.append("\n".join(lines))
    return "\n\n".join(paragraphs)


def make_grouped_arguments(cls: type) -> str:
    """Describe the arguments of a constructor under the titles of `ARGUMENT_GROUPS`.

    Raises:
        ValueError: An argument is in no group, or in no docstring.
    """
    described = {
        each.arg_name: " ".join((each.description or "").split())
        for each in parse(
            inspect.getdoc(vars(cls)["__init__"]) or "", style=DocstringStyle.GOOGLE
        ).params
    }
    own = set(inspect.signature(cls).parameters)
    grouped = {name for names in ARGUMENT_GROUPS.values() for name in names}
    if missing := sorted((own - grouped) | (own ^ set(described))):
        problem = f"{cls.__name__}: without a group or a description: {', '.join(missing)}"
        raise ValueError(problem)
    lines: list[str] = []
    for title, names in ARGUMENT_GROUPS.items():
        rows = [(f"``{name}``", described[name]) for name in names if name in own]
        lines += _table((title, "meaning"), rows) if rows else []
    return "\n".join(lines)


def _make_namespace(namespace: str, title: str, homes: Mapping[str, str]) -> str:
    names = list_names(namespace)
    source = _parse(_find_source(namespace))
    definitions = [find_definition(names[name], name) for name in sorted(names, key=str.casefold)]
    rows = [
        (f":py:obj:`~{homes[each.name]}.{each.name}`", _escape(each.summary))
        for each in definitions
    ]
    lines = [
        *_head(f"{title}: ``{namespace}``", "="),
        f".. py:module:: {namespace}",
        "",
        convert_docstring(ast.get_docstring(source) or ""),
        "",
        *_table(("name", "what it is"), rows),
    ]
    for each in definitions:
        if homes[each.name] == namespace:
            lines += _make_entry(namespace, each)
    return "\n".join(lines)


def _make_entry(namespace: str, definition: Definition) -> list[str]:
    if definition.kind != "data":
        return [f".. auto{definition.kind}:: {namespace}.{definition.name}", ""]
    source = f"Defined in ``{_find_source(definition.module).relative_to(ROOT)}``."
    return [
        f".. py:data:: {definition.name}",
        f"   :value: {definition.value}",
        "",
        *_indent(definition.docstring),
        "",
        *_indent(source),
        "",
    ]


def _make_command_line() -> str:
    lines = [
        *_head("Command line", "="),
        "The help of each command, as ``promptkit COMMAND --help`` prints it.",
        "",
    ]
    for context in _list_contexts(_open("promptkit", program)):
        lines += [
            *_head(context.command_path, "-"),
            ".. code-block:: text",
            "",
            *_indent(context.get_help()),
            "",
        ]
    return "\n".join(lines)


def _list_contexts(context: click.Context) -> Iterator[click.Context]:
    """Yield the context of a command and those of the commands in it, sorted by name."""
    yield context
    if isinstance(context.command, click.Group):
        for name, command in sorted(context.command.commands.items()):
            yield from _list_contexts(_open(name, command, context))


def _open(name: str, command: click.Command, parent: click.Context | None = None) -> click.Context:
    return command.make_context(
        name, [], parent=parent, resilient_parsing=True, terminal_width=WIDTH
    )


def _make_settings() -> str:
    lines = [
        *_head("Settings of the presets", "="),
        "A preset takes its settings as one value, which :py:obj:`~promptkit.compaction.load_settings`",
        'reads from a file and from environment variables. Sizes are in tokens, as a number or as text such as ``"8k"``,',
        "shares are numbers from 0 to 1.",
        "",
    ]
    for name, make in PRESETS.items():
        hints = get_type_hints(make, localns={"Preset": Preset})
        cls = next(iter(get_args(hints.get("settings"))), None)
        lines += [*_head(name, "-"), f"{_summarize(make.__module__)}", ""]
        if cls is None:
            lines += ["This preset has no settings.", ""]
            continue
        lines += [f"``{cls.__module__}.{cls.__name__}``:", ""]
        lines += [*_list_fields(cls, original_names(cls)), ""]
    return "\n".join(lines)


def _make_events() -> str:
    lines = [
        *_head("Events", "="),
        "Values that :py:obj:`~promptkit.compaction.Events` sends to its subscribers. All are imported from one place:",
        "",
        ".. code-block:: python",
        "",
        *_indent("from promptkit.compaction import CompactionCommitted, Events, TurnEnded"),
        "",
    ]
    for cls in get_args(Event):
        lines += [*_head(cls.__name__, "-"), inspect.getdoc(cls) or "", ""]
        lines += [*_list_fields(cls, {}), ""]
    return "\n".join(lines)


def _list_fields(
    cls: type[attrs.AttrsInstance], originals: Mapping[str, Sequence[OriginalName]]
) -> list[str]:
    """List the fields of an attrs class: name, type, default and docstring, and names that a system has for it."""
    texts = _read_attributes(cls)
    # the annotations as written: cattrs puts the classes themselves into the fields
    types = {
        name: written
        for base in reversed(cls.__mro__)
        for name, written in inspect.get_annotations(base).items()
    }
    lines: list[str] = []
    for field in attrs.fields(cls):
        others = ", ".join(f"``{each.name}``" for each in originals.get(field.name, ()))
        text = " ".join(texts[field.name].split())
        lines += [
            f"``{field.name}``: ``{types[field.name]}``{_show_default(field.default)}",
            f"   {text}{f' In that system: {others}.' if others else ''}".rstrip() or "   \\",
        ]
    return lines


def _read_attributes(cls: type) -> dict[str, str]:
    """Read the docstrings of the attributes that a class and its bases declare."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        module = _parse(_find_source(base.__module__))
        (body,) = (
            node.body
            for node in module.body
            if isinstance(node, ast.ClassDef) and node.name == base.__name__
        )
        for node, following in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                texts[node.target.id] = _read_string(following) or ""
    return texts


def _show_default(default: object) -> str:
    if default is attrs.NOTHING:
        return ", required"
    is_made = callable(getattr(default, "factory", None))
    return "" if is_made else f" = ``{default!r}``"


def _make_extras() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    rows = [
        (f"``{name}``", ", ".join(f"``{each}``" for each in requirements))
        for name, requirements in sorted(project["optional-dependencies"].items())
    ]
    return "\n".join(
        [
            *_head("Extras", "="),
            "Packages that only some programs need. ``pip install '.[anthropic,sql]'`` in a checkout installs two of",
            "them. What uses a missing one says which extra has it.",
            "",
            *_table(("extra", "packages"), rows),
        ]
    )


@cache
def _parse(source: Path) -> ast.Module:
    return ast.parse(source.read_text(encoding="utf-8"))


def _find_source(module: str) -> Path:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        problem = f"there is no module {module}"
        raise LookupError(problem)
    return Path(spec.origin)


def _summarize(module: str) -> str:
    tree = _parse(_find_source(module))
    return " ".join((ast.get_docstring(tree) or "").split())


def _read_all(tree: ast.Module, namespace: str) -> list[str]:
    for node in tree.body:
        if _assigns(node, "__all__") and isinstance(node, ast.Assign):
            names: list[str] = ast.literal_eval(node.value)
            return names
    problem = f"{namespace} has no __all__"
    raise LookupError(problem)


def _assigns(node: ast.stmt, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def _read_string(node: ast.stmt | None) -> str | None:
    """Return the text of a statement that is a string, such as the docstring of an attribute."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return inspect.cleandoc(node.value.value) if isinstance(node.value.value, str) else None
    return None


def _head(title: str, underline: str) -> list[str]:
    return [title, underline * len(title), ""]


def _indent(text: str) -> list[str]:
    return [f"   {line}".rstrip() for line in text.splitlines()]


def _escape(text: str) -> str:
    return text.replace("*", "\\*")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table. Cells are reStructuredText in one line."""
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: auto", ""]
    for row in (head, *rows):
        lines += [f"   {'*' if not at else ' '} - {cell}".rstrip() for at, cell in enumerate(row)]
    return [*lines, ""]
