"""Memories in a folder: `2026-01-02.md` for each day, and `MEMORY.md`, which the user edits.

A day's file has one memory a line, in sections. Each section carries the key of what its memories
were taken from.
"""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING

from filelock import FileLock

from promptkit.compaction.summarizers.prompts import neutralize_tags
from promptkit.files import replace_file
from promptkit.messages import as_mapping

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import date, datetime
    from pathlib import Path
    from typing import BinaryIO

CURATED_FILE = "MEMORY.md"
"""The file that the user edits."""


MAX_MEMORY_CHARACTERS = 500
"""Characters of one memory."""

LOCK = ".lock"
DAILY_PATTERN = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9].md"
_COMMENT = re.compile(r"<!-- (\{[^\n]*\}) -->")
_BULLET = re.compile(r"^\s{0,12}(?:[-*•]|\d{1,3}[.)])\s+(\S.*)$", re.MULTILINE)
_WORD = re.compile(r"[^\W_]+")
_EMPTY_ANSWERS = frozenset({"none", "nothing", "n a", "no memories", "nothing to remember"})


class MemoryDirectory:
    """A folder of memories. Several processes may share it.

    Args:
        folder: The folder. It is made when the first memory is written.
        timeout: Seconds to wait for the lock of another process.
    """

    def __init__(self, folder: Path, *, timeout: float = 10.0) -> None:
        self.folder = folder
        self._timeout = timeout

    def has(self, key: str) -> bool:
        """Tell whether memories with this key were written, on any day. Raises OSError."""
        return self.folder.is_dir() and any(
            key in parse_keys(_read(path))
            for path in sorted(self.folder.glob(DAILY_PATTERN), reverse=True)
        )

    def append(self, memories: Sequence[str], *, key: str, now: datetime) -> Path | None:
        """Write new memories into the day's file.

        Memories in the files of today and yesterday are not written again.

        Args:
            memories: The memories.
            key: Identifies what they were taken from. A second call with the same key changes
                nothing.
            now: The current time.

        Returns:
            The day's file, or None if there was nothing new.

        Raises:
            OSError: The file could not be written. It is unchanged.
        """
        if not memories:
            return None
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / LOCK, timeout=self._timeout):
            if self.has(key):
                return None
            path = self.folder / daily_file_name(now.date())
            text = _read(path)
            yesterday = _read(self.folder / daily_file_name(now.date() - timedelta(days=1)))
            new = merge_memories(text, memories, key=key, at=now, known=parse_memories(yesterday))
            if new == text:
                return None

            def fill(file: BinaryIO) -> None:
                file.write(new.encode("utf-8", "backslashreplace"))

            replace_file(path, fill, locked=True)
        return path

    def load(self, today: date, *, include_curated: bool, max_characters: int = 20_000) -> str:
        """Return the memories to show to a model: MEMORY.md, then yesterday's file and today's.

        Args:
            today: The current day.
            include_curated: Include MEMORY.md in full. It may hold what concerns one user only, so
                include it only in conversations with that user.
            max_characters: Limit for the files of both days. The oldest lines are removed first.

        Raises:
            OSError: A file cannot be read.
        """
        days = (daily_file_name(today - timedelta(days=1)), daily_file_name(today))
        recent = "\n\n".join(
            filter(None, (strip_comments(_read(self.folder / name)) for name in days))
        )
        curated = strip_comments(_read(self.folder / CURATED_FILE)) if include_curated else ""
        return "\n\n".join(filter(None, (curated, keep_newest_lines(recent, max_characters))))


def daily_file_name(day: date) -> str:
    """Return the name of a day's file.

    >>> daily_file_name(date(2026, 1, 2))
    '2026-01-02.md'
    """
    return f"{day:%Y-%m-%d}.md"


def parse_bullets(text: str) -> tuple[str, ...]:
    """Return the items of a list, each in one line.

    An item that only says that there is nothing is ignored.
    """
    points = (_format_memory(match[1]) for match in _BULLET.finditer(text))
    return tuple(
        point
        for point in points
        if (normalized := _normalize(point)) and normalized not in _EMPTY_ANSWERS
    )


def parse_memories(text: str) -> tuple[str, ...]:
    """Return the memories in a day's file."""
    return tuple(line[2:] for line in text.splitlines() if line.startswith("- "))


def parse_keys(text: str) -> frozenset[str]:
    """Return the keys of the sections in a day's file."""
    return frozenset(
        key for line in text.splitlines() if isinstance(key := _parse_comment(line).get("key"), str)
    )


def merge_memories(
    text: str, memories: Sequence[str], *, key: str, at: datetime, known: Iterable[str] = ()
) -> str:
    """Add memories to a day's file, under a heading with the time.

    The text is returned unchanged if it has the key already, or if no memory is new. Memories that
    differ only in case, spaces and punctuation are the same.

    Args:
        text: The day's file; may be empty.
        memories: The memories to add.
        key: Identifies what the memories were taken from.
        at: The time.
        known: Memories of other files, which are not added again.
    """
    if key in parse_keys(text):
        return text
    seen = set(map(_normalize, (*parse_memories(text), *known)))
    new_lines: list[str] = []
    for memory in map(_format_memory, memories):
        normalized = _normalize(memory)
        if normalized and normalized not in seen:
            seen.add(normalized)
            new_lines.append(f"- {memory}")
    if not new_lines:
        return text
    section = "\n".join([f"## {at:%H:%M}", "", _format_comment({"key": key}), "", *new_lines])
    return f"{text.rstrip() or f'# {at:%Y-%m-%d}'}\n\n{section}\n"


def strip_comments(text: str) -> str:
    """Remove the comments, which the model is not shown."""
    lines = [line for line in text.splitlines() if not _parse_comment(line)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def keep_newest_lines(text: str, characters: int) -> str:
    """Return the last lines of a text that fit a number of characters."""
    if len(text) <= characters:
        return text
    at = text.find("\n", len(text) - characters - 1)
    return "" if at < 0 else text[at + 1 :]


def _format_memory(text: str) -> str:
    """Return a memory in one line, with its tags neutralized."""
    line = neutralize_tags(" ".join(text.split()))
    return line if len(line) <= MAX_MEMORY_CHARACTERS else f"{line[: MAX_MEMORY_CHARACTERS - 1]}…"


def _normalize(memory: str) -> str:
    return " ".join(_WORD.findall(memory.casefold()))


def _read(path: Path) -> str:
    """Return the text of a file, or an empty text if it does not exist."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _format_comment(value: Mapping[str, str]) -> str:
    r"""Write a JSON object as an HTML comment in one line.

    Files for people carry their metadata in such comments.

    Two hyphens in a value are escaped, so that they cannot end the comment.

    >>> _format_comment({"key": "--> a"})
    '<!-- {"key": "-\\u002d> a"} -->'
    """
    text = json.dumps(value).replace("--", "-\\u002d")
    return f"<!-- {text} -->"


def _parse_comment(line: str) -> Mapping[str, object]:
    """Return the object in a line that is such a comment, or an empty one for any other line."""
    match = _COMMENT.fullmatch(line.strip())
    try:
        value: object = json.loads(match[1]) if match else None
    except (ValueError, RecursionError):
        return {}
    return as_mapping(value)
