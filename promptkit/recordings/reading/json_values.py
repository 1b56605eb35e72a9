"""Reading JSON that others wrote: what should be an object is one, or is taken for an empty one.

JSON texts of which nothing is certain, as values that can be written again.
Files of JSON lines: what a line holds, and what is kept of one that cannot be read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias, cast

from promptkit.messages import Json, Usage
from promptkit.transcript.entries import CustomEntry

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = [
    "MAX_DEPTH",
    "JsonObject",
    "keep_bad_line",
    "is_too_deep",
    "dump_json",
    "as_count",
    "as_object",
    "as_objects",
    "parse_number",
    "parse_object",
    "omit_fields",
    "parse_time",
    "as_text",
    "usage_from_openai",
    "parse_json",
    "as_list",
]


JsonObject: TypeAlias = Mapping[str, Json]
"""A JSON object."""

MILLISECONDS = 1e11
"""A time beyond this, some 3,000 years after 1970, is meant in milliseconds."""


def as_object(value: Json) -> JsonObject:
    """The object, or an empty one."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: Json) -> list[Json]:
    """The list, or an empty one."""
    return value if isinstance(value, list) else []


def as_objects(value: Json) -> list[JsonObject]:
    """The objects of a list; nothing else of it."""
    return [item for item in as_list(value) if isinstance(item, Mapping)]


def as_text(value: Json) -> str | None:
    """The text, or None."""
    return value if isinstance(value, str) else None


def as_count(value: Json) -> int | None:
    """A count, such as of tokens; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return int(value)


def parse_time(value: Json) -> float | None:
    """A time in seconds since 1970, of an ISO date or of seconds or milliseconds; None for what is no time."""
    if isinstance(value, str):
        try:
            when = datetime.fromisoformat(value)
            return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e15 < value < 1e15:  # noqa: PLR2004  # what no clock says
        return None
    return value / 1000 if value > MILLISECONDS else float(value)


def usage_from_openai(value: Json) -> Usage | None:
    """What OpenAI's interfaces, and those like them, say about a request's tokens. `input_tokens` includes what was cached."""
    data = as_object(value)
    taken = _first(data, "prompt_tokens", "input_tokens")
    if taken is None:
        return None
    details = as_object(data.get("prompt_tokens_details")) or as_object(data.get("input_tokens_details"))
    cached = _first(details, "cached_tokens") or _first(data, "cached_input_tokens", "prompt_cache_hit_tokens") or 0
    given = _first(data, "completion_tokens", "output_tokens") or 0
    return Usage(input_tokens=taken, output_tokens=given, cached_tokens=min(cached, taken))


def omit_fields(record: JsonObject, known: Collection[str]) -> dict[str, Json]:
    """What is left of an object without the fields that were understood, and without those that say nothing."""
    return {key: value for key, value in record.items() if key not in known and value not in (None, [], {}, "")}


def dump_json(value: Json) -> str:
    """A value as JSON text, for what is text with us and an object elsewhere."""
    return json.dumps(value, ensure_ascii=False)


def _first(data: JsonObject, *names: str) -> int | None:
    return next((found for name in names if (found := as_count(data.get(name))) is not None), None)


MAX_DEPTH = 200
"""Objects and lists in each other. What is nested deeper is kept as text: no reader of ours, or of JSON elsewhere, is sure to take it."""


def parse_json(text: bytes) -> Json:
    """The value of a JSON text. NaN and numbers beyond the range of doubles become text: JSON has no form for them.

    Bytes that are no UTF-8 become replacement characters. Raises ValueError, with the reason, for what is no JSON or nested too deeply.
    """
    try:
        # What json.loads returns is JSON.
        value = cast("Json", json.loads(text.decode("utf-8", errors="replace"), parse_constant=str, parse_float=parse_number))
    except json.JSONDecodeError as error:
        message = f"no JSON: {error.msg} at column {error.colno:,}"
        raise ValueError(message) from error
    except RecursionError:
        message = "nested too deeply"
        raise ValueError(message) from None
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH and is_too_deep(value):
        message = "nested too deeply"
        raise ValueError(message)
    return value


def parse_number(digits: str) -> float | str:
    """A number with a fraction or an exponent; its digits as text where it is too large for a double."""
    number = float(digits)
    return number if math.isfinite(number) else digits


def is_too_deep(value: Json) -> bool:
    """Whether a value is nested deeper than `DEEPEST`."""
    level: list[Json] = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Json] = []
        for item in level:
            if isinstance(item, Mapping):
                inner.extend(child for child in item.values() if isinstance(child, Mapping | list))
            elif isinstance(item, list):
                inner.extend(child for child in item if isinstance(child, Mapping | list))
        if not inner:
            return False
        level = inner
    return True


def parse_object(line: bytes) -> JsonObject | str:
    """The object of a line; in words why it is none."""
    try:
        value = parse_json(line)
    except ValueError as error:
        return f"{error}."
    return value if isinstance(value, Mapping) else "no JSON object."


def keep_bad_line(codec: str, number: int, line: bytes, problem: str) -> CustomEntry:
    """A line that could not be read, kept as text."""
    text = line.decode("utf-8", errors="backslashreplace").rstrip("\r\n")
    return CustomEntry(name=f"{codec}.bad_line", data={"line": number, "problem": problem, "text": text})
