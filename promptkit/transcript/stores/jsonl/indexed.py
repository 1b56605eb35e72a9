"""Opening a transcript's file by its index: the entries are read when they are needed, and the index is made or made good where it is not."""

from __future__ import annotations

import json
import os
import stat
import threading
import weakref
from collections import OrderedDict
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn, TypeVar

import attrs

from promptkit.errors import TranscriptError, TranscriptFormatError, TranscriptWriteError
from promptkit.files import create_beside, remove_leftovers
from promptkit.transcript.stores.jsonl.format import (
    VERSION,
    EntryLine,
    Header,
    header_from_line,
    line_from_bytes,
)
from promptkit.transcript.stores.jsonl.index import (
    HAS_MESSAGE,
    HAS_PARTS,
    EntryIndex,
    IndexDamagedError,
    NotIndexableError,
    Resume,
    find_stamp,
)
from promptkit.transcript.stores.jsonl.index_writer import IndexWriter
from promptkit.transcript.stores.jsonl.reader import ReadPosition, StoredEntry, TranscriptReader

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from promptkit.transcript.log.entries import Entry
    from promptkit.transcript.stores.store import EntryNode

INDEX_BYTES = 1 << 18
"""The size from which a file has an index. A shorter one is read in full in a tenth of a second."""

EXTEND_BYTES = 1 << 23
"""The most of a file that is added to an index while other processes wait for the lock. For more, a
new index is made without it."""

READ_BYTES = 1 << 20
"""Bytes of the file that are read at once."""

SEARCHED = 256
"""Entries that are searched for a text at once."""

CACHED_BYTES = 1 << 22
"""Bytes of lines whose entries are kept in memory."""

_T = TypeVar("_T")
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


def index_path(path: Path) -> Path:
    """Return where the index of a transcript's file is."""
    return path.with_name(f".{path.name}.index")


