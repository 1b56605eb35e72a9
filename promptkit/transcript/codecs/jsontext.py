"""JSON texts of which nothing is certain, as values that can be written again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from promptkit.messages import Json

__all__ = ["DEEPEST", "is_deep", "plain_number", "value_of"]

DEEPEST = 200
"""Objects and lists in each other. What is nested deeper is kept as text: no reader of ours, or of JSON elsewhere, is sure to take it."""


def value_of(text: bytes) -> Json:
    """The value of a JSON text. NaN and numbers beyond the range of doubles become text: JSON has no form for them.

    Bytes that are no UTF-8 become replacement characters. Raises ValueError, with the reason, for what is no JSON or nested too deeply.
    """
    try:
        # What json.loads returns is JSON.
        value = cast("Json", json.loads(text.decode("utf-8", errors="replace"), parse_constant=str, parse_float=plain_number))
    except json.JSONDecodeError as error:
        message = f"no JSON: {error.msg} at column {error.colno:,}"
        raise ValueError(message) from error
    except RecursionError:
        message = "nested too deeply"
        raise ValueError(message) from None
    if text.count(b"[") + text.count(b"{") > DEEPEST and is_deep(value):
        message = "nested too deeply"
        raise ValueError(message)
    return value


def plain_number(digits: str) -> float | str:
    """A number with a fraction or an exponent; its digits as text where it is too large for a double."""
    number = float(digits)
    return number if math.isfinite(number) else digits


def is_deep(value: Json) -> bool:
    """Whether a value is nested deeper than `DEEPEST`."""
    level: list[Json] = [value]
    for _ in range(DEEPEST):
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
