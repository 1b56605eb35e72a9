"""Transcripts in a file of JSON lines, which several processes may append to and a kill at any moment leaves readable.

Appending: under a lock, what others have written since is read, what a crash left behind the last whole batch is cut off, and the
batch is written and made safe. The lock is on a file of its own beside the transcript and not on the transcript: archiving and
migration replace the transcript's file, and a lock on a file that has been replaced keeps nobody out. Reading takes no lock.

Files that are replaced as a whole: whoever opens one reads the old or the new, never half of either.
"""

from __future__ import annotations

import itertools
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from filelock import FileLock, Timeout

from promptkit.errors import TranscriptConflictError, TranscriptError, TranscriptWriteError
from promptkit.transcript.jsonl.format import MIGRATIONS, VERSION, Header, batch_lines, header_line
from promptkit.transcript.jsonl.reader import FilePass, Seen, Stored
from promptkit.transcript.store import Loaded, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import BinaryIO

    from promptkit.transcript.entries import Entry
    from promptkit.transcript.jsonl.format import Migrations, Segment

__all__ = ["JsonlStore", "replace", "sync_folder"]


def replace(path: Path, write: Callable[[BinaryIO], None], *, mode: int = 0o600) -> None:
    """Have `write` fill a file beside `path`, make sure that it is on the disk, and put it there. Raises OSError; `path` is as it was then.

    Only for who holds the lock: the file beside has a fixed name, so that one which a crash left is used up by the next attempt.
    """
    beside = path.with_name(f".{path.name}.new")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), mode), "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make sure that the names in a folder are on the disk. Raises OSError."""
    if os.name != "posix":
        return  # other systems cannot open a folder, and keep names safe themselves
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


POLL = 0.005
"""Seconds between two attempts to get the lock: it is held for as long as a batch takes to reach the disk."""


