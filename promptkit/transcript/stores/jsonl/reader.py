"""Read a transcript's file line by line: its entries, and the problems of lines and of entries.

A batch counts only if all of its lines are there. If the file ends inside a line or a batch, a crash
cut a write short: `append` never returned for that batch, so it is dropped. Damage elsewhere affects
the damaged lines only. Problems of entries are found in one pass that keeps only ids in memory.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import attrs

from promptkit.errors import TranscriptError, TranscriptFormatError
from promptkit.files import open_gzip, read_lines
from promptkit.transcript.log.entries import BranchSummary, Checkpoint, Edit, Entry, Label
from promptkit.transcript.log.transcript import EntryTree
from promptkit.transcript.stores.jsonl.format import (
    EntryLine,
    Header,
    Migration,
    TranscriptArchive,
    check_version,
    encode_header,
    header_from_line,
    line_from_bytes,
    start_migration,
)
from promptkit.transcript.stores.store import ReadProblem

MAX_HEADER_BYTES = 1 << 24
"""The longest first line of a transcript, in bytes. A longer line is not read into memory."""


class TranscriptReader:
    """Read a transcript's file and its archives once, by iteration.

    The attributes are set when the iteration has ended.

    A file that does not exist is an empty transcript. Iteration raises TranscriptFormatError for a
    file that is not a transcript, and TranscriptError for a file that cannot be read.

    Args:
        path: The file.
        start: Where to continue reading. None, or a position in a file that has been replaced
            since: read from the beginning.
        read_archives: Whether to read the archives that the header names.
    """

    def __init__(
        self,
        path: Path,
        *,
        start: ReadPosition | None = None,
        read_archives: bool = True,
    ) -> None:
        self._path = path
        self._start = start
        self._read_archives = read_archives
        self.position: ReadPosition | None = None
        """Position after the last complete batch; None if the file does not exist, and while
        archives are read."""
        self.header = Header()
        """The header of the file."""
        self.body_start = 0
        """Offset of the first line after the header, in bytes."""
        self.torn_bytes = 0
        """Bytes at the end of the file from a write that was cut short."""
        self.partial = False
        """Whether an archive was not read, or not completely."""
        self.from_beginning = False
        """Whether the file was read from the beginning."""
        self.changed_while_reading = False
        """Whether the file changed during the iteration, so that old and new content may be
        mixed at its end."""

    def __iter__(self) -> Iterator[StoredEntry | ReadProblem]:
        try:
            if not stat.S_ISREG(self._path.stat().st_mode):
                raise TranscriptFormatError("this is not a regular file.", file=str(self._path))
            with self._path.open("rb") as file:
                yield from self._read_file(file)
        except FileNotFoundError:
            return
        except OSError as error:
            raise TranscriptError(f"{self._path} cannot be read: {error.strerror}.") from error

    def _read_file(self, file: BinaryIO) -> Iterator[StoredEntry | ReadProblem]:
        status = os.fstat(file.fileno())
        identity = (status.st_dev, status.st_ino)
        start = self._start
        if start is not None and start.identity == identity and start.end <= status.st_size:
            self.partial = not self._read_archives and bool(start.header.archives)
            file.seek(start.end)
        else:
            self.from_beginning = True
            start = self._read_header(file.readline(MAX_HEADER_BYTES), identity)
            self.header, self.body_start = start.header, start.end
            yield from self._read_all_archives(start.header.archives)
        self.position = position = attrs.evolve(start)
        yield from scan_lines(file, position, start_migration(start.header.version))
        self.torn_bytes = file.tell() - position.end
        now = os.fstat(file.fileno())
        self.changed_while_reading = (now.st_size, now.st_mtime_ns) != (
            status.st_size,
            status.st_mtime_ns,
        )

    def _read_header(self, line: bytes, identity: tuple[int, int]) -> ReadPosition:
        """Return the position after the first line of the file."""
        is_complete = line.endswith(b"\n")
        if encode_header(Header()).startswith(line):
            # The file is empty, or its writer was killed while it wrote the header.
            return ReadPosition(
                identity=identity,
                header=Header(),
                end=len(line) if is_complete else 0,
                line_count=int(is_complete),
            )
        header = header_from_line(line, str(self._path))
        check_version(header.version, str(self._path))
        return ReadPosition(
            identity=identity,
            header=header,
            end=len(line),
            line_count=int(is_complete),
            ends_with_newline=is_complete,
            last_id=header.archives[-1].last if header.archives else "",
        )

    def _read_all_archives(
        self, archives: tuple[TranscriptArchive, ...]
    ) -> Iterator[StoredEntry | ReadProblem]:
        for archive in archives:
            if not self._read_archives:
                self.partial = True
                continue
            path = self._path.with_name(archive.file)
            try:
                with open_gzip(path) as file:
                    for item in scan_archive(read_lines(file), str(path)):
                        yield (
                            attrs.evolve(item, archive=archive.file)
                            if isinstance(item, StoredEntry)
                            else attrs.evolve(item, detail=f"in {archive.file}: {item.detail}")
                        )
            except (OSError, EOFError, zlib.error, TranscriptFormatError) as error:
                self.partial = True
                yield ReadProblem(
                    line=1,
                    detail=f"the archive {archive.file} does not exist; missing entries: {archive.entries:,}."
                    if isinstance(error, FileNotFoundError)
                    else f"the archive {archive.file} is damaged, and entries of it are missing: {error}",
                )


@attrs.frozen(kw_only=True)
class StoredEntry:
    """An entry and its place in a file."""

    entry: Entry
    """The entry."""
    line: int
    """The number of its line, counted from 1, in the transcript's file or in the archive."""
    archive: str | None = None
    """The name of the archive that contains the entry; None for the transcript's own file."""
    offset: int = 0
    """Offset of its line in the file, in bytes; 0 if the file has an older version."""
    size: int = 0
    """Size of its line in bytes, line break included."""