class IndexedEntries:
    """The entries of a file that has an index, up to the last that the index covers.

    They are read when they are needed.

    The file stays open, so that they can still be read after an archiver has replaced it. An index
    that turns out to be damaged is made again.

    Args:
        path: The file.
        file: The file, open. It is closed with this object, as is `index`.
        index: The file of the index, open.
    """

    def __init__(self, path: Path, file: int, index: int) -> None:
        self._path, self._file = path, file
        weakref.finalize(self, os.close, file)
        self._close_index = weakref.finalize(self, os.close, index)
        self._index = EntryIndex(index)
        self._count = self._index.count
        self._lock = threading.RLock()
        self._entries: OrderedDict[int, tuple[Entry, int]] = OrderedDict()
        self._cached_bytes = 0
        self.resume = self._index.resume or Resume(0, 0, ends_with_newline=True, known=0)
        """Where the rest of the file begins."""
        self.problems = self._index.problems
        """What could not be read."""
        self.misplaced = self._index.misplaced
        """What has another place in the tree than the one that it names."""

    def __len__(self) -> int:
        return self._count

    def read(self, start: int, stop: int) -> Sequence[Entry]:
        """Read the entries from one number up to, and without, another."""
        return self._retry(lambda: self._read_entries(start, stop))

    def find(self, entry_id: str) -> int | None:
        """Return the number of the entry with an id; None if there is none."""
        return self._retry(lambda: _find(self._index, entry_id, self._read_one, self._count))

    def get_node(self, number: int) -> EntryNode:
        """Return the place of an entry in the tree."""
        return self._retry(lambda: self._index.record(number).as_node())

    def iter_parents(self) -> Iterator[int]:
        """Yield the number of the parent of each entry, -1 for a root."""
        for number in range(self._count):
            parent = self.get_node(number).parent
            yield -1 if parent is None else parent

    def list_labels(self) -> Sequence[int]:
        """Return the numbers of the entries that are labels, oldest first."""
        return self._retry(
            lambda: [number for number in self._index.list_labels() if number < self._count]
        )

    def find_text(self, texts: Sequence[str], *, lower: bool = False) -> Iterator[int]:
        """Yield the numbers of the entries whose message may contain one of these texts, in order."""
        # A text may be spread over several parts, and another program may have written letters as
        # escapes.
        wanted = [*(json.dumps(text, ensure_ascii=False)[1:-1] for text in texts), "\\u", "\\/"]
        start = 0
        while start < self._count:
            with self._lock:
                stop, data, places = self._retry(lambda: self._read_lines(start, start + SEARCHED))  # noqa: B023  # called at once
            text = _decode(data, lower=lower)
            is_there = any(each in text for each in wanted)
            for number, (offset, size, flags) in enumerate(places, start):
                if not flags & HAS_MESSAGE or not (is_there or flags & HAS_PARTS):
                    continue
                at = offset - places[0][0]
                line = _decode(data[at : at + size], lower=lower)
                if flags & HAS_PARTS or any(each in line for each in wanted):
                    yield number
            start = stop

    def _retry(self, work: Callable[[], _T]) -> _T:
        """Do something with the index. If it is damaged, make it again and do it once more."""
        with self._lock:
            try:
                return work()
            except IndexDamagedError:
                self._make_again()
            try:
                return work()
            except IndexDamagedError as error:
                raise self._changed() from error

    def _make_again(self) -> None:
        now = os.fstat(self._file)
        try:
            there = self._path.stat()
            if (there.st_dev, there.st_ino) != (now.st_dev, now.st_ino):
                raise self._changed()
            descriptor = build_index(self._path, self._file, None)
        except (OSError, NotIndexableError, IndexDamagedError) as error:
            raise self._changed() from error
        if descriptor is None:
            raise self._changed()
        self._close_index()
        self._close_index = weakref.finalize(self, os.close, descriptor)
        self._index = EntryIndex(descriptor)
        if self._index.count < self._count:
            raise self._changed()

    def _changed(self) -> TranscriptError:
        problem = f"{self._path} was changed since it was read: open the transcript again."
        return TranscriptError(problem)

    def _read_one(self, number: int) -> Entry:
        return self._read_entries(number, number + 1)[0]

    def _read_entries(self, start: int, stop: int) -> list[Entry]:
        found: list[Entry] = []
        number = start
        while number < stop:
            known = self._entries.get(number)
            if known is not None:
                self._entries.move_to_end(number)
                found.append(known[0])
                number += 1
                continue
            end, data, places = self._read_lines(number, stop)
            first = places[0][0]
            for offset, size, _ in places:
                entry = self._entries[number][0] if number in self._entries else None
                if entry is None:
                    entry = self._parse(number, data[offset - first : offset - first + size])
                    self._keep(number, entry, size)
                found.append(entry)
                number += 1
            number = end
        return found

    def _read_lines(self, start: int, stop: int) -> tuple[int, bytes, list[tuple[int, int, int]]]:
        """Read the lines of entries, as many as are read at once.

        Returns the number after them, the bytes, and where each begins.
        """
        places: list[tuple[int, int, int]] = []
        first = end = self._index.record(start).offset
        for number in range(start, min(stop, self._count)):
            record = self._index.record(number)
            if record.offset < end or (places and record.offset + record.size - first > READ_BYTES):
                break
            places.append((record.offset, record.size, record.flags))
            end = record.offset + record.size
        if not places or end > os.fstat(self._file).st_size:
            problem = "a record leads out of the file"
            raise IndexDamagedError(problem)
        return start + len(places), os.pread(self._file, end - first, first), places

    def _parse(self, number: int, line: bytes) -> Entry:
        parsed = line_from_bytes(line)
        if (
            not isinstance(parsed, EntryLine)
            or self._index.hash_id(parsed.entry.id) != self._index.record(number).hash
        ):
            problem = "a record names another entry"
            raise IndexDamagedError(problem)
        return parsed.entry

    def _keep(self, number: int, entry: Entry, size: int) -> None:
        self._entries[number] = entry, size
        self._cached_bytes += size
        while self._cached_bytes > CACHED_BYTES and len(self._entries) > 1:
            self._cached_bytes -= self._entries.popitem(last=False)[1][1]


@attrs.frozen
class Opened:
    """A file that was opened by its index."""

    entries: IndexedEntries
    position: ReadPosition
    """Where the rest of the file begins."""
    known: int
    """Entries after the position that the index knows."""


def open_indexed(
    path: Path, lock: Callable[[float], AbstractContextManager[None]], *, index_from: int
) -> Opened | None:
    """Open a file by its index.

    Make the index if there is none, or none that holds, and if it is behind, add what is missing.

    Args:
        path: The file.
        lock: Excludes other writers, waiting so many seconds at the most; raises
            TranscriptWriteError.
        index_from: The size in bytes from which a file has an index.

    Returns:
        The entries; None for a file that is read in full: a short one, one with archives, one of an
        older version, or one that has to be read in full to say what is wrong with it.

    Raises:
        NotIndexableError: The file should have an index and cannot, and why.
    """
    try:
        file = os.open(path, _READ)
    except OSError:
        return None
    try:
        found = _open_index(path, file, lock, index_from)
    except OSError as error:
        os.close(file)
        problem = f"its index cannot be written: {error.strerror}"
        raise NotIndexableError(problem) from error
    except IndexDamagedError as error:
        os.close(file)
        problem = f"its index cannot be used: {error}"
        raise NotIndexableError(problem) from error
    except BaseException:
        os.close(file)
        raise
    if found is None:
        os.close(file)
        return None
    entries = IndexedEntries(path, file, found)
    resume, status = entries.resume, os.fstat(file)
    last = entries.read(resume.known - 1, resume.known)[0].id if resume.known else ""
    position = ReadPosition(
        identity=(status.st_dev, status.st_ino),
        header=Header(),
        end=resume.offset,
        line_count=resume.lines,
        ends_with_newline=resume.ends_with_newline,
        last_id=last,
    )
    return Opened(entries, position, len(entries) - resume.known)


