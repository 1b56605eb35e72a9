"""Checkpoints as Markdown files for the user: `001-fix-the-parser.md`, `002-…`, and an index."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs
from filelock import FileLock

from promptkit.compaction.planning.breadcrumb import strip_breadcrumb
from promptkit.compaction.run.hooks import CompactionHooks
from promptkit.files import replace_file
from promptkit.transcript.log.entries import Checkpoint
from promptkit.transcript.log.view import find_edits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Set as AbstractSet
    from concurrent.futures import Future
    from typing import BinaryIO

    from promptkit.transcript.log.entries import Entry
    from promptkit.transcript.log.transcript import Transcript

_LOG = logging.getLogger("promptkit")

INDEX = "index.md"
OTHER_BRANCHES = "other-branches"
"""The folder inside the folder for the files of checkpoints that the conversation has left."""

LOCK = ".lock"
MAX_TITLE_CHARACTERS = 80
"""Characters of a title."""

MAX_SLUG_CHARACTERS = 48
"""Characters of a title in the name of its file."""


_TITLE_TAG = re.compile(r"<title>([^<\n]{1,500})</title>", re.IGNORECASE)
_TITLE_LINE = re.compile(
    r"^[ \t]{0,8}(?:\*\*|#{1,6} )?title(?:\*\*)?[ \t]{0,8}:(?:\*\*)?[ \t]{0,8}(\S[^\n]{0,500})",
    re.IGNORECASE | re.MULTILINE,
)

_MARKDOWN_PREFIX = re.compile(r"^(?:#{1,6}|[-*>]|\(?\d{1,3}[.)])\s+")
_OVERVIEW_HEADING = re.compile(r"^(?:\d{1,2}\. |#{1,6} )?Conversation Overview:?\s*", re.IGNORECASE)
_NAME = re.compile(r"(\d{3,})-[a-z0-9-]+\.md")
_UNSAFE = re.compile(r"[^a-z0-9]+")
_COMMENT = re.compile(r"<!-- (\{[^\n]*\}) -->")


class CheckpointDirectory(CompactionHooks):
    """Writes each checkpoint into a folder, once, and keeps an index of them.

    As a hook it runs after every compaction.

    The files follow the conversation: after a rewind, a change of the branch or an undone
    compaction, those of checkpoints that no longer apply are in `other-branches`, and they return
    when the conversation does. A fork of a session writes its own checkpoints into the folder, and
    leaves the files of those that it shares with the conversation where they are.

    Files are replaced atomically and under a lock, so several processes may share a folder.

    Args:
        folder: The folder. It is made when it is first needed.
        timeout: Seconds to wait for the lock of another process.
    """

    def __init__(self, folder: Path, *, timeout: float = 10.0) -> None:
        self.folder = folder
        self._timeout = timeout
        self._shared: frozenset[str] = frozenset()
        # one, so that the order holds
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint-files")

    def fork(self, transcript: Transcript) -> CheckpointDirectory:
        """Return the directory of a copy of the conversation: in the same folder, and without the files of checkpoints that both have."""
        forked = CheckpointDirectory(self.folder, timeout=self._timeout)
        # its own class
        forked._shared = self._shared | {
            entry.id for entry in transcript.path() if isinstance(entry.payload, Checkpoint)
        }
        return forked

    async def post_compact(self, checkpoint: Entry) -> None:
        """Write the checkpoint's file, after the changes of the branch before it."""
        # written also if the turn is cancelled
        await asyncio.shield(asyncio.wrap_future(self._worker.submit(self.write, checkpoint)))

    async def wait_idle(self) -> None:
        """Wait until the files follow the conversation."""
        await asyncio.wrap_future(self._worker.submit(int))

    @property
    def count(self) -> int:
        """Number of checkpoint files."""
        return len(list_checkpoint_files(self.folder))

    def on_branch_change(self, transcript: Transcript) -> None:
        """Move the files of the checkpoints that the conversation has left, and move back those of the checkpoints that it has again.

        In an event loop that is done in a thread, which `wait_idle` waits for: another process may
        hold the lock of the folder.
        """
        move = self._plan_moves(transcript)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            move()
        else:
            self._worker.submit(move).add_done_callback(_log_failure)

    def write(self, checkpoint: Entry) -> CheckpointFile | None:
        """Write the file of a checkpoint unless it exists.

        Returns:
            The checkpoint's file, or None if the entry is not a checkpoint.

        Raises:
            OSError: A file could not be written.
        """
        if not isinstance(checkpoint.payload, Checkpoint):
            return None
        with self._lock():
            files, left = (
                list_checkpoint_files(self.folder),
                list_checkpoint_files(self.folder / OTHER_BRANCHES),
            )
            found = next(
                (file for file in (*files, *left) if file.checkpoint == checkpoint.id), None
            )
            if found is None:
                number = max((file.number for file in (*files, *left)), default=0) + 1
                found = self._write_file(checkpoint.id, checkpoint.payload, number=number)
            elif found in left:
                found = _move(found, self.folder)
            self._write_index()
        return found

    def follow(self, transcript: Transcript) -> None:
        """Keep the files of the present branch in the folder, and those of other branches and of undone compactions in `other-branches`.

        No file is deleted. Files of other transcripts stay where they are, and so do those that a
        fork shares.

        Args:
            transcript: The conversation.

        Raises:
            OSError: A file could not be moved or written.
        """
        self._plan_moves(transcript)()

    def _plan_moves(self, transcript: Transcript) -> Callable[[], None]:
        """Read the conversation as it is now, and return the function that moves its files, for another thread."""
        path = transcript.path()
        undone = {target for target, edit in find_edits(path).items() if edit.content is None}
        present = {entry.id for entry in path if isinstance(entry.payload, Checkpoint)} - undone
        left = {
            entry.id for entry in transcript.entries if isinstance(entry.payload, Checkpoint)
        } - present
        return partial(self._move_files, left=left - self._shared, present=present - self._shared)

    def _move_files(self, *, left: AbstractSet[str], present: AbstractSet[str]) -> None:
        aside = self.folder / OTHER_BRANCHES
        with self._lock():
            for file in list_checkpoint_files(self.folder):
                if file.checkpoint in left:
                    _move(file, aside)
            for file in list_checkpoint_files(aside):
                if file.checkpoint in present:
                    _move(file, self.folder)
            self._write_index()

    def _write_file(self, checkpoint: str, payload: Checkpoint, *, number: int) -> CheckpointFile:
        title = title_from_summary(payload.summary)
        path = self.folder / f"{number:03}-{_slugify(title)}.md"
        metadata = format_comment({"checkpoint": checkpoint, "title": title})
        _write_if_changed(path, f"{metadata}\n\n# {title}\n\n{payload.summary}\n")
        return CheckpointFile(number=number, title=title, checkpoint=checkpoint, path=path)

    def _write_index(self) -> None:
        files, left = (
            list_checkpoint_files(self.folder),
            list_checkpoint_files(self.folder / OTHER_BRANCHES),
        )
        rows = [
            f"{file.number}. [{_escape_link_text(file.title)}]({file.path.name})" for file in files
        ]
        count = f"{_count_summaries(len(files))}, oldest first."
        others = (
            f" {_count_summaries(len(left))} of other branches: `{OTHER_BRANCHES}`." if left else ""
        )
        _write_if_changed(
            self.folder / INDEX,
            "\n".join(["# Checkpoints", "", count + others, "", *rows]).rstrip() + "\n",
        )

    def _lock(self) -> FileLock:
        self.folder.mkdir(parents=True, exist_ok=True)
        return FileLock(self.folder / LOCK, timeout=self._timeout)


