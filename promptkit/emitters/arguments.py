"""Tool call arguments as a JSON object, for wire formats that want one instead of the model's text."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from promptkit.messages import Json

__all__ = ["arguments_object"]


def arguments_object(text: str) -> dict[str, Json]:
    """The object that arguments say; empty text, which some models write for no arguments, is an empty object.

    Integers keep every digit; a fraction becomes the nearest double, as in every JSON reader. Raises ValueError, with the reason,
    for anything that is no JSON object and for what would reach the model changed: a key twice in one object, a number beyond the
    range of doubles, NaN.
    """
    if not text.strip():
        return {}
    try:
        value: object = json.loads(text, object_pairs_hook=_object, parse_float=_finite, parse_constant=_constant)
    except RecursionError:
        message = "they are nested too deeply to be read"
        raise ValueError(message) from None
    if not isinstance(value, dict):
        message = f"they are JSON, but not an object: {text[:40]}{'…' if len(text) > 40 else ''}"  # noqa: PLR2004  # characters
        raise ValueError(message)  # noqa: TRY004  # one kind of error for one kind of failure
    return cast("dict[str, Json]", value)  # what json.loads returns is JSON


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for key, value in pairs:
        if key in found:
            message = f"the key {key!r} stands twice in one object"
            raise ValueError(message)
        found[key] = value
    return found


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        message = f"the number {digits} is beyond the range of doubles"
        raise ValueError(message)
    return number


def _constant(name: str) -> Json:
    message = f"{name} is no JSON"
    raise ValueError(message)
