"""A recording that is open for reading, compressed or not, and how far it has been read."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from promptkit.errors import TranscriptError, TranscriptFormatError
from promptkit.files import MAX_LINE_BYTES, read_gzip
from promptkit.lab.recordings.reading.json_values import split_objects

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def open_source(path: Path, *, address: str | None = None) -> Generator[RecordingSource]:
    """Open a recording.

    Raises TranscriptError, with a message of one line, if it cannot be opened or read.

    `address` is how errors name the file; by default its path.
    """
    try:
        if path.is_dir():
            raise TranscriptError(f"{path} is a directory: name a file in it.")
        with path.open("rb") as raw:
            name = path.name.removesuffix(".gz")
            yield RecordingSource(
                raw, path=address or str(path), name=name, size=path.stat().st_size
            )
    except FileNotFoundError as error:
        raise TranscriptError(f"there is no file {path}.") from error
    except OSError as error:
        raise TranscriptError(f"{path} cannot be read: {error.strerror or error}.") from error


class RecordingSource:
    """A recording.

    `name` is the file's name without the suffix of compression; `size` is its size on the disk, in
    bytes.
    """

    def __init__(self, raw: BinaryIO, *, path: str, name: str, size: int) -> None:
        self._raw = raw
        self.path = path
        self.name = name
        self.size = size
        self.has_long_number: bool | None = None
        """Whether the file contains more digits in a row than Python converts to a number; None if
        it was not searched yet."""

    @property
    def position(self) -> int:
        """How many of its bytes on the disk have been read, for showing progress."""
        return self._raw.tell()

    def open(self) -> Readable:
        """Return the uncompressed content from the beginning, without a byte order mark."""
        file = self._content()
        return file if file.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK else self._content()

    def _content(self) -> Readable:
        compressed = self.is_compressed
        self._raw.seek(0)
        return _GzipReader(self._raw, self.path) if compressed else self._raw

    @property
    def is_compressed(self) -> bool:
        """Whether the file is compressed with gzip."""
        self._raw.seek(0)
        return self._raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that are not blank, numbered from 1.

        Only a line feed ends a line; texts may contain other line breaks. Several JSON objects on one
        line, as two programs write at once, are yielded one by one with the number of the line.
        """
        file = self.open()
        number = 0
        while line := file.readline(MAX_LINE_BYTES):
            number += 1
            if line.strip():
                for part in split_objects(line):
                    yield number, part


class Readable(Protocol):
    """The content of a recording.

    Its methods raise TranscriptFormatError if compressed data is damaged or cut short.
    """

    def read(self, size: int = -1, /) -> bytes:
        """Return some bytes; none at the end."""
        ...

    def readline(self, size: int = -1, /) -> bytes:
        """Return a line with its end, or `size` bytes of it; none at the end."""
        ...


class _GzipReader:
    """The content of a compressed file."""

    def __init__(self, raw: BinaryIO, path: str) -> None:
        self._file = read_gzip(raw)
        self._path = path

    def read(self, size: int = -1, /) -> bytes:
        with self._translate_errors():
            return self._file.read(size)

    def readline(self, size: int = -1, /) -> bytes:
        with self._translate_errors():
            return self._file.readline(size)

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        try:
            yield
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise TranscriptFormatError(
                f"the compressed data is damaged or cut short: {error}", file=self._path
            ) from error
