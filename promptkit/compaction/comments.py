"""A JSON object in an HTML comment: how files for people also say to programs what they are."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["comment", "commented"]

_COMMENT = re.compile(r"<!-- (\{[^\n]*\}) -->")


def comment(value: Mapping[str, str]) -> str:
    r"""The comment, in one line. Nothing in the value ends it.

    >>> comment({"key": "--> a"})
    '<!-- {"key": "-\\u002d> a"} -->'
    """
    text = json.dumps(value).replace("--", "-\\u002d")
    return f"<!-- {text} -->"


def commented(line: str) -> Mapping[str, object]:
    """The value of a line that is such a comment; an empty one for any other line."""
    match = _COMMENT.fullmatch(line.strip())
    try:
        value: object = json.loads(match[1]) if match else None
    except (ValueError, RecursionError):
        return {}
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}  # JSON has no other keys
