"""Transcripts and stores in event loops: a transcript whose calls are awaited, and stores that are asynchronous themselves."""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.from_thread
import anyio.to_thread

from promptkit.transcript.log.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit.messages import Message
    from promptkit.transcript.log.entries import Entry, EntryPayload
    from promptkit.transcript.stores.store import LoadedEntries, TranscriptStore


class AsyncTranscript:
    """A transcript that is opened and written in an event loop.

    The store works in threads, so other tasks go on meanwhile.

    Calls from several tasks are done one after the other. A call that is cancelled is finished
    first, so no batch is written by halves. Everything that only reads what is in memory (`path`,
    `entries`, `leaf`, `labels`) is read from `transcript`.

    >>> talk = await AsyncTranscript.open(SqlStore("postgresql://…/talks", "42"))
    >>> await talk.append_messages(Message(role="user", content="Hello."))
    """

    def __init__(self, transcript: Transcript) -> None:
        """Use an open transcript. `AsyncTranscript.open` opens one without blocking the loop."""
        self.transcript = transcript
        """The transcript."""
        self._lock = anyio.Lock()

    @classmethod
    async def open(cls, store: TranscriptStore | Callable[[], TranscriptStore]) -> AsyncTranscript:
        """Open a transcript.

        Args:
            store: The store, or a function that opens it, for stores that connect when they are
                made.

        Raises:
            TranscriptError: The store cannot be read.
        """

        def read() -> Transcript:
            return Transcript(store() if callable(store) else store)

        return cls(await anyio.to_thread.run_sync(read))

    async def append(self, *payloads: EntryPayload, expect: str | None = None) -> list[Entry]:
        """Append a batch, as `Transcript.append` does, and raise what it raises."""
        async with self._lock:
            return await anyio.to_thread.run_sync(
                partial(self.transcript.append, *payloads, expect=expect)
            )

    async def append_messages(self, *messages: Message) -> list[Entry]:
        """Append messages as one batch, as `Transcript.append_messages` does."""
        async with self._lock:
            return await anyio.to_thread.run_sync(self.transcript.append_messages, *messages)

    async def refresh(self) -> tuple[Entry, ...]:
        """Read the entries that other processes appended, as `Transcript.refresh` does."""
        async with self._lock:
            return await anyio.to_thread.run_sync(self.transcript.refresh)

    async def rewind(self, entry_id: str | None, *payloads: EntryPayload) -> Entry:
        """Continue from another entry, as `Transcript.rewind` does."""
        async with self._lock:
            return await anyio.to_thread.run_sync(
                partial(self.transcript.rewind, entry_id, *payloads)
            )


class AsyncTranscriptStore(Protocol):
    """A store whose driver is asynchronous.

    Its methods are those of `TranscriptStore`, as coroutine functions, with the same promises.
    """

    @property
    def address(self) -> str | None:
        """The place of the transcript, for people and models. None if it is only in memory."""
        ...

    async def load(self) -> LoadedEntries:
        """Read all entries, as far as they can be read."""
        ...

    async def refresh(self) -> LoadedEntries:
        """Read what other writers appended since the last read."""
        ...

    async def append(self, entries: Sequence[Entry], *, expect: str | None = None) -> None:
        """Append a batch. Raises TranscriptConflictError and TranscriptWriteError."""
        ...


class BlockingStore:
    """Make a store of an asynchronous one: its coroutines run in an event loop in a thread of its own, and the caller waits.

    The asynchronous store makes its connections in its first call, since they belong to that loop.

    >>> Transcript(BlockingStore(MyStore("talk 42")))
    """

    def __init__(self, store: AsyncTranscriptStore) -> None:
        """Start the thread. It ends with `close`, or with this object."""
        self._store = store
        stack = ExitStack()
        self._portal = stack.enter_context(anyio.from_thread.start_blocking_portal())
        self._end = weakref.finalize(self, stack.close)

    @property
    def address(self) -> str | None:
        """The place of the transcript, for people and models. None if it is only in memory."""
        return self._store.address

    def load(self) -> LoadedEntries:
        """Read all entries, as far as they can be read."""
        return self._portal.call(self._store.load)

    def refresh(self) -> LoadedEntries:
        """Read what other writers appended since the last read."""
        return self._portal.call(self._store.refresh)

    def append(self, entries: Sequence[Entry], *, expect: str | None = None) -> None:
        """Append a batch. Raises TranscriptConflictError and TranscriptWriteError."""
        self._portal.call(partial(self._store.append, entries, expect=expect))

    def close(self) -> None:
        """End the thread. The store is not used after that."""
        self._end()
