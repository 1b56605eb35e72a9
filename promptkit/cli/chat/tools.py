"""The file tools of `promptkit chat`: list, read, search, and where it is allowed write and edit."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from promptkit.cli.chat.sandbox import MAX_READ_BYTES, RefusedError
from promptkit.messages import ToolDefinition
from promptkit.tools import Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from promptkit.cli.chat.sandbox import Folder
    from promptkit.messages import Json

__all__ = ["file_tools"]

MAX_NAMES = 300
"""Names of a folder that are listed."""

MAX_MATCHES = 50
"""Lines that a search gives."""

MAX_FILES = 5_000
"""Files that a search looks into."""

CONTEXT_CHARACTERS = 100
"""Characters on both sides of what was searched for."""

PATH: dict[str, Json] = {"type": "string", "description": "Relative to the folder."}


def file_tools(folder: Folder, *, characters: int, write: bool, on_tool_call: Callable[[str, str], object]) -> list[Tool]:
    """The tools over a folder. A result has about so many `characters` at most; `told` hears of each call and what came of it, in a line."""
    run: list[tuple[ToolDefinition, Callable[[Mapping[str, object]], tuple[str, str, str]]]] = [
        (_LIST, partial(_list, folder)),
        (_READ, partial(_read, folder, characters)),
        (_SEARCH, partial(_search, folder, characters)),
    ]
    if write:
        run += [(_WRITE, partial(_write, folder)), (_EDIT, partial(_edit, folder))]

    def tool(definition: ToolDefinition, work: Callable[[Mapping[str, object]], tuple[str, str, str]]) -> Tool:
        def called(arguments: Mapping[str, object]) -> str:
            try:
                what, outcome, result = work(arguments)
            except RefusedError as error:
                on_tool_call(f"{definition.name} {_shown(arguments)}", f"refused: {error}")
                return f"Error: {error}"
            on_tool_call(f"{definition.name} {what}", outcome)
            return result

        return Tool(definition=definition, run=called)

    return [tool(definition, work) for definition, work in run]


def _definition(name: str, description: str, required: list[Json], properties: dict[str, Json]) -> ToolDefinition:
    return ToolDefinition(name=name, description=description, parameters={"type": "object", "properties": properties, "required": required})


_LIST = _definition("list_files", "List a folder.", [], {"path": PATH})
_READ = _definition(
    "read_file",
    "Read lines of a text file, numbered from 1.",
    ["path"],
    {"path": PATH, "start": {"type": "integer"}, "end": {"type": "integer", "description": "The last line; by default as many as fit."}},
)
_SEARCH = _definition(
    "search",
    "Find lines that hold a text, in a file or in all files below a folder. Not case-sensitive, no regular expression.",
    ["text"],
    {"text": {"type": "string"}, "path": PATH},
)
_WRITE = _definition(
    "write_file",
    "Write a whole file, new or in the place of the old one.",
    ["path", "content"],
    {"path": PATH, "content": {"type": "string"}},
)
_EDIT = _definition(
    "edit_file",
    "Replace a text, which must stand in the file exactly once, by another.",
    ["path", "old", "new"],
    {"path": PATH, "old": {"type": "string"}, "new": {"type": "string"}},
)


def _list(folder: Folder, given: Mapping[str, object]) -> tuple[str, str, str]:
    path = _text(given, "path", ".")
    entries = folder.list_entries(path)
    lines = [f"{each.name}/" if each.kind == "folder" else f"{each.name}  {_size(each.size, each.kind)}" for each in entries[:MAX_NAMES]]
    if len(entries) > MAX_NAMES:
        lines.append(f"({len(entries) - MAX_NAMES:,} more)")
    return path, _counted(len(entries), "name"), "\n".join(lines) or "(empty)"


def _read(folder: Folder, most: int, given: Mapping[str, object]) -> tuple[str, str, str]:
    path, start, end = _text(given, "path"), _number(given, "start", 1), _number(given, "end", None)
    if start is None or start < 1 or (end is not None and end < start):
        why = "start is at least 1, and end at least start."
        raise RefusedError(why)
    shown: list[str] = []
    left, last, number, goes_on = most, 0, 0, 0
    with folder.open_text(path) as file:
        for number, line in enumerate(file, 1):  # the number of the last line is used below
            if number < start or (end is not None and number > end) or left <= 0:
                continue
            text = line.decode(errors="replace").rstrip("\r\n")
            if shown and len(text) > left:
                left = 0  # a line is only cut where it is the first
                continue
            goes_on = max(0, len(text) - left)
            shown.append(text[:left])
            left -= len(text) + 1
            last = number
    if not shown and number:
        why = f"{path} has {_counted(number, 'line')}."
        raise RefusedError(why)
    notes = [f"line {last} goes on for {goes_on:,} characters: search finds text in it"] if goes_on else []
    if last < min(number, end or number):
        notes.append(f"lines {start} to {last} of {number:,}; read on with start={last + 1}")
    note = f"\n({'; '.join(notes)})" if notes else ""
    outcome = _counted(len(shown), "line") + (f" of {number:,}" if len(shown) < number else "")
    return path, outcome, "\n".join(shown) + note or "(empty)"


def _search(folder: Folder, most: int, given: Mapping[str, object]) -> tuple[str, str, str]:
    text, path = _text(given, "text"), _text(given, "path", ".")
    wanted = text.casefold()
    if not wanted:
        why = "text must not be empty."
        raise RefusedError(why)
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
                        excerpt = shown[max(0, at - CONTEXT_CHARACTERS) : at + len(text) + CONTEXT_CHARACTERS].strip()
                        found.append(f"{number}: {excerpt}" if name == path else f"{name}:{number}: {excerpt}")
                        if len(found) > MAX_MATCHES:
                            break
        except RefusedError:
            if name == path:
                raise
            continue  # no text, or gone
        if len(found) > MAX_MATCHES or sum(map(len, found)) > most:
            stopped = "\n(and more: search for something that is rarer)"
            del found[MAX_MATCHES:]
            break
    what = f"{text!r}" if path == "." else f"{text!r} {path}"
    return what, _counted(len(found), "match", "matches"), ("\n".join(found)[:most] or "No match.") + stopped


def _write(folder: Folder, given: Mapping[str, object]) -> tuple[str, str, str]:
    path, content = _text(given, "path"), _text(given, "content")
    folder.write(path, content)
    lines = _counted(len(content.splitlines()), "line")
    return path, f"{lines} written", f"{path} was written: {lines}."


def _edit(folder: Folder, given: Mapping[str, object]) -> tuple[str, str, str]:
    path, old, new = _text(given, "path"), _text(given, "old"), _text(given, "new")
    with folder.open_text(path) as file:
        try:
            text = file.read(MAX_READ_BYTES).decode()
        except UnicodeDecodeError as error:
            why = f"{path} is not UTF-8."
            raise RefusedError(why) from error
    times = text.count(old) if old else 0
    if times != 1:
        why = f"old stands in {path} {times:,} times, and must stand there once."
        raise RefusedError(why)
    folder.write(path, text.replace(old, new))
    return path, "edited", f"{path} was edited."


def _text(given: Mapping[str, object], name: str, default: str | None = None) -> str:
    value = given.get(name, default)
    if not isinstance(value, str):
        why = f"{name} is to be text."
        raise RefusedError(why)
    return value


def _number(given: Mapping[str, object], name: str, default: int | None) -> int | None:
    value = given.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        why = f"{name} is to be a whole number."
        raise RefusedError(why)
    return value


def _shown(arguments: Mapping[str, object]) -> str:
    return " ".join(str(value) for name, value in arguments.items() if name in {"path", "text"})


def _size(size: int, kind: str) -> str:
    return f"{size:,} bytes" if kind == "file" else f"({kind})"


def _counted(number: int, noun: str, nouns: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"
