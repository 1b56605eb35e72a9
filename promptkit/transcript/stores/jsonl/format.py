"""Encode and parse the lines of a transcript's file, and migrate lines of older versions.

The file is JSON Lines in UTF-8. Only a line feed ends a line; texts may contain other line breaks.
The first line is the header. Every other line is one entry. In a batch of several
entries, each line has a mark such as `"batch":[2,3]`: its position in the batch and the size of the
batch. The mark shows a reader that a batch was cut short.

Files of older versions are read through `MIGRATIONS`. Reading does not change them; the first
append rewrites them and keeps the old file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import attrs

from promptkit.errors import TranscriptError, TranscriptFormatError
from promptkit.transcript.stores.jsonl.records import entry_from_json, entry_to_json

if TYPE_CHECKING:
    from promptkit.messages import Json
    from promptkit.transcript.log.entries import Entry

VERSION = 1
"""Version of the format that this promptkit writes."""

ARCHIVE_SUFFIX = ".jsonl.gz"
"""The suffix of the names of archives."""

Record: TypeAlias = "Mapping[str, Json]"
"""The JSON object of a line."""

Migrations: TypeAlias = "Mapping[int, Callable[[Iterable[Record]], Iterator[Record]]]"
"""A function for each older version, which converts its records to records of the next version. The
records come in file order, without the header.

The functions must be pure: a file and its rewritten copy must give the same entries with the same
ids.
"""

MIGRATIONS: Migrations = MappingProxyType({})
"""The migrations of this version. It is empty because version 1 is the first."""


@attrs.frozen(kw_only=True)
class TranscriptArchive:
    """A compressed file next to the transcript with older entries."""

    file: str
    """Name of the file, without a directory."""
    entries: int
    """Number of entries."""
    first: str
    """The id of its first entry."""
    last: str
    """The id of its last entry."""


@attrs.frozen(kw_only=True)
class Header:
    """The first line of a file."""

    version: int = VERSION
    """The version of the format."""
    archives: tuple[TranscriptArchive, ...] = ()
    """The archives, oldest first."""


@attrs.frozen(kw_only=True)
class EntryLine:
    """An entry and its position in a batch, as one line has them."""

    entry: Entry
    """The entry."""
    position: int = 1
    """The position in the batch, counted from 1."""
    size: int = 1
    """The number of entries in the batch."""


def encode_header(header: Header) -> bytes:
    """Encode the first line of a file."""
    fields: dict[str, Json] = {"promptkit": "transcript", "version": header.version}
    if header.archives:
        fields["archives"] = [attrs.asdict(archive) for archive in header.archives]
    return _encode_line(fields)


def encode_batch(entries: Sequence[Entry]) -> bytes:
    """Encode the lines of a batch.

    Raises TranscriptError for an entry that cannot be written as JSON.
    """
    size = len(entries)
    lines: list[bytes] = []
    for position, entry in enumerate(entries, 1):
        mark: dict[str, Json] = {"batch": [position, size]} if size > 1 else {}
        try:
            lines.append(_encode_line(entry_to_json(entry) | mark))
        except (TypeError, ValueError, RecursionError) as error:
            problem = f"the {entry.kind} cannot be written as JSON: {error}."
            raise TranscriptError(problem) from error
    return b"".join(lines)


def header_from_line(line: bytes, file: str) -> Header:
    """Parse the first line of a file.

    Raises TranscriptFormatError, naming `file`, if it is not the header of a transcript.
    """
    value = object_from_bytes(line)
    match value:
        case {"promptkit": "transcript", "version": int() as version} if type(version) is int:
            archives = (
                None if isinstance(value, str) else _archives_from_json(value.get("archives"))
            )
            if archives is None:
                problem = (
                    "the list of archives in the header is damaged: repair the first line by hand."
                )
                raise TranscriptFormatError(problem, file=file)
            return Header(version=version, archives=archives)
        case _:
            problem = 'this is not a transcript: the first line must be {"promptkit": "transcript", "version": …}. The file was not changed.'
            raise TranscriptFormatError(problem, file=file)


def line_from_bytes(line: bytes) -> EntryLine | str | None:
    """Parse a line after the header.

    Returns None for a blank line, and a description of the problem for a line that is not an entry.
    """
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
        case [int() as position, int() as size] if (
            type(position) is int and type(size) is int and 1 <= position <= size
        ):
            return EntryLine(entry=entry, position=position, size=size)
        case mark:
            return f"the batch mark {mark!r} is invalid: it must be [position, size]."


def object_from_bytes(line: bytes) -> dict[str, Json] | str:
    """Parse the JSON object of a line. Returns a description of the problem if there is none."""
    try:
        value: Json | dict[str, Json] = json.loads(
            line.decode("utf-8"), parse_constant=_no_constant
        )
    except UnicodeDecodeError:
        return "the line is not UTF-8 text."
    except json.JSONDecodeError as error:
        return f"the line is not JSON: {error.msg} at column {error.colno:,}."
    except ValueError as error:
        return f"the line is not JSON: {error}."
    except RecursionError:
        return "the line is nested too deeply."
    return value if isinstance(value, dict) else "the line is not a JSON object."


def check_version(version: int, migrations: Migrations, file: str) -> None:
    """Raise TranscriptFormatError, naming `file`, for a version that cannot be read: neither the present one nor one in `migrations`."""
    if version > VERSION:
        problem = (
            f"the file has version {version} of the format, and this promptkit reads up to {VERSION}: use a newer promptkit. "
            "The file was not changed."
        )
        raise TranscriptFormatError(problem, file=file)
    if any(step not in migrations for step in range(version, VERSION)):
        problem = f"the file has version {version} of the format, which is unknown. The file was not changed."
        raise TranscriptFormatError(problem, file=file)


def migrate_records(
    records: Iterable[Record], version: int, migrations: Migrations
) -> Iterator[Record]:
    """Convert records of an older version to records of the present one."""
    migrated = iter(records)
    for step in range(version, VERSION):
        migrated = migrations[step](migrated)
    return migrated


def _encode_line(fields: Mapping[str, Json]) -> bytes:
    try:
        text = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return f"{text}\n".encode()
    except UnicodeEncodeError:
        # A lone surrogate cannot be encoded as UTF-8, but as an escape in JSON.
        return f"{json.dumps(fields, allow_nan=False, separators=(',', ':'))}\n".encode()


def _archives_from_json(value: Json) -> tuple[TranscriptArchive, ...] | None:
    archives: list[TranscriptArchive] = []
    for item in value or [] if isinstance(value, list | None) else [None]:
        match item:
            case {
                "file": str(file),
                "entries": int(entries),
                "first": str(first),
                "last": str(last),
            } if _is_archive_name(file):
                archives.append(
                    TranscriptArchive(file=file, entries=entries, first=first, last=last)
                )
            case _:
                return None
    return tuple(archives)


def _is_archive_name(name: str) -> bool:
    """Return whether a name is that of an archive in the same directory. A header must not lead a reader to other files."""
    return PurePath(name).name == name and name.endswith(ARCHIVE_SUFFIX) and "\\" not in name


def _no_constant(name: str) -> NoReturn:
    problem = f"{name} is not a JSON number"
    raise ValueError(problem)
