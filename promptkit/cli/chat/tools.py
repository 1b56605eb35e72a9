"""The file tools of `promptkit chat`: list, read and search, and with `--write` also write and edit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from promptkit import Tool, ToolDefinition
from promptkit.cli.chat.sandbox import MAX_READ_BYTES, Folder, RefusedError, refuse
from promptkit.cli.output.terminal import count_nouns
from promptkit.messages import Json
from promptkit.tools import read_integer

MAX_NAMES = 300
"""Entries of a folder that are listed."""

MAX_MATCHES = 50
"""Lines that a search returns."""

MAX_FILES = 5_000
"""Files that a search reads."""

CONTEXT_CHARACTERS = 100
"""Characters of a line that a search returns on both sides of the match."""

Run: TypeAlias = "Callable[[Mapping[str, object]], tuple[str, str, str]]"
"""Runs a tool with its arguments. Returns what the call is about, its outcome in a few words, and
the tool result."""

PATH: dict[str, Json] = {"type": "string", "description": "Relative to the folder."}


def file_tools(
    folder: Folder, *, characters: int, write: bool, on_tool_call: Callable[[str, str], object]
) -> list[Tool]:
    """Create the file tools for a folder.

    Args:
        folder: The folder that the tools are confined to.
        characters: About how many characters a result may have.
        write: Whether to include the tools that write and edit files.
        on_tool_call: Called after each call with a line that describes the call, and one that
            describes its outcome.
    """
    tools: list[tuple[ToolDefinition, Run]] = [
        (_definition("list_files", "List a folder.", [], {"path": PATH}), partial(_list, folder)),
        (
            _definition(
                "read_file",
                "Read lines of a text file, numbered from 1.",
                ["path"],
                {
                    "path": PATH,
                    "start": {"type": "integer"},
                    "end": {
                        "type": "integer",
                        "description": "The last line; by default as many as fit.",
                    },
                },
            ),
            partial(_read, folder, characters),
        ),
        (
            _definition(
                "search",
                "Find lines that hold a text, in a file or in all files below a folder. Not case-sensitive, no regular expression.",
                ["text"],
                {"text": {"type": "string"}, "path": PATH},
            ),
            partial(_search, folder, characters),
        ),
    ]
    if write:
        tools += [
            (
                _definition(
                    "write_file",
                    "Write a whole file, new or in the place of the old one.",
                    ["path", "content"],
                    {"path": PATH, "content": {"type": "string"}},
                ),
                partial(_write, folder),
            ),
            (
                _definition(
                    "edit_file",
                    "Replace a text, which must stand in the file exactly once, by another.",
                    ["path", "old", "new"],
                    {"path": PATH, "old": {"type": "string"}, "new": {"type": "string"}},
                ),
                partial(_edit, folder),
            ),
        ]

    def create_tool(definition: ToolDefinition, run: Run) -> Tool:
        def run_and_report(arguments: Mapping[str, object]) -> str:
            try:
                subject, outcome, result = run(arguments)
            except RefusedError as error:
                about = (str(arguments[name]) for name in arguments if name in {"path", "text"})
                on_tool_call(" ".join([definition.name, *about]), f"refused: {error}")
                return f"Error: {error}"
            on_tool_call(f"{definition.name} {subject}", outcome)
            return result

        return Tool(definition=definition, run=run_and_report)

    return [create_tool(definition, run) for definition, run in tools]


def _definition(
    name: str, description: str, required: list[Json], properties: dict[str, Json]
) -> ToolDefinition:
    return ToolDefinition(
        name=name,
        description=description,
        parameters={"type": "object", "properties": properties, "required": required},
    )


def _list(folder: Folder, arguments: Mapping[str, object]) -> tuple[str, str, str]:
    path = _text(arguments, "path", ".")
    entries = folder.list_entries(path)
    lines = [
        f"{each.name}/"
        if each.kind == "folder"
        else f"{each.name}  {f'{each.size:,} bytes' if each.kind == 'file' else f'({each.kind})'}"
        for each in entries[:MAX_NAMES]
    ]
    if len(entries) > MAX_NAMES:
        lines.append(f"({len(entries) - MAX_NAMES:,} more)")
    return path, count_nouns(len(entries), "name"), "\n".join(lines) or "(empty)"


def _read(folder: Folder, most: int, arguments: Mapping[str, object]) -> tuple[str, str, str]:
    path, start, end = (
        _text(arguments, "path"),
        _number(arguments, "start", 1),
        _number(arguments, "end", None),
    )
    if start is None or start < 1 or (end is not None and end < start):
        refuse("start must be at least 1, and end at least start.")
    shown: list[str] = []
    left, last, number, rest = most, 0, 0, 0
    with folder.open_text(path) as file:
        for number, line in enumerate(file, 1):  # the number of the last line is used below
            if number < start or (end is not None and number > end) or left <= 0:
                continue
            text = line.decode(errors="replace").rstrip("\r\n")
            if shown and len(text) > left:
                left = 0  # only the first line is ever cut
                continue
            rest = max(0, len(text) - left)
            shown.append(text[:left])
            left -= len(text) + 1
            last = number
    if not shown and number:
        refuse(f"{path} has only {count_nouns(number, 'line')}.")
    notes = [f"line {last} has {rest:,} more characters: search finds text in it"] if rest else []
    if last < min(number, end or number):
        notes.append(f"lines {start} to {last} of {number:,}; read on with start={last + 1}")
    note = f"\n({'; '.join(notes)})" if notes else ""
    outcome = count_nouns(len(shown), "line") + (f" of {number:,}" if len(shown) < number else "")
    return path, outcome, "\n".join(shown) + note or "(empty)"


def _search(folder: Folder, most: int, arguments: Mapping[str, object]) -> tuple[str, str, str]:
    text, path = _text(arguments, "text"), _text(arguments, "path", ".")
    if not (wanted := text.casefold()):
        refuse("text must not be empty.")
    found: list[str] = []
    stopped = ""
    for count, name in enumerate(folder.walk_files(path)):
        if count == MAX_FILES:
            stopped = f"\n(only the first {MAX_FILES:,} files were looked into)"
            break
        try:
            with folder.open_text(name) as file:
                for number, line in enumerate(file, 1):
                    shown = line.decode(errors="replace")
                    at = shown.casefold().find(wanted)
                    if at >= 0:
                        excerpt = shown[
                            max(0, at - CONTEXT_CHARACTERS) : at + len(text) + CONTEXT_CHARACTERS
                        ].strip()
                        found.append(
                            f"{number}: {excerpt}"
                            if name == path
                            else f"{name}:{number}: {excerpt}"
                        )
                        if len(found) > MAX_MATCHES:
                            break
        except RefusedError:
            if name == path:
                raise
            continue  # not a text file, or removed in the meantime
        if len(found) > MAX_MATCHES or sum(map(len, found)) > most:
            stopped = "\n(and more: search for something that is rarer)"
            del found[MAX_MATCHES:]
            break
    return (
        repr(text) if path == "." else f"{text!r} {path}",
        count_nouns(len(found), "match", "matches"),
        ("\n".join(found)[:most] or "No match.") + stopped,
    )


def _write(folder: Folder, arguments: Mapping[str, object]) -> tuple[str, str, str]:
    path, content = _text(arguments, "path"), _text(arguments, "content")
    folder.write(path, content)
    lines = count_nouns(len(content.splitlines()), "line")
    return path, f"{lines} written", f"{path} was written: {lines}."


def _edit(folder: Folder, arguments: Mapping[str, object]) -> tuple[str, str, str]:
    path, old, new = _text(arguments, "path"), _text(arguments, "old"), _text(arguments, "new")
    with folder.open_text(path) as file:
        try:
            text = file.read(MAX_READ_BYTES).decode()
        except UnicodeDecodeError as error:
            raise RefusedError(f"{path} is not UTF-8 text.") from error
    times = text.count(old) if old else 0
    if times != 1:
        refuse(f"old occurs {times:,} times in {path}; it must occur exactly once.")
    folder.write(path, text.replace(old, new))
    return path, "edited", f"{path} was edited."


def _text(arguments: Mapping[str, object], name: str, default: str | None = None) -> str:
    value = arguments.get(name, default)
    if not isinstance(value, str):
        refuse(f"{name} must be a string.")
    return value


def _number(arguments: Mapping[str, object], name: str, default: int | None) -> int | None:
    if (value := arguments.get(name)) is None:
        return default
    if (number := read_integer(value)) is None:
        refuse(f"{name} must be a whole number.")
    return number
