"""The file tools of `promptkit chat`, list, read and search, with `--write` also write and edit, and the folder that they are confined to.

Paths are opened step by step, without following links.
"""

from __future__ import annotations

import errno
import os
import posixpath
import secrets
import stat
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NoReturn, TypeAlias

import attrs

from promptkit import Tool, ToolDefinition
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
    return (
        path,
        count_nouns(len(shown), "line") + (f" of {number:,}" if len(shown) < number else ""),
        "\n".join(shown) + (f"\n({'; '.join(notes)})" if notes else "") or "(empty)",
    )


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


MAX_READ_BYTES = 64_000_000
"""Bytes of the largest file that is read."""

MAX_WRITTEN_BYTES = 1_000_000
"""Bytes of the largest file that is written or edited."""

SNIFFED = 8_192
"""Bytes at the beginning of a file that are searched for NUL bytes, to tell whether it is text."""

_FOLDER = (
    os.O_RDONLY
    | getattr(os, "O_DIRECTORY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
)
# Without O_NONBLOCK, opening a pipe without a writer would block.
_FILE = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
)
_NEW = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_EXCL
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
)


class RefusedError(ValueError):
    """A tool call or a slash command cannot be carried out, or is not allowed.

    The message of a call is the tool result for the model.
    """


def refuse(why: str) -> NoReturn:
    """Refuse a tool call or a slash command."""
    raise RefusedError(why)


@attrs.frozen
class FolderEntry:
    """An entry of a folder. `kind` is `file`, `folder`, `link` or `other`; `size` is in bytes."""

    name: str
    kind: str
    size: int


