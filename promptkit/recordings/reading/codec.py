"""How a file begins, as far as is needed to tell its format.

What every codec is: a format's name, how a file of it is told, and how it is read, batch by batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import attrs

from promptkit.errors import TranscriptFormatError
from promptkit.recordings.reading.json_stream import walk_paths
from promptkit.recordings.reading.json_values import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.recordings.reading.json_values import JsonObject
    from promptkit.recordings.reading.source import RecordingSource
    from promptkit.transcript.entries import Entry
    from promptkit.transcript.store import ReadProblem

__all__ = ["Batch", "RecordingFormat", "FileHead", "read_head"]


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
class FileHead:
    """What was seen of a file."""

    name: str
    """Of the file, without a folder."""
    records: tuple[JsonObject, ...]
    """The first lines that are JSON objects."""
    json_paths: frozenset[str]
    """Paths in the JSON text, such as `messages.item.role`, and what stands there: `messages.item.role=user`. A list's members are `item`."""


def read_head(source: RecordingSource) -> FileHead:
    """How a file begins. Raises nothing for what is no JSON: it has no facts then."""
    return FileHead(name=source.name, records=tuple(_as_far_as_it_goes(_records(source))), json_paths=frozenset(_facts(source)))


def _as_far_as_it_goes(records: Iterator[JsonObject]) -> Iterator[JsonObject]:
    with suppress(TranscriptFormatError):
        yield from records


def _records(source: RecordingSource) -> Iterator[JsonObject]:
    file = source.open()
    found = 0
    for _ in range(4 * LINES):
        line = file.readline(LINE_BYTES)
        if not line or found == LINES or (len(line) == LINE_BYTES and not line.endswith(b"\n")):
            return
        try:
            value = parse_json(line)
        except ValueError:
            continue
        if isinstance(value, Mapping):
            found += 1
            yield value


def _facts(source: RecordingSource) -> set[str]:
    found: set[str] = set()
    with suppress(TranscriptFormatError):  # what came before still tells something
        for count, (prefix, value) in enumerate(walk_paths(source)):
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
    call_id_scope: str = ""
    """Where call ids belong together: conversations that have nothing to do with each other have different ones."""
    skipped: tuple[ReadProblem, ...] = ()
    """Lines that could not be read. Their text is kept as a custom entry."""
    relocated: tuple[ReadProblem, ...] = ()
    """What was read, but could not stand where the recording puts it."""


class RecordingFormat(Protocol):
    """Reads one format."""

    @property
    def name(self) -> str:
        """What the format is called on the command line, and in the names of custom entries."""
        ...

    @property
    def description(self) -> str:
        """What writes such files, in a few words."""
        ...

    def matches(self, head: FileHead) -> bool:
        """Whether a file that begins so is of this format."""
        ...

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """The entries of a recording, in its order. Holds ids and the round that is being read, never the whole file.

        Raises TranscriptFormatError for a file that stops being of the format, after all that could be read was given.
        """
        ...
