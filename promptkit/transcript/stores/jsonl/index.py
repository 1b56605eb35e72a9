"""The index of a long transcript's file: a SQLite file beside it, so that a transcript is opened without reading all of it.

The transcript's file is the only truth. The index may be missing, old, damaged or forged, and no
answer changes. It holds no depth and no other figure that cannot be compared with the file:

* The head says for which state of the file the index was written, and up to where. For another
  state, a checksum of that part of the file is compared first.
* Each entry has a row: its number, id, place, kind and, unless it follows the entry before it, the
  number of its parent. A row is compared with its line before anything that depends on it is
  answered: `verify` goes from the newest row back to the oldest one that a question needs.
* An index that does not agree with the file is deleted and made again.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import stat
import threading
import weakref
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar

from promptkit.errors import TranscriptError, TranscriptFormatError, TranscriptWriteError
from promptkit.files import create_beside, remove_leftovers
from promptkit.transcript.log.entries import Entry, EntryKind, UnknownEntry
from promptkit.transcript.log.transcript import describe_misplaced
from promptkit.transcript.stores.jsonl.format import (
    VERSION,
    EntryLine,
    Header,
    header_from_line,
    line_from_bytes,
)
from promptkit.transcript.stores.jsonl.reader import ReadPosition, StoredEntry, TranscriptReader
from promptkit.transcript.stores.store import ReadProblem

_Lock = Callable[[float], AbstractContextManager[None]]
EXTEND_BYTES = 1 << 23
"""The most bytes of a file that are added to an index while other processes wait for the lock. For
more, a new index is made without it."""

READ_BYTES = 1 << 20
"""Bytes of the file that are read at once, and the most that may lie between two entries."""

BLOCK = 512
"""Rows that are compared or searched at once."""

NEWEST = 256
"""Rows that are compared when a file is opened."""

CACHED_BYTES = 1 << 22
"""Bytes of lines from which the entries in memory are forgotten."""

MAX_PROBLEMS = 200
"""Unreadable lines and misplaced entries that an index records. A file with more is read in full."""

MAX_VALUE_BYTES = 1 << 16
"""The longest id or description of a problem. SQLite refuses longer ones, in a forged index too."""

LOCK_SECONDS = 10.0
"""Seconds to wait for the lock before a new index is given up."""

BUSY_SECONDS = 5.0
"""Seconds to wait while another process writes to an index."""

TABLES = (
    "CREATE TABLE head(version INTEGER, stamp TEXT, end INTEGER, lines INTEGER, checksum INTEGER, refused INTEGER)",
    "CREATE TABLE problems(line INTEGER, detail TEXT, misplaced INTEGER)",
    "CREATE TABLE entries(number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, offset INTEGER, size INTEGER, kind BLOB, parent INTEGER)",
    "CREATE INDEX runs ON entries(number, parent) WHERE parent IS NOT NULL",
    "CREATE INDEX kinds ON entries(kind, number) WHERE kind <> x'6d657373616765'",
)
"""The tables. A file with any others, or with views or triggers, is not an index.

`parent` is NULL for an entry that follows the one before it, and -1 for a root.
"""

FORMAT = 2
"""The version of these tables."""

_BEGIN = b'{"id":%b,"parent_id":%b,"kind":"%b","time":'
"""The beginning of a line as promptkit writes it. Any other line is parsed."""

_QUOTE = re.compile(rb'["\\]')

_PARTS = re.compile(
    rb'"content"\s*+:\s*+\[(?!\s*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*+)?\])', re.DOTALL
)
"""A list of parts that is more than one text, so that a word may be spread over several."""

_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_MESSAGES = (b"message", b"custom_message")
_T = TypeVar("_T")


class IndexDamagedError(Exception):
    """The index does not agree with the file."""


class NotIndexableError(Exception):
    """The file has no index, for the reason in the message. It is read in full."""


_DAMAGE = (IndexDamagedError, sqlite3.Error, TypeError, ValueError, OverflowError)
"""Errors from an index with unexpected content."""


class _Row(NamedTuple):
    """A row of the index: what it claims about an entry."""

    number: int
    id: bytes
    offset: int
    size: int
    kind: bytes
    parent: int | None

    @property
    def end(self) -> int:
        """The offset after the line, in bytes."""
        return self.offset + self.size


class _Head(NamedTuple):
    """The head of an index."""

    version: int
    stamp: str
    """The state of the file for which the index was written, as `_stamp` returns it."""
    end: int
    """Where reading the file goes on after what the index covers, in bytes."""
    lines: int
    """Line breaks before `end`."""
    checksum: int
    """The CRC-32 of the file before `end`."""
    refused: int
    """1 if the file cannot have an index."""
    newest: int | None
    """The number of the newest entry; None without entries."""


def index_path(path: Path) -> Path:
    """Return the path of the index of a transcript's file."""
    return path.with_name(f".{path.name}.index")


