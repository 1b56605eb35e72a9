"""Going through a transcript's file, one line at a time: entries as they come, and what is wrong where.

A batch counts when all of it is there. What a crash leaves at the end of a file (a line without an end, a batch without its last
lines) is of a write that nobody was told had succeeded, and is dropped. Damage elsewhere costs the lines that it touches and no other.
"""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from typing import TYPE_CHECKING

import attrs

from promptkit.errors import TranscriptError, TranscriptFormatError
from promptkit.transcript.jsonl.format import (
    MIGRATIONS,
    VERSION,
    Header,
    Line,
    header_from_line,
    header_line,
    line_from_bytes,
    migrated,
    object_from_bytes,
    require_readable,
)
from promptkit.transcript.jsonl.records import entry_from_json
from promptkit.transcript.store import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from promptkit.transcript.entries import Entry
    from promptkit.transcript.jsonl.format import Migrations, Record, Segment

__all__ = ["FilePass", "Scanner", "Seen", "Stored"]

LONGEST_HEADER = 1 << 24
"""Bytes. What has no line break for longer than this is no transcript, and is not read into memory to find out."""


@attrs.frozen(kw_only=True)
class Stored:
    """An entry, and where it stands."""

    entry: Entry
    line: int
    """From 1, in the file or in the archive that holds it."""
    archive: str | None = None


@attrs.frozen(kw_only=True)
class Seen:
    """How far a file has been read: the place from which to go on."""

    identity: tuple[int, int]
    """Device and inode: a file that was replaced is another one."""
    header: Header
    end: int
    """Bytes, up to the last line of the last whole batch."""
    lines: int
    """Line breaks among them."""
    closed: bool = True
    """Whether the last of them is a line break."""
    last: str = ""
    """The id of the last entry; empty where there is none."""


@attrs.define
class _Batch:
    size: int
    seen: int
    line: int
    damaged: bool = False
    items: list[Stored | Problem] = attrs.field(factory=list["Stored | Problem"])


class Scanner:
    """Makes entries of lines. `end`, `lines`, `closed` and `last` are as in `Seen`; `read` is the end of all that was looked at, in bytes.

    When an entry is given, `end` is that of its batch.
    """

    def __init__(self, *, end: int = 0, lines: int = 0, closed: bool = True, last: str = "") -> None:
        self.end = end
        self.read = end
        self.lines = lines
        self.closed = closed
        self.last = last

    def scan(self, pieces: Iterable[bytes]) -> Iterator[Stored | Problem]:
        """The entries of these lines, and problems in between; each piece ends with a line feed, but for the last one perhaps."""
        lines, batch = self.lines, None
        for piece in pieces:
            before = self.read, lines
            self.read += len(piece)
            closed = piece.endswith(b"\n")
            found = line_from_bytes(piece)
            if isinstance(found, str) and not closed:
                break
            lines += closed
            number = lines if closed else lines + 1
            if isinstance(found, Line):
                if batch and (batch.size, batch.seen + 1) != (found.size, found.place):
                    self.end, self.lines = before
                    yield from self._broken(batch)
                    batch = None
                batch = batch or _Batch(found.size, found.place - 1, number, damaged=found.place > 1)
                batch.items.append(Stored(entry=found.entry, line=number))
                batch.seen = found.place
            elif isinstance(found, str):
                batch = batch or _Batch(1, 0, number)
                batch.items.append(Problem(line=number, detail=found))
                batch.seen += 1
                batch.damaged = True
            if not batch or batch.damaged or batch.seen >= batch.size:
                self.end, self.lines, self.closed = self.read, lines, closed
            if batch and batch.seen >= batch.size:
                yield from self._whole(batch)
                batch = None
        if batch and batch.damaged:
            # A crash leaves no line that has an end and cannot be read: this was whole once.
            yield from self._broken(batch)

    def _whole(self, batch: _Batch) -> Iterator[Stored | Problem]:
        for item in batch.items:
            if isinstance(item, Stored):
                self.last = item.entry.id
            yield item

    def _broken(self, batch: _Batch) -> Iterator[Stored | Problem]:
        yield from self._whole(batch)
        yield Problem(line=batch.line, detail=f"of a batch of {batch.size:,} entries that begins here some are missing.")


