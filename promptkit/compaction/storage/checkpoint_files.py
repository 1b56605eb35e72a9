"""Checkpoints as files that people read: `001-fix-the-parser.md`, `002-…`, and an index of them.

A JSON object in an HTML comment: how files for people also say to programs what they are.
"""

from __future__ import annotations

import asyncio
import json
import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs
from filelock import FileLock

from promptkit.compaction.hooks import CompactionHooks
from promptkit.compaction.summarizers.breadcrumb import strip_breadcrumb
from promptkit.transcript.entries import Checkpoint
from promptkit.transcript.jsonl.store import replace_file

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import BinaryIO

    from promptkit.transcript.entries import Entry

__all__ = ["CheckpointDirectory", "CheckpointFile", "list_checkpoint_files", "format_comment", "parse_comment", "title_from_summary"]


_COMMENT = re.compile(r"<!-- (\{[^\n]*\}) -->")


def format_comment(value: Mapping[str, str]) -> str:
    r"""The comment, in one line. Nothing in the value ends it.

    >>> format_comment({"key": "--> a"})
    '<!-- {"key": "-\\u002d> a"} -->'
    """
    text = json.dumps(value).replace("--", "-\\u002d")
    return f"<!-- {text} -->"


def parse_comment(line: str) -> Mapping[str, object]:
    """The value of a line that is such a comment; an empty one for any other line."""
    match = _COMMENT.fullmatch(line.strip())
    try:
        value: object = json.loads(match[1]) if match else None
    except (ValueError, RecursionError):
        return {}
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}  # JSON has no other keys


INDEX = "index.md"
LOCK = ".lock"
LONGEST_TITLE = 80
LONGEST_NAME = 48
"""Characters of a title in the name of its file."""

_TITLE_TAG = re.compile(r"<title>([^<\n]{1,500})</title>", re.IGNORECASE)
_TITLE_LINE = re.compile(
    r"^[ \t]{0,8}(?:\*\*|#{1,6} )?title(?:\*\*)?[ \t]{0,8}:(?:\*\*)?[ \t]{0,8}(\S[^\n]{0,500})", re.IGNORECASE | re.MULTILINE
)
_MARKS = re.compile(r"^(?:#{1,6}|[-*>]|\(?\d{1,3}[.)])\s+")
_SECTION = re.compile(r"^(?:\d{1,2}\. |#{1,6} )?Conversation Overview:?\s*", re.IGNORECASE)
_NAME = re.compile(r"(\d{3,})-[a-z0-9-]+\.md")
_UNSAFE = re.compile(r"[^a-z0-9]+")


@attrs.frozen(kw_only=True)
class CheckpointFile:
    """A file of a checkpoint."""

    number: int
    """From 1; never given again to another, unless the highest ones are removed."""
    title: str
    checkpoint: str
    """The id of its entry."""
    path: Path


def title_from_summary(summary: str) -> str:
    r"""The title of a summary, in one line: as it names itself, or else its first sentence; "Checkpoint" where it says nothing.

    >>> title_from_summary("Title: Fix the parser\n\n1. Conversation Overview: ...")
    'Fix the parser'
    """
    named = _TITLE_TAG.search(summary) or _TITLE_LINE.search(summary)
    lines = [named[1]] if named else strip_breadcrumb(summary).splitlines()
    for line in lines:
        plain = _plain(_SECTION.sub("", line.strip()))
        if plain:
            return plain if len(plain) <= LONGEST_TITLE else f"{plain[: LONGEST_TITLE - 1].rstrip()}…"
    return "Checkpoint"


def list_checkpoint_files(folder: Path) -> tuple[CheckpointFile, ...]:
    """The checkpoints that a folder has files of, by number. What is no such file is passed over."""
    found: list[CheckpointFile] = []
    for path in folder.glob("*.md") if folder.is_dir() else ():
        match = _NAME.fullmatch(path.name)
        if match is None or path.is_symlink() or not path.is_file():
            continue
        with path.open(encoding="utf-8", errors="replace") as file:
            head = parse_comment(file.readline(10_000))
        match head:
            case {"checkpoint": str(checkpoint), "title": str(title)}:
                found.append(CheckpointFile(number=int(match[1]), title=title, checkpoint=checkpoint, path=path))
            case _:
                continue
    return tuple(sorted(found, key=lambda each: each.number))


