"""Addresses of transcripts: paths of files, and URLs of conversations in databases and object storage."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from promptkit.errors import (
    InvalidArgumentError,
    TranscriptConflictError,
    TranscriptError,
    TranscriptWriteError,
)
from promptkit.transcript.log.entries import Entry
from promptkit.transcript.stores.jsonl.reader import StoredEntry, TranscriptReader
from promptkit.transcript.stores.jsonl.store import JsonlStore
from promptkit.transcript.stores.objects import ObjectStore, list_object_conversations
from promptkit.transcript.stores.sql import SqlStore, list_conversations
from promptkit.transcript.stores.store import ReadProblem, TranscriptStore

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_FILES_ONLY = re.compile(r"(https?|hf)://", re.IGNORECASE)
_DATABASE = re.compile(r"(sqlite|postgres|postgresql)(\+\w+)?://", re.IGNORECASE)
_OBJECTS = re.compile(
    r"(s3a?|gs|gcs|az|azure|adl|abfss?|wasbs?|https?|file|memory)://", re.IGNORECASE
)


def open_store(address: str | os.PathLike[str]) -> TranscriptStore:
    """Open the store of a transcript by its address.

    Args:
        address: The path of a file, or a URL: `sqlite:///talks.db#42`,
            `postgresql://user@host/name#42`, `s3://bucket/talks#42`, `gs://…`, `az://…` or
            `file:///folder#42`. Characters other than letters, digits, `-`, `_`, `.` and `~` after
            the `#` are written as `%20`.

    Returns:
        A `JsonlStore`, a `SqlStore` or an `ObjectStore`.

    Raises:
        InvalidArgumentError: The URL names no conversation, or a place of another kind.
        TranscriptError: The library that the URL needs is not installed.

    >>> transcript = Transcript(open_store("sqlite:///talks.db#42"))
    """
    return (
        JsonlStore(address)
        if not is_url(address)
        else SqlStore(str(address))
        if _is_database(str(address))
        else ObjectStore(str(address))
    )


def _is_database(url: str) -> bool:
    """Return whether a URL is that of a database, and not of object storage. Raises InvalidArgumentError if it is neither."""
    check_scheme(url)
    return _DATABASE.match(url) is not None


def check_scheme(url: str) -> None:
    """Refuse a URL that is neither that of a database nor that of object storage. Raises InvalidArgumentError."""
    if not (_DATABASE.match(url) or _OBJECTS.match(url)):
        raise InvalidArgumentError(
            f"{url.partition('://')[0]}:// is no store of transcripts: write the path of a file, or a URL such as sqlite:///talks.db#42, postgresql://…, s3://…, gs://… or az://…."
        )


def list_transcripts(place: str | os.PathLike[str]) -> list[str]:
    """Return the addresses of the transcripts at a place, sorted.

    Args:
        place: A folder, whose `.jsonl` files are listed, or a URL without `#`, whose conversations
            are listed.

    Raises:
        InvalidArgumentError: The URL names a place of another kind.
        TranscriptError: The place cannot be read, or the library that the URL needs is not
            installed.
    """
    if not is_url(place):
        return sorted(str(file) for file in Path(place).glob("*.jsonl") if file.is_file())
    url = str(place).partition("#")[0]
    list_all = list_conversations if _is_database(url) else list_object_conversations
    return [f"{url}#{quote(conversation, safe='')}" for conversation in list_all(url)]


def open_reader(address: str | os.PathLike[str]) -> TranscriptReader:
    """Open a transcript for reading it entry by entry, with numbers of lines.

    Raises what `open_store` and reading raise.
    """
    return StoreReader(str(address)) if is_url(address) else TranscriptReader(Path(address))


class StoreReader(TranscriptReader):
    """Read the entries of a conversation by its URL, as a `TranscriptReader` reads those of a file.

    Raises TranscriptError if there is no such conversation, and what `open_store` raises.
    """

    def __init__(self, address: str) -> None:
        super().__init__(Path(address))
        self._loaded = open_store(address).load()
        if not (self._loaded.entries or self._loaded.problems):
            raise TranscriptError(
                f"{address}: there is no such conversation, or it has no entries."
            )
        self.entry_count = len(self._loaded.entries)
        """The number of entries that could be read."""
        self.partial = self._loaded.partial

    def __iter__(self) -> Iterator[StoredEntry | ReadProblem]:
        yield from (
            StoredEntry(entry=entry, line=number)
            for entry, number in zip(self._loaded.entries, self._loaded.line_numbers, strict=True)
        )
        yield from self._loaded.problems


def create_conversation(address: str, entries: Sequence[Entry]) -> None:
    """Write entries as a new conversation, completely or not at all.

    Args:
        address: The URL of the conversation.
        entries: The entries.

    Raises:
        TranscriptWriteError: The conversation has entries, or cannot be written.
    """
    try:
        open_store(address).append(entries, expect="")
    except TranscriptConflictError as error:
        raise TranscriptWriteError(
            "the conversation already has entries, which are never replaced: write another id after the #.",
            file=address,
        ) from error


def is_url(address: str | os.PathLike[str]) -> bool:
    """Return whether an address is a URL. All others are paths."""
    return isinstance(address, str) and _URL.match(address) is not None


def is_conversation(address: str | os.PathLike[str]) -> bool:
    """Return whether an address is the URL of a conversation in a database or in object storage, and not of a file."""
    text = str(address)
    return (
        is_url(address)
        and not _FILES_ONLY.match(text)
        and ("#" in text or _DATABASE.match(text) is not None)
    )
