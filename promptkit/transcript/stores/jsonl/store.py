"""Keep transcripts in JSON Lines files.

Several processes may append to a file, and a kill at any moment leaves it readable.

To append, a store takes a lock, reads the batches that other processes have appended, truncates an
incomplete batch that a crash left at the end, and writes and syncs the new batch. The lock is a separate file, because
archiving and migration replace the transcript's file, and a lock on a replaced file excludes no
other process. Reading takes no lock.

Archives are compressed transcript files: a header and lines, byte for byte as they were. The
transcript's file names its archives in its header, and a reader reads them together with it.

A long file has an index, a third file, from which a transcript is opened without reading all of it.
It can be deleted at any time.
"""

from __future__ import annotations

import gzip
import logging
import os
import stat
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path
from typing import BinaryIO

import attrs
from filelock import FileLock, Timeout

from promptkit.errors import TranscriptConflictError, TranscriptError, TranscriptWriteError
from promptkit.files import open_gzip, replace_file, sync_directory
from promptkit.reprs import describe
from promptkit.transcript.log.entries import Entry
from promptkit.transcript.stores.jsonl.format import (
    ARCHIVE_SUFFIX,
    VERSION,
    Header,
    TranscriptArchive,
    encode_batch,
    encode_header,
)
from promptkit.transcript.stores.jsonl.reader import ReadPosition, StoredEntry, TranscriptReader
from promptkit.transcript.stores.store import LoadedEntries, ReadProblem, archiving_error

_logger = logging.getLogger(__name__)

INDEX_BYTES = 1 << 18
"""Size in bytes from which a file has an index. A shorter file is read in full in a tenth of a second."""

LOCK_SECONDS = 30.0
"""Seconds to wait while another process writes."""

LOCK_POLL_SECONDS = 0.005
"""Seconds between two attempts to take the lock. A process holds it while a batch is written to the
disk."""

CHUNK_BYTES = 1 << 20
"""Bytes that are copied at once."""


