"""Stores of transcripts: the protocol of all stores, what a store may do beyond it, and the store in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Protocol, runtime_checkable
from urllib.parse import quote, unquote

import attrs

from promptkit.errors import (
    InvalidArgumentError,
    TranscriptConflictError,
    TranscriptError,
    TranscriptWriteError,
)
from promptkit.reprs import describe, describe_fields
from promptkit.transcript.log.entries import Entry, EntryKind

MAX_CONVERSATION_CHARACTERS = 200
"""Characters of the id of a conversation."""


class TranscriptStore(Protocol):
    """Keep the entries of a transcript.

    A batch is stored completely or not at all, and it survives a crash once `append` has returned.
    A store belongs to one transcript. Two transcripts on the same file, in one process or in two,
    each open a store of their own. The tests of `promptkit.testing.contracts` check all of
    this for any store.
    """

    @property
    def address(self) -> str | None:
        """The place of the transcript, for people and models: an absolute path or a URL without secrets.

        None if it is only in memory.
        """
        ...

    def load(self) -> LoadedEntries:
        """Read all entries, as far as they can be read."""
        ...

    def refresh(self) -> LoadedEntries:
        """Read what other writers appended since the last read.

        The result may repeat entries that were returned before.
        """
        ...

    def append(self, entries: Sequence[Entry], *, expect: str | None = None) -> None:
        """Append a batch.

        Args:
            entries: The batch.
            expect: The id of the entry that the caller believes to be the last in the store; an
                empty string for an empty store. None: append whatever the last entry is.

        Raises:
            TranscriptConflictError: Another writer appended entries since. The error carries them;
                nothing was written.
            TranscriptWriteError: The batch cannot be written.
        """


@runtime_checkable
class IndexedStore(Protocol):
    """A store that can open a long conversation without reading all of it."""

    def load_latest(self) -> LoadedEntries:
        """Read as little as possible: `earlier` holds the entries that come before the ones that were read.

        All other promises are those of `load`. A store returns what `load` returns where it has no
        index.
        """
        ...


class EarlierEntries(Protocol):
    """Entries of a store that are read when they are needed.

    They have numbers from 0, in the order in which they were written. An entry follows the one with
    the number before, unless a run begins with it.

    Every method raises TranscriptError if the entries can no longer be read.
    """

    @property
    def misplaced(self) -> tuple[ReadProblem, ...]:
        """The entries that follow another entry than the one that they name."""
        ...

    @property
    def version(self) -> int:
        """A number that changes when `runs` turned out to be wrong and was replaced."""
        ...

    @property
    def runs(self) -> Sequence[tuple[int, int | None]]:
        """The number of the first entry of each run and of the entry it follows, None for a root, in order.

        Only what `verify` has compared is certain.
        """
        ...

    def __len__(self) -> int: ...

    def verify(self, start: int) -> None:
        """Compare the ids and places of the entries from a number on with the store, unless that was done before."""

    def read(self, start: int, stop: int) -> Sequence[Entry]:
        """Read the entries from one number up to, and without, another."""
        ...

    def find(self, entry_id: str) -> int | None:
        """Return the number of the entry with an id; None if there is none."""
        ...

    def find_kinds(self, kinds: Collection[EntryKind]) -> Sequence[int]:
        """Return the numbers of the entries of these kinds, oldest first."""
        ...

    def find_text(self, texts: Sequence[str], *, lower: bool = False) -> Iterator[int]:
        """Yield the numbers of the entries whose message may contain one of these texts, in order.

        It may yield entries that contain none of them.

        Args:
            texts: The texts, in lower case with `lower`.
            lower: Whether to ignore case.
        """
        ...

    def count_messages(self, ranges: Iterable[range]) -> int:
        """Return how many of the entries in these ranges have a message."""
        ...


@runtime_checkable
class ArchivingStore(Protocol):
    """A store that can put old entries where opening the transcript need not read them one by one."""

    def archive(self, *, through: str) -> None:
        """Move the entries up to one, with the rest of its batch, into an archive.

        They can still be read.

        Archiving entries again that are archived changes nothing. A crash in between loses nothing.

        Args:
            through: The id of the last entry to move.

        Raises:
            TranscriptError: There is no such entry, or no entry follows it.
            TranscriptWriteError: The archive cannot be written; nothing was changed.
        """


@runtime_checkable
class SyncingStore(Protocol):
    """A store that can write a batch without waiting for the disk.

    Sessions and windows, which must not hold up their event loop, then wait in a thread.
    """

    sync_later: bool
    """Whether `append` returns when a batch is written, before it is synced to the disk. It then
    survives a crash of the program, and after `sync` a power failure."""

    @property
    def is_synced(self) -> bool:
        """Whether all that was appended is on the disk."""
        ...

    def sync(self) -> None:
        """Wait until all that was appended before is on the disk. May be called in any thread.

        Raises TranscriptWriteError if that fails.
        """


@runtime_checkable
class SearchableStore(Protocol):
    """A store with an index of the words in its messages.

    `recall` searches the messages that the index returns, not all of them.
    """

    def find_entries(self, stems: Iterable[str]) -> frozenset[str]:
        """Return the ids of all entries whose messages contain a word, as `extract_words` returns them, that begins with one of the stems.

        More ids than these do no harm: the caller reads the messages.
        """
        ...


@attrs.frozen(kw_only=True)
class LoadedEntries:
    """The entries that a store has read, in the order in which they were written."""

    entries: tuple[Entry, ...] = ()
    """The entries."""
    problems: tuple[ReadProblem, ...] = ()
    """What could not be read."""
    line_numbers: tuple[int, ...] = ()
    """For each entry the number of its line, or its number in the store, counted from 1."""
    last_id: str = ""
    """The id of the last entry in the store, returned here or before; empty for an empty store."""
    torn_bytes: int = 0
    """Bytes at the end of the file from a write that was cut short. They belong to no entry; the
    next append removes them."""
    partial: bool = False
    """Whether older entries were not read, so that parents may be missing."""
    earlier: EarlierEntries | None = None
    """The entries before these, which are read when they are needed. Only
    `IndexedStore.load_latest` returns them."""

    __repr__ = describe_fields


@attrs.frozen(kw_only=True)
class ReadProblem:
    """A part of a file that could not be read. It is left in the file."""

    line: int
    """The number of the line, counted from 1."""
    detail: str
    """What is wrong, in words."""

    __repr__ = describe_fields


class InMemoryStore:
    """Keep entries in memory. Several transcripts may share one store.

    Args:
        entries: The entries at first.
        address: The place that summaries name as the transcript's. None: they name none.
    """

    def __init__(self, entries: Sequence[Entry] = (), *, address: str | None = None) -> None:
        self._address = address
        self._entries = list(entries)

    def __repr__(self) -> str:
        return describe(self, entries=len(self._entries))

    def load(self) -> LoadedEntries:
        """Return all entries."""
        return LoadedEntries(
            entries=tuple(self._entries),
            line_numbers=tuple(range(1, len(self._entries) + 1)),
            last_id=self._last_id,
        )

    def refresh(self) -> LoadedEntries:
        """Return all entries."""
        return self.load()

    def append(self, entries: Sequence[Entry], *, expect: str | None = None) -> None:
        """Append a batch.

        Raises TranscriptConflictError if `expect` is not the id of the last entry.
        """
        if expect not in {None, self._last_id}:
            unread = [*takewhile(lambda entry: entry.id != expect, reversed(self._entries))]
            raise TranscriptConflictError(expect or "", unread[::-1])
        self._entries.extend(entries)

    @property
    def address(self) -> str | None:
        """The place that summaries name as the transcript's."""
        return self._address

    @property
    def _last_id(self) -> str:
        return self._entries[-1].id if self._entries else ""


