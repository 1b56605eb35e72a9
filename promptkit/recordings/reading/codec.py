"""How a file begins, as far as is needed to tell its format.

What every codec is: a format's name, how a file of it is told, and how it is read, batch by batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import attrs

from promptkit.errors import TranscriptFormatError
from promptkit.recordings.reading.json_stream import steps
from promptkit.recordings.reading.json_values import value_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.recordings.reading.json_values import Record
    from promptkit.recordings.reading.source import Source
    from promptkit.transcript.entries import Entry
    from promptkit.transcript.store import Problem

__all__ = ["Batch", "Codec", "Head", "head_of"]


LINES = 50
"""Objects of a file of lines that are looked at."""

LINE_BYTES = 1 << 24
"""Bytes of a line that are looked at: what is longer is one JSON text."""

EVENTS = 200_000
"""Steps of a parser, which for a recording are many megabytes."""

FACTS = 5_000
LONGEST = 120
"""Characters of a path that says something about a format."""

TELLING = ("role", "type", "trajectory_format", "source")
"""Fields whose value is told, too."""


@attrs.frozen(kw_only=True)
class Head:
    """What was seen of a file."""

    name: str
    """Of the file, without a folder."""
    records: tuple[Record, ...]
    """The first lines that are JSON objects."""
    facts: frozenset[str]
    """Paths in the JSON text, such as `messages.item.role`, and what stands there: `messages.item.role=user`. A list's members are `item`."""


def head_of(source: Source) -> Head:
    """How a file begins. Raises nothing for what is no JSON: it has no facts then."""
    return Head(name=source.name, records=tuple(_as_far_as_it_goes(_records(source))), facts=frozenset(_facts(source)))


def _as_far_as_it_goes(records: Iterator[Record]) -> Iterator[Record]:
    with suppress(TranscriptFormatError):
        yield from records


def _records(source: Source) -> Iterator[Record]:
    file = source.begin()
    found = 0
    for _ in range(4 * LINES):
        line = file.readline(LINE_BYTES)
        if not line or found == LINES or (len(line) == LINE_BYTES and not line.endswith(b"\n")):
            return
        try:
            value = value_of(line)
        except ValueError:
            continue
        if isinstance(value, Mapping):
            found += 1
            yield value


def _facts(source: Source) -> set[str]:
    found: set[str] = set()
    with suppress(TranscriptFormatError):  # what came before still tells something
        for count, (prefix, value) in enumerate(steps(source)):
            if count > EVENTS or len(found) > FACTS:
                break
            if len(prefix) <= LONGEST:
                found.add(prefix)
                if isinstance(value, str) and len(value) <= LONGEST and prefix.rpartition(".")[2] in TELLING:
                    found.add(f"{prefix}={value}")
    return found


@attrs.frozen(kw_only=True)
class Batch:
    """What a piece of a recording comes to."""

    entries: tuple[Entry, ...] = ()
    """In the order in which they are written; each parent stands before its children, in this batch or an earlier one."""
    messages: int = 0
    """Messages as the recording counts them: its own records, whatever number of entries they became."""
    conversations: int = 0
    """Conversations that begin here."""
    scope: str = ""
    """Where call ids belong together: conversations that have nothing to do with each other have different ones."""
    skipped: tuple[Problem, ...] = ()
    """Lines that could not be read. Their text is kept as a custom entry."""
    mended: tuple[Problem, ...] = ()
    """What was read, but could not stand where the recording puts it."""


class Codec(Protocol):
    """Reads one format."""

    @property
    def name(self) -> str:
        """What the format is called on the command line, and in the names of custom entries."""
        ...

    @property
    def about(self) -> str:
        """What writes such files, in a few words."""
        ...

    def detects(self, head: Head) -> bool:
        """Whether a file that begins so is of this format."""
        ...

    def read(self, source: Source) -> Iterator[Batch]:
        """The entries of a recording, in its order. Holds ids and the round that is being read, never the whole file.

        Raises TranscriptFormatError for a file that stops being of the format, after all that could be read was given.
        """
        ...
