"""Convert entries to the lines of a transcript's file and back, and migrate lines of older versions.

The file is JSON Lines in UTF-8. Only a line feed ends a line; texts may contain other line breaks.
The first line is the header. Every other line is one entry. In a batch of several
entries, each line has a mark such as `"batch":[2,3]`: its position in the batch and the size of the
batch. The mark shows a reader that a batch was cut short. Kinds and parts that this version does
not know are kept unchanged.

Files of older versions are read through `MIGRATIONS`. Reading does not change them; the first
append rewrites them and keeps the old file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import PurePath
from types import MappingProxyType
from typing import NoReturn, TypeAlias, TypeVar, get_origin

import attrs
import cattrs
from cattrs.cols import list_structure_factory
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from promptkit.errors import InvalidArgumentError, TranscriptError, TranscriptFormatError
from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Json,
    Message,
    OpaquePart,
    Part,
    ToolDefinition,
    as_mapping,
    as_wire_object,
)
from promptkit.transcript.log.entries import (
    KINDS,
    BranchSummary,
    Checkpoint,
    CustomEntry,
    Entry,
    EntryPayload,
    Observation,
    Setting,
    UnknownEntry,
)

T = TypeVar("T")

PART_CLASSES = {
    "image": ImagePart,
    "document": DocumentPart,
    "opaque": OpaquePart,
    "boundary": CacheBreakpointPart,
}
PART_NAMES = {part_class: name for name, part_class in PART_CLASSES.items()}
PAYLOAD_CLASSES: dict[str, type[EntryPayload]] = {
    kind: payload for payload, kind in KINDS.items() if payload is not UnknownEntry
}
FIELDS = ("id", "parent_id", "kind", "time", "data")
TYPE_NAMES = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def message_to_json(message: Message) -> dict[str, Json]:
    """Convert a message to a JSON object. Fields that have their default are omitted."""
    record: dict[str, Json] = _convert.unstructure(message, Message)
    return record


def message_from_json(data: Mapping[str, Json]) -> Message:
    """Convert a JSON object that `message_to_json` returned to a message.

    Raises TranscriptError if it is not a message.
    """
    return _structure(data, Message)


def entry_to_json(entry: Entry) -> dict[str, Json]:
    """Convert an entry to a JSON object with the fields `id`, `parent_id`, `kind`, `time` and `data`."""
    payload = entry.payload
    kind, data = (
        (payload.kind, payload.data)
        if isinstance(payload, UnknownEntry)
        else (entry.kind, _convert.unstructure(payload, type(payload)))
    )
    return {
        "id": entry.id,
        "parent_id": entry.parent_id,
        "kind": kind,
        "time": entry.time,
        "data": data,
    }


def entry_from_json(record: Mapping[str, Json]) -> Entry:
    """Convert a JSON object that `entry_to_json` returned to an entry. An unknown kind becomes an `UnknownEntry`.

    Raises TranscriptError, with a message of one line, if it is not an entry.
    """
    match record:
        case {
            "id": str(entry_id),
            "parent_id": None | str() as parent,
            "kind": str(kind),
            "time": int() | float() as time,
            "data": dict(data),
        } if entry_id and type(time) is not bool and math.isfinite(time):
            payload_class = PAYLOAD_CLASSES.get(kind)
            return Entry(
                id=entry_id,
                parent_id=parent,
                time=time,
                payload=UnknownEntry(kind=kind, data=data)
                if payload_class is None
                else _structure(data, payload_class, f"the data of the {kind} cannot be read: "),
            )
        case _:
            missing = [name for name in FIELDS if name not in record]
            raise TranscriptError(
                f"the entry has no {', '.join(missing)}."
                if missing
                else "a field of the entry has an invalid value."
            )


def _structure(data: Mapping[str, Json], kind: type[T], problem: str = "") -> T:
    try:
        return _convert.structure(data, kind)
    except (cattrs.BaseValidationError, TypeError, ValueError, KeyError, AttributeError) as error:
        why = cattrs.transform_error(error, format_exception=_format_exception)
        raise TranscriptError(f"{problem}{'; '.join(why)}") from error


def _format_exception(error: BaseException, target: type | None) -> str:
    return (
        str(error)
        if type(error) in {ValueError, Exception, InvalidArgumentError}
        else cattrs.v.format_exception(error, target)
    )


_SHOWN = 40
"""Characters of a value in a problem, which fits on one line."""


def _abbreviate(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


# The converter omits fields that have their default, which keeps lines short.
_convert = cattrs.Converter(omit_if_default=True)


def _require_type(value: object, kind: type) -> object:
    """Refuse a value of another type.

    By itself the converter would turn numbers into text and text into lists of characters.
    """
    if type(value) is not kind:
        raise ValueError(f"{_abbreviate(value)} must be {TYPE_NAMES[kind]}")
    return value


def _is_tuple(kind: object) -> bool:
    origin: object = get_origin(kind)
    return origin is tuple


def _make_tuple_hook(kind: type) -> Callable[[object, type], tuple[object, ...]]:
    structure = list_structure_factory(kind, _convert)

    def tuple_from_list(value: object, target: type) -> tuple[object, ...]:
        items: list[object] = structure(_require_type(value, list), target)
        return tuple(items)

    return tuple_from_list


def _part_to_json(part: Part) -> object:
    return (
        part
        if isinstance(part, str)
        else {"type": PART_NAMES[type(part)], **_convert.unstructure(part, type(part))}
    )


def _part_from_json(value: object, _: object) -> Part:
    match value:
        case str():
            return value
        case {"type": str(name)} if name in PART_CLASSES:
            return _convert.structure(as_mapping(value), PART_CLASSES[name])
        case {"type": str()}:
            # A part of a later version is kept and not sent to any provider.
            return OpaquePart(value=as_wire_object(value), tokens=0, provider="unknown")
        case _:
            raise ValueError(f"{_abbreviate(value)} is not a part of a message")


def _pass_through(value: object, *_: object) -> object:
    return value


def _register_json_fields(kind: type[attrs.AttrsInstance]) -> None:
    """Register hooks for a class that pass its fields of type Json through unchanged."""
    fields = {
        field.name: override(
            struct_hook=(lambda value, _: _require_type(value, dict))
            if "Mapping" in str(field.type)
            else _pass_through,
            unstruct_hook=_pass_through,
        )
        for field in attrs.fields(kind)
        if "Json" in str(field.type)
    }
    _convert.register_structure_hook(kind, make_dict_structure_fn(kind, _convert, **fields))  # type: ignore[arg-type]  # the fields share a signature with options
    _convert.register_unstructure_hook(
        kind,
        make_dict_unstructure_fn(kind, _convert, _cattrs_omit_if_default=True, **fields),  # type: ignore[arg-type]  # as above
    )


for _plain in (str, int, bool):
    _convert.register_structure_hook(_plain, _require_type)
_convert.register_structure_hook_factory(_is_tuple, _make_tuple_hook)
_convert.register_unstructure_hook(Part, _part_to_json)
_convert.register_structure_hook(Part, _part_from_json)
for _kind in (
    OpaquePart,
    Checkpoint,
    BranchSummary,
    CustomEntry,
    Setting,
    Observation,
    ToolDefinition,
):
    _register_json_fields(_kind)


VERSION = 1
"""Version of the format that this promptkit writes."""

ARCHIVE_SUFFIX = ".jsonl.gz"
"""The suffix of the names of archives."""

Record: TypeAlias = "Mapping[str, Json]"
"""The JSON object of a line."""

Migration: TypeAlias = "Callable[[Record], Record]"
"""Converts a record of an older version to a record of the next one."""

MIGRATIONS: Mapping[int, Callable[[], Migration]] = MappingProxyType({})
"""For each older version, starts a migration, which is called with the records of one file in
order, without the header. It is empty because version 1 is the first.