class ConversationStore:
    """One of many conversations at a place that has a URL."""

    def __init__(self, place: str, conversation: str, *, read_archives: bool) -> None:
        self._place, self._conversation = place, conversation
        self._read_archives = read_archives

    def __repr__(self) -> str:
        return describe(self, address=self.address)

    @property
    def address(self) -> str:
        """The URL of the conversation, without secrets."""
        return f"{self._place}#{quote(self._conversation, safe='')}"


def archiving_error(
    address: str | os.PathLike[str], through: str, *, exists: bool
) -> TranscriptError:
    """Return the error for an entry up to which nothing can be archived: it does not exist, or is the last one."""
    return TranscriptError(
        f"{os.fspath(address)}: no entry follows {through!r}: archive up to an earlier entry."
        if exists
        else f"{os.fspath(address)}: there is no entry {through!r}."
    )


def settle_write(error: Exception, why: str, is_done: Callable[[], bool], *, file: str) -> None:
    """Find out after an error whether a batch was written nevertheless, since a connection may break after that.

    Raises TranscriptWriteError if it was not, or if that is not known.
    """
    try:
        done = is_done()
    except TranscriptError:
        raise TranscriptWriteError(
            f"{why}. The connection broke, so it is not known if the batch was written.", file=file
        ) from error
    if not done:
        raise TranscriptWriteError(f"nothing was written: {why}.", file=file) from error


def split_address(address: str) -> tuple[str, str | None]:
    """Split `sqlite:///talks.db#42` into the URL and the id of the conversation; None if there is no id."""
    url, mark, conversation = address.partition("#")
    return url, unquote(conversation) if mark else None


def check_conversation(conversation: str | None) -> str:
    """Return the id of a conversation.

    Raises InvalidArgumentError if there is none, or if databases would refuse it.
    """
    if not conversation:
        raise InvalidArgumentError(
            "no conversation is named: write its id after the URL, such as sqlite:///talks.db#42."
        )
    if (
        any(ord(letter) < ord(" ") or "\ud800" <= letter <= "\udfff" for letter in conversation)
        or len(conversation) > MAX_CONVERSATION_CHARACTERS
    ):
        raise InvalidArgumentError(
            f"the id {conversation[:40]!r} of the conversation has more than {MAX_CONVERSATION_CHARACTERS} characters, or one that cannot be printed."
        )
    return conversation
