"""Files of JSON lines: what a line holds, and what is kept of one that cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from promptkit.transcript.codecs.jsontext import value_of
from promptkit.transcript.entries import Custom

if TYPE_CHECKING:
    from promptkit.transcript.codecs.values import Record

__all__ = ["bad_line", "record_of"]


def record_of(line: bytes) -> Record | str:
    """The object of a line; in words why it is none."""
    try:
        value = value_of(line)
    except ValueError as error:
        return f"{error}."
    return value if isinstance(value, Mapping) else "no JSON object."


def bad_line(codec: str, number: int, line: bytes, problem: str) -> Custom:
    """A line that could not be read, kept as text."""
    text = line.decode("utf-8", errors="backslashreplace").rstrip("\r\n")
    return Custom(name=f"{codec}.bad_line", data={"line": number, "problem": problem, "text": text})