def _log_failure(done: Future[None]) -> None:
    error = done.exception()
    if error is not None:
        _LOG.error(
            "the checkpoint files could not follow a change of the branch, which is done",
            exc_info=error,
        )


def _count_summaries(number: int) -> str:
    return f"{number} summar{'y' if number == 1 else 'ies'}"


def _move(file: CheckpointFile, folder: Path) -> CheckpointFile:
    folder.mkdir(exist_ok=True)
    return attrs.evolve(file, path=file.path.replace(folder / file.path.name))


@attrs.frozen(kw_only=True)
class CheckpointFile:
    """The file of a checkpoint."""

    number: int
    """From 1. A number is not used again, unless the files with the highest numbers were
    deleted."""
    title: str
    """The summary's title."""
    checkpoint: str
    """The id of the checkpoint's entry."""
    path: Path


def list_checkpoint_files(folder: Path) -> tuple[CheckpointFile, ...]:
    """List the checkpoint files of a folder by number. Other files are ignored."""
    found: list[CheckpointFile] = []
    for path in folder.glob("*.md") if folder.is_dir() else ():
        match = _NAME.fullmatch(path.name)
        if match is None or path.is_symlink() or not path.is_file():
            continue
        with path.open(encoding="utf-8", errors="replace") as file:
            metadata = parse_comment(file.readline(10_000))
        match metadata:
            case {"checkpoint": str(checkpoint), "title": str(title)}:
                found.append(
                    CheckpointFile(
                        number=int(match[1]), title=title, checkpoint=checkpoint, path=path
                    )
                )
            case _:
                continue
    return tuple(sorted(found, key=lambda each: each.number))


