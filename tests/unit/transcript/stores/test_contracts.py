"""The stores in memory and in files keep the contract of all stores, and the contract notices stores that do not."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING

import pytest

from promptkit.errors import TranscriptError
from promptkit.testing import StoreContract
from promptkit.transcript import InMemoryStore, JsonlStore, LoadedEntries, Transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from promptkit.transcript import Entry, TranscriptStore


class TestJsonlStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], TranscriptStore]:
        return partial(JsonlStore, tmp_path / "talk.jsonl")


class TestInMemoryStore(StoreContract):
    between_processes = False

    @pytest.fixture
    def open_store(self) -> Callable[[], TranscriptStore]:
        store = InMemoryStore()
        return lambda: store


def test_a_store_in_memory_has_the_address_that_it_is_given() -> None:
    assert InMemoryStore().address is None
    assert Transcript(InMemoryStore(address="talk.jsonl")).store.address == "talk.jsonl"


class Named(InMemoryStore):
    """Names its place itself."""

    @property
    def address(self) -> str:
        return "talk.jsonl"


def test_a_subclass_of_a_store_in_memory_may_compute_its_address() -> None:
    assert Transcript(Named()).store.address == "talk.jsonl"


class Forgetful(InMemoryStore):
    """Keeps one entry of a batch."""

    def append(self, entries: Sequence[Entry], *, expect: str | None = None) -> None:
        super().append(entries[:1], expect=expect)


class Careless(InMemoryStore):
    """Does not look at what a writer expects."""

    def append(self, entries: Sequence[Entry], *, expect: str | None = None) -> None:
        super().append(entries)


class Reversing(InMemoryStore):
    """Gives the entries in the wrong order."""

    def load(self) -> LoadedEntries:
        loaded = super().load()
        return LoadedEntries(
            entries=loaded.entries[::-1], line_numbers=loaded.line_numbers, last_id=loaded.last_id
        )


@pytest.mark.parametrize("kind", [Forgetful, Careless, Reversing])
def test_the_contract_fails_for_a_store_that_breaks_it(kind: type[InMemoryStore]) -> None:
    failed: list[str] = []
    for name, test in inspect.getmembers(StoreContract, inspect.isfunction):
        if not name.startswith("test_") or "process" in name:
            continue
        store = kind()
        try:
            test(StoreContract(), lambda store=store: store)
        except (AssertionError, TranscriptError):
            failed.append(name)
    assert failed
