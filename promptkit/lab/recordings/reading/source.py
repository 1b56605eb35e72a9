"""A recording that is open for reading: its bytes, compressed or not, its lines, and the values of JSON files that are too large for memory, piece by piece.

This is the only module that imports ijson.
"""

from __future__ import annotations

import codecs
import gzip
import sys
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol, TypeAlias

import ijson

from promptkit.errors import TranscriptError, TranscriptFormatError
from promptkit.files import MAX_LINE_BYTES, read_gzip
from promptkit.lab.recordings.reading.json_values import is_too_deep, parse_number, split_objects
from promptkit.messages import Json

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
        read_line = partial(self.open().readline, MAX_LINE_BYTES)
        return (
            (number, part)
            for number, line in enumerate(iter(read_line, b""), 1)
            if not line.isspace()
            for part in split_objects(line)
        )


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


JsonPath: TypeAlias = tuple[str | int, ...]
"""The path of a value: the index of the JSON text in the file, then the keys and list indices that
lead to the value."""

CHUNK_BYTES = 1 << 16
"""Bytes that the parser reads at once. Within a long text they double, because the parser scans the
text again from its beginning."""

MAX_CHUNK_BYTES = 1 << 25

SEARCH_CHUNK_BYTES = 1 << 20
"""Bytes that are searched for long numbers at once."""

_DIGITS = bytes(
    ord("0") if chr(byte).isascii() and chr(byte).isdigit() else ord(" ") for byte in range(256)
)
"""Makes every digit a 0, and every other byte a space."""

MAX_WALK_DEPTH = 8
"""Levels of nested lists and objects that `walk_paths` reports. No format needs more to be
recognized."""

STARTS, ENDS = ("start_map", "start_array"), ("end_map", "end_array")


def split_members(
    source: RecordingSource, split: Callable[[JsonPath], bool]
) -> Iterator[tuple[JsonPath, Json]]:
    """Yield the values of a file with their paths, in file order.

    A value that is nested too deeply is replaced by a text that says so.

    Args:
        source: The file. It may hold several JSON texts, one after the other.
        split: Return whether the list or object at a path is to be yielded member by member instead
            of as a whole.

    Raises:
        TranscriptFormatError: The text stops being JSON. All values before were yielded.
    """
    path: list[str | int] = [-1]  # of the value before the next one, in the same list or object
    builder = ijson.ObjectBuilder()
    depth = 0  # open lists and objects of the value that is being built
    for event, token in _parse_events(source):
        if depth:
            builder.event(event, token)
            depth += (event in STARTS) - (event in ENDS)
            if not depth:
                value: Json = builder.value
                yield tuple(path), "nested too deeply" if is_too_deep(value) else value
        elif event == "map_key":
            path[-1] = str(token)
        elif event in ENDS:
            path.pop()
        else:
            if isinstance(last := path[-1], int):
                path[-1] = last + 1
            if event not in STARTS:
                yield tuple(path), token
            elif split(tuple(path)):
                path.append(-1 if event == "start_array" else "")
            else:
                builder, depth = ijson.ObjectBuilder(), 1
                builder.event(event, token)


def walk_paths(source: RecordingSource) -> Iterator[tuple[str, Json]]:
    """Yield the paths in a file, such as `messages.item.role`, with the value of each scalar, down to `MAX_WALK_DEPTH`.

    Raises TranscriptFormatError where the text stops being JSON.
    """
    path: list[str] = []
    for event, value in _parse_events(source):
        if event == "map_key":
            path[-1] = str(value)
        elif event in ENDS:
            path.pop()
        else:
            if len(path) <= MAX_WALK_DEPTH:
                yield ".".join(path), value
            if event in STARTS:
                path.append("item" if event == "start_array" else "")


def _parse_events(source: RecordingSource) -> Iterator[tuple[str, Json]]:
    """Yield the events of the parser (`start_map`, `map_key`, `string` and so on) with their values.

    A file may hold several JSON texts, one after the other. Raises TranscriptFormatError where it
    stops being JSON, or where one text or number has more than `MAX_LINE_BYTES`.
    """
    with _translate_errors(source):
        events = ijson.sendable_list()
        parser = _create_parser(source, events)
        reader = _Utf8Reader(source.open())
        size, waiting = CHUNK_BYTES, 0
        while chunk := reader.read(size):
            failure = _send(parser, chunk)
            size, waiting = (
                (CHUNK_BYTES, 0)
                if events
                else (min(2 * size, MAX_CHUNK_BYTES), waiting + len(chunk))
            )
            yield from _take(events)
            if failure is not None:
                raise failure
            if waiting > MAX_LINE_BYTES:
                raise TranscriptFormatError(
                    f"one value has more than {MAX_LINE_BYTES:,} bytes.", file=source.path
                )
        parser.close()  # raises an error if the text ends too early
        yield from _take(events)


def _send(parser: ijson.Parser, chunk: bytes) -> Exception | None:
    """Give the parser a chunk.

    Returns its error, which is raised when the events before it were taken.
    """
    try:
        parser.send(chunk)
    except (ijson.JSONError, ValueError) as error:
        return error
    return None


def _take(events: list[ijson.Event]) -> Iterator[tuple[str, Json]]:
    """Yield the events so far, and forget them."""
    for event, value in events:
        yield event, parse_number(value) if isinstance(value, Decimal) else value
    del events[:]


def _create_parser(source: RecordingSource, events: list[ijson.Event]) -> ijson.Parser:
    """Create the fast parser, or the pure Python one if a run of digits is longer than Python's limit: the fast one crashes on it."""
    if source.has_long_number is None:
        source.has_long_number = _has_long_number(source.open())
    create = (
        ijson.get_backend("python").basic_parse_coro
        if source.has_long_number
        else ijson.basic_parse_coro
    )
    return create(events, multiple_values=True)


def _has_long_number(file: Readable) -> bool:
    if not (limit := sys.get_int_max_str_digits()):
        return False
    long_number, before = b"0" * limit, b""
    with suppress(TranscriptFormatError):  # the parser will report it
        while chunk := file.read(SEARCH_CHUNK_BYTES):
            searched = before + chunk.translate(_DIGITS)
            if long_number in searched:
                return True
            before = searched[-limit:]
    return False


@contextmanager
def _translate_errors(source: RecordingSource) -> Generator[None]:
    """Turn an error of the parser into one that names the file."""
    try:
        yield
    except (ijson.JSONError, ValueError) as error:
        reason = " ".join(str(error).split("\n", maxsplit=1)[0].split())
        raise TranscriptFormatError(
            f"the file stops being JSON ({reason}) at byte {source.position:,} or before.",
            file=source.path,
        ) from error


class _Utf8Reader:
    """Read the bytes of a file with replacement characters instead of invalid UTF-8, which the parser would refuse."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def read(self, size: int = CHUNK_BYTES) -> bytes:
        """Return some bytes; none at the end.

        Continues reading if a chunk holds only a part of a character.
        """
        while size and (chunk := self._file.read(size)):
            if text := self._decoder.decode(chunk):
                return text.encode()
        return self._decoder.decode(b"", final=True).encode() if size else b""