def title_from_summary(summary: str) -> str:
    r"""Return the title of a summary in one line: the title that it states, else its first sentence, else "Checkpoint".

    >>> title_from_summary("Title: Fix the parser\n\n1. Conversation Overview: ...")
    'Fix the parser'
    """
    title = _TITLE_TAG.search(summary) or _TITLE_LINE.search(summary)
    lines = [title[1]] if title else strip_breadcrumb(summary).splitlines()
    for line in lines:
        title_line = _strip_markdown(_OVERVIEW_HEADING.sub("", line.strip()))
        if title_line:
            return (
                title_line
                if len(title_line) <= MAX_TITLE_CHARACTERS
                else f"{title_line[: MAX_TITLE_CHARACTERS - 1].rstrip()}…"
            )
    return "Checkpoint"


def format_comment(value: Mapping[str, str]) -> str:
    r"""Write a JSON object as an HTML comment in one line.

    Files for people carry their metadata in such comments.

    Two hyphens in a value are escaped, so that they cannot end the comment.

    >>> format_comment({"key": "--> a"})
    '<!-- {"key": "-\\u002d> a"} -->'
    """
    text = json.dumps(value).replace("--", "-\\u002d")
    return f"<!-- {text} -->"


def parse_comment(line: str) -> Mapping[str, object]:
    """Return the object in a line that is such a comment, or an empty one for any other line."""
    match = _COMMENT.fullmatch(line.strip())
    try:
        value: object = json.loads(match[1]) if match else None
    except (ValueError, RecursionError):
        return {}
    # JSON objects have string keys
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _strip_markdown(line: str) -> str:
    """Remove Markdown marks around a line, and characters that are invisible or change the text direction."""
    text = _MARKDOWN_PREFIX.sub("", line).strip().strip("*_`:# ")
    return " ".join(
        "".join(letter for letter in text if unicodedata.category(letter)[0] != "C").split()
    )


def _slugify(title: str) -> str:
    """Make a title part of a file name: lower-case letters, digits and hyphens only."""
    letters = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return _UNSAFE.sub("-", letters).strip("-")[:MAX_SLUG_CHARACTERS].strip("-") or "checkpoint"


def _escape_link_text(title: str) -> str:
    return re.sub(r"([\\\[\]<>`*_])", r"\\\1", title)


def _write_if_changed(path: Path, text: str) -> None:
    data = text.encode("utf-8", "backslashreplace")

    def fill(file: BinaryIO) -> None:
        file.write(data)

    if path.is_symlink() or not path.exists() or path.read_bytes() != data:
        replace_file(path, fill)