class CheckpointDirectory(CompactionHooks):
    """Writes each checkpoint into a folder, once, and keeps the index true. As hooks, it does so after every compaction.

    Files are written beside, made durable and renamed, under a lock: several processes may share a folder. `timeout` is how many
    seconds to wait for it.
    """

    def __init__(self, folder: Path, *, timeout: float = 10.0) -> None:
        self.folder = folder
        self._timeout = timeout

    async def post_compact(self, checkpoint: Entry) -> None:
        """Write it."""
        await asyncio.to_thread(self.write, checkpoint)

    @property
    def count(self) -> int:
        """How many checkpoints there are."""
        return len(list_checkpoint_files(self.folder))

    def write(self, checkpoint: Entry) -> CheckpointFile | None:
        """The file of a checkpoint, written if there is none yet; None for an entry of another kind. Raises OSError."""
        if not isinstance(checkpoint.payload, Checkpoint):
            return None
        with self._locked():
            files = list_checkpoint_files(self.folder)
            made = next((file for file in files if file.checkpoint == checkpoint.id), None)
            if made is None:
                made = self._write(checkpoint.id, checkpoint.payload, number=max((file.number for file in files), default=0) + 1)
                files = (*files, made)
            self._index(files)
        return made

    def retain(self, checkpoints: Collection[str]) -> None:
        """Remove the files of all checkpoints but these: after a conversation went back to an earlier place. Raises OSError."""
        with self._locked():
            files = list_checkpoint_files(self.folder)
            for file in files:
                if file.checkpoint not in checkpoints:
                    file.path.unlink(missing_ok=True)
            self._index(tuple(file for file in files if file.checkpoint in checkpoints))

    def _write(self, checkpoint: str, payload: Checkpoint, *, number: int) -> CheckpointFile:
        title = title_from_summary(payload.summary)
        path = self.folder / f"{number:03}-{_safe(title)}.md"
        head = format_comment({"checkpoint": checkpoint, "title": title})
        _put(path, f"{head}\n\n# {title}\n\n{payload.summary}\n")
        return CheckpointFile(number=number, title=title, checkpoint=checkpoint, path=path)

    def _index(self, files: tuple[CheckpointFile, ...]) -> None:
        rows = [f"{file.number}. [{_unlinked(file.title)}]({file.path.name})" for file in files]
        count = f"{len(files)} summar{'y' if len(files) == 1 else 'ies'}, oldest first."
        _put(self.folder / INDEX, "\n".join(["# Checkpoints", "", count, "", *rows]).rstrip() + "\n")

    def _locked(self) -> FileLock:
        self.folder.mkdir(parents=True, exist_ok=True)
        return FileLock(self.folder / LOCK, timeout=self._timeout)


def _plain(line: str) -> str:
    """A line without Markdown around it, and without characters that print nothing or turn the text around."""
    bare = _MARKS.sub("", line).strip().strip("*_`:# ")
    return " ".join("".join(letter for letter in bare if unicodedata.category(letter)[0] != "C").split())


def _safe(title: str) -> str:
    """A title as a part of a name: nothing in it leads to another folder, or means something to a shell."""
    letters = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return _UNSAFE.sub("-", letters).strip("-")[:LONGEST_NAME].strip("-") or "checkpoint"


def _unlinked(title: str) -> str:
    return re.sub(r"([\\\[\]<>`*_])", r"\\\1", title)


def _put(path: Path, text: str) -> None:
    data = text.encode("utf-8", "backslashreplace")

    def fill(file: BinaryIO) -> None:
        file.write(data)

    if path.is_symlink() or not path.exists() or path.read_bytes() != data:
        replace_file(path, fill)
