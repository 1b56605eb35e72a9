"""Reading JSON that other programs wrote: values of the expected type, or an empty one, and texts that may be damaged."""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import TypeAlias

from promptkit.messages import Json
from promptkit.transcript import CustomEntry, EntryPayload

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
    return value if isinstance(value, dict) else {}


def as_list(value: Json) -> list[Json]:
    """Return the value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def as_blocks(content: Json) -> list[Json]:
    """Return the blocks of a content. A text, or anything else but a list, is one."""
    return content if isinstance(content, list) else [content]


def as_objects(value: Json) -> list[JsonObject]:
    """Return the objects in a list. Other items are ignored."""
    return [item for item in as_list(value) if isinstance(item, dict)]


def as_text(value: Json) -> str | None:
    """Return the value if it is a string, else None."""
    return value if isinstance(value, str) else None


def as_count(value: Json) -> int | None:
    """Return the value as a whole number if it is a number of at least 0, else None."""
    return (
        int(value)
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
        else None
    )


def parse_time(value: Json) -> float | None:
    """Return a time in seconds since 1970, from an ISO date, from seconds or from milliseconds; None if the value is no time."""
    if isinstance(value, str):
        try:
            date = datetime.fromisoformat(value)
            return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    return (
        (value / 1000 if value > MIN_MILLISECONDS else float(value))
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and -MAX_TIME < value < MAX_TIME
        else None
    )


def omit_fields(record: JsonObject, known: Collection[str]) -> dict[str, Json]:
    """Return the fields of an object that are neither in `known` nor empty: what a format did not understand."""
    return {
        key: value
        for key, value in record.items()
        if key not in known and value not in (None, [], {}, "")
    }


def dump_json(value: Json) -> str:
    """Write a value as JSON text, for example arguments that a recording holds as an object."""
    return _ENCODER.encode(value)


def parse_json(text: bytes) -> Json:
    """Parse a JSON text.

    NaN and numbers beyond the range of doubles become strings, because they cannot be written as
    JSON.

    Invalid UTF-8 becomes replacement characters. Raises ValueError, with the reason, for text that
    is not JSON or is nested too deeply.
    """
    # The reasons are stored in transcripts, beside the line, so that they must not change.
    if text.startswith(codecs.BOM_UTF8):
        raise ValueError("no JSON: Unexpected UTF-8 BOM (decode using utf-8-sig) at column 1")
    try:
        value: Json = _TOLERANT_DECODER.decode(text.decode("utf-8", errors="replace"))
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error.msg} at column {error.colno:,}") from error
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH and is_too_deep(value):
        raise ValueError("nested too deeply")
    return value


def parse_number(digits: str | Decimal) -> float | str:
    """Return a number, or its digits if it is beyond the range of doubles."""
    number = float(digits)
    return number if math.isfinite(number) else str(digits)


# Made once: `json.dumps` and `json.loads` would make one for every value.
_ENCODER = json.JSONEncoder(ensure_ascii=False)
_TOLERANT_DECODER = json.JSONDecoder(parse_constant=str, parse_float=parse_number)


def is_too_deep(value: Json) -> bool:
    """Return whether a value is nested deeper than `MAX_DEPTH`."""
    level: list[Json] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, Mapping) else as_list(item))
            if isinstance(child, Mapping | list)
        ]
        if not level:
            return False
    return True


def parse_object(line: bytes) -> JsonObject | str:
    """Parse the JSON object of a line. Returns what is wrong, in words, if there is none."""
    try:
        value = parse_json(line)
    except ValueError as error:
        return f"{error}."
    return value if isinstance(value, dict) else "no JSON object."


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