def _open_index(
    path: Path, file: int, lock: Callable[[float], AbstractContextManager[None]], index_from: int
) -> int | None:
    """Return the open file of an index that holds, or None for a file that is read in full."""
    status = os.fstat(file)
    start = _find_start(file, status, index_from)
    if start is None:
        return None
    descriptor = _open_file(index_path(path), os.O_RDONLY)
    if descriptor is None:
        return build_index(path, file, lock)
    try:
        index = EntryIndex(descriptor)
        _check_refused(index, status)
        verified = index.stamp != find_stamp(status)
        if verified:
            index.verify(file, start=start)
    except NotIndexableError:
        os.close(descriptor)
        raise
    except IndexDamagedError:
        os.close(descriptor)
        return build_index(path, file, lock)
    behind = status.st_size - (index.resume.offset if index.resume else 0)
    if not index.count or not 0 <= behind <= EXTEND_BYTES:
        os.close(descriptor)
        return build_index(path, file, lock)
    if behind or verified:
        # If the lock is taken, whoever has it adds what is missing.
        with suppress(TranscriptWriteError, OSError, IndexDamagedError, NotIndexableError), lock(0):
            extend_index(path, index_of=os.fstat(descriptor))
    return descriptor


def _check_refused(index: EntryIndex, status: os.stat_result) -> None:
    """Raise NotIndexableError if the file was found to have no index, or IndexDamagedError if it has become shorter or another one since."""
    if not index.refused:
        return
    if index.stamp[:2] == find_stamp(status)[:2] and index.stamp[2] <= status.st_size:
        _refuse("two entries have one id, or too much of it is damaged")
    problem = "it was given up, and the file has been changed since"
    raise IndexDamagedError(problem)


def extend_index(
    path: Path, *, before: os.stat_result | None = None, index_of: os.stat_result | None = None
) -> None:
    """Add to the index what the file has behind what the index covers. The caller holds the lock.

    Args:
        path: The file.
        before: The state of the file before the caller wrote to it. If the index was not written
            last for this state, it is left behind, and who opens the file next compares it with the
            file. None: it has been compared.
        index_of: The state of the index that was compared. None: any.

    Raises:
        OSError: It cannot be written.
        IndexDamagedError: It is damaged.
        NotIndexableError: The file can have no index.
    """
    descriptor = _open_file(index_path(path), os.O_RDWR)
    if descriptor is None:
        return
    with _closing(descriptor), _closing(os.open(path, _READ)) as file:
        there = os.fstat(descriptor)
        if index_of is not None and (there.st_dev, there.st_ino) != (
            index_of.st_dev,
            index_of.st_ino,
        ):
            return
        writer = IndexWriter(descriptor, file)
        resume, status = writer.resume, os.fstat(file)
        if (
            resume is None
            or writer.refused
            or not 0 <= status.st_size - resume.offset <= EXTEND_BYTES
        ):
            return
        if before is not None and writer.stamp != find_stamp(before):
            return
        try:
            _fill(writer, path, file, checks_ids=True)
        except NotIndexableError:
            writer.write_head(status, refused=True)
            raise
        writer.write_head(os.fstat(file))


def build_index(
    path: Path, file: int, lock: Callable[[float], AbstractContextManager[None]] | None
) -> int | None:
    """Make a new index of a file, beside it, and return the open file of the index.

    None: the file has no entry.

    The file is read without the lock, which is only taken at the end. If that fails, other
    processes do not find the new index.

    Raises:
        OSError: It cannot be written.
        IndexDamagedError: The file was changed meanwhile.
        NotIndexableError: The file can have no index.
    """
    status = os.fstat(file)
    start = _find_start(file, status, 0)
    if start is None:
        _refuse("it has archives, or an older version")
    target = index_path(path)
    beside, descriptor = create_beside(target, mode=stat.S_IMODE(status.st_mode) & 0o666)
    is_kept = False
    try:
        writer = IndexWriter.create(descriptor, file, start=start)
        try:
            _fill(writer, path, file, checks_ids=False, start=start)
            if writer.has_repeated_ids():
                _refuse("two entries have one id")
        except NotIndexableError:
            writer.write_head(status, refused=True)
            beside.replace(target)
            raise
        if not writer.count:
            os.close(descriptor)
            with suppress(OSError):
                beside.unlink()
            return None
        with suppress(TranscriptWriteError), lock(10.0) if lock else _no_lock():
            _fill(writer, path, file, checks_ids=True)
            writer.verify(file, start=start)
            writer.write_head(os.fstat(file))
            with suppress(OSError):
                beside.replace(target)
                remove_leftovers(target)
            is_kept = True
        if not is_kept:
            writer.verify(file, start=start)
            writer.write_head(None)
    except BaseException:
        os.close(descriptor)
        with suppress(OSError):
            beside.unlink()
        raise
    with suppress(OSError):
        beside.unlink()
    return descriptor


