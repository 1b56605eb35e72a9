"""Reading JSON that other programs wrote: values of the expected type, or an empty one, texts that may be damaged, and files that are too large for memory, piece by piece.

This is the only module that imports ijson.
"""

from __future__ import annotations

import codecs
import json
import math
import re
import sys
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

import ijson

from promptkit.errors import TranscriptFormatError
from promptkit.files import MAX_LINE_BYTES
from promptkit.messages import Json
from promptkit.transcript import CustomEntry, EntryPayload

if TYPE_CHECKING:
    from promptkit.lab.recordings.reading.format import Readable, RecordingSource


JsonObject: TypeAlias = Mapping[str, Json]
"""A JSON object."""

MAX_DEPTH = 200
"""Levels of nested objects and lists. A deeper value is kept as text, because not every JSON reader
can read it."""

MAX_TIME = 1e15
"""No clock shows a larger time, in seconds or milliseconds."""

MIN_MILLISECONDS = 1e11
"""A larger time is in milliseconds: as seconds it would be more than 3,000 years after 1970."""


def as_object(value: Json) -> JsonObject:
    """Return the value if it is an object, else an empty object."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: Json) -> list[Json]:
    """Return the value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def as_blocks(content: Json) -> list[Json]:
    """Return the blocks of a content. A text, or anything else but a list, is one."""
    return content if isinstance(content, list) else [content]


def as_objects(value: Json) -> list[JsonObject]:
    """Return the objects in a list. Other items are ignored."""
    return [item for item in as_list(value) if isinstance(item, Mapping)]


def as_text(value: Json) -> str | None:
    """Return the value if it is a string, else None."""
    return value if isinstance(value, str) else None


def as_count(value: Json) -> int | None:
    """Return the value as a whole number if it is a number of at least 0, else None."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or value < 0
    ):
        return None
    return int(value)


def parse_time(value: Json) -> float | None:
    """Return a time in seconds since 1970, from an ISO date, from seconds or from milliseconds; None if the value is no time."""
    if isinstance(value, str):
        try:
            date = datetime.fromisoformat(value)
            return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not -MAX_TIME < value < MAX_TIME
    ):
        return None
    return value / 1000 if value > MIN_MILLISECONDS else float(value)


def omit_fields(record: JsonObject, known: Collection[str]) -> dict[str, Json]:
    """Return the fields of an object that are neither in `known` nor empty: what a format did not understand."""
    return {
        key: value
        for key, value in record.items()
        if key not in known and value not in (None, [], {}, "")
    }


def dump_json(value: Json) -> str:
    """Write a value as JSON text, for example arguments that a recording holds as an object."""
    return json.dumps(value, ensure_ascii=False)


def parse_json(text: bytes) -> Json:
    """Parse a JSON text.

    NaN and numbers beyond the range of doubles become strings, because they cannot be written as
    JSON.

    Invalid UTF-8 becomes replacement characters. Raises ValueError, with the reason, for text that
    is not JSON or is nested too deeply.
    """
    # The reasons are stored in transcripts, beside the line, so that they must not change.
    try:
        value: Json = json.loads(
            text.decode("utf-8", errors="replace"), parse_constant=str, parse_float=_parse_number
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error.msg} at column {error.colno:,}") from error
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH and is_too_deep(value):
        raise ValueError("nested too deeply")
    return value


def _parse_number(digits: str | Decimal) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else str(digits)


def is_too_deep(value: Json) -> bool:
    """Return whether a value is nested deeper than `MAX_DEPTH`."""
    level: list[Json] = [value]
    for _ in range(MAX_DEPTH):
        children: list[Json] = []
        for item in level:
            if isinstance(item, Mapping):
                children.extend(
                    child for child in item.values() if isinstance(child, Mapping | list)
                )
            elif isinstance(item, list):
                children.extend(child for child in item if isinstance(child, Mapping | list))
        if not children:
            return False
        level = children
    return True


def parse_object(line: bytes) -> JsonObject | str:
    """Parse the JSON object of a line. Returns what is wrong, in words, if there is none."""
    try:
        value = parse_json(line)
    except ValueError as error:
        return f"{error}."
    return value if isinstance(value, Mapping) else "no JSON object."


def split_objects(line: bytes) -> list[bytes]:
    """Return the JSON objects of a line; the line itself if it is anything but several whole objects."""
    if not _OBJECTS.search(line):
        return [line]
    text, at, parts = line.decode("utf-8", errors="replace").strip(), 0, list[bytes]()
    while at < len(text):
        try:
            _, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return [line]
        if text[at] != "{":
            return [line]
        parts.append(text[at:end].encode())
        at = end + len(text[end:]) - len(text[end:].lstrip())
    return parts if len(parts) > 1 else [line]


_DECODER = json.JSONDecoder()
_OBJECTS = re.compile(rb"\}\s*\{")
"""The end of an object and the beginning of another one; also found in texts."""


def keep_fields(format_name: str, extra: JsonObject) -> list[EntryPayload]:
    """Return an entry that keeps the fields of a record that nothing else holds; none if there are none."""
    return [CustomEntry(name=f"{format_name}.fields", data=extra)] if extra else []


def keep_bad_line(format_name: str, number: int, line: bytes, problem: str) -> CustomEntry:
    """Return an entry that keeps a line that could not be read, as text."""
    text = line.decode("utf-8", errors="backslashreplace").rstrip("\r\n")
    return CustomEntry(
        name=f"{format_name}.bad_line", data={"line": number, "problem": problem, "text": text}
    )


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
            last = path[-1]
            if isinstance(last, int):
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
    depth = 0
    for event, value in _parse_events(source):
        if event == "map_key":
            if depth <= MAX_WALK_DEPTH:
                path[-1] = str(value)
            continue
        if event in ENDS:
            if depth <= MAX_WALK_DEPTH:
                path.pop()
            depth -= 1
            continue
        if depth <= MAX_WALK_DEPTH:
            yield ".".join(path), value
        if event in STARTS:
            depth += 1
            if depth <= MAX_WALK_DEPTH:
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
        yield event, _parse_number(value) if isinstance(value, Decimal) else value
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