A migration depends on these records alone: a file and its rewritten copy must give the same entries
with the same ids.
"""


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
    archives: list[Json] = [attrs.asdict(archive) for archive in header.archives]
    return _encode_line(
        {
            "promptkit": "transcript",
            "version": header.version,
            **({"archives": archives} if archives else {}),
        }
    )


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
            raise TranscriptError(
                f"the {entry.kind} cannot be written as JSON: {error}."
            ) from error
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
                raise TranscriptFormatError(
                    "the list of archives in the header is damaged: repair the first line by hand.",
                    file=file,
                )
            return Header(version=version, archives=archives)
        case _:
            raise TranscriptFormatError(
                'this is not a transcript: the first line must be {"promptkit": "transcript", "version": …}. The file was not changed.',
                file=file,
            )


def line_from_bytes(line: bytes, migrate: Migration | None = None) -> EntryLine | str | None:
    """Parse a line after the header, and migrate its record if it is of an older version.

    Returns None for a blank line, and a description of the problem for a line that is not an entry.
    """
    if not line.strip():
        return None
    if isinstance(value := object_from_bytes(line), str):
        return value
    try:
        entry = entry_from_json(value if migrate is None else migrate(value))
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


def check_version(version: int, file: str) -> None:
    """Raise TranscriptFormatError, naming `file`, for a version that cannot be read: neither the present one nor one in `MIGRATIONS`."""
    if version > VERSION:
        raise TranscriptFormatError(
            f"the file has version {version} of the format, and this promptkit reads up to {VERSION}: use a newer promptkit. "
            "The file was not changed.",
            file=file,
        )
    if any(step not in MIGRATIONS for step in range(version, VERSION)):
        raise TranscriptFormatError(
            f"the file has version {version} of the format, which is unknown. The file was not changed.",
            file=file,
        )


def start_migration(version: int) -> Migration | None:
    """Return a migration from a version to the present one, for one file; None if it is the present one."""
    steps = [MIGRATIONS[step]() for step in range(version, VERSION)]
    return (
        (lambda record: reduce(lambda migrated, step: step(migrated), steps, record))
        if steps
        else None
    )


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
            # a header must not lead a reader to other files
            case {
                "file": str(file),
                "entries": int(entries),
                "first": str(first),
                "last": str(last),
            } if PurePath(file).name == file and file.endswith(ARCHIVE_SUFFIX) and "\\" not in file:
                archives.append(
                    TranscriptArchive(file=file, entries=entries, first=first, last=last)
                )
            case _:
                return None
    return tuple(archives)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