def _fill(
    writer: IndexWriter, path: Path, file: int, *, checks_ids: bool, start: int | None = None
) -> None:
    """Add the entries of the file behind what the index covers.

    `start` is where the first line after the header begins, for a new index.
    """
    resume = writer.resume or Resume(start or 0, 1, ends_with_newline=True, known=0)
    status = os.fstat(file)
    last_id = _read_entry(writer, file, resume.known - 1).id if resume.known else ""
    position = ReadPosition(
        identity=(status.st_dev, status.st_ino),
        header=Header(),
        end=resume.offset,
        line_count=resume.lines,
        ends_with_newline=resume.ends_with_newline,
        last_id=last_id,
    )
    reader = TranscriptReader(path, start=position)
    done, number = resume, resume.known
    for item in reader:
        if reader.from_beginning:
            break
        scanner = reader.scanner
        if not isinstance(item, StoredEntry):
            if item not in writer.problems:
                writer.add_problem(item)
            continue
        number += 1
        now = Resume(scanner.end, scanner.line_count, scanner.ends_with_newline, number)
        ends_batch = item.offset + item.size == scanner.end
        if number > writer.count:
            if checks_ids and writer.list_candidates(writer.hash_id(item.entry.id)):
                _refuse("two entries have one id")
            writer.add(
                item,
                find=lambda entry_id: _find(
                    writer, entry_id, lambda at: _read_entry(writer, file, at), writer.count
                ),
                last_id=last_id,
                boundary=now if ends_batch else done,
            )
        last_id = item.entry.id
        if ends_batch:
            done = now
    if reader.from_beginning or reader.position is None:
        problem = "the file was replaced"
        raise IndexDamagedError(problem)
    end = reader.position
    writer.flush(Resume(end.end, end.line_count, end.ends_with_newline, number))


def _refuse(why: str) -> NoReturn:
    raise NotIndexableError(why)


def _find(index: EntryIndex, entry_id: str, read: Callable[[int], Entry], count: int) -> int | None:
    return next(
        (
            at
            for at in index.list_candidates(index.hash_id(entry_id))
            if at < count and read(at).id == entry_id
        ),
        None,
    )


def _read_entry(index: EntryIndex, file: int, number: int) -> Entry:
    record = index.record(number)
    parsed = line_from_bytes(os.pread(file, record.size, record.offset))
    if not isinstance(parsed, EntryLine) or index.hash_id(parsed.entry.id) != record.hash:
        problem = "a record names another entry"
        raise IndexDamagedError(problem)
    return parsed.entry


def _find_start(file: int, status: os.stat_result, least: int) -> int | None:
    """Return where the first line after the header begins, in bytes; None for a file that has no index."""
    if not stat.S_ISREG(status.st_mode) or status.st_size < least:
        return None
    line, found, _ = os.pread(file, 1 << 16, 0).partition(b"\n")
    try:
        header = header_from_line(line, "")
    except TranscriptFormatError:
        return None
    return len(line) + 1 if found and header.version == VERSION and not header.archives else None


def _open_file(path: Path, mode: int) -> int | None:
    """Open the file of an index.

    Returns None if there is none, or something else stands there, or another user put it there.
    """
    try:
        descriptor = os.open(path, mode | _NO_LINK | (_READ & ~os.O_RDONLY))
    except OSError:
        return None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or not _is_trusted(path, status):
        os.close(descriptor)
        return None
    return descriptor


def _is_trusted(path: Path, status: os.stat_result) -> bool:
    """Return whether an index is of this user, or of one who may change or replace the transcript anyway."""
    if os.name != "posix" or status.st_uid == os.geteuid():
        return True
    transcript = path.with_name(path.name.removeprefix(".").removesuffix(".index"))
    with suppress(OSError):
        return status.st_uid in (path.parent.stat().st_uid, transcript.stat().st_uid)
    return False


@contextmanager
def _closing(descriptor: int) -> Generator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _no_lock() -> Generator[None]:
    yield


def _decode(data: bytes, *, lower: bool) -> str:
    text = data.decode("utf-8", "replace")
    return text.lower() if lower else text
