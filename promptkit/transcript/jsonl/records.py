"""Entries as JSON, one object each, and back: what is written is what is read, and what is not understood is kept."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast, get_origin

import attrs
import cattrs
from cattrs.cols import list_structure_factory
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from promptkit.errors import TranscriptError
from promptkit.messages import CacheBreakpointPart, DocumentPart, ImagePart, Json, Message, OpaquePart, Part
from promptkit.transcript.entries import KINDS, BranchSummary, Checkpoint, Custom, Entry, Observation, Setting, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from promptkit.transcript.entries import Payload

__all__ = ["entry_from_json", "entry_to_json", "message_from_json", "message_to_json"]

PARTS = {"image": ImagePart, "document": DocumentPart, "opaque": OpaquePart, "boundary": CacheBreakpointPart}
NAMES = {kind: name for name, kind in PARTS.items()}
PAYLOADS: dict[str, type[Payload]] = {kind: payload for payload, kind in KINDS.items() if payload is not Unknown}
FIELDS = ("id", "parent_id", "kind", "time", "data")
WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", list: "a list", dict: "an object"}

# A converter that leaves out what has its default, so that a line holds what there is to say.
_convert = cattrs.Converter(omit_if_default=True)


def _exactly(value: object, kind: type) -> object:
    """A value of just this kind. Left to itself the converter would make texts of numbers, and lists of the letters of a text."""
    if type(value) is not kind:
        problem = f"{_shown(value)} stands where {WORDS[kind]} is wanted"
        raise ValueError(problem)
    return value


def _is_tuple(kind: object) -> bool:
    origin: object = get_origin(kind)
    return origin is tuple


def _tuple_of_list(kind: type) -> Callable[[object, type], tuple[object, ...]]:
    structure = list_structure_factory(kind, _convert)

    def hook(value: object, wanted: type) -> tuple[object, ...]:
        made: list[object] = structure(_exactly(value, list), wanted)
        return tuple(made)

    return hook


def _part_to_json(part: Part) -> object:
    return part if isinstance(part, str) else {"type": NAMES[type(part)], **_convert.unstructure(part, type(part))}


def _part_from_json(value: object, _: object) -> Part:
    match value:
        case str():
            return value
        case {"type": str(name)} if name in PARTS:
            return _convert.structure(cast("dict[str, Json]", value), PARTS[name])  # read from JSON
        case {"type": str()}:
            # A part of a later version: kept, and sent to nobody.
            return OpaquePart(value=cast("Json", value), tokens=0, provider="unknown")  # read from JSON
        case _:
            problem = f"{_shown(value)} is no part of a message"
            raise ValueError(problem)


def _as_it_is(value: object, *_: object) -> object:
    return value


def _object(value: object, _: object) -> object:
    return _exactly(value, dict)


def _keep_json(kind: type[attrs.AttrsInstance]) -> None:
    """Have the fields of a class that hold any JSON passed on as they are."""
    fields = {
        field.name: override(struct_hook=_object if "Mapping" in str(field.type) else _as_it_is, unstruct_hook=_as_it_is)
        for field in attrs.fields(kind)
        if "Json" in str(field.type)
    }
    _convert.register_structure_hook(kind, make_dict_structure_fn(kind, _convert, **fields))  # type: ignore[arg-type]  # the fields share a signature with options
    _convert.register_unstructure_hook(kind, make_dict_unstructure_fn(kind, _convert, _cattrs_omit_if_default=True, **fields))  # type: ignore[arg-type]  # as above


for _plain in (str, int, bool):
    _convert.register_structure_hook(_plain, _exactly)
_convert.register_structure_hook_factory(_is_tuple, _tuple_of_list)
_convert.register_unstructure_hook(Part, _part_to_json)
_convert.register_structure_hook(Part, _part_from_json)
for _kind in (OpaquePart, Checkpoint, BranchSummary, Custom, Setting, Observation):
    _keep_json(_kind)


def message_to_json(message: Message) -> dict[str, Json]:
    """A message with all that it holds. What has its default is left out."""
    made: dict[str, Json] = _convert.unstructure(message, Message)
    return made


def message_from_json(data: Mapping[str, Json]) -> Message:
    """The message that `message_to_json` wrote. Raises TranscriptError for what is none."""
    try:
        return _convert.structure(data, Message)
    except (cattrs.BaseValidationError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise TranscriptError(_problem(error)) from error


def entry_to_json(entry: Entry) -> dict[str, Json]:
    """An entry: `{"id", "parent_id", "kind", "time", "data"}`."""
    if isinstance(entry.payload, Unknown):
        kind, data = entry.payload.kind, entry.payload.data
    else:
        kind, data = entry.kind, _convert.unstructure(entry.payload, type(entry.payload))
    return {"id": entry.id, "parent_id": entry.parent_id, "kind": kind, "time": entry.time, "data": data}


def entry_from_json(record: Mapping[str, Json]) -> Entry:
    """The entry of a record. A kind that is not known becomes an `Unknown`. Raises TranscriptError, in one line, for what is no entry."""
    match record:
        case {
            "id": str(entry_id),
            "parent_id": None | str() as parent,
            "kind": str(kind),
            "time": int() | float() as time,
            "data": dict(data),
        } if entry_id and type(time) is not bool and math.isfinite(time):
            return Entry(id=entry_id, parent_id=parent, time=time, payload=_payload(kind, data))
        case _:
            missing = [name for name in FIELDS if name not in record]
            problem = f"an entry has no {', '.join(missing)}." if missing else "a field of an entry has a value that it cannot have."
            raise TranscriptError(problem)


def _payload(kind: str, data: Mapping[str, Json]) -> Payload:
    known = PAYLOADS.get(kind)
    if known is None:
        return Unknown(kind=kind, data=data)
    try:
        payload: Payload = _convert.structure(data, known)
    except (cattrs.BaseValidationError, TypeError, ValueError, KeyError, AttributeError) as error:
        problem = f"the data of the {kind} cannot be read: {_problem(error)}"
        raise TranscriptError(problem) from error
    return payload


def _problem(error: Exception) -> str:
    return "; ".join(cattrs.transform_error(error, format_exception=_said))


def _said(error: BaseException, wanted: type | None) -> str:
    return str(error) if type(error) in {ValueError, Exception} else cattrs.v.format_exception(error, wanted)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"  # noqa: PLR2004  # characters, so that a problem stays one line