class JsonlStore:
    """Keep the entries of a transcript in a JSON Lines file.

    The first append creates the file, readable by its owner only; its directory must exist.

    Args:
        path: The file.
        read_archives: Whether to read entries that were moved into archives. Without them a
            transcript begins later and loads faster.
        index_from: Size in bytes from which the file has an index. None: the file has no index
            and is read in full.

    >>> transcript = Transcript(JsonlStore("talk.jsonl"))
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        read_archives: bool = True,
        index_from: int | None = INDEX_BYTES,
    ) -> None:
        # a symbolic link stays one when its file is replaced
        self.path = Path(os.path.realpath(path))
        """The absolute path of the file."""
        self._read_archives = read_archives
        # elsewhere an archiver could not replace an open file; some builds of Python have no sqlite3
        self._index_from = (
            index_from if os.name == "posix" and find_spec("_sqlite3") is not None else None
        )
        self._position: ReadPosition | None = None
        # entries of other processes that were read while appending
        self._unreported: list[LoadedEntries] = []
        self.sync_later = False
        """Whether `append` returns when a batch is written, and `sync` waits for the disk."""
        self._written = self._synced = 0  # batches that were written so, and those on the disk
        self.index_problem: str | None = None
        """Why a long file has no index and is read in full; None if it has one or needs none."""

    def __repr__(self) -> str:
        return describe(self, path=self.address)

    @property
    def address(self) -> str:
        """The absolute path of the file, as text."""
        return str(self.path)

    @property
    def archives(self) -> tuple[TranscriptArchive, ...]:
        """Archives that the header named when the file was last read, oldest first."""
        return self._position.header.archives if self._position else ()

    def load(self) -> LoadedEntries:
        """Read all entries.

        Raises TranscriptFormatError for a file that is not a transcript, TranscriptError for a file
        that cannot be read.
        """
        self._unreported.clear()
        self._position = None
        return self._read_consistently()

    def load_latest(self) -> LoadedEntries:
        """Open a long file by its index, and any other file as `load` does.

        If the file has no index, it is made: this reads the file once, in little memory. If it
        cannot be made, the file is read in full, and `index_problem` gives the reason. Raises what
        `load` raises.
        """
        self._unreported.clear()
        self.index_problem = None
        size = 0
        with suppress(OSError):
            size = self.path.stat().st_size
        if self._index_from is None or size < self._index_from:
            return self.load()
        from promptkit.transcript.stores.jsonl import index  # imports sqlite3

        try:
            entries = index.open_indexed(self.path, self.lock, index_from=self._index_from)
        except index.NotIndexableError as why:
            self.index_problem = f"{self.path} was read in full: {why}."
            _logger.warning("%s", self.index_problem)
            return self.load()
        if entries is None:
            return self.load()
        try:
            latest = self._read_consistently(entries.position)
        except TranscriptError:
            return self.load()
        if self._position is None or self._position.identity != entries.position.identity:
            return self.load()  # the file was replaced meanwhile
        return attrs.evolve(
            latest,
            problems=(
                *entries.problems,
                *(problem for problem in latest.problems if problem not in entries.problems),
            ),
            earlier=entries,
        )

    def refresh(self) -> LoadedEntries:
        """Read what other processes appended since the last read.

        Raises TranscriptError if the file was removed or cut.
        """
        latest = self._read_consistently(self._position)
        loads, self._unreported = [*self._unreported, latest], []
        return LoadedEntries(
            entries=tuple(entry for loaded in loads for entry in loaded.entries),
            problems=tuple(problem for loaded in loads for problem in loaded.problems),
            line_numbers=tuple(line for loaded in loads for line in loaded.line_numbers),
            last_id=latest.last_id,
            torn_bytes=latest.torn_bytes,
            partial=latest.partial,
        )

    def append(self, entries: Sequence[Entry], *, expect: str | None = None) -> None:
        """Append a batch.

        When this returns, the batch is on the disk, or with `sync_later` in the file. If it raises,
        the file contains nothing of it.

        Args:
            entries: The batch.
            expect: The id of the entry that the caller believes to be the last; an empty string for
                an empty file. None: append whatever the last entry is.

        Raises:
            TranscriptConflictError: Another process appended entries since. The error carries them.
            TranscriptWriteError: The disk is full, the directory is read-only, or another process
                holds the lock.
        """
        if not (data := encode_batch(entries)):
            return
        with self.lock():
            self.catch_up()
            if expect not in {None, self._position.last_id if self._position else ""}:
                raise TranscriptConflictError(
                    expect or "", [entry for loaded in self._unreported for entry in loaded.entries]
                )
            if self._position and self._position.header.version != VERSION:
                self._rewrite_old_version(self._position)
            self._write(data, entries)

    @property
    def is_synced(self) -> bool:
        """Whether all that was appended is on the disk."""
        return self._synced == self._written

    def sync(self) -> None:
        """Wait until all that was appended before is on the disk. May be called in any thread.

        A file that was replaced meanwhile, by an archiver, was synced with what it contains.

        Raises TranscriptWriteError if that fails.
        """
        written = self._written
        if written == self._synced:
            return
        try:
            with self.path.open("r+b") as file:
                os.fsync(file.fileno())
            if not self._synced:
                sync_directory(self.path.parent)
        except OSError as error:
            raise TranscriptWriteError(
                f"its last entries may not be on the disk: {error.strerror}.", file=str(self.path)
            ) from error
        self._synced = written

    def archive(self, *, through: str) -> TranscriptArchive:
        """Move the entries up to one, and the rest of its batch, to a compressed file next to the transcript.

        The archive is written, synced to the disk and read back before the file is replaced by one
        that names it. A crash in between leaves the file unchanged, and the next attempt uses the
        archive that is there. Archiving entries again that are archived changes nothing.

        Args:
            through: The id of the last entry to move.

        Returns:
            The archive that holds the entry.

        Raises:
            TranscriptError: There is no such entry, or no entry would remain in the file.
            TranscriptWriteError: The archive or the file cannot be written; the file was not
                changed.
        """
        with self.lock():
            found = _find_entries(self.path, through)
            if isinstance(found, _Range):
                try:
                    found = _move_range(self.path, found)
                except (OSError, EOFError) as error:
                    raise TranscriptWriteError(
                        f"nothing was archived: {getattr(error, 'strerror', None) or error}.",
                        file=str(self.path),
                    ) from error
            self._discard_index()
            self.catch_up()
            return found

    @contextmanager
    def lock(self, seconds: float | None = None) -> Generator[None]:
        """Exclude all other writers. Raises TranscriptWriteError if the lock cannot be taken."""
        if not self.path.parent.is_dir():
            raise TranscriptWriteError(
                f"there is no directory {self.path.parent}: create it first.", file=str(self.path)
            )
        timeout = LOCK_SECONDS if seconds is None else seconds
        lock = FileLock(self.path.with_name(f".{self.path.name}.lock"), timeout=timeout)
        try:
            held = lock.acquire(poll_interval=LOCK_POLL_SECONDS)
        except (Timeout, OSError) as error:
            why = (
                f"another process has been writing for more than {timeout:g} seconds"
                if isinstance(error, Timeout)
                else f"the lock file next to it cannot be locked: {error.strerror}"
            )
            raise TranscriptWriteError(
                f"{why}; nothing was written.", file=str(self.path)
            ) from error
        with held:
            yield

    def catch_up(self) -> None:
        """Read the entries that other processes appended, and keep them for the next `refresh`.

        The caller must hold the lock.
        """
        position = self._position
        with suppress(OSError):  # reading reports what is wrong
            status = self.path.stat()
            if (
                position
                and (status.st_dev, status.st_ino) == position.identity
                and status.st_size == position.end
            ):
                return
        loaded, _ = self._read(position)
        if loaded.entries or loaded.problems:
            self._unreported.append(loaded)

    def _read_consistently(self, start: ReadPosition | None = None) -> LoadedEntries:
        loaded, is_consistent = self._read(start)
        if not is_consistent:
            # No other process writes while the lock is held. If it cannot be taken, the next read
            # starts where this one did.
            try:
                with self.lock():
                    loaded, _ = self._read(start)
            except TranscriptWriteError:
                self._position = start
        return loaded

    def _read(self, start: ReadPosition | None) -> tuple[LoadedEntries, bool]:
        """Read the file from a position.

        Returns the entries, and False if another process may have written at the same time.
        """
        reader = TranscriptReader(self.path, start=start, read_archives=self._read_archives)
        items = list(reader)
        found = [item for item in items if isinstance(item, StoredEntry)]
        problems = [item for item in items if isinstance(item, ReadProblem)]
        if (
            start is not None
            and start.last_id
            and (reader.position is None or reader.from_beginning)
        ):
            del found[: self._count_known(start, reader.position, [item.entry for item in found])]
        self._position = reader.position
        return LoadedEntries(
            entries=tuple(item.entry for item in found),
            problems=tuple(problems),
            line_numbers=tuple(item.line for item in found),
            last_id=reader.position.last_id if reader.position else "",
            torn_bytes=reader.torn_bytes,
            partial=reader.partial,
        ), not (problems or reader.torn_bytes or reader.changed_while_reading)

    def _count_known(
        self, before: ReadPosition, now: ReadPosition | None, entries: Sequence[Entry]
    ) -> int:
        """Count the entries of a replaced file that were read before it was replaced.

        Raises TranscriptError if the new file does not continue the old one. After archiving it
        does.
        """
        count = next(
            (number for number, entry in enumerate(entries, 1) if entry.id == before.last_id), 0
        )
        archives = now.header.archives if now else ()
        if count or any(archive.last == before.last_id for archive in archives):
            return count
        if (
            archives
            and not self._read_archives
            and any(
                isinstance(item, StoredEntry) and item.entry.id == before.last_id
                for item in TranscriptReader(self.path)
            )
        ):
            return 0
        raise TranscriptError(
            f"{self.path} was removed, cut or replaced since it was read: the entry {before.last_id!r} is gone. Nothing was written."
        )

    def _write(self, data: bytes, entries: Sequence[Entry]) -> None:
        """Write lines after the last complete batch. The lock is held."""
        position = self._position
        end = position.end if position else 0
        is_new = not self.path.exists()
        data = (
            (b"" if end else encode_header(Header()))
            + (b"" if position is None or position.ends_with_newline else b"\n")
            + data
        )
        try:
            descriptor = os.open(
                self.path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600
            )
        except OSError as error:
            raise TranscriptWriteError(
                f"nothing was written: {error.strerror}.", file=str(self.path)
            ) from error
        before = os.fstat(descriptor)
        try:
            if before.st_size != end:
                os.ftruncate(descriptor, end)
            os.lseek(descriptor, end, os.SEEK_SET)
            unwritten = memoryview(data)
            while unwritten:
                unwritten = unwritten[os.write(descriptor, unwritten) :]
            if self.sync_later:
                self._written += 1
            else:
                os.fsync(descriptor)
                if not end:
                    sync_directory(self.path.parent)
            status = os.fstat(descriptor)
        except BaseException as error:
            # If the cut fails as well, the next reader finds a torn end, or complete entries as if
            # another process had written them.
            with suppress(OSError):
                if is_new:
                    self.path.unlink()
                os.ftruncate(descriptor, end)
                os.fsync(descriptor)
            if not isinstance(error, OSError):
                raise
            raise TranscriptWriteError(
                f"nothing was written: {error.strerror}.", file=str(self.path)
            ) from error
        finally:
            os.close(descriptor)
        self._position = ReadPosition(
            identity=(status.st_dev, status.st_ino),
            header=position.header if position else Header(),
            end=end + len(data),
            line_count=(position.line_count if position else 0) + data.count(b"\n"),
            last_id=entries[-1].id,
        )
        if (
            self._index_from is not None
            and status.st_size >= self._index_from
            and not self._position.header.archives
        ):
            self._update_index(before, self._index_from)

    def _update_index(self, before: os.stat_result, index_from: int) -> None:
        """Add a batch to the index of a long file, or make the index when the file becomes long.

        The lock is held; `before` is the file without the batch.
        """
        import sqlite3

        from promptkit.transcript.stores.jsonl import index

        try:
            if before.st_size < index_from:
                with self.path.open("rb") as file:
                    index.build_index(self.path, file.fileno(), None)
            else:
                index.extend_index(self.path, before)
        except (OSError, sqlite3.Error, index.IndexDamagedError, TranscriptError) as error:
            self._discard_index()
            self.index_problem = (
                f"{self.path} has no index: {getattr(error, 'strerror', None) or error}."
            )
        except index.NotIndexableError as error:
            self.index_problem = f"{self.path} has no index: {error}."

    def _discard_index(self) -> None:
        from promptkit.transcript.stores.jsonl.index import discard_index

        discard_index(self.path)

    def _rewrite_old_version(self, position: ReadPosition) -> None:
        """Rewrite the file in the present version of the format and keep the old file next to it.

        The lock is held.
        """
        items = [*TranscriptReader(self.path, read_archives=False)]
        lines = (encode_batch([item.entry]) for item in items if isinstance(item, StoredEntry))
        header = encode_header(Header(archives=position.header.archives))
        backups = (
            self.path.with_name(f"{self.path.name}.v{position.header.version}{end}")
            for end in chain([""], map(".{}".format, count(2)))
        )
        try:
            mode = stat.S_IMODE(self.path.stat().st_mode)
            old_content = self.path.read_bytes()
            replace_file(
                _find_unused(backups, lambda backup: backup.read_bytes() == old_content),
                lambda file: file.write(old_content),
                mode=mode,
                locked=True,
            )
            replace_file(
                self.path,
                lambda file: file.writelines(chain([header], lines)),
                mode=mode,
                locked=True,
            )
        except OSError as error:
            raise TranscriptWriteError(
                f"its format has version {position.header.version}, and it cannot be rewritten: {error.strerror}.",
                file=str(self.path),
            ) from error
        self._discard_index()
        self._read(None)


def _find_unused(paths: Iterator[Path], holds: Callable[[Path], bool]) -> Path:
    """Return the first path that is unused, or whose file holds already what is to be written, as after a crash."""
    return next(path for path in paths if not path.exists() or holds(path))


@attrs.frozen
class _Range:
    """The entries to move: the bytes of a file from `start` to `end`."""

    header: Header
    start: int
    end: int
    archive: TranscriptArchive
    """Its archive, whose file has no name yet."""


def _find_entries(path: Path, through: str) -> _Range | TranscriptArchive:
    """Return the part of the file up to an entry, or the archive that already holds it."""
    reader = TranscriptReader(path)
    ids: list[str] = []
    end = 0
    for item in reader:
        match item:
            case StoredEntry(archive=str(file), entry=entry) if entry.id == through:
                return next(archive for archive in reader.header.archives if archive.file == file)
            case StoredEntry(archive=None, entry=entry) if reader.position:
                if end and reader.position.end > end:
                    if reader.header.version != VERSION:
                        raise TranscriptError(
                            f"{path} has version {reader.header.version} of the format: append an entry first, which rewrites the file."
                        )
                    archive = TranscriptArchive(
                        file="", entries=len(ids), first=ids[0], last=ids[-1]
                    )
                    return _Range(reader.header, reader.body_start, end, archive)
                ids.append(entry.id)
                if entry.id == through:
                    end = reader.position.end
            case _:
                continue
    raise archiving_error(path, through, exists=end > 0)


def _move_range(path: Path, entries: _Range) -> TranscriptArchive:
    """Write the archive, then the file without the archived entries."""
    archives = (
        path.with_name(f"{path.name.removesuffix('.jsonl')}.{number:04}{ARCHIVE_SUFFIX}")
        for number in count(len(entries.header.archives) + 1)
    )
    archive_path = _find_unused(archives, lambda archive: _archive_holds(archive, path, entries))
    mode = stat.S_IMODE(path.stat().st_mode)
    if not archive_path.exists():
        replace_file(
            archive_path, lambda file: _write_archive(path, entries, file), mode=mode, locked=True
        )
    if not _archive_holds(archive_path, path, entries):
        raise OSError(f"{archive_path.name} does not contain what was written to it")
    archive = attrs.evolve(entries.archive, file=archive_path.name)
    header = encode_header(Header(archives=(*entries.header.archives, archive)))
    replace_file(
        path,
        lambda file: file.writelines(chain([header], _read_chunks(path, entries.end, None))),
        mode=mode,
        locked=True,
    )
    return archive


def _write_archive(path: Path, entries: _Range, file: BinaryIO) -> None:
    # Without a name and a time, the same entries always give the same bytes.
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as compressed:
        compressed.writelines(_archive_content(path, entries))


def _archive_holds(archive_path: Path, path: Path, entries: _Range) -> bool:
    """Return whether an archive contains exactly these entries."""
    try:
        with open_gzip(archive_path) as file:
            return all(
                file.read(len(chunk)) == chunk for chunk in _archive_content(path, entries)
            ) and not file.read(1)
    except (OSError, EOFError, zlib.error):
        return False


def _archive_content(path: Path, entries: _Range) -> Iterator[bytes]:
    yield encode_header(Header())
    yield from _read_chunks(path, entries.start, entries.end)


def _read_chunks(path: Path, start: int, end: int | None) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(start)
        while chunk := file.read(
            CHUNK_BYTES if end is None else min(CHUNK_BYTES, end - file.tell())
        ):
            yield chunk
