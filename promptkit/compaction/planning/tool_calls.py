"""Tell what a tool call does: which files it reads or changes, by a table of rules for the tools of the known agents, and which skill it loads.

A skill is a set of instructions from the host for one kind of work, which the model continues to
need.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import attrs

from promptkit.messages import Json, as_mapping, as_sequence

FileUse: TypeAlias = Literal["read", "change", "search", "other"]
"""The use of files by a tool: it reads them, changes them (or deletes, moves and creates them),
looks for them, or does something else."""

PATH_ARGUMENTS = (
    "path",
    "file_path",
    "filePath",
    "filename",
    "file",
    "notebook_path",
    "target_file",
    "relative_path",
    "absolute_path",
    "paths",
    "file_paths",
    "filePaths",
    "files",
)
"""The arguments that hold a path, or a list of paths, in the tools of the known agents."""

MOVE_ARGUMENTS = (
    "source",
    "destination",
    "source_path",
    "destination_path",
    "old_path",
    "new_path",
    "src",
    "dst",
    *PATH_ARGUMENTS,
)
"""The arguments of tools that move a file."""

EDIT_ARGUMENTS = (*PATH_ARGUMENTS, "replacements", "edits")
"""The arguments of tools that make several edits, each of which may have a path of its own."""


@attrs.frozen(kw_only=True)
class FileRule:
    """A rule for tools: which of their arguments hold paths, and what they do with these files.

    >>> FileRule(tools="my_formatter", use="change", arguments=("sources",))
    """

    tools: str
    """A regular expression that is searched in the tool's name, in any case. Prefixes of MCP
    servers are not part of the name."""
    use: FileUse
    arguments: Sequence[str] = PATH_ARGUMENTS
    """The names of the arguments that hold a path, a list of paths, or a list of objects with a
    path. The first that is there is used."""
    all_arguments: bool = False
    """Use all of the arguments that are there, for tools with a source and a destination."""
    when: tuple[str, Sequence[str]] | None = None
    """The rule holds only where this argument has one of these values, for tools with
    subcommands."""


FILE_RULES: tuple[FileRule, ...] = (
    FileRule(tools=r"str_replace|text_editor|^edit", use="read", when=("command", ("view",))),
    FileRule(tools=r"^recall$", use="search"),
    FileRule(tools=r"director(?:y|ies)$|^mkdir|folder$", use="other"),
    FileRule(
        tools=r"move|rename|copy_file", use="change", arguments=MOVE_ARGUMENTS, all_arguments=True
    ),
    FileRule(tools=r"(?:search|find)_?(?:and_?)?replace", use="change"),
    FileRule(tools=r"multi_?(?:replace|edit)", use="change", arguments=EDIT_ARGUMENTS),
    FileRule(tools=r"search|grep|find|glob|list|\bls\b|_ls$|^ls_|tree", use="search"),
    FileRule(
        tools=r"write|edit|replace|create|patch|diff|insert|delete|remove|append|update",
        use="change",
    ),
    FileRule(tools=r"read|view|open|cat\b|load|show|get_?file|file_?content", use="read"),
)
"""The rules of the known agents. The first rule that matches decides. A program puts its own
before: `(my_rule, *FILE_RULES)`."""


@attrs.frozen
class FileCall:
    """The files of one tool call."""

    use: FileUse
    paths: tuple[str, ...] = ()
    """The paths, in order. Empty if the call names no files."""


def find_file_call(
    tool: str, arguments: Mapping[str, object], rules: Iterable[FileRule] = FILE_RULES
) -> FileCall | None:
    """Return the files that a tool call reads or changes, or None if no rule matches.

    The patch in the arguments of a call without paths, as Codex's `apply_patch` takes it, names the
    files that it changes.

    Args:
        tool: The tool's name, with or without the prefix of an MCP server.
        arguments: The arguments of the call.
        rules: The rules. The first that matches decides.

    >>> find_file_call("mcp__files__read_many_files", {"paths": ["a.py", "b.py"]})
    FileCall(use='read', paths=('a.py', 'b.py'))
    """
    rule = next(
        (
            each
            for each in list_rules(tool, rules)
            if each.when is None or arguments.get(each.when[0]) in each.when[1]
        ),
        None,
    )
    paths = _find_paths(arguments, rule) if rule else ()
    if not paths:
        patched = tuple(
            dict.fromkeys(
                path for text in _iter_texts(arguments.values()) for path in _find_patched(text)
            )
        )
        if patched:
            return FileCall("change", patched)
    return FileCall(rule.use, paths) if rule else None


def list_rules(tool: str, rules: Iterable[FileRule] = FILE_RULES) -> list[FileRule]:
    """Return the rules for a tool, by its name with or without the prefix of an MCP server."""
    name = SERVER_PREFIX.split(tool)[-1]
    return [rule for rule in rules if re.search(rule.tools, name, re.IGNORECASE)]


def parse_arguments(text: str) -> Mapping[str, Json] | None:
    """Return the arguments of a tool call, or None if they are not a JSON object."""
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, Mapping) else None


SERVER_PREFIX = re.compile(r"__|[./:]")
"""The separators between the name of an MCP server, or of a namespace, and the name of its tool."""

_PATCH = re.compile(
    r"^\*\*\* (?:(?:Update|Add|Delete) File|Move to): (\S.*?)[ \t]*$|^(?:\+\+\+|---) (?:[ab]/)?(\S+)",
    re.MULTILINE,
)


def _find_patched(text: str) -> Iterator[str]:
    """Yield the paths that a patch changes: one in the format of Codex, or a unified diff."""
    if "*** " not in text and not ("+++ " in text and "@@" in text):
        return
    for match in _PATCH.finditer(text):
        path = match[1] or match[2]
        if path != "/dev/null" and (match[1] or "@@" in text):
            yield path


def _find_paths(arguments: Mapping[str, object], rule: FileRule) -> tuple[str, ...]:
    found = [
        path
        for name in rule.arguments
        if name in arguments and (path := tuple(_iter_texts([arguments.get(name)], rule.arguments)))
    ]
    chosen = found if rule.all_arguments else found[:1]
    return tuple(dict.fromkeys(path for paths in chosen for path in paths))


def _iter_texts(values: Iterable[object], names: Sequence[str] = ()) -> Iterator[str]:
    """Yield texts: values that are one, items of lists, and in objects the first of the named members."""
    for value in values:
        for item in as_sequence(value) or (value,):
            members = as_mapping(item)
            text = next((members[name] for name in names if name in members), item)
            if isinstance(text, str) and text.strip():
                yield text


SKILL_TOOLS = frozenset(
    {"skill", "load_skill", "use_skill", "invoke_skill", "activate_skill", "read_skill"}
)
SKILL_ARGUMENTS = ("skill", "name", "command", "skill_name")


def is_skill_tool(tool: str) -> bool:
    """Return whether a tool loads skills, by its name in any case, with or without the prefix of an MCP server.

    >>> is_skill_tool("mcp__host__Load_Skill")
    True
    """
    return SERVER_PREFIX.split(tool)[-1].lower() in SKILL_TOOLS


RULE_FILES = frozenset(
    {
        "agents.md",
        "claude.md",
        "gemini.md",
        "copilot-instructions.md",
        ".cursorrules",
        ".windsurfrules",
    }
)
"""The names of files with rules for agents."""


def is_rule_file(path: str) -> bool:
    """Return whether a path is that of a file with rules for agents, such as `AGENTS.md`."""
    return path.replace("\\", "/").rsplit("/", 1)[-1].lower() in RULE_FILES


def find_skill_name(tool: str, arguments: Mapping[str, object]) -> str | None:
    """Return the name of the skill that a tool call loads, or None for any other call.

    >>> find_skill_name("Skill", {"command": "pdf"})
    'pdf'
    """
    if not is_skill_tool(tool):
        return None
    return next(
        (
            text.strip()
            for name in SKILL_ARGUMENTS
            if isinstance(text := arguments.get(name), str) and text.strip()
        ),
        None,
    )
