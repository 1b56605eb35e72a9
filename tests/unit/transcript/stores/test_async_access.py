"""Transcripts are written in event loops without blocking them, and asynchronous stores keep the contract of all stores."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from promptkit import Message, Transcript
from promptkit.errors import TranscriptConflictError
from promptkit.testing import StoreContract
from promptkit.transcript import AsyncTranscript, BlockingStore, InMemoryStore, JsonlStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from promptkit.transcript import Entry, LoadedEntries, TranscriptStore


class Awaited:
    """A store of somebody's whose driver is asynchronous."""

    def __init__(self, store: TranscriptStore) -> None:
        self._store = store

    @property
    def address(self) -> str | None:
        return self._store.address

    async def load(self) -> LoadedEntries:
        await anyio.lowlevel.checkpoint()
        return self._store.load()

    async def refresh(self) -> LoadedEntries:
        await anyio.lowlevel.checkpoint()
        return self._store.refresh()

    async def append(self, entries: Sequence[Entry], *, expect: str | None = None) -> None:
        await anyio.lowlevel.checkpoint()
        self._store.append(entries, expect=expect)


class TestBlockingStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], TranscriptStore]:
        return partial(open_blocking, tmp_path / "talk.jsonl")


def open_blocking(path: Path) -> BlockingStore:
    return BlockingStore(Awaited(JsonlStore(path)))


def test_a_closed_store_has_no_thread_any_more() -> None:
    before = threading.active_count()
    store = BlockingStore(Awaited(InMemoryStore()))
    Transcript(store).append_messages(user("a"))
    assert threading.active_count() > before
    store.close()
    store.close()
    assert threading.active_count() == before


class Slow(InMemoryStore):
    """Waits in each append until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.goes_on = threading.Event(), threading.Event()

    def append(self, entries: Sequence[Entry], *, expect: str | None = None) -> None:
        self.waits.set()
        assert self.goes_on.wait(10)
        super().append(entries, expect=expect)


def user(text: str) -> Message:
    return Message(role="user", content=(text,))


def texts(talk: AsyncTranscript) -> list[str]:
    return [entry.message.text for entry in talk.transcript.path() if entry.message]


def test_other_tasks_go_on_while_a_store_writes_and_batches_stay_in_order() -> None:
    store = Slow()

    async def run() -> None:
        talk = await AsyncTranscript.open(store)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk.append_messages, user("a"))
            while not store.waits.is_set():
                await anyio.lowlevel.checkpoint()  # the loop is not blocked
            tasks.start_soon(talk.append_messages, user("b"), user("c"))
            await anyio.lowlevel.checkpoint()
            assert texts(talk) == []
            store.goes_on.set()
        assert texts(talk) == ["a", "b", "c"]

    anyio.run(run)


def test_a_batch_that_is_cancelled_is_written_whole() -> None:
    store = Slow()

    async def run() -> None:
        talk = await AsyncTranscript.open(lambda: store)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk.append_messages, user("a"), user("b"))
            while not store.waits.is_set():
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
            store.goes_on.set()
        assert texts(talk) == ["a", "b"]
        assert len(store.load().entries) == 2

    anyio.run(run)


def test_conflicts_and_rewinds_are_those_of_the_transcript(tmp_path: Path) -> None:
    async def run() -> None:
        one = await AsyncTranscript.open(partial(JsonlStore, tmp_path / "talk.jsonl"))
        (first,) = await one.append_messages(user("a"))
        other = await AsyncTranscript.open(JsonlStore(tmp_path / "talk.jsonl"))
        await other.append_messages(user("b"))
        with pytest.raises(TranscriptConflictError):
            await one.append(
                *(entry.payload for entry in other.transcript.path()[:1]), expect=first.id
            )
        assert texts(one) == ["a", "b"]
        await one.rewind(first.id)
        await one.append_messages(user("c"))
        assert texts(one) == ["a", "c"]
        await other.refresh()
        assert len(other.transcript.entries) == len(one.transcript.entries)

    anyio.run(run)
