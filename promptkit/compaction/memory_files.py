"""Memories in files: `2026-01-02.md` for each day, and `MEMORY.md`, which people look after."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from filelock import FileLock

from promptkit.compaction.memories import dated_name, keys_of, memories_of, merged, newest_lines, readable
from promptkit.transcript.jsonl.store import replace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date, datetime
    from pathlib import Path
    from typing import BinaryIO

__all__ = ["CURATED", "MemoryFiles"]

CURATED = "MEMORY.md"
LOCK = ".lock"
DAYS = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9].md"


class MemoryFiles:
    """A folder of memories. Several processes may share it. `timeout` is seconds to wait for others."""

    def __init__(self, folder: Path, *, timeout: float = 10.0) -> None:
        self.folder = folder
        self._timeout = timeout

    def has(self, key: str) -> bool:
        """Whether memories of this key have been written, on whatever day. Raises OSError."""
        return self.folder.is_dir() and any(key in keys_of(_read(path)) for path in sorted(self.folder.glob(DAYS), reverse=True))

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
            path = self.folder / dated_name(now.date())
            text = _read(path)
            yesterday = _read(self.folder / dated_name(now.date() - timedelta(days=1)))
            new = merged(text, memories, key=key, at=now, known=memories_of(yesterday))
            if new == text:
                return None

            def fill(file: BinaryIO) -> None:
                file.write(new.encode("utf-8", "backslashreplace"))

            replace(path, fill)
        return path

    def load(self, today: date, *, curated: bool, characters: int = 20_000) -> str:
        """What a model is shown: yesterday's file and today's, of which the oldest lines leave where there are more `characters`.

        `curated` says whether MEMORY.md may be shown, too: it may hold what is meant for one person alone, so only a conversation with
        that person loads it. It comes first, and whole. Raises OSError.
        """
        days = (dated_name(today - timedelta(days=1)), dated_name(today))
        recent = "\n\n".join(filter(None, (readable(_read(self.folder / name)) for name in days)))
        kept = readable(_read(self.folder / CURATED)) if curated else ""
        return "\n\n".join(filter(None, (kept, newest_lines(recent, characters))))


def _read(path: Path) -> str:
    """The text of a file; empty where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