def discard_index(path: Path) -> None:
    """Delete the index of a transcript's file, with what a crash left of its last transaction."""
    for part in ("-journal", "-wal", "-shm", ""):
        with suppress(OSError):
            index_path(path).with_name(f"{index_path(path).name}{part}").unlink(missing_ok=True)


class IndexedEntries:
    """The entries of a file that its index covers, read when they are needed.

    The file stays open, so that they can still be read after an archiver has replaced it.

    Args:
        path: The file.
        file: The descriptor of the open file, which is closed with this object.
        start: The offset of the first line after the header, in bytes.
        lock: Excludes other writers, waiting at most so many seconds.

    Raises:
        IndexDamagedError: The index does not agree with the file.
        NotIndexableError: The index says that the file cannot have one.
    """

    def __init__(self, path: Path, file: int, start: int, lock: _Lock) -> None:
        self._path, self._file, self._start, self._write_lock = path, file, start, lock
        self._lock = threading.RLock()
        self._forget_entries()
        self.version = 0
        """Times that the index was made again."""
        self._connect()
        self._compares_all = False
        """Whether an entry follows another one than it names, which all rows are compared for."""
        head, self._count = self._check_head()
        self._end = head.end
        self._compared = self._count
        """The number of the oldest entry whose row was compared with the file."""
        self._compare_end()
        self._compare(max(self._count - NEWEST, 0), NEWEST)
        self.position = _position(file, head, self._select(self._count - 1, self._count)[0].id)
        """Where the rest of the file begins."""
        found = [
            (ReadProblem(line=int(line), detail=str(detail)), misplaced)
            for line, detail, misplaced in self._db.execute(
                "SELECT line, detail, misplaced FROM problems LIMIT ?", (MAX_PROBLEMS,)
            )
        ]
        self.problems = tuple(problem for problem, misplaced in found if not misplaced)
        """The lines that cannot be read."""
        self.misplaced = tuple(problem for problem, misplaced in found if misplaced)
        """The entries that follow another entry than the one that they name."""

    def __len__(self) -> int:
        return self._count

    @property
    def runs(self) -> Sequence[tuple[int, int | None]]:
        """The number of the first entry of each run and of the entry it follows, None for a root, in order."""
        return self._retry(self._load_runs)

    def verify(self, start: int) -> None:
        """Compare the rows of the entries from a number on with the file, unless that was done before."""
        if self._compared > start:
            self._retry(lambda: self._compare(start, BLOCK))

    def read(self, start: int, stop: int) -> Sequence[Entry]:
        """Read the entries from one number up to, and without, another."""
        return self._retry(lambda: self._read_entries(start, stop))

    def find(self, entry_id: str) -> int | None:
        """Return the number of the entry with an id; None if there is none."""

        def look_up() -> int | None:
            number = _find(self._db, _encode(entry_id), self._count)
            _expect(
                number is None or self._read_entries(number, number + 1)[0].id == entry_id,
                "a row names another entry",
            )
            return number

        if (number := self._retry(look_up)) is None and self._compared:
            self.verify(0)
            number = self._retry(look_up)
        return number

    def find_kinds(self, kinds: Collection[EntryKind]) -> Sequence[int]:
        """Return the numbers of the entries of these kinds, oldest first."""
        self.verify(0)
        return self._retry(
            lambda: sorted(
                number
                for kind in kinds
                for (number,) in self._db.execute(
                    "SELECT number FROM entries WHERE kind = ? AND kind <> x'6d657373616765' AND number < ?",
                    (_encode(kind), self._count),
                )
            )
        )

    def count_messages(self, ranges: Iterable[range]) -> int:
        """Return how many of the entries in these ranges have a message."""
        self.verify(0)
        query = "SELECT count(*) FROM entries WHERE number >= ? AND number < ? AND kind IN (?, ?)"
        return self._retry(
            lambda: sum(
                int(self._db.execute(query, (each.start, each.stop, *_MESSAGES)).fetchone()[0])
                for each in ranges
            )
        )

    def find_text(self, texts: Sequence[str], *, lower: bool = False) -> Iterator[int]:
        """Yield the numbers of the entries whose message may contain one of these texts, in order."""
        self.verify(0)
        # Another program may have written letters as escapes.
        wanted = [*(json.dumps(text, ensure_ascii=False)[1:-1] for text in texts), "\\u", "\\/"]
        start = 0
        while start < self._count:
            start, found = self._retry(partial(self._search, start, wanted, lower=lower))
            yield from found

    def _search(self, start: int, wanted: Sequence[str], *, lower: bool) -> tuple[int, list[int]]:
        """Search a block of rows. Return the number after it, and the entries that were found."""

        def may_contain(line: bytes) -> bool:
            text = line.decode("utf-8", "replace")
            text = text.lower() if lower else text
            return any(each in text for each in wanted) or _PARTS.search(line) is not None

        stop = min(start + BLOCK, self._count)
        first, last = self._select(start, start + 1)[0], self._select(stop - 1, stop)[0]
        if last.end - first.offset <= READ_BYTES and not may_contain(
            self._read_span(first.offset, last)
        ):
            return stop, []
        rows, data = self._read_rows(start, stop)
        return rows[-1].number + 1, [
            row.number
            for row in rows
            if row.kind in _MESSAGES
            and may_contain(data[row.offset - first.offset : row.end - first.offset])
        ]

    def _retry(self, work: Callable[[], _T]) -> _T:
        """Do something with the index. If it is damaged, make it again and do it once more."""
        with self._lock:
            try:
                return work()
            except _DAMAGE:
                self._make_again()
            try:
                return work()
            except _DAMAGE as error:
                raise self._changed() from error

    def _make_again(self) -> None:
        now = os.fstat(self._file)
        try:
            there = self._path.stat()
            if (there.st_dev, there.st_ino) != (now.st_dev, now.st_ino):
                raise self._changed()
            self._close()
            build_index(self._path, self._file, self._write_lock)
            self._connect()
            count = self._db.execute(
                "SELECT count(*) FROM entries WHERE offset < ?", (self._end,)
            ).fetchone()[0]
        except (OSError, NotIndexableError, *_DAMAGE) as error:
            raise self._changed() from error
        if count != self._count:
            raise self._changed()
        self.version += 1
        self._compared, self._compares_all = count, False
        self._forget_entries()

    def _forget_entries(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._cached_bytes = 0

    def _changed(self) -> TranscriptError:
        return TranscriptError(
            f"{self._path} was changed since it was read: open the transcript again."
        )

    def _connect(self) -> None:
        self._db = _connect(index_path(self._path))
        self._close = weakref.finalize(self, self._db.close)
        self._runs: list[tuple[int, int | None]] | None = None

    def _check_head(self) -> tuple[_Head, int]:
        """Check that the index was made for the file, add what is missing, and return the head and the number of entries."""
        head, status = _read_head(self._db), os.fstat(self._file)
        is_same_file = str(head.stamp).split()[:2] == _stamp(status).split()[:2]
        if head.refused and is_same_file and head.end <= status.st_size:
            _refuse("two entries have one id, or too much of it is damaged")
        _expect(not head.refused, "it was given up, and the file has been changed since")
        is_current = head.stamp == _stamp(status)
        _expect(
            is_current or _checksum(self._file, 0, head.end) == head.checksum,
            "the file was changed",
        )
        _expect(
            self._start <= head.end <= status.st_size <= head.end + EXTEND_BYTES,
            "it is far behind the file",
        )
        if not is_current or head.end < status.st_size:
            # If another process holds the lock, that process adds what is missing.
            with suppress(TranscriptWriteError, sqlite3.Error, OSError), self._write_lock(0):
                _extend(self._db, self._path, self._file)
            head = _read_head(self._db)
        # No line of an entry is shorter than this, so a forged number takes no memory.
        newest = -1 if head.newest is None else head.newest
        _expect(0 <= newest < head.end // len('{"id":"","kind":""}'), "it has no entries")
        return head, newest + 1

    def _compare_end(self) -> None:
        """Compare the end of what the index covers with the file: no entry follows, and the last batch is complete."""
        rows, line = self._read_rows(self._count - 1, self._count)
        parsed = line_from_bytes(line)
        rest = self._read_gap(rows[0].end, self._end)
        is_complete = isinstance(parsed, EntryLine) and parsed.position == parsed.size
        # Only damage ends an incomplete batch: a write that was cut short does not count.
        _expect(is_complete or (rest.strip() and rest.endswith(b"\n")), "it ends inside a batch")

    def _compare(self, start: int, size: int) -> None:
        """Compare the rows from a number on with their lines, as many as `size` at once."""
        while self._compared > (0 if self._compares_all else start):
            self._compare_block(size)
            if not self._compared:
                # what finds an id, a kind or a run: an emptied page of it would find nothing
                found = self._db.execute("PRAGMA integrity_check(1)").fetchone()
                _expect(found == ("ok",), f"its pages do not agree: {found}")

    def _compare_block(self, size: int) -> None:
        """Compare the rows before `_compared` with their lines, at most `size` of them."""
        stop = self._compared
        found = self._select(max(stop - size - 1, 0), stop)
        # The first row of all has none before it, so that its line is read, too.
        while (
            found[2:]
            and found[-1].end - (found[0].end if found[0].number else self._start) > READ_BYTES
        ):
            found = found[len(found) // 2 :]
        before = found.pop(0) if found[1:] and (found[0].number or not found[2:]) else None
        end, entry_id = (before.end, before.id) if before else (self._start, None)
        first, data = end, self._read_span(end, found[-1])
        if not self._has_plain_lines(found, data, end, entry_id):
            for row in found:
                if row.offset != end:
                    self._read_gap(end, row.offset)
                self._compare_row(
                    row,
                    data[row.offset - first : row.end - first],
                    entry_id if row.parent is None else self._find_parent(row),
                )
                end, entry_id = row.end, row.id
        _expect(
            self._find_starts(found[0].number, stop)
            == [(row.number, row.parent) for row in found if row.parent is not None],
            "its runs are not those of its rows",
        )
        self._compared = found[0].number

    def _has_plain_lines(
        self, found: Sequence[_Row], data: bytes, start: int, entry_id: bytes | None
    ) -> bool:
        """Return whether rows agree with lines as promptkit writes them. This compares all of them at once."""
        numbers, ids, offsets, sizes, kinds, parents = zip(*found, strict=True)
        quoted = [b'"%b"' % each for each in ids]
        named = [b"null" if entry_id is None else b'"%b"' % entry_id, *quoted[:-1]]
        for row in found if parents.count(None) < len(parents) else ():
            if row.parent is not None:
                parent = self._find_parent(row)
                named[row.number - numbers[0]] = b"null" if parent is None else b'"%b"' % parent
        lines = data.split(b"\n")
        begins = map(_BEGIN.__mod__, zip(quoted, named, kinds, strict=True))
        return (
            not lines.pop()
            and [*map(len, lines)] == [size - 1 for size in sizes]
            and [*accumulate(sizes[:-1], initial=start)] == [*offsets]
            and all(map(bytes.startswith, lines, begins))
            and not _QUOTE.search(b" ".join(ids))
        )

    def _find_parent(self, row: _Row) -> bytes | None:
        """Return the id of the parent that a row names; None for a root."""
        if row.parent == -1:
            return None
        if row.parent is None or not 0 <= row.parent < row.number - 1:
            raise IndexDamagedError("a parent is not before its child")
        return self._select(row.parent, row.parent + 1)[0].id

    def _compare_row(self, row: _Row, line: bytes, parent: bytes | None) -> None:
        entry = _entry_from_line(line)
        named = None if entry.parent_id is None else _encode(entry.parent_id)
        _expect(
            (_encode(entry.id), _encode(_kind(entry))) == (row.id, row.kind)
            and line.find(b"\n") in {-1, len(line) - 1},
            "a row is not that of its line",
        )
        if named == parent:
            return
        # An entry whose parent is missing follows the entry before it. That the parent is missing
        # is certain once all rows were compared.
        is_last = row.parent is None or (row.parent == -1 and row.number == 0)
        _expect(
            named is not None and is_last and _find(self._db, named, row.number) is None,
            "a row names another parent",
        )
        self._compares_all = True

    def _read_gap(self, start: int, end: int) -> bytes:
        """Return the bytes between two entries: lines that are blank or cannot be read."""
        _expect(0 <= end - start <= READ_BYTES, "rows are missing")
        data = _pread(self._file, end - start, start)
        parsed = map(line_from_bytes, data.split(b"\n"))
        _expect(not any(isinstance(line, EntryLine) for line in parsed), "a row is missing")
        return data

    def _find_starts(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Find the first entries of runs with these numbers, each with its parent, in order."""
        return self._db.execute(
            "SELECT number, parent FROM entries WHERE parent IS NOT NULL AND number >= ? AND number < ? ORDER BY number",
            (start, stop),
        ).fetchmany(self._count)

    def _load_runs(self) -> Sequence[tuple[int, int | None]]:
        if self._runs is None:
            found = self._find_starts(0, self._count)
            _expect(
                found
                and found[0][0] == 0
                and all(-1 <= parent < number for number, parent in found),
                "a parent is not before its child",
            )
            self._runs = [(number, None if parent < 0 else parent) for number, parent in found]
        return self._runs

    def _read_entries(self, start: int, stop: int) -> list[Entry]:
        found: list[Entry] = []
        for number in range(start, stop):
            if number not in self._entries:
                if self._cached_bytes > CACHED_BYTES:
                    self._forget_entries()
                rows, data = self._read_rows(number, stop)
                _expect(rows[0].number == number, "a row has another number")
                first = rows[0].offset
                for row in rows:
                    entry = _entry_from_line(data[row.offset - first : row.end - first])
                    if _encode(entry.id) != row.id:
                        raise IndexDamagedError("a row names another entry")
                    self._entries[row.number] = entry
                    self._cached_bytes += row.size
            found.append(self._entries[number])
        return found

    def _read_rows(self, start: int, stop: int) -> tuple[list[_Row], bytes]:
        """Return rows, as many as are read at once, and the bytes of the file from the first to the last."""
        rows = self._select(start, min(stop, self._count))
        first = rows[0].offset
        while len(rows) > 1 and rows[-1].end - first > READ_BYTES:
            del rows[-(len(rows) // 2) :]
        return rows, self._read_span(first, rows[-1])

    def _read_span(self, start: int, last: _Row) -> bytes:
        """Return the bytes of the file from an offset to the end of a row."""
        # No memory is used for a size that only the index claims.
        _expect(
            last.size <= READ_BYTES or b"\n" not in _pread(self._file, READ_BYTES, last.offset),
            "a row has several lines",
        )
        _expect(
            self._start <= start <= last.offset < last.end <= self._end
            and last.offset - start <= READ_BYTES,
            "rows do not follow each other",
        )
        return _pread(self._file, last.end - start, start)

    def _select(self, start: int, stop: int) -> list[_Row]:
        """Return the rows from one number up to, and without, another."""
        query = (
            "SELECT number, id, offset, size, kind, parent FROM entries"
            " WHERE number >= ? AND number < ? ORDER BY number"
        )
        found = [*map(_Row._make, self._db.execute(query, (start, stop)).fetchmany(stop - start))]
        _expect(len(found) == stop - start, "rows are missing")
        return found


def open_indexed(path: Path, lock: _Lock, *, index_from: int) -> IndexedEntries | None:
    """Open a file by its index. Make the index if there is none that agrees with the file.

    Args:
        path: The file.
        lock: Excludes other writers, waiting at most so many seconds; raises TranscriptWriteError.
        index_from: The size in bytes from which a file has an index.

    Returns:
        The entries; None for a file that is read in full: a short one, one with archives or an
        older version, or one without entries.

    Raises:
        NotIndexableError: The file should have an index and cannot, for the reason in the message.
    """
    try:
        file = os.open(path, _READ)
    except OSError:
        return None
    entries: IndexedEntries | None = None
    try:
        if (start := _find_start(file, index_from)) is None:
            return None
        with suppress(OSError, *_DAMAGE):
            entries = IndexedEntries(path, file, start, lock)
        if entries is None:
            if not build_index(path, file, lock):
                return None
            entries = IndexedEntries(path, file, start, lock)
    except (OSError, *_DAMAGE) as error:
        raise NotIndexableError(f"its index cannot be used: {error}") from error
    finally:
        if entries is None:
            os.close(file)
    weakref.finalize(entries, os.close, file)
    return entries


def extend_index(path: Path, before: os.stat_result) -> None:
    """Add to the index of a file what was appended. The caller holds the lock.

    Args:
        path: The file.
        before: The state of the file before the append. If the index was not written for it, the
            index is left as it is; the next process that opens the file compares them.

    Raises:
        IndexDamagedError: The index is damaged.
        NotIndexableError: The file cannot have an index.
        OSError: The file cannot be read.
        sqlite3.Error: The index cannot be read or written.
    """
    if not os.path.lexists(index_path(path)):
        return
    with path.open("rb") as file, closing(_connect(index_path(path))) as db:
        head = _read_head(db)
        if not head.refused and head.stamp == _stamp(before):
            _extend(db, path, file.fileno())


def build_index(path: Path, file: int, lock: _Lock | None) -> bool:
    """Make the index of a file.

    The file is read without the lock, which is only taken at the end, to add what was appended
    meanwhile and to put the index in its place.

    Args:
        path: The file.
        file: The descriptor of the open file.
        lock: Excludes other writers. None: the caller does that.

    Returns:
        Whether there is an index: a file without entries has none.

    Raises:
        NotIndexableError: The file cannot have an index, or the index cannot be written.
    """
    if (start := _find_start(file, 0)) is None:
        _refuse("it has archives, or an older version")
    target = index_path(path)
    status = os.fstat(file)
    beside: Path | None = None
    try:
        beside, descriptor = create_beside(target, mode=stat.S_IMODE(status.st_mode) & 0o666)
        os.close(descriptor)
        with closing(_connect(beside, is_new=True)) as db:
            db.execute(
                "INSERT INTO head VALUES (?, '', ?, 1, ?, 0)",
                (FORMAT, start, _checksum(file, 0, start)),
            )
            try:
                _extend(db, path, file)
            except NotIndexableError:
                db.close()
                _replace(beside, path)
                raise
            if db.execute("SELECT max(number) FROM entries").fetchone()[0] is None:
                return False
            with lock(LOCK_SECONDS) if lock else nullcontext():
                _extend(db, path, file)
                db.close()
                _replace(beside, path)
                remove_leftovers(target)
    except (TranscriptError, *_DAMAGE, OSError) as error:
        if beside is not None and not beside.exists() and target.exists():
            return True  # another process made the index, and deleted this one as a leftover
        why = error.strerror if isinstance(error, OSError) else error
        _refuse(f"its index cannot be written: {why}", error)
    finally:
        if beside is not None:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
    return True


def _replace(beside: Path, path: Path) -> None:
    beside.stat()  # raises FileNotFoundError before the index of another process is deleted
    discard_index(path)  # also what a crash left of a transaction, which belongs to the old index
    beside.replace(index_path(path))


def _extend(db: sqlite3.Connection, path: Path, file: int) -> None:
    """Add the entries of the file after what the index covers. Other writers are excluded, or do not know the index.

    Raises NotIndexableError, and records it, if the file cannot have an index.
    """
    try:
        db.execute("BEGIN IMMEDIATE")
        head = _read_head(db)
        last = db.execute("SELECT id FROM entries WHERE number = ?", (head.newest,)).fetchone()
        last_id = last[0] if last else b""
        start = _position(file, head, last_id)
        reader = TranscriptReader(path, start=start)
        problems: list[tuple[int, str, bool]] = []
        db.executemany(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)",
            _make_rows(db, reader, head, last_id, problems),
        )
        end = reader.position or start
        _expect(reader.position and not reader.from_beginning, "the file was replaced")
        db.executemany("INSERT INTO problems VALUES (?, ?, ?)", problems)
        db.execute(
            "UPDATE head SET stamp = ?, end = ?, lines = ?, checksum = ?",
            (
                _stamp(os.fstat(file)),
                end.end,
                end.line_count,
                _checksum(file, head.end, end.end, head.checksum),
            ),
        )
        if db.execute("SELECT count(*) FROM problems").fetchone()[0] > MAX_PROBLEMS:
            _refuse("too much of it is damaged")
        db.execute("COMMIT")
    except BaseException as error:
        db.rollback()
        why = (
            "two entries have one id"
            if isinstance(error, sqlite3.IntegrityError)
            else str(error)
            if isinstance(error, NotIndexableError | sqlite3.DataError)
            else ""
        )
        if why:
            db.execute("UPDATE head SET refused = 1, stamp = ?", (_stamp(os.fstat(file)),))
            _refuse(why, error)
        raise


def _make_rows(
    db: sqlite3.Connection,
    reader: TranscriptReader,
    head: _Head,
    last_id: bytes,
    problems: list[tuple[int, str, bool]],
) -> Iterator[_Row]:
    """Make the rows of the entries after what an index covers, and collect the problems of the file."""
    number, end = 0 if head.newest is None else head.newest + 1, head.end
    for item in reader:
        if reader.from_beginning:
            return
        if not isinstance(item, StoredEntry):
            problems.append((item.line, item.detail, False))
            continue
        entry = item.entry
        entry_id, parent_id = _encode(entry.id), entry.parent_id
        parent = None
        if parent_id is None:
            parent = -1
        elif (not number or _encode(parent_id) != last_id) and (
            parent := _find(db, _encode(parent_id), number)
        ) is None:
            problem = describe_misplaced(
                entry.id, entry.parent_id, last_id.decode("utf-8", "surrogatepass")
            )
            problems.append((item.line, problem, True))
            parent = None if number else -1
        if item.offset - end > READ_BYTES:
            _refuse("too much of it is damaged")
        yield _Row(number, entry_id, item.offset, item.size, _encode(_kind(entry)), parent)
        number, end, last_id = number + 1, item.offset + item.size, entry_id


def _connect(path: Path, *, is_new: bool = False) -> sqlite3.Connection:
    """Open the file of an index.

    Raises IndexDamagedError if there is none, or something else, or another user's file.
    """
    try:
        status = path.lstat()
    except OSError as error:
        raise IndexDamagedError(str(error)) from error
    _expect(
        stat.S_ISREG(status.st_mode) and (is_new or _is_trusted(path, status)),
        "it is not a file of this user",
    )
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        timeout=0.0 if is_new else BUSY_SECONDS,  # no one else has a new file
        uri=True,
        check_same_thread=False,
        isolation_level=None,
    )
    try:
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        # The index can be made again, so it need not be synced to the disk.
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA trusted_schema = OFF")
        if is_new:
            db.execute("PRAGMA journal_mode = MEMORY")
            db.execute("PRAGMA cache_size = -16384")  # KiB
            for table in TABLES:
                db.execute(table)
        tables = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL LIMIT ?"
        _expect(
            tuple(sql for (sql,) in db.execute(tables, (len(TABLES) + 1,))) == TABLES,
            "it is not an index",
        )
        _expect(
            is_new or db.execute("PRAGMA journal_mode = DELETE").fetchone()[0] == "delete",
            "its journal is another one",
        )
    except BaseException:
        db.close()
        raise
    return db


def _is_trusted(path: Path, status: os.stat_result) -> bool:
    """Return whether an index belongs to this user, or to one who may change or replace the transcript anyway."""
    if os.name != "posix" or status.st_uid == os.geteuid():
        return True
    transcript = path.with_name(path.name.removeprefix(".").removesuffix(".index"))
    with suppress(OSError):
        return status.st_uid in (path.parent.stat().st_uid, transcript.stat().st_uid)
    return False


def _read_head(db: sqlite3.Connection) -> _Head:
    found = db.execute("SELECT *, (SELECT max(number) FROM entries) FROM head").fetchmany(2)
    _expect(len(found) == 1 and found[0][0] == FORMAT, "its head is not readable")
    return _Head._make(found[0])


def _position(file: int, head: _Head, last_id: bytes) -> ReadPosition:
    """Return where the file goes on after what the index covers."""
    status = os.fstat(file)
    return ReadPosition(
        identity=(status.st_dev, status.st_ino),
        header=Header(),
        end=head.end,
        line_count=head.lines,
        ends_with_newline=_pread(file, 1, head.end - 1) == b"\n",
        last_id=last_id.decode("utf-8", "surrogatepass"),
    )


def _find(db: sqlite3.Connection, entry_id: bytes, count: int) -> int | None:
    """Return the number of the entry with an id, if it is below `count`."""
    found: tuple[int] | None = db.execute(
        "SELECT number FROM entries WHERE id = ? AND number < ?", (entry_id, count)
    ).fetchone()
    return found and found[0]


def _find_start(file: int, least: int) -> int | None:
    """Return the offset of the first line after the header, in bytes; None for a file that has no index."""
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_size < least:
        return None
    line, found, _ = _pread(file, 1 << 16, 0).partition(b"\n")
    try:
        header = header_from_line(line, "")
    except TranscriptFormatError:
        return None
    return len(line) + 1 if found and header.version == VERSION and not header.archives else None


def _stamp(status: os.stat_result) -> str:
    """Return what changes when any program writes to a file: device, inode, size, and the times of the last changes."""
    return f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _checksum(file: int, start: int, end: int, before: int = 0) -> int:
    """Return the CRC-32 of a part of a file, which continues that of the part before it."""
    while start < end and (data := os.pread(file, min(end - start, READ_BYTES), start)):
        before = zlib.crc32(data, before)
        start += len(data)
    return before


def _pread(file: int, size: int, offset: int) -> bytes:
    """Read bytes of a file at an offset; fewer at its end."""
    pieces: list[bytes] = []
    while size > 0 and (data := os.pread(file, size, offset)):
        pieces.append(data)
        size, offset = size - len(data), offset + len(data)
    return b"".join(pieces)


def _entry_from_line(line: bytes) -> Entry:
    if not isinstance(parsed := line_from_bytes(line), EntryLine):
        raise IndexDamagedError("a row is not that of an entry")
    return parsed.entry


def _kind(entry: Entry) -> str:
    return entry.payload.kind if isinstance(entry.payload, UnknownEntry) else entry.kind


def _encode(entry_id: str) -> bytes:
    return entry_id.encode("utf-8", "surrogatepass")


def _expect(fact: object, otherwise: str) -> None:
    """Raise IndexDamagedError, with what is wrong, unless something holds that an undamaged index guarantees."""
    if not fact:
        raise IndexDamagedError(otherwise)


def _refuse(why: str, cause: BaseException | None = None) -> NoReturn:
    raise NotIndexableError(why) from cause
