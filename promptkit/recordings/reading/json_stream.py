"""A JSON text while it is read, step by step: the only file that imports ijson.

A large JSON text, taken apart while it is read: the members of lists that hold a conversation come one by one.
"""

from __future__ import annotations

import codecs
import importlib
import math
import re
import sys
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import ijson  # type: ignore[import-untyped]  # it has no types

from promptkit.errors import TranscriptFormatError
from promptkit.recordings.reading.json_values import is_too_deep

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from promptkit.messages import Json
    from promptkit.recordings.reading.source import Readable, RecordingSource

__all__ = ["JsonPath", "parse_events", "split_members", "walk_paths"]


PIECE = 1 << 16
"""Bytes that are read at once."""

OPTIONS = {"multiple_values": True, "buf_size": PIECE}

LARGE_PIECE = 1 << 20

DEEPEST_STEP = 8
"""Lists and objects in each other, below which no format is told."""


def parse_events(source: RecordingSource) -> Iterator[tuple[str, Json]]:
    """What a parser meets on its way through a file: `start_map`, `map_key`, `string` and so on, and the value of each.

    A file may hold several JSON texts, one after the other. Raises TranscriptFormatError where it is no JSON.
    """
    with _explained(source):
        # Typed here, since ijson does not: an event, and a value that JSON can hold, or a number with all its digits.
        parsed = cast("Iterable[tuple[str, Json | Decimal]]", _backend(source).basic_parse(_Clean(source.open()), **OPTIONS))
        for event, value in parsed:
            yield event, _number(value) if isinstance(value, Decimal) else value


def walk_paths(source: RecordingSource) -> Iterator[tuple[str, Json]]:
    """Where the parser is, such as at `messages.item.role`, and the value there, as deep as is of interest for telling a format.

    Raises TranscriptFormatError where it is no JSON.
    """
    place: list[str] = []
    depth = 0
    for event, value in parse_events(source):
        if event == "map_key":
            if depth <= DEEPEST_STEP:
                place[-1] = str(value)
            continue
        if event in ("end_map", "end_array"):
            if depth <= DEEPEST_STEP:
                place.pop()
            depth -= 1
            continue
        if depth <= DEEPEST_STEP:
            yield ".".join(place), value
        if event in ("start_map", "start_array"):
            depth += 1
            if depth <= DEEPEST_STEP:
                place.append("item" if event == "start_array" else "")


def _backend(source: RecordingSource) -> Any:  # noqa: ANN401  # Any: a module without types
    """The fast parser; the safe one where a number, or what may be one, has more digits than Python takes: the fast one crashes on those."""
    if source.is_plain is None:
        source.is_plain = not _has_long_number(source.open())
    return ijson if source.is_plain else importlib.import_module("ijson.backends.python")


def _has_long_number(file: Readable) -> bool:
    limit = sys.get_int_max_str_digits()
    if not limit:
        return False
    number = re.compile(rb"(?<![0-9])[0-9]{%d}" % limit)
    before = b""
    with suppress(TranscriptFormatError):  # the parser will find out, too
        while piece := file.read(LARGE_PIECE):
            if number.search(before + piece):
                return True
            before = (before + piece)[-limit:]
    return False


@contextmanager
def _explained(source: RecordingSource) -> Generator[None]:
    """Have what a parser raises say which file it is about."""
    try:
        yield
    except (ijson.JSONError, ValueError) as error:
        said = " ".join(str(error).split("\n", maxsplit=1)[0].split())
        problem = f"this is no JSON from here on ({said}), at byte {source.position:,} at the latest."
        raise TranscriptFormatError(problem, file=source.path) from error


class _Clean:
    """The bytes of a file with replacement characters for what is no UTF-8, which the parser would not take."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def read(self, size: int = PIECE) -> bytes:
        """Some bytes; none at the end. It reads on where half a character was all that came."""
        while size and (piece := self._file.read(size)):
            if text := self._decoder.decode(piece):
                return text.encode()
        return self._decoder.decode(b"", final=True).encode() if size else b""


def _number(value: Decimal) -> float | str:
    number = float(value)
    return number if math.isfinite(number) else str(value)


JsonPath: TypeAlias = tuple[str | int, ...]
"""Where a value stands: the number of the JSON text in the file, then keys and places in lists."""

STARTS, ENDS = ("start_map", "start_array"), ("end_map", "end_array")


def split_members(source: RecordingSource, split: Callable[[JsonPath], bool]) -> Iterator[tuple[JsonPath, Json]]:
    """The values of a file and where they stand; a list or object at a path for which `split` holds is given member by member.

    A value that is nested too deeply is replaced by a text that says so. Raises TranscriptFormatError, after all before it was given, where
    the text is no JSON.
    """
    at = _Place()
    value = _Value()
    for event, given in parse_events(source):
        if value.is_open:
            value.take(event, given)
            if not value.is_open:
                yield at.path, value.whole
        elif event == "map_key":
            at.name(str(given))
        elif event in ENDS:
            at.leave()
        elif event not in STARTS:
            yield at.step(), given
        elif split(at.step()):
            at.enter(is_list=event == "start_array")
        else:
            value.take(event, given)


class _Place:
    """The path of the value that comes next."""

    def __init__(self) -> None:
        self._parts: list[str | int] = [-1]  # a place in a list is that of the member before, until the next one comes

    @property
    def path(self) -> JsonPath:
        return tuple(self._parts)

    def step(self) -> JsonPath:
        """The path of the value that begins now."""
        last = self._parts[-1]
        if isinstance(last, int):
            self._parts[-1] = last + 1
        return self.path

    def name(self, key: str) -> None:
        self._parts[-1] = key

    def enter(self, *, is_list: bool) -> None:
        self._parts.append(-1 if is_list else "")

    def leave(self) -> None:
        self._parts.pop()


class _Value:
    """A list or an object that is being put together."""

    def __init__(self) -> None:
        self._open: list[dict[str, Json] | list[Json]] = []  # containers, outermost first
        self._key = ""
        self._made: Json = None

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    @property
    def whole(self) -> Json:
        made, self._made = self._made, None
        return "nested too deeply" if is_too_deep(made) else made

    def take(self, event: str, given: Json) -> None:
        if event == "map_key":
            self._key = str(given)
        elif event in ENDS:
            self._made = self._open.pop()
        elif event in STARTS:
            container: dict[str, Json] | list[Json] = {} if event == "start_map" else []
            self._put(container)
            self._open.append(container)
        else:
            self._put(given)

    def _put(self, value: Json) -> None:
        inside = self._open[-1] if self._open else None
        if isinstance(inside, dict):
            inside[self._key] = value
        elif inside is not None:
            inside.append(value)
