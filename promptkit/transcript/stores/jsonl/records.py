"""Convert entries and messages to JSON objects and back.

Kinds and parts that this version does not know are kept unchanged.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, get_origin

import attrs
import cattrs
from cattrs.cols import list_structure_factory
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from promptkit.errors import InvalidArgumentError, TranscriptError
from promptkit.messages import (
    CacheBreakpointPart,
    DocumentPart,
    ImagePart,
    Json,
    Message,
    OpaquePart,
    Part,
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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


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
    try:
        return _convert.structure(data, Message)
    except (cattrs.BaseValidationError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise TranscriptError(_describe(error)) from error


def entry_to_json(entry: Entry) -> dict[str, Json]:
    """Convert an entry to a JSON object with the fields `id`, `parent_id`, `kind`, `time` and `data`."""
    if isinstance(entry.payload, UnknownEntry):
        kind, data = entry.payload.kind, entry.payload.data
    else:
        kind, data = entry.kind, _convert.unstructure(entry.payload, type(entry.payload))
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
            return Entry(
                id=entry_id, parent_id=parent, time=time, payload=_payload_from_json(kind, data)
            )
        case _:
            missing = [name for name in FIELDS if name not in record]
            problem = (
                f"the entry has no {', '.join(missing)}."
                if missing
                else "a field of the entry has an invalid value."
            )
            raise TranscriptError(problem)


def _payload_from_json(kind: str, data: Mapping[str, Json]) -> EntryPayload:
    payload_class = PAYLOAD_CLASSES.get(kind)
    if payload_class is None:
        return UnknownEntry(kind=kind, data=data)
    try:
        payload: EntryPayload = _convert.structure(data, payload_class)
    except (cattrs.BaseValidationError, TypeError, ValueError, KeyError, AttributeError) as error:
        problem = f"the data of the {kind} cannot be read: {_describe(error)}"
        raise TranscriptError(problem) from error
    return payload


def _describe(error: Exception) -> str:
    return "; ".join(cattrs.transform_error(error, format_exception=_format_exception))


def _format_exception(error: BaseException, target: type | None) -> str:
    return (
        str(error)
        if type(error) in {ValueError, Exception, InvalidArgumentError}
        else cattrs.v.format_exception(error, target)
    )


def _abbreviate(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"  # noqa: PLR2004  # characters, so that a problem fits on one line


# The converter omits fields that have their default, which keeps lines short.
_convert = cattrs.Converter(omit_if_default=True)


def _require_type(value: object, kind: type) -> object:
    """Refuse a value of another type.

    By itself the converter would turn numbers into text and text into lists of characters.
    """
    if type(value) is not kind:
        problem = f"{_abbreviate(value)} must be {TYPE_NAMES[kind]}"
        raise ValueError(problem)
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
            problem = f"{_abbreviate(value)} is not a part of a message"
            raise ValueError(problem)


def _pass_through(value: object, *_: object) -> object:
    return value


def _require_object(value: object, _: object) -> object:
    return _require_type(value, dict)


def _register_json_fields(kind: type[attrs.AttrsInstance]) -> None:
    """Register hooks for a class that pass its fields of type Json through unchanged."""
    fields = {
        field.name: override(
            struct_hook=_require_object if "Mapping" in str(field.type) else _pass_through,
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
for _kind in (OpaquePart, Checkpoint, BranchSummary, CustomEntry, Setting, Observation):
    _register_json_fields(_kind)
