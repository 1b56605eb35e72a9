"""Memories as text: one line each, in files by day, each section with the key of what it was taken from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from promptkit.compaction.comments import comment, commented
from promptkit.compaction.serialise import neutral

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import date, datetime

__all__ = ["bullets", "dated_name", "keys_of", "memories_of", "merged", "newest_lines", "readable"]

LONGEST = 500
"""Characters of one memory."""

_BULLET = re.compile(r"^\s{0,12}(?:[-*•]|\d{1,3}[.)])\s+(\S.*)$", re.MULTILINE)
_LETTERS = re.compile(r"[^\W_]+")
_NOTHING = frozenset({"none", "nothing", "n a", "no memories", "nothing to remember"})


def dated_name(day: date) -> str:
    """The name of a day's file.

    >>> dated_name(date(2026, 1, 2))
    '2026-01-02.md'
    """
    return f"{day:%Y-%m-%d}.md"


def bullets(text: str) -> tuple[str, ...]:
    """The points of a list, each in one line; what says that there are none is none."""
    points = (_line(match[1]) for match in _BULLET.finditer(text))
    return tuple(point for point in points if (normal := _normal(point)) and normal not in _NOTHING)


def memories_of(text: str) -> tuple[str, ...]:
    """The memories in a day's file."""
    return tuple(line[2:] for line in text.splitlines() if line.startswith("- "))


def keys_of(text: str) -> frozenset[str]:
    """The keys of its sections."""
    return frozenset(key for line in text.splitlines() if isinstance(key := commented(line).get("key"), str))


def merged(text: str, memories: Sequence[str], *, key: str, at: datetime, known: Iterable[str] = ()) -> str:
    """A day's file with new memories under a heading of the time; the file as it is where the key is in it, or nothing is new.

    Memories that differ only in case, spaces and punctuation are the same; `known` are those of other files.
    """
    if key in keys_of(text):
        return text
    seen = set(map(_normal, (*memories_of(text), *known)))
    fresh: list[str] = []
    for memory in map(_line, memories):
        normal = _normal(memory)
        if normal and normal not in seen:
            seen.add(normal)
            fresh.append(f"- {memory}")
    if not fresh:
        return text
    section = "\n".join([f"## {at:%H:%M}", "", comment({"key": key}), "", *fresh])
    return f"{text.rstrip() or f'# {at:%Y-%m-%d}'}\n\n{section}\n"


def readable(text: str) -> str:
    """A file as a model is shown it: without comments."""
    lines = [line for line in text.splitlines() if not commented(line)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def newest_lines(text: str, characters: int) -> str:
    """The last lines of a text that have room."""
    if len(text) <= characters:
        return text
    at = text.find("\n", len(text) - characters - 1)
    return "" if at < 0 else text[at + 1 :]


def _line(text: str) -> str:
    """A memory in one line, in which no tag is ours."""
    plain = neutral(" ".join(text.split()))
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 1]}…"


def _normal(memory: str) -> str:
    return " ".join(_LETTERS.findall(memory.casefold()))