class FilePass:
    """One pass through a file and the archives that it points at. Iterate; then `seen`, `torn` and `partial` are known.

    A file that does not exist is an empty transcript, and `seen` stays None. Raises TranscriptFormatError for a file that is no
    transcript, TranscriptError for one that cannot be read.
    """

    def __init__(self, path: Path, *, start: Seen | None = None, archives: bool = True, migrations: Migrations = MIGRATIONS) -> None:
        self._path = path
        self._start = start
        self._archives = archives
        self._migrations = migrations
        self.seen: Seen | None = None
        self.header = Header()
        self.body = 0
        """Where the first line behind the header begins, in bytes."""
        self.scanner = Scanner()
        self.torn = 0
        """Bytes at the end that are of a write that was cut short."""
        self.partial = False
        """Whether there are archives that were not read, or not in full."""
        self.whole = False
        """Whether the pass began at the beginning."""
        self.disturbed = False
        """Whether somebody wrote to the file meanwhile, so that what was read of its end may be half old and half new."""

    def __iter__(self) -> Iterator[Stored | Problem]:
        try:
            if not stat.S_ISREG(self._path.stat().st_mode):
                problem = "no regular file."
                raise TranscriptFormatError(problem, file=str(self._path))
            with self._path.open("rb") as file:
                yield from self._from(file)
        except FileNotFoundError:
            return
        except OSError as error:
            problem = f"{self._path} cannot be read: {error.strerror}."
            raise TranscriptError(problem) from error

    def _from(self, file: BinaryIO) -> Iterator[Stored | Problem]:
        status = os.fstat(file.fileno())
        identity = (status.st_dev, status.st_ino)
        start = self._start
        if start is not None and start.identity == identity and start.end <= status.st_size:
            self.partial = not self._archives and bool(start.header.segments)
            file.seek(start.end)
        else:
            self.whole = True
            first = file.readline(LONGEST_HEADER)
            if header_line(Header()).startswith(first):
                # Nothing, or the header of a file that was being made when its writer died.
                whole = first.endswith(b"\n")
                start = Seen(identity=identity, header=Header(), end=len(first) if whole else 0, lines=int(whole))
                self.torn = 0 if whole else len(first)
            else:
                header = header_from_line(first, str(self._path))
                require_readable(header.version, self._migrations, str(self._path))
                last = header.segments[-1].last if header.segments else ""
                closed = first.endswith(b"\n")
                start = Seen(identity=identity, header=header, end=len(first), lines=int(closed), closed=closed, last=last)
            self.header, self.body = start.header, start.end
            yield from self._older(start.header.segments)
        self.scanner = scanner = Scanner(end=start.end, lines=start.lines, closed=start.closed, last=start.last)
        yield from self._entries(file, start.header, scanner)
        self.torn += scanner.read - scanner.end
        now = os.fstat(file.fileno())
        self.disturbed = (now.st_size, now.st_mtime_ns) != (status.st_size, status.st_mtime_ns)
        self.seen = attrs.evolve(start, end=scanner.end, lines=scanner.lines, closed=scanner.closed, last=scanner.last)

    def _entries(self, file: Iterable[bytes], header: Header, scanner: Scanner) -> Iterator[Stored | Problem]:
        return scanner.scan(file) if header.version == VERSION else self._migrated(file, header.version, scanner)

    def _migrated(self, file: Iterable[bytes], version: int, scanner: Scanner) -> Iterator[Stored | Problem]:
        problems: list[Problem] = []

        def records() -> Iterator[Record]:
            for piece in file:
                found = object_from_bytes(piece)
                scanner.read += len(piece)
                if isinstance(found, str) and not piece.endswith(b"\n"):
                    break
                scanner.end, scanner.lines = scanner.read, scanner.lines + 1
                if isinstance(found, dict):
                    yield found
                elif piece.strip():
                    problems.append(Problem(line=scanner.lines, detail=found))

        for record in migrated(records(), version, self._migrations):
            try:
                entry = entry_from_json(record)
            except TranscriptError as error:
                problems.append(Problem(line=scanner.lines, detail=str(error)))
                continue
            scanner.last = entry.id
            yield Stored(entry=entry, line=scanner.lines)
        yield from problems

    def _older(self, segments: tuple[Segment, ...]) -> Iterator[Stored | Problem]:
        for segment in segments:
            if not self._archives:
                self.partial = True
                continue
            try:
                yield from self._segment(segment)
            except FileNotFoundError:
                self.partial = True
                yield Problem(line=1, detail=f"the archive {segment.file} is not there, and its entries ({segment.entries:,}) are missing.")
            except (OSError, EOFError, zlib.error, TranscriptFormatError) as error:
                self.partial = True
                yield Problem(line=1, detail=f"the archive {segment.file} is damaged, and entries of it are missing: {error}")

    def _segment(self, segment: Segment) -> Iterator[Stored | Problem]:
        place = self._path.with_name(segment.file)
        with gzip.open(place, "rb") as file:
            first = file.readline()
            header = header_from_line(first, str(place))
            require_readable(header.version, self._migrations, str(place))
            for item in self._entries(file, header, Scanner(end=len(first), lines=1)):
                if isinstance(item, Stored):
                    yield attrs.evolve(item, archive=segment.file)
                else:
                    yield attrs.evolve(item, detail=f"in {segment.file}: {item.detail}")
