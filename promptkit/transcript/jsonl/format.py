"""The lines of a transcript's file: what stands in the first, how a batch is marked as one, what a reader makes of a line.

The file is JSON Lines, in UTF-8, with a line feed alone between records: a text may hold any other kind of line break. The first
line is the header. Every other line is one entry; each entry of a batch of several says its place and the size, `"batch":[2,3]`, so
that a reader can tell a batch that was cut short.

Files of older versions: a table that says how the records of each become those of the next.

A file is read through the table, and stays as it is; it is rewritten when something is appended to it, and the old file is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import attrs

from promptkit.errors import TranscriptError, TranscriptFormatError
from promptkit.transcript.jsonl.records import entry_from_json, entry_to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.messages import Json
    from promptkit.transcript.entries import Entry

__all__ = [
    "MIGRATIONS",
    "SUFFIX",
    "VERSION",
    "Header",
    "Line",
    "Migrations",
    "Record",
    "Segment",
    "batch_lines",
    "header_from_line",
    "header_line",
    "line_from_bytes",
    "migrated",
    "object_from_bytes",
    "require_readable",
]


VERSION = 1
"""Of the format that is written."""

SUFFIX = ".jsonl.gz"
"""How the name of an archive ends."""


@attrs.frozen(kw_only=True)
class Segment:
    """An archive: a file beside the transcript that holds entries which were written before all that the transcript's own file holds."""

    file: str
    """Its name, without a folder."""
    entries: int
    first: str
    """The id of its first entry."""
    last: str
    """The id of its last entry."""


@attrs.frozen(kw_only=True)
class Header:
    """The first line of a file."""

    version: int = VERSION
    segments: tuple[Segment, ...] = ()
    """The archives, oldest first."""


@attrs.frozen(kw_only=True)
class Line:
    """What a line holds: an entry, and its place in a batch of some size."""

    entry: Entry
    place: int = 1
    size: int = 1


def header_line(header: Header) -> bytes:
    """The first line of a file."""
    fields: dict[str, Json] = {"promptkit": "transcript", "version": header.version}
    if header.segments:
        fields["archives"] = [attrs.asdict(segment) for segment in header.segments]
    return _line(fields)


def batch_lines(entries: Sequence[Entry]) -> bytes:
    """The lines of a batch. Raises TranscriptError for what has no form in JSON."""
    size = len(entries)
    lines: list[bytes] = []
    for place, entry in enumerate(entries, 1):
        mark: dict[str, Json] = {"batch": [place, size]} if size > 1 else {}
        try:
            lines.append(_line(entry_to_json(entry) | mark))
        except (TypeError, ValueError, RecursionError) as error:
            problem = f"the {entry.kind} cannot be written as JSON: {error}."
            raise TranscriptError(problem) from error
    return b"".join(lines)


def header_from_line(line: bytes, file: str) -> Header:
    """What the first line of a file says. Raises TranscriptFormatError for a file that is no transcript."""
    value = object_from_bytes(line)
    match value:
        case {"promptkit": "transcript", "version": int() as version} if type(version) is int:
            segments = None if isinstance(value, str) else _segments(value.get("archives"))
            if segments is None:
                problem = "the list of archives in the header is damaged: mend this line by hand."
                raise TranscriptFormatError(problem, file=file)
            return Header(version=version, segments=segments)
        case _:
            problem = 'no transcript: the first line is not {"promptkit": "transcript", "version": …}. The file is left as it is.'
            raise TranscriptFormatError(problem, file=file)


def line_from_bytes(line: bytes) -> Line | str | None:
    """The entry of a line; in words what is wrong with it; None for a blank one."""
    if not line.strip():
        return None
    value = object_from_bytes(line)
    if isinstance(value, str):
        return value
    try:
        entry = entry_from_json(value)
    except TranscriptError as error:
        return str(error)
    match value.get("batch", [1, 1]):
        case [int() as place, int() as size] if type(place) is int and type(size) is int and 1 <= place <= size:
            return Line(entry=entry, place=place, size=size)
        case mark:
            return f"{mark!r} is no place in a batch."


def object_from_bytes(line: bytes) -> dict[str, Json] | str:
    """The JSON object of a line, or in words why it is none."""
    try:
        value: Json | dict[str, Json] = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        return "no UTF-8 text."
    except json.JSONDecodeError as error:
        return f"no JSON: {error.msg} at column {error.colno:,}."
    except ValueError as error:
        return f"no JSON: {error}."
    except RecursionError:
        return "nested too deeply."
    return value if isinstance(value, dict) else "no JSON object."


def _line(fields: Mapping[str, Json]) -> bytes:
    try:
        text = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return f"{text}\n".encode()
    except UnicodeEncodeError:
        # Half a surrogate pair has no form in UTF-8, but an escape in JSON.
        return f"{json.dumps(fields, allow_nan=False, separators=(',', ':'))}\n".encode()


def _segments(value: Json) -> tuple[Segment, ...] | None:
    found: list[Segment] = []
    for item in value or [] if isinstance(value, list | None) else [None]:
        match item:
            case {"file": str(file), "entries": int(entries), "first": str(first), "last": str(last)} if _is_plain(file):
                found.append(Segment(file=file, entries=entries, first=first, last=last))
            case _:
                return None
    return tuple(found)


def _is_plain(name: str) -> bool:
    """Whether a name stays in its folder: a transcript that came from elsewhere must not point a reader at other files."""
    return PurePath(name).name == name and name.endswith(SUFFIX) and "\\" not in name


def _no_constant(name: str) -> NoReturn:
    problem = f"{name} is no number"
    raise ValueError(problem)


Record: TypeAlias = "Mapping[str, Json]"

Migrations: TypeAlias = "Mapping[int, Callable[[Iterable[Record]], Iterator[Record]]]"
"""For a version what makes its records, in the order of the file and without the header, records of the next.

A pure function: a file that was read and the same file after it was rewritten must give the same entries, ids included.
"""

MIGRATIONS: Migrations = MappingProxyType({})
"""Version 1 is the first."""


def require_readable(version: int, migrations: Migrations, file: str) -> None:
    """Raises TranscriptFormatError for a version that is neither the present one nor in the table."""
    if version > VERSION:
        problem = f"version {version} of the format; this promptkit reads up to {VERSION}: use a newer one. The file is left as it is."
        raise TranscriptFormatError(problem, file=file)
    if any(step not in migrations for step in range(version, VERSION)):
        problem = f"version {version} of the format, which is not known. The file is left as it is."
        raise TranscriptFormatError(problem, file=file)


def migrated(records: Iterable[Record], version: int, migrations: Migrations) -> Iterator[Record]:
    """The records of a version as those of the present one."""
    found = iter(records)
    for step in range(version, VERSION):
        found = migrations[step](found)
    return found
