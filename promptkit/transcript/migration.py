"""Files of older versions: a table that says how the records of each become those of the next.

A file is read through the table, and stays as it is; it is rewritten when something is appended to it, and the old file is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from promptkit.errors import TranscriptFormatError
from promptkit.transcript.framing import VERSION

if TYPE_CHECKING:
    from promptkit.messages import Json

__all__ = ["MIGRATIONS", "Migrations", "Record", "migrated", "require_readable"]

Record: TypeAlias = "Mapping[str, Json]"

Migrations: TypeAlias = "Mapping[int, Callable[[Iterable[Record]], Iterator[Record]]]"
"""For a version what makes its records, in the order of the file and without the header, records of the next.

A pure function: a file that was read and the same file after it was rewritten must give the same entries, ids included.
"""

MIGRATIONS: Migrations = MappingProxyType({})
"""Version 1 is the first."""


def require_readable(version: int, migrations: Migrations, file: str) -> None:
    """Raises TranscriptFormatError for a version that is neither the present one nor in the table."""
    if version > VERSION:
        problem = f"version {version} of the format; this promptkit reads up to {VERSION}: use a newer one. The file is left as it is."
        raise TranscriptFormatError(problem, file=file)
    if any(step not in migrations for step in range(version, VERSION)):
        problem = f"version {version} of the format, which is not known. The file is left as it is."
        raise TranscriptFormatError(problem, file=file)


def migrated(records: Iterable[Record], version: int, migrations: Migrations) -> Iterator[Record]:
    """The records of a version as those of the present one."""
    found = iter(records)
    for step in range(version, VERSION):
        found = migrations[step](found)
    return found