@attrs.frozen
class Folder:
    """A folder and everything below it. Paths are relative to it, or absolute and inside it.

    Each folder of a path is opened relative to the one before it, and links are never followed. So
    neither `..` nor a link, not even one that is created meanwhile, leads out of the folder.
    """

    root: Path
    """The folder as an absolute path, with links resolved."""
    transcript: Path | None = None
    """A file that may be read even outside the folder, and never written."""
    allowed: tuple[str, ...] = ()
    """Paths that may be written although they are protected, as `.vscode`, and all below them."""

    @staticmethod
    def is_supported() -> bool:
        """Return True if this system can open files relative to an open folder, which the confinement depends on."""
        return os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")

    def split_path(self, path: str) -> list[str]:
        """Return the names that lead from the folder to a path.

        Raises RefusedError for a path outside the folder.
        """
        if "\0" in path:
            refuse("a path must not contain NUL characters.")
        named = PurePosixPath(posixpath.normpath(path.strip() or "."))
        root = self.root.as_posix()
        if named.is_relative_to(root):
            named = named.relative_to(root)
        if named.is_absolute() or ".." in named.parts:
            refuse(f"{path} is outside the folder. Use a path relative to the folder.")
        return [*named.parts]

    def list_entries(self, path: str) -> list[FolderEntry]:
        """Return the entries of a folder, sorted by name. Raises RefusedError."""
        found: list[FolderEntry] = []
        with self._folder(self.split_path(path), path) as folder, os.scandir(folder) as names:
            for each in names:
                with suppress(OSError):  # removed in the meantime
                    status = each.stat(follow_symlinks=False)
                    found.append(FolderEntry(each.name, _kind(status.st_mode), status.st_size))
        return sorted(found, key=lambda each: each.name)

    def walk_files(self, path: str) -> Iterator[str]:
        """Yield the paths of the files below a folder, sorted and relative to `root`.

        For a file, yield the file itself.

        Links, and folders whose names begin with a dot, are skipped. Raises RefusedError.
        """
        if self._is_transcript(path):
            yield path
            return
        if (steps := self.split_path(path)) and self._kind_of(steps, path) == "file":
            yield "/".join(steps)
            return
        waiting = ["/".join(steps)]
        while waiting:
            folder = waiting.pop()
            try:
                entries = self.list_entries(folder)
            except RefusedError:
                if folder == "/".join(steps):
                    raise
                continue  # removed or locked in the meantime
            below = [(posixpath.join(folder, each.name), each) for each in entries]
            yield from (name for name, each in below if each.kind == "file")
            waiting.extend(
                name
                for name, each in reversed(below)
                if each.kind == "folder" and not each.name.startswith(".")
            )

    @contextmanager
    def open_text(self, path: str) -> Generator[BinaryIO]:
        """Open a text file for reading. Raises RefusedError for anything else."""
        if self._is_transcript(path):
            with _explain_errors(path):
                descriptor = os.open(str(self.transcript), _FILE)
        else:
            if not (steps := self.split_path(path)):
                refuse(_not_a_file(path))
            with self._folder(steps[:-1], path) as folder, _explain_errors(path):
                descriptor = os.open(steps[-1], _FILE, dir_fd=folder)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            refuse(_not_a_file(path))
        with os.fdopen(descriptor, "rb") as file:
            if status.st_size > MAX_READ_BYTES:
                refuse(
                    f"{path} is too large: it has {status.st_size:,} bytes, and at most {MAX_READ_BYTES:,} are read."
                )
            if b"\0" in file.read(SNIFFED):
                refuse(f"{path} is not a text file: it contains NUL bytes.")
            file.seek(0)
            yield file

    def write(self, path: str, text: str) -> None:
        """Write a file atomically. Raises RefusedError."""
        data = text.encode(errors="replace")
        if len(data) > MAX_WRITTEN_BYTES:
            refuse(
                f"the text is too large: it has {len(data):,} bytes, and at most {MAX_WRITTEN_BYTES:,} are written."
            )
        steps = self.split_path(path)
        protected = explain_protection(steps, [self.split_path(each) for each in self.allowed])
        if protected is not None:
            refuse(
                f"{path} must not be written: it is or is in {protected}, which runs by itself. Tell the user what you wanted to change."
            )
        with _explain_errors(path):
            if not steps or self._is_transcript_or_lock(steps):
                refuse(f"{path} must not be written.")
            with self._folder(steps[:-1], path) as folder:
                mode = None
                with suppress(FileNotFoundError):
                    status = os.stat(steps[-1], dir_fd=folder, follow_symlinks=False)
                    if not stat.S_ISREG(status.st_mode):
                        refuse(_not_a_file(path))
                    mode = stat.S_IMODE(status.st_mode)
                _replace(folder, steps[-1], data, mode)

    def _is_transcript(self, path: str) -> bool:
        return self.transcript is not None and path.strip() == str(self.transcript)

    def _is_transcript_or_lock(self, steps: list[str]) -> bool:
        """Return True if a path is the transcript or its lock file."""
        if self.transcript is None:
            return False
        named = self.root.joinpath(*steps)
        return any(
            named == ours or (ours.exists() and named.exists() and named.samefile(ours))
            for ours in (
                self.transcript,
                self.transcript.with_name(f".{self.transcript.name}.lock"),
            )
        )

    def _kind_of(self, steps: list[str], path: str) -> str:
        with self._folder(steps[:-1], path) as folder, _explain_errors(path):
            return _kind(os.stat(steps[-1], dir_fd=folder, follow_symlinks=False).st_mode)

    @contextmanager
    def _folder(self, steps: list[str], path: str) -> Generator[int]:
        """Open a folder step by step from the root, and yield its descriptor."""
        with ExitStack() as opened:
            with _explain_errors(path):
                current = os.open(self.root, _FOLDER)
                opened.callback(os.close, current)
                for step in steps:
                    current = os.open(step, _FOLDER, dir_fd=current)
                    opened.close()  # the folder around it
                    opened.callback(os.close, current)
            yield current