class JsonlStore:
    """Keeps entries in a file. It is made when the first entry is appended, for its owner alone to read; the folder must be there.

    `archives`: read the entries that were moved into archives, too. Without them a transcript begins later, and loads faster.
    `lock_timeout`: seconds to wait while another process writes. `migrations`: how files of older versions are read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        archives: bool = True,
        lock_timeout: float = 30.0,
        migrations: Migrations = MIGRATIONS,
    ) -> None:
        self._path = Path(os.path.realpath(path))  # a link stays a link when its file is replaced
        self._archives = archives
        self._lock_timeout = lock_timeout
        self._migrations = migrations
        self._seen: Seen | None = None
        self._unread: list[Loaded] = []  # what others wrote, found while appending

    @property
    def path(self) -> Path:
        """The file, from the root."""
        return self._path

    @property
    def place(self) -> str:
        """The path of the file, from the root."""
        return str(self._path)

    @property
    def lines(self) -> int:
        """The lines of the file, as far as it has been read and written; a last one without a line break counts."""
        return self._seen.lines + (not self._seen.closed) if self._seen else 0

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The archives, oldest first, as of when the file was last read."""
        return self._seen.header.segments if self._seen else ()

    def load(self) -> Loaded:
        """All entries. Raises TranscriptFormatError for a file that is no transcript, TranscriptError for one that cannot be read."""
        self._unread.clear()
        self._seen = None
        return self._settled()

    def refresh(self) -> Loaded:
        """What others have written since this store read the file. Raises TranscriptError if the file was removed or cut."""
        found = self._settled(self._seen)
        unread, self._unread = [*self._unread, found], []
        return Loaded(
            entries=tuple(entry for loaded in unread for entry in loaded.entries),
            problems=tuple(problem for loaded in unread for problem in loaded.problems),
            lines=tuple(line for loaded in unread for line in loaded.lines),
            last=found.last,
            torn=found.torn,
            partial=found.partial,
        )

    def append(self, entries: Sequence[Entry], *, expect: str | None = None) -> None:
        """Write a batch; when this returns, it is on the disk.

        Raises TranscriptConflictError as `Store` says, and TranscriptWriteError for a full disk, a folder that is read-only, a lock that
        another process keeps. The file has all of the batch or nothing of it.
        """
        data = batch_lines(entries)
        if not data:
            return
        with self.locked():
            self.catch_up()
            last = self._seen.last if self._seen else ""
            unread = [entry for loaded in self._unread for entry in loaded.entries]
            if expect is not None and (unread or expect != last):
                raise TranscriptConflictError(expect, unread)
            if self._seen and self._seen.header.version != VERSION:
                self._rewrite_old(self._seen)
            self._write(data, entries)

    @contextmanager
    def locked(self) -> Generator[None]:
        """Keep all other writers out. Raises TranscriptWriteError."""
        if not self._path.parent.is_dir():
            self._fail(f"there is no folder {self._path.parent}: make it first.")
        lock = FileLock(self._path.with_name(f".{self._path.name}.lock"), timeout=self._lock_timeout)
        try:
            lock.acquire(poll_interval=POLL)
        except Timeout as error:
            self._fail(f"another process has been writing for more than {self._lock_timeout:g} seconds; nothing was written.", error)
        except OSError as error:
            self._fail(f"the lock beside it cannot be taken: {error.strerror}; nothing was written.", error)
        try:
            yield
        finally:
            lock.release()

    def _settled(self, start: Seen | None = None) -> Loaded:
        loaded, sure = self._read(start)
        if not sure:
            # While the lock is held, nobody writes. Where it cannot be had, what was read has to do, and the next look begins where this did.
            try:
                with self.locked():
                    loaded, _ = self._read(start)
            except TranscriptWriteError:
                self._seen = start
        return loaded

    def _read(self, start: Seen | None) -> tuple[Loaded, bool]:
        """What is there, and whether it is sure that nobody was writing meanwhile."""
        entries: list[Entry] = []
        lines: list[int] = []
        problems: list[Problem] = []
        going = FilePass(self._path, start=start, archives=self._archives, migrations=self._migrations)
        for item in going:
            if isinstance(item, Stored):
                entries.append(item.entry)
                lines.append(item.line)
            else:
                problems.append(item)
        if start is not None and start.last and (going.seen is None or going.whole):
            known = self._known(start, going.seen, entries)
            del entries[:known], lines[:known]
        self._seen = going.seen
        loaded = Loaded(
            entries=tuple(entries),
            problems=tuple(problems),
            lines=tuple(lines),
            last=going.seen.last if going.seen else "",
            torn=going.torn,
            partial=going.partial,
        )
        return loaded, not (problems or going.torn or going.disturbed)

    def _known(self, before: Seen, now: Seen | None, entries: Sequence[Entry]) -> int:
        """How many of the entries of a file that is another than before were known. Raises TranscriptError if it does not go on from those.

        After an archiving it does.
        """
        at = next((at for at, entry in enumerate(entries, 1) if entry.id == before.last), 0)
        segments = now.header.segments if now else ()
        if at or any(segment.last == before.last for segment in segments):
            return at
        if not self._archives and segments:
            archived = FilePass(self._path, migrations=self._migrations)
            if any(isinstance(item, Stored) and item.entry.id == before.last for item in archived):
                return 0
        problem = f"{self._path} was removed, cut or replaced since it was read: the entry {before.last!r} is gone. Nothing was written."
        raise TranscriptError(problem)

    def catch_up(self) -> None:
        """Read what others have written, for the next `refresh`. For who holds the lock."""
        seen = self._seen
        try:
            status = self._path.stat()
        except OSError:
            status = None  # reading says what is wrong
        if seen and status and (status.st_dev, status.st_ino) == seen.identity and status.st_size == seen.end:
            return
        loaded, _ = self._read(seen)
        if loaded.entries or loaded.problems:
            self._unread.append(loaded)

    def _write(self, data: bytes, entries: Sequence[Entry]) -> None:
        """Write lines behind the last whole batch. The lock is held."""
        seen = self._seen
        end = seen.end if seen else 0
        head = b"" if end else header_line(Header())
        data = head + (b"" if seen is None or seen.closed else b"\n") + data
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
        except OSError as error:
            self._fail(f"nothing was written: {error.strerror}.", error)
        try:
            if os.fstat(descriptor).st_size != end:
                os.ftruncate(descriptor, end)
            os.lseek(descriptor, end, os.SEEK_SET)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
            if not end:
                sync_folder(self._path.parent)
            status = os.fstat(descriptor)
        except BaseException as error:
            # Where even this fails, what is left is a torn end, or is found as if another had written it.
            with suppress(OSError):
                os.ftruncate(descriptor, end)
                os.fsync(descriptor)
            if not isinstance(error, OSError):
                raise
            self._fail(f"nothing was written: {error.strerror}.", error)
        finally:
            os.close(descriptor)
        self._seen = Seen(
            identity=(status.st_dev, status.st_ino),
            header=seen.header if seen else Header(),
            end=end + len(data),
            lines=(seen.lines if seen else 0) + data.count(b"\n"),
            last=entries[-1].id,
        )

    def _rewrite_old(self, seen: Seen) -> None:
        """Bring the file to the present version; the old one is kept beside it. The lock is held."""
        entries = [item.entry for item in FilePass(self._path, archives=False, migrations=self._migrations) if isinstance(item, Stored)]

        def write(file: BinaryIO) -> None:
            file.write(header_line(Header(segments=seen.header.segments)))
            file.writelines(batch_lines([entry]) for entry in entries)

        try:
            mode = stat.S_IMODE(self._path.stat().st_mode)
            old = self._path.read_bytes()
            replace(self._kept_as(seen.header.version, old), lambda file: _write_all(file, old), mode=mode)
            replace(self._path, write, mode=mode)
        except OSError as error:
            self._fail(f"its format is version {seen.header.version}, and it cannot be rewritten: {error.strerror}.", error)
        self._read(None)

    def _kept_as(self, version: int, content: bytes) -> Path:
        """A name for an old file that nothing else has."""
        for number in itertools.count(1):
            path = self._path.with_name(f"{self._path.name}.v{version}{'' if number == 1 else f'.{number}'}")
            if not path.exists() or path.read_bytes() == content:
                return path
        raise AssertionError  # numbers do not end

    def _fail(self, why: str, error: OSError | None = None) -> NoReturn:
        raise TranscriptWriteError(why, file=str(self._path)) from error


def _write_all(file: BinaryIO, data: bytes) -> None:
    file.write(data)
