"""Memories as text: one line each, in files by day, each section with the key of what it was taken from.

Memories in files: `2026-01-02.md` for each day, and `MEMORY.md`, which people look after.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from filelock import FileLock

from promptkit.compaction.storage.checkpoint_files import format_comment, parse_comment
from promptkit.compaction.summarizers.prompts import neutralize_tags
from promptkit.transcript.jsonl.store import replace_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import date, datetime
    from pathlib import Path
    from typing import BinaryIO

__all__ = ["CURATED_FILE", "MemoryDirectory", "parse_bullets", "daily_file_name", "parse_keys", "parse_memories", "merge_memories", "keep_newest_lines", "strip_comments"]


LONGEST = 500
"""Characters of one memory."""

_BULLET = re.compile(r"^\s{0,12}(?:[-*•]|\d{1,3}[.)])\s+(\S.*)$", re.MULTILINE)
_LETTERS = re.compile(r"[^\W_]+")
_NOTHING = frozenset({"none", "nothing", "n a", "no memories", "nothing to remember"})


def daily_file_name(day: date) -> str:
    """The name of a day's file.

    >>> daily_file_name(date(2026, 1, 2))
    '2026-01-02.md'
    """
    return f"{day:%Y-%m-%d}.md"


def parse_bullets(text: str) -> tuple[str, ...]:
    """The points of a list, each in one line; what says that there are none is none."""
    points = (_line(match[1]) for match in _BULLET.finditer(text))
    return tuple(point for point in points if (normal := _normal(point)) and normal not in _NOTHING)


def parse_memories(text: str) -> tuple[str, ...]:
    """The memories in a day's file."""
    return tuple(line[2:] for line in text.splitlines() if line.startswith("- "))


def parse_keys(text: str) -> frozenset[str]:
    """The keys of its sections."""
    return frozenset(key for line in text.splitlines() if isinstance(key := parse_comment(line).get("key"), str))


def merge_memories(text: str, memories: Sequence[str], *, key: str, at: datetime, known: Iterable[str] = ()) -> str:
    """A day's file with new memories under a heading of the time; the file as it is where the key is in it, or nothing is new.

    Memories that differ only in case, spaces and punctuation are the same; `known` are those of other files.
    """
    if key in parse_keys(text):
        return text
    seen = set(map(_normal, (*parse_memories(text), *known)))
    fresh: list[str] = []
    for memory in map(_line, memories):
        normal = _normal(memory)
        if normal and normal not in seen:
            seen.add(normal)
            fresh.append(f"- {memory}")
    if not fresh:
        return text
    section = "\n".join([f"## {at:%H:%M}", "", format_comment({"key": key}), "", *fresh])
    return f"{text.rstrip() or f'# {at:%Y-%m-%d}'}\n\n{section}\n"


def strip_comments(text: str) -> str:
    """A file as a model is shown it: without comments."""
    lines = [line for line in text.splitlines() if not parse_comment(line)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def keep_newest_lines(text: str, characters: int) -> str:
    """The last lines of a text that have room."""
    if len(text) <= characters:
        return text
    at = text.find("\n", len(text) - characters - 1)
    return "" if at < 0 else text[at + 1 :]


def _line(text: str) -> str:
    """A memory in one line, in which no tag is ours."""
    plain = neutralize_tags(" ".join(text.split()))
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 1]}…"


def _normal(memory: str) -> str:
    return " ".join(_LETTERS.findall(memory.casefold()))


CURATED_FILE = "MEMORY.md"
LOCK = ".lock"
DAYS = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9].md"


class MemoryDirectory:
    """A folder of memories. Several processes may share it. `timeout` is seconds to wait for others."""

    def __init__(self, folder: Path, *, timeout: float = 10.0) -> None:
        self.folder = folder
        self._timeout = timeout

    def has(self, key: str) -> bool:
        """Whether memories of this key have been written, on whatever day. Raises OSError."""
        return self.folder.is_dir() and any(key in parse_keys(_read(path)) for path in sorted(self.folder.glob(DAYS), reverse=True))

    def append(self, memories: Sequence[str], *, key: str, now: datetime) -> Path | None:
        """Write what is new of some memories into the day's file; None where nothing was. A second time with a key changes nothing.

        What today's or yesterday's file holds already is not written again. Raises OSError; the file is as it was then.
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

            replace_file(path, fill)
        return path

    def load(self, today: date, *, include_curated: bool, max_characters: int = 20_000) -> str:
        """What a model is shown: yesterday's file and today's, of which the oldest lines leave where there are more `characters`.

        `curated` says whether MEMORY.md may be shown, too: it may hold what is meant for one person alone, so only a conversation with
        that person loads it. It comes first, and whole. Raises OSError.
        """
        days = (daily_file_name(today - timedelta(days=1)), daily_file_name(today))
        recent = "\n\n".join(filter(None, (strip_comments(_read(self.folder / name)) for name in days)))
        kept = strip_comments(_read(self.folder / CURATED_FILE)) if include_curated else ""
        return "\n\n".join(filter(None, (kept, keep_newest_lines(recent, max_characters))))


def _read(path: Path) -> str:
    """The text of a file; empty where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
