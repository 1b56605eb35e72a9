"""What a later answer may need of a message: identifiers, paths, error texts. Found by rules, the same for the same text, in one pass."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.messages import Message

__all__ = ["mentions", "said_in", "words_of"]

# Each pattern takes every character once: what is between two matches is never looked at again.
_RUN = re.compile(r"[\w./~@+\-]+")
_ERROR = re.compile(r"(?:[Ee]rror|[Ee]xception|fatal|panic|FAILED)(?:\[\w{1,20}\])?:[ \t]([^\n]{4,400})")
_WORD = re.compile(r"\w+")
_HUMP = re.compile(r"[a-z][A-Z]|[A-Z][a-z]+[A-Z]")

SHORTEST, LONGEST = 5, 200
"""Characters of an identifier or a path."""

ERROR = 80
"""Characters of an error text that have to be there again."""


def mentions(message: Message) -> frozenset[str]:
    """The identifiers, paths and error texts of a message and of its calls.

    Of `Why does load_file in src/io.py fail? ValueError: no such row`: `load_file`, `src/io.py`, `ValueError`, `error: no such row`.
    """
    found: set[str] = set()
    for text in said_in(message):
        for match in _RUN.finditer(text):
            run = match.group().strip("./-+")
            if SHORTEST <= len(run) <= LONGEST and _tells(run):
                found.add(run)
        for match in _ERROR.finditer(text):
            found.add(f"error: {' '.join(match[1][: 2 * ERROR].split())[:ERROR]}")
    return frozenset(found)


def words_of(text: str) -> str:
    """The words of a text alone: the same however it was indented, wrapped or marked up."""
    return " ".join(_WORD.findall(text))


def said_in(message: Message) -> Iterator[str]:
    """The texts of a message: its own, and the names and texts in its calls' arguments, read as JSON where they are."""
    yield message.text
    for call in message.tool_calls:
        yield call.name
        yield from _texts(call.arguments)


def _texts(arguments: str) -> Iterator[str]:
    try:
        left: list[object] = [json.loads(arguments)]
    except (ValueError, RecursionError):
        yield arguments
        return
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            left.extend(value.values())  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]  # JSON, looked at above
        elif isinstance(value, list):
            left.extend(value)  # pyright: ignore[reportUnknownArgumentType]  # as above


def _tells(run: str) -> bool:
    """Whether a run of characters is a name rather than a word of a language or a number."""
    if not any(character.isalpha() for character in run):
        return False
    inside = run[1:-1]
    return any(mark in inside for mark in "/_@") or _is_dotted(run) or _HUMP.search(run) is not None or any(map(str.isdigit, run))


def _is_dotted(run: str) -> bool:
    """`parser.py`, `os.path.join`; not the end of one sentence with the start of the next, nor `e.g`."""
    before, dot, behind = run.rpartition(".")
    return bool(dot) and len(before) > 1 and len(behind) > 1 and behind[0].islower()
