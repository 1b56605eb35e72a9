"""A recording that is open for reading, compressed or not, and what a format is: its name, how one of its files is recognized, and how it is read batch by batch."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import attrs

from promptkit.errors import TranscriptError, TranscriptFormatError
from promptkit.files import MAX_LINE_BYTES, read_gzip
from promptkit.lab.recordings.reading.json_texts import (
    JsonObject,
    parse_object,
    split_objects,
    walk_paths,
)

if TYPE_CHECKING:
    from promptkit.transcript import Entry, ReadProblem


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
            yield RecordingSource(
                raw,
                path=address or str(path),
                name=path.name.removesuffix(".gz"),
                size=path.stat().st_size,
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


class RecordingFormat(Protocol):
    """Read the recordings of one agent."""

    @property
    def name(self) -> str:
        """The name of the format on the command line and in the names of custom entries."""
        ...

    def matches(self, head: FileHead) -> bool:
        """Return whether a file that begins like this has this format."""
        ...

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """Yield the entries of a recording in its order.

        Keeps ids and the answer that is being read, never the whole file.

        Raises TranscriptFormatError if the file stops being of this format. All batches before were
        yielded.
        """
        ...


@attrs.frozen(kw_only=True)
class Batch:
    """The entries of a part of a recording."""

    entries: tuple[Entry, ...] = ()
    """The entries, in the order in which they are written. A parent is before its children, in this
    batch or an earlier one."""
    messages: int = 0
    """Messages as the recording counts them: its own records, however many entries they became."""
    attachments: int = 0
    """What became messages without being one of the recording's."""
    conversations: int = 0
    """Conversations that begin in this batch."""
    call_id_scope: str = ""
    """The namespace of the tool call ids. Unrelated conversations have different ones."""
    skipped: tuple[ReadProblem, ...] = ()
    """Lines that could not be read. Custom entries keep their text."""
    relocated: tuple[ReadProblem, ...] = ()
    """Lines whose parent is missing, and which were therefore placed elsewhere."""


@attrs.frozen(kw_only=True)
class FileHead:
    """The beginning of a file, as far as it is needed to recognize its format."""

    name: str
    """The name of the file, without a directory."""
    records: tuple[JsonObject, ...]
    """The first lines that are JSON objects."""
    _source: RecordingSource = attrs.field(alias="source")

    @cached_property
    def json_paths(self) -> frozenset[str]:
        """Paths in the JSON text such as `messages.item.role`, some also with their value: `messages.item.role=user`.

        The members of a list are called `item`. A file that is not JSON has no paths. Finding them
        takes far longer than the lines, and most formats are recognized without them.
        """
        return frozenset(_find_paths(self._source))


MAX_RECORDS = 50
"""Lines with JSON objects that are looked at."""

MAX_RECORD_BYTES = 1 << 24
"""A longer line is not taken for a record, but for a JSON text of one line."""

MAX_STEPS = 200_000
"""Steps of the parser that are looked at: many megabytes of a recording."""

MAX_PATHS = 5_000
MAX_PATH_CHARACTERS = 120
"""Longer paths and values are ignored."""

FIELDS_WITH_VALUE = ("role", "type", "trajectory_format", "source")
"""Fields whose paths are also reported with their value."""


def read_head(source: RecordingSource) -> FileHead:
    """Read the beginning of a file. Raises nothing for a file that is not JSON."""
    return FileHead(
        name=source.name,
        records=tuple(_read_records(source)),
        source=source,
    )


def has_long_start(source: RecordingSource) -> bool:
    """Return whether the first line of a file is longer than `MAX_RECORD_BYTES`, so that it is not looked at."""
    return _is_cut(source.open().readline(MAX_RECORD_BYTES))


def _is_cut(line: bytes) -> bool:
    return len(line) == MAX_RECORD_BYTES and not line.endswith(b"\n")


def _read_records(source: RecordingSource) -> Iterator[JsonObject]:
    found = 0
    with suppress(TranscriptFormatError):  # the records before the damage may be enough
        file = source.open()
        for _ in range(4 * MAX_RECORDS):
            line = file.readline(MAX_RECORD_BYTES)
            if not line or found == MAX_RECORDS or _is_cut(line):
                return
            for part in split_objects(line):
                record = parse_object(part)
                if not isinstance(record, str):
                    found += 1
                    yield record


def _find_paths(source: RecordingSource) -> set[str]:
    paths: set[str] = set()
    with suppress(TranscriptFormatError):  # the paths before the damage may be enough
        for count, (path, value) in enumerate(walk_paths(source)):
            if count > MAX_STEPS or len(paths) > MAX_PATHS:
                break
            if len(path) <= MAX_PATH_CHARACTERS:
                paths.add(path)
                if (
                    isinstance(value, str)
                    and len(value) <= MAX_PATH_CHARACTERS
                    and path.rpartition(".")[2] in FIELDS_WITH_VALUE
                ):
                    paths.add(f"{path}={value}")
    return paths
