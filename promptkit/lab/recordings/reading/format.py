"""What a recording format is: its name, how one of its files is recognized, and how a file is read batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import attrs

from promptkit.errors import TranscriptFormatError
from promptkit.lab.recordings.reading.json_stream import walk_paths
from promptkit.lab.recordings.reading.json_values import JsonObject, parse_object, split_objects

if TYPE_CHECKING:
    from promptkit.lab.recordings.reading.source import RecordingSource
    from promptkit.transcript import Entry, ReadProblem


class RecordingFormat(Protocol):
    """Read the recordings of one agent."""

    @property
    def name(self) -> str:
        """The name of the format on the command line and in the names of custom entries."""
        ...

    def matches(self, head: FileHead) -> bool:
        """Return whether a file that begins like this has this format."""
        ...

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """Yield the entries of a recording in its order.

        Keeps ids and the answer that is being read, never the whole file.

        Raises TranscriptFormatError if the file stops being of this format. All batches before were
        yielded.
        """
        ...


@attrs.frozen(kw_only=True)
class Batch:
    """The entries of a part of a recording."""

    entries: tuple[Entry, ...] = ()
    """The entries, in the order in which they are written. A parent is before its children, in this
    batch or an earlier one."""
    messages: int = 0
    """Messages as the recording counts them: its own records, however many entries they became."""
    attachments: int = 0
    """What became messages without being one of the recording's."""
    conversations: int = 0
    """Conversations that begin in this batch."""
    call_id_scope: str = ""
    """The namespace of the tool call ids. Unrelated conversations have different ones."""
    skipped: tuple[ReadProblem, ...] = ()
    """Lines that could not be read. Custom entries keep their text."""
    relocated: tuple[ReadProblem, ...] = ()
    """Lines whose parent is missing, and which were therefore placed elsewhere."""


@attrs.frozen(kw_only=True)
class FileHead:
    """The beginning of a file, as far as it is needed to recognize its format."""

    name: str
    """The name of the file, without a directory."""
    records: tuple[JsonObject, ...]
    """The first lines that are JSON objects."""
    _source: RecordingSource = attrs.field(alias="source")

    @cached_property
    def json_paths(self) -> frozenset[str]:
        """Paths in the JSON text such as `messages.item.role`, some also with their value: `messages.item.role=user`.

        The members of a list are called `item`. A file that is not JSON has no paths. Finding them
        takes far longer than the lines, and most formats are recognized without them.
        """
        return frozenset(_find_paths(self._source))


MAX_RECORDS = 50
"""Lines with JSON objects that are looked at."""

MAX_LINE_BYTES = 1 << 24
"""A longer line is not taken for a record, but for a JSON text of one line."""

MAX_STEPS = 200_000
"""Steps of the parser that are looked at: many megabytes of a recording."""

MAX_PATHS = 5_000
MAX_PATH_CHARACTERS = 120
"""Longer paths and values are ignored."""

FIELDS_WITH_VALUE = ("role", "type", "trajectory_format", "source")
"""Fields whose paths are also reported with their value."""


def read_head(source: RecordingSource) -> FileHead:
    """Read the beginning of a file. Raises nothing for a file that is not JSON."""
    return FileHead(
        name=source.name,
        records=tuple(_read_records(source)),
        source=source,
    )


def has_long_start(source: RecordingSource) -> bool:
    """Return whether the first line of a file is longer than `MAX_LINE_BYTES`, so that it is not looked at."""
    return _is_cut(source.open().readline(MAX_LINE_BYTES))


def _is_cut(line: bytes) -> bool:
    return len(line) == MAX_LINE_BYTES and not line.endswith(b"\n")


def _read_records(source: RecordingSource) -> Iterator[JsonObject]:
    found = 0
    with suppress(TranscriptFormatError):  # the records before the damage may be enough
        file = source.open()
        for _ in range(4 * MAX_RECORDS):
            line = file.readline(MAX_LINE_BYTES)
            if not line or found == MAX_RECORDS or _is_cut(line):
                return
            for part in split_objects(line):
                record = parse_object(part)
                if not isinstance(record, str):
                    found += 1
                    yield record


def _find_paths(source: RecordingSource) -> set[str]:
    paths: set[str] = set()
    with suppress(TranscriptFormatError):  # the paths before the damage may be enough
        for count, (path, value) in enumerate(walk_paths(source)):
            if count > MAX_STEPS or len(paths) > MAX_PATHS:
                break
            if len(path) <= MAX_PATH_CHARACTERS:
                paths.add(path)
                if (
                    isinstance(value, str)
                    and len(value) <= MAX_PATH_CHARACTERS
                    and path.rpartition(".")[2] in FIELDS_WITH_VALUE
                ):
                    paths.add(f"{path}={value}")
    return paths
