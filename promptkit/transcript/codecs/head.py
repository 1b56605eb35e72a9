"""How a file begins, as far as is needed to tell its format."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs

from promptkit.errors import TranscriptFormatError
from promptkit.transcript.codecs.jsontext import value_of
from promptkit.transcript.codecs.parser import steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.transcript.codecs.source import Source
    from promptkit.transcript.codecs.values import Record

__all__ = ["Head", "head_of"]

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