def _replace(folder: int, name: str, data: bytes, mode: int | None) -> None:
    temporary = f".{name[:100]}.{secrets.token_hex(4)}"
    descriptor = os.open(temporary, _NEW, 0o666, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _kind(mode: int) -> str:
    return {stat.S_IFDIR: "folder", stat.S_IFLNK: "link", stat.S_IFREG: "file"}.get(
        stat.S_IFMT(mode), "other"
    )


def _not_a_file(path: str) -> str:
    return f"{path} is not a file."


@contextmanager
def _explain_errors(path: str) -> Generator[None]:
    """Refuse a call for an error of the system. Systems report links in different ways."""
    try:
        yield
    except OSError as error:
        raise RefusedError(
            f"there is no {path}."
            if isinstance(error, FileNotFoundError)
            else f"{path} leads through a file or a link. Links are not followed."
            if isinstance(error, NotADirectoryError) or error.errno in {errno.ELOOP, errno.EMLINK}
            else f"{path}: {error.strerror}."
        ) from error


# Paths that a model may not write, because a program runs what stands in them without being asked.
_FOLDERS = {
    "a version control folder": (".git", ".hg", ".svn", ".bzr", ".jj", "_darcs", "cvs"),
    "a folder of hooks": (".husky", ".githooks", ".git-hooks", ".lefthook", ".lefthook-local", ".overcommit", ".trunk"),
    "an editor's or an agent's folder": (
        ".vscode", ".idea", ".fleet", ".zed", ".vs", ".vim", ".nvim", ".emacs.d", ".devcontainer",
        ".claude", ".codex", ".cursor", ".gemini", ".opencode", ".pi", ".windsurf", ".kiro", ".roo", ".continue",
    ),
    "a folder of settings": (".config", ".local", ".ssh", ".gnupg", ".aws", ".kube", ".docker", ".direnv", ".mise", "autostart"),
    "a folder of a program's start-up files": (".cargo", ".mvn", ".yarn", ".ipython", ".jupyter", ".julia"),
}  # fmt: skip
_FILES = {
    "a file that version control reads": (
        ".gitattributes", ".gitmodules", ".gitconfig", ".hgrc", ".pre-commit-config.y*ml", ".pre-commit-hooks.y*ml", ".overcommit.yml",
        *(f"{name}.{kind}" for name in ("lefthook", ".lefthook", "lefthook-local", ".lefthook-local") for kind in ("y*ml", "toml", "json*")),
        "simple-git-hooks.*", ".simple-git-hooks.*",
    ),
    "a start-up file of a shell": (
        ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".login", ".logout", ".cshrc", ".tcshrc",
        ".kshrc", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".inputrc", ".envrc", ".xinitrc", ".xprofile", ".xsession",
        ".xsessionrc", ".tmux.conf", ".screenrc", "mise.toml", ".mise.toml", "mise.*.toml", ".mise.*.toml",
    ),
    "a start-up file of an editor": (
        ".vimrc", ".gvimrc", ".exrc", ".nvimrc", ".lvimrc", ".emacs", ".dir-locals.el", ".dir-locals-2.el", ".nanorc", "*.sublime-project", "*.sublime-workspace", "*.code-workspace",
    ),
    "a start-up file of a program": (
        ".npmrc", ".pnpmfile.*", ".yarnrc", ".yarnrc.yml", ".pypirc", ".netrc", ".curlrc", ".wgetrc", ".gdbinit", ".lldbinit", ".pdbrc",
        ".pythonrc", ".irbrc", ".pryrc", ".rprofile", ".renviron", "rprofile.site", ".bazelrc", "mcp.json", ".mcp.json", "opencode.json*",
        ".aider.conf.y*ml", "sitecustomize.py", "usercustomize.py", "*.pth",
    ),
}  # fmt: skip
_FOLDER_KINDS = {name: kind for kind, names in _FOLDERS.items() for name in names}


def explain_protection(steps: Sequence[str], allowed: Sequence[Sequence[str]] = ()) -> str | None:
    """Return what a protected path is, such as `a version control folder`; None for a path that may be written.

    Names are compared as file systems that ignore case do, and Windows, which ignores dots and
    spaces at the end and knows short names.

    Args:
        steps: The names that lead from the folder to the file.
        allowed: Paths that the user named, as names likewise. They may be written, and all below
            them.
    """
    if any(list(steps[: len(each)]) == list(each) for each in allowed):
        return None
    plain = [_normalize(step) for step in steps]
    folders = (kind for name in plain if (kind := _FOLDER_KINDS.get(name)))
    files = (
        kind
        for kind, patterns in _FILES.items()
        if any(fnmatchcase(name, pattern) for name in plain[-1:] for pattern in patterns)
    )
    return next(chain(folders, files), None)


def _normalize(name: str) -> str:
    # HFS+ ignores some invisible characters
    visible = "".join(each for each in name.casefold() if each.isprintable())
    plain = visible.split(":")[0].rstrip(". ")  # a stream of NTFS
    return ".git" if plain.startswith("git~") else plain
