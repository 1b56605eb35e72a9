"""A recording that is open for reading: its bytes as they come, compressed or not, and how far they have been read."""

from __future__ import annotations

import gzip
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from promptkit.errors import TranscriptError, TranscriptFormatError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path
    from typing import BinaryIO

__all__ = ["Readable", "RecordingSource", "open_source"]

LONGEST_LINE = 1 << 28
"""Bytes. A line that is longer is cut there: it is no record of any agent, and memory has an end."""

BOM = b"\xef\xbb\xbf"
GZIP = b"\x1f\x8b"


class Readable(Protocol):
    """What is read of a recording. Raises TranscriptFormatError where compressed data is damaged or cut short."""

    def read(self, size: int = -1, /) -> bytes:
        """Some bytes; none at the end."""
        ...

    def readline(self, size: int = -1, /) -> bytes:
        """A line with its end, or as much of it as `size` bytes; none at the end."""
        ...


class _Unpacked:
    """The content of a compressed file."""

    def __init__(self, raw: BinaryIO, path: str) -> None:
        self._file = gzip.GzipFile(fileobj=raw, mode="rb")
        self._path = path

    def read(self, size: int = -1, /) -> bytes:
        with self._told():
            return self._file.read(size)

    def readline(self, size: int = -1, /) -> bytes:
        with self._told():
            return self._file.readline(size)

    @contextmanager
    def _told(self) -> Generator[None]:
        try:
            yield
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            problem = f"the compressed data is damaged or cut short: {error}"
            raise TranscriptFormatError(problem, file=self._path) from error


class RecordingSource:
    """A recording. `name` is the name of its file without what says that it is compressed; `size` are its bytes on the disk."""

    def __init__(self, raw: BinaryIO, *, path: str, name: str, size: int) -> None:
        self._raw = raw
        self.path = path
        self.name = name
        self.size = size
        self.is_plain: bool | None = None
        """Whether no number in it is too long for a parser; None while nobody has looked."""

    @property
    def position(self) -> int:
        """How many of its bytes on the disk have been read, for showing progress."""
        return self._raw.tell()

    def open(self) -> Readable:
        """Its content from the beginning, without a byte order mark."""
        file = self._content()
        return file if file.read(len(BOM)) == BOM else self._content()

    def _content(self) -> Readable:
        compressed = self.is_compressed
        self._raw.seek(0)
        return _Unpacked(self._raw, self.path) if compressed else self._raw

    @property
    def is_compressed(self) -> bool:
        """Whether it is packed with gzip."""
        self._raw.seek(0)
        return self._raw.read(len(GZIP)) == GZIP

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Its lines that are not blank, numbered from 1. They end at a line feed only: texts may hold other line breaks."""
        file = self.open()
        number = 0
        while line := file.readline(LONGEST_LINE):
            number += 1
            if line.strip():
                yield number, line


@contextmanager
def open_source(path: Path) -> Generator[RecordingSource]:
    """Open a recording. Raises TranscriptError, in one line, for what cannot be read, also while it is being read."""
    try:
        if path.is_dir():
            problem = f"{path} is a folder: name a file in it."
            raise TranscriptError(problem)
        with path.open("rb") as raw:
            name = path.name.removesuffix(".gz")
            yield RecordingSource(raw, path=str(path), name=name, size=path.stat().st_size)
    except FileNotFoundError as error:
        problem = f"there is no file {path}."
        raise TranscriptError(problem) from error
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror or error}."
        raise TranscriptError(problem) from error
