"""Reading JSON that others wrote: what should be an object is one, or is taken for an empty one."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from promptkit.messages import Json, Usage

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Record", "number_of", "object_of", "objects_of", "rest", "seconds", "text_of", "usage_of", "values_of", "written"]

Record: TypeAlias = Mapping[str, Json]
"""A JSON object."""

MILLISECONDS = 1e11
"""A time beyond this, some 3,000 years after 1970, is meant in milliseconds."""


def object_of(value: Json) -> Record:
    """The object, or an empty one."""
    return value if isinstance(value, Mapping) else {}


def values_of(value: Json) -> list[Json]:
    """The list, or an empty one."""
    return value if isinstance(value, list) else []


def objects_of(value: Json) -> list[Record]:
    """The objects of a list; nothing else of it."""
    return [item for item in values_of(value) if isinstance(item, Mapping)]


def text_of(value: Json) -> str | None:
    """The text, or None."""
    return value if isinstance(value, str) else None


def number_of(value: Json) -> int | None:
    """A count, such as of tokens; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return int(value)


def seconds(value: Json) -> float | None:
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


def usage_of(value: Json) -> Usage | None:
    """What OpenAI's interfaces, and those like them, say about a request's tokens. `input_tokens` includes what was cached."""
    data = object_of(value)
    taken = _first(data, "prompt_tokens", "input_tokens")
    if taken is None:
        return None
    details = object_of(data.get("prompt_tokens_details")) or object_of(data.get("input_tokens_details"))
    cached = _first(details, "cached_tokens") or _first(data, "cached_input_tokens", "prompt_cache_hit_tokens") or 0
    given = _first(data, "completion_tokens", "output_tokens") or 0
    return Usage(input_tokens=taken, output_tokens=given, cached_tokens=min(cached, taken))


def rest(record: Record, known: Collection[str]) -> dict[str, Json]:
    """What is left of an object without the fields that were understood, and without those that say nothing."""
    return {key: value for key, value in record.items() if key not in known and value not in (None, [], {}, "")}


def written(value: Json) -> str:
    """A value as JSON text, for what is text with us and an object elsewhere."""
    return json.dumps(value, ensure_ascii=False)


def _first(data: Record, *names: str) -> int | None:
    return next((found for name in names if (found := number_of(data.get(name))) is not None), None)
