"""Measure the stores of transcripts: several processes that append to one conversation, one append, and opening a long conversation.

PostgreSQL and a server of S3 are started on loopback; where there is none, the store is left out,
and stderr says why. The S3 server is a simulation in this process, so its times say nothing about
S3.

    python -m benchmarks.stores            # the table
    python -m benchmarks.stores --json
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import uuid
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit import JsonlStore, Message, Transcript
from promptkit.testing.contracts import start_writer
from promptkit.transcript import Entry, MessageEntry, ObjectStore, SqlStore
from tests.servers import postgres_server, s3_server

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from promptkit.transcript import TranscriptStore

__all__ = ["Sizes", "StoreFigures", "main", "measure_store", "open_places"]

TEXT = " ".join(["word"] * 60)


@attrs.frozen(kw_only=True)
class Sizes:
    """The amounts that are written and read."""

    writers: int = 3
    """Processes that append to one conversation."""
    appends: int = 40
    """Batches that each of them appends, of one to three messages."""
    single: int = 50
    """Appends of one message by a single writer."""
    entries: int = 10_000
    """Entries of the conversation that is opened, in batches of ten."""


@attrs.frozen(kw_only=True)
class StoreFigures:
    """The figures of a store."""

    appends: int
    """Batches that all writers appended together."""
    writers: int
    lost: int
    """Entries that a writer was told are stored, and that are not."""
    duplicated: int
    unwanted_branches: int
    """Branches that the writers made, beyond the one line."""
    append_ms: float
    """Milliseconds of one append of one message, median."""
    open_ms_10000: float
    """Milliseconds to open a conversation of 10,000 entries, best of three."""


def measure_store(
    place: Callable[[str], Callable[[], TranscriptStore]], sizes: Sizes
) -> StoreFigures:
    """Measure a store. `place` returns for the id of a conversation what opens its store."""
    shared = place("writers")
    writers = [start_writer(shared, f"w{number}", sizes.appends) for number in range(sizes.writers)]
    lines = [line for writer in writers for line in writer.communicate()[0].splitlines()]
    acknowledged = [entry_id for line in lines for entry_id in json.loads(line)]
    transcript = Transcript(shared())
    stored = [entry.id for entry in shared().load().entries]
    long = place("long")
    store = long()
    for batch in _long_conversation(sizes.entries):
        store.append(batch)
    return StoreFigures(
        appends=len(lines),
        writers=sizes.writers,
        lost=len(set(acknowledged) - set(stored))
        + max(0, sizes.writers * sizes.appends - len(lines)),
        duplicated=len(stored) - len(set(stored)),
        unwanted_branches=len(transcript.leaves()) - 1,
        append_ms=round(_append_ms(place("single"), sizes.single), 3),
        open_ms_10000=round(min(_open_ms(long, sizes.entries) for _ in range(3)), 1),
    )


@contextmanager
def open_places() -> Generator[dict[str, Callable[[str], Callable[[], TranscriptStore]]]]:
    """Give the places of conversations by the name of the store.

    Servers that cannot be started are left out.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        run = uuid.uuid4().hex  # a database that is there already may be used
        places: dict[str, Callable[[str], Callable[[], TranscriptStore]]] = {
            "jsonl": lambda name: partial(JsonlStore, folder / f"{name}.jsonl"),
            "sqlite": lambda name: partial(SqlStore, f"sqlite:///{folder}/talks.db", name),
            "folder": lambda name: partial(ObjectStore, f"file://{folder}/objects", name),
        }
        with _reported_as_left_out("postgresql"):
            url = stack.enter_context(postgres_server())
            places["postgresql"] = lambda name: partial(SqlStore, url, f"{name} {run}")
        with _reported_as_left_out("s3"):
            environment = stack.enter_context(s3_server("talks"))
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            for variable, value in environment.items():
                patch.setenv(variable, value)
            places["s3"] = lambda name: partial(ObjectStore, "s3://talks/folder", name)
        yield places


@contextmanager
def _reported_as_left_out(name: str) -> Generator[None]:
    """Report a store whose server cannot be started.

    The servers are those of the tests, which skip a test where a program is missing.
    """
    try:
        yield
    except pytest.skip.Exception as reason:  # raised by the fixtures that start the servers
        sys.stderr.write(f"{name} is left out: {reason}\n")


def _long_conversation(entries: int) -> Iterator[list[Entry]]:
    parent: str | None = None
    for start in range(0, entries, 10):
        batch: list[Entry] = []
        for number in range(start, min(start + 10, entries)):
            message = Message(role="user", content=(f"{number}: {TEXT}",))
            batch.append(
                Entry(
                    id=f"e{number}",
                    parent_id=parent,
                    time=float(number),
                    payload=MessageEntry(message=message),
                )
            )
            parent = f"e{number}"
        yield batch


def _append_ms(open_store: Callable[[], TranscriptStore], count: int) -> float:
    transcript = Transcript(open_store())
    times: list[float] = []
    for number in range(count):
        start = time.perf_counter()
        transcript.append_messages(Message(role="user", content=(f"{number}: {TEXT}",)))
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def _open_ms(open_store: Callable[[], TranscriptStore], entries: int) -> float:
    start = time.perf_counter()
    transcript = Transcript(open_store())
    seconds = time.perf_counter() - start
    if len(transcript.path()) != entries:
        raise AssertionError(f"{len(transcript.path()):,} of {entries:,} entries were read")
    return seconds * 1000


def main(arguments: list[str] | None = None) -> int:
    """Print the figures of every store.

    Returns 1 if an entry was lost or is there twice, or a branch was made.
    """
    parser = argparse.ArgumentParser(description="Measure the stores of transcripts.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--store", action="append", help="measure only this store; repeatable")
    options = parser.parse_args(arguments)
    figures: dict[str, StoreFigures] = {}
    with open_places() as places:
        for name, place in places.items():
            if not options.store or name in options.store:
                figures[name] = measure_store(place, Sizes())
    if options.json:
        print(json.dumps({name: attrs.asdict(each) for name, each in figures.items()}, indent=2))
    else:
        columns = [field.name for field in attrs.fields(StoreFigures)]
        print(f"{'store':<11}" + "".join(f"{column:>19}" for column in columns))
        for name, each in figures.items():
            print(f"{name:<11}" + "".join(f"{getattr(each, column):>19,}" for column in columns))
    return int(
        any(each.lost or each.duplicated or each.unwanted_branches for each in figures.values())
    )


if __name__ == "__main__":
    raise SystemExit(main())
