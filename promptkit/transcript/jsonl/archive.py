"""Archives: old entries of a transcript, moved into compressed files beside it so that its own file stays short.

An archive is a transcript's file like any other, compressed: a header, and the lines byte for byte as they were. The transcript's file
names its archives in its header, and is read together with them unless a store is told not to.
"""

from __future__ import annotations

import gzip
import itertools
import stat
import zlib
from typing import TYPE_CHECKING

import attrs

from promptkit.errors import TranscriptError, TranscriptWriteError
from promptkit.transcript.jsonl.format import SUFFIX, VERSION, Header, Segment, header_line
from promptkit.transcript.jsonl.reader import FilePass, Stored
from promptkit.transcript.jsonl.store import replace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from promptkit.transcript.jsonl.store import JsonlStore

__all__ = ["archive"]

PIECE = 1 << 20
"""Bytes that are copied at once."""


@attrs.frozen
class _Cut:
    """What is to be moved: the bytes of a file from `start` to `end`."""

    header: Header
    start: int
    end: int
    entries: int
    first: str
    last: str


def archive(store: JsonlStore, *, through: str) -> Segment:
    """Move the entries up to one, with the rest of its batch, out of the transcript's file into an archive; the archive is returned.

    First the archive is written, made safe and read back, then the file is replaced by one that names it: a crash in between leaves
    the file as it was, and the next attempt uses what is there. Entries that are in an archive already stay there: asking twice
    changes nothing. Raises TranscriptError for an entry that is not there, or behind which nothing would be left in the file, and
    TranscriptWriteError.
    """
    with store.locked():
        found = _find(store.path, through)
        if isinstance(found, Segment):
            return found
        try:
            segment = _move(store.path, found)
        except (OSError, EOFError) as error:
            problem = f"nothing was archived: {getattr(error, 'strerror', None) or error}."
            raise TranscriptWriteError(problem, file=str(store.path)) from error
        store.catch_up()
        return segment


def _find(path: Path, through: str) -> _Cut | Segment:
    """The archive that holds an entry, or the part of the file up to it."""
    going = FilePass(path)
    ids: list[str] = []
    end = 0
    for item in going:
        if not isinstance(item, Stored):
            continue
        if item.archive is not None:
            if item.entry.id == through:
                return next(segment for segment in going.header.segments if segment.file == item.archive)
            continue
        if end and going.scanner.end > end:
            if going.header.version != VERSION:
                problem = f"{path} has version {going.header.version} of the format: append something first, which rewrites it."
                raise TranscriptError(problem)
            return _Cut(going.header, going.body, end, len(ids), ids[0], ids[-1])
        ids.append(item.entry.id)
        if item.entry.id == through:
            end = going.scanner.end
    why = f"nothing stands behind {through!r}: archive up to an earlier entry." if end else f"there is no entry {through!r}."
    problem = f"{path}: {why}"
    raise TranscriptError(problem)


def _move(path: Path, cut: _Cut) -> Segment:
    """Write the archive, then the file without what is in it."""
    place = _place(path, cut)
    mode = stat.S_IMODE(path.stat().st_mode)
    if not place.exists():
        replace(place, lambda file: _compress(path, cut, file), mode=mode)
    if not _holds(place, path, cut):
        problem = f"{place.name} does not hold what was written to it"
        raise OSError(problem)
    segment = Segment(file=place.name, entries=cut.entries, first=cut.first, last=cut.last)

    def rest(file: BinaryIO) -> None:
        file.write(header_line(Header(segments=(*cut.header.segments, segment))))
        file.writelines(_pieces(path, cut.end, None))

    replace(path, rest, mode=mode)
    return segment


def _place(path: Path, cut: _Cut) -> Path:
    """A name for the archive that nothing has, or that of one just like it, which a crash has left."""
    for number in itertools.count(len(cut.header.segments) + 1):
        place = path.with_name(f"{path.name.removesuffix('.jsonl')}.{number:04}{SUFFIX}")
        if not place.exists() or _holds(place, path, cut):
            return place
    raise AssertionError  # numbers do not end


def _compress(path: Path, cut: _Cut, file: BinaryIO) -> None:
    # Without a name and a time, the same entries always give the same bytes.
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
        for piece in _content(path, cut):
            packed.write(piece)


def _holds(place: Path, path: Path, cut: _Cut) -> bool:
    """Whether an archive holds just what is to be moved."""
    try:
        with gzip.open(place, "rb") as file:
            return all(file.read(len(piece)) == piece for piece in _content(path, cut)) and not file.read(1)
    except (OSError, EOFError, zlib.error):
        return False


def _content(path: Path, cut: _Cut) -> Iterator[bytes]:
    yield header_line(Header())
    yield from _pieces(path, cut.start, cut.end)


def _pieces(path: Path, start: int, end: int | None) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(start)
        while piece := file.read(PIECE if end is None else min(PIECE, end - file.tell())):
            yield piece
