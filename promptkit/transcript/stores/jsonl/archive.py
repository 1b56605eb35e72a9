"""Archiving: moving old entries of a transcript into compressed files next to it, so that the transcript's own file stays short.

An archive is a compressed transcript file: a header and the lines, byte for byte as they were. The
transcript's file names its archives in its header. A reader reads them together with the file
unless `read_archives` is off.
"""

from __future__ import annotations

import gzip
import itertools
import stat
import zlib
from typing import TYPE_CHECKING

import attrs

from promptkit.errors import TranscriptError, TranscriptWriteError
from promptkit.files import open_gzip, replace_file
from promptkit.transcript.stores.jsonl.format import (
    ARCHIVE_SUFFIX,
    VERSION,
    Header,
    TranscriptArchive,
    encode_header,
)
from promptkit.transcript.stores.jsonl.reader import StoredEntry, TranscriptReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

CHUNK_BYTES = 1 << 20
"""Bytes that are copied at once."""


def move_entries(path: Path, through: str) -> TranscriptArchive:
    """Move the entries of a file up to one, with the rest of its batch, into an archive, and return that.

    The caller holds the lock.

    Raises TranscriptError if there is no such entry or none after it, TranscriptWriteError if the
    archive or the file cannot be written.
    """
    found = _find_entries(path, through)
    if isinstance(found, TranscriptArchive):
        return found
    try:
        return _move_range(path, found)
    except (OSError, EOFError) as error:
        problem = f"nothing was archived: {getattr(error, 'strerror', None) or error}."
        raise TranscriptWriteError(problem, file=str(path)) from error


@attrs.frozen
class _Range:
    """The entries to move: the bytes of a file from `start` to `end`."""

    header: Header
    start: int
    end: int
    entries: int
    first: str
    last: str


def _find_entries(path: Path, through: str) -> _Range | TranscriptArchive:
    """Return the part of the file up to an entry, or the archive that already holds it."""
    reader = TranscriptReader(path)
    ids: list[str] = []
    end = 0
    for item in reader:
        if not isinstance(item, StoredEntry):
            continue
        if item.archive is not None:
            if item.entry.id == through:
                return next(
                    archive for archive in reader.header.archives if archive.file == item.archive
                )
            continue
        if end and reader.scanner.end > end:
            if reader.header.version != VERSION:
                problem = f"{path} has version {reader.header.version} of the format: append an entry first, which rewrites the file."
                raise TranscriptError(problem)
            return _Range(reader.header, reader.body_start, end, len(ids), ids[0], ids[-1])
        ids.append(item.entry.id)
        if item.entry.id == through:
            end = reader.scanner.end
    why = (
        f"no entry follows {through!r}: archive up to an earlier entry."
        if end
        else f"there is no entry {through!r}."
    )
    problem = f"{path}: {why}"
    raise TranscriptError(problem)


def _move_range(path: Path, entries: _Range) -> TranscriptArchive:
    """Write the archive, then the file without the entries in it."""
    archive_path = _archive_path(path, entries)
    mode = stat.S_IMODE(path.stat().st_mode)
    if not archive_path.exists():
        replace_file(
            archive_path, lambda file: _write_archive(path, entries, file), mode=mode, locked=True
        )
    if not _archive_holds(archive_path, path, entries):
        problem = f"{archive_path.name} does not contain what was written to it"
        raise OSError(problem)
    archive = TranscriptArchive(
        file=archive_path.name, entries=entries.entries, first=entries.first, last=entries.last
    )

    def write_rest(file: BinaryIO) -> None:
        file.write(encode_header(Header(archives=(*entries.header.archives, archive))))
        file.writelines(_read_chunks(path, entries.end, None))

    replace_file(path, write_rest, mode=mode, locked=True)
    return archive


def _archive_path(path: Path, entries: _Range) -> Path:
    """Return an unused path for the archive, or that of an identical archive, which a crash left."""
    for number in itertools.count(len(entries.header.archives) + 1):
        archive_path = path.with_name(
            f"{path.name.removesuffix('.jsonl')}.{number:04}{ARCHIVE_SUFFIX}"
        )
        if not archive_path.exists() or _archive_holds(archive_path, path, entries):
            return archive_path
    raise AssertionError  # itertools.count does not end


def _write_archive(path: Path, entries: _Range, file: BinaryIO) -> None:
    # Without a name and a time, the same entries always give the same bytes.
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as compressed:
        for chunk in _archive_content(path, entries):
            compressed.write(chunk)


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