@attrs.define(kw_only=True)
class ReadPosition:
    """A position in a file at which the next reader continues. `scan_lines` moves it on."""

    identity: tuple[int, int]
    """Device and inode. A file that was replaced has another identity."""
    header: Header
    """The header of the file."""
    end: int
    """Offset after the last complete batch, in bytes."""
    line_count: int
    """Number of line breaks before `end`."""
    ends_with_newline: bool = True
    """Whether the last byte before `end` is a line break."""
    last_id: str = ""
    """The id of the last entry; empty if there is none."""


def scan_lines(
    lines: Iterable[bytes], position: ReadPosition, migrate: Migration | None = None
) -> Iterator[StoredEntry | ReadProblem]:
    """Yield the entries and the problems of the lines from a position on, in order, and move the position on.

    When an entry is yielded, the position is after its batch. Only the last line may lack a line
    break.
    """
    batch: _Batch | None = None
    offset, count = position.end, position.line_count
    for line in lines:
        before_line = offset, count
        offset += len(line)
        closed = line.endswith(b"\n")
        parsed = line_from_bytes(line, migrate)
        if isinstance(parsed, str) and not closed:
            break
        count += closed
        number = count if closed else count + 1
        if isinstance(parsed, EntryLine):
            if batch and (batch.size, batch.position + 1) != (parsed.size, parsed.position):
                position.end, position.line_count = before_line
                yield from _release(batch, position, is_complete=False)
                batch = None
            batch = batch or _Batch(
                parsed.size, parsed.position - 1, number, damaged=parsed.position > 1
            )
            batch.items.append(
                StoredEntry(entry=parsed.entry, line=number, offset=before_line[0], size=len(line))
            )
            batch.position = parsed.position
        elif isinstance(parsed, str):
            batch = batch or _Batch(1, 0, number)
            batch.items.append(ReadProblem(line=number, detail=parsed))
            batch.position += 1
            batch.damaged = True
        if not batch or batch.damaged or batch.position >= batch.size:
            position.end, position.line_count = offset, count
            position.ends_with_newline = closed
        if batch and batch.position >= batch.size:
            yield from _release(batch, position)
            batch = None
    if batch and batch.damaged:
        # A crash leaves no complete line that cannot be read, so this batch was complete once.
        yield from _release(batch, position, is_complete=False)


def _release(
    batch: _Batch, position: ReadPosition, *, is_complete: bool = True
) -> Iterator[StoredEntry | ReadProblem]:
    for item in batch.items:
        if isinstance(item, StoredEntry):
            position.last_id = item.entry.id
        yield item
    if not is_complete:
        yield ReadProblem(
            line=batch.first_line,
            detail=f"entries are missing from the batch of {batch.size:,} that begins here.",
        )


def scan_archive(lines: Iterator[bytes], name: str) -> Iterator[StoredEntry | ReadProblem]:
    """Return the entries and the problems of the lines of an unpacked file. Errors call it `name`."""
    line = next(lines, b"")
    header = header_from_line(line, name)
    check_version(header.version, name)
    return scan_lines(
        lines,
        ReadPosition(identity=(0, 0), header=header, end=len(line), line_count=1),
        start_migration(header.version),
    )


@attrs.define
class _Batch:
    """A batch whose lines are still being read."""

    size: int
    position: int
    first_line: int
    damaged: bool = False
    items: list[StoredEntry | ReadProblem] = attrs.field(factory=list["StoredEntry | ReadProblem"])


def find_problems(reader: TranscriptReader) -> Iterator[ReadProblem]:
    """Find the problems of a transcript: unreadable lines, repeated ids, and references to entries that are not before them.

    References are not checked if archives are missing or were not read. Raises what iterating over
    the reader raises.

    >>> problems = list(find_problems(TranscriptReader(Path("talk.jsonl"))))
    """
    tree = EntryTree()
    call_ids: set[str] = set()
    for item in reader:
        if isinstance(item, ReadProblem):
            yield item
            continue
        tree.partial = reader.partial
        prefix = f"in {item.archive}: " if item.archive else ""
        for detail in _check_entry(item, tree, call_ids):
            yield ReadProblem(line=item.line, detail=f"{prefix}{detail}")


def _check_entry(item: StoredEntry, tree: EntryTree, call_ids: set[str]) -> Iterator[str]:
    entry = item.entry
    if entry.id in tree:
        yield f"the id {entry.id!r} was used by an earlier entry; this entry is ignored."
        return
    match entry.payload:
        case (
            Edit(target=str() as target)
            | Label(target=str() as target)
            | BranchSummary(leaf=str() as target)
            | Checkpoint(first_kept=str() as target)
        ) if target not in tree and not tree.partial:
            yield f"the {entry.kind} refers to the entry {target!r}, which is not before it."
        case _:
            pass
    if problem := tree.add(entry.id, entry.parent_id):
        yield problem
    if (message := entry.message) is None:
        return
    call_ids.update(call.id for call in message.tool_calls)
    if message.role == "tool" and message.tool_call_id not in call_ids and not tree.partial:
        yield f"a tool result answers the call {message.tool_call_id!r}, which is not before it."
