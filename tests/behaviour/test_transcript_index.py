"""A transcript that is opened by an index answers what one answers that is read in full, whatever happened to the file or to the index."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
import tracemalloc
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from promptkit import Message, ToolCall
from promptkit.compaction.recall import tool as recall_tool
from promptkit.compaction.recall.tool import recall
from promptkit.errors import TranscriptError
from promptkit.files import create_beside
from promptkit.transcript.log.entries import (
    Checkpoint,
    Edit,
    Entry,
    Label,
    MessageEntry,
    Reset,
    Setting,
)
from promptkit.transcript.log.entry_sequence import EntrySequence
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.log.view import build_view
from promptkit.transcript.stores.jsonl.format import Header, encode_batch, encode_header
from promptkit.transcript.stores.jsonl.index import index_path
from promptkit.transcript.stores.jsonl.store import JsonlStore
from tests.behaviour.transcript_strategies import (
    FileInMemory,
    grow,
    new_file,
    new_transcript,
    steps,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from promptkit.transcript.log.entries import EntryPayload
    from tests.behaviour.transcript_strategies import Step

pytestmark = pytest.mark.skipif(
    os.name != "posix", reason="files have an index only where an open file can be replaced"
)


PAGE_BYTES = 4_096


def indexed(path: Path) -> JsonlStore:
    return JsonlStore(path, index_from=1)


def in_full(path: Path) -> JsonlStore:
    return JsonlStore(path, index_from=None)


def attempt(work: Callable[[], Any]) -> Any:  # Any: an answer of any kind
    """What a call answers, or the error that it raises."""
    try:
        return work()
    except TranscriptError as error:
        return type(error), str(error)


def append(transcript: Transcript, payload: EntryPayload) -> Any:  # Any: as above
    return attempt(lambda: [entry.payload for entry in transcript.append(payload)])


def answers(transcript: Transcript, *, every: int) -> Iterator[tuple[str, Any]]:
    """Everything that can be asked of a transcript."""
    entries = list(transcript.entries)
    yield "entries", entries
    yield "backwards", list(reversed(transcript.entries))
    yield "length", len(transcript)
    yield "leaf", transcript.leaf
    yield "problems", transcript.problems
    yield "labels", transcript.labels
    yield "leaves", transcript.leaves()
    yield "path", tuple(transcript.path())
    yield "path backwards", tuple(reversed(transcript.path()))
    yield (
        "unknown",
        (
            attempt(lambda: transcript.get("no such entry")),
            "no such entry" in transcript,
            attempt(lambda: transcript.get_by_label("x")),
        ),
    )
    for label in transcript.labels:
        yield f"label {label}", attempt(partial(transcript.get_by_label, label))
    for entry in entries[::every]:
        path = transcript.path(entry.id)
        yield (
            f"entry {entry.id}",
            (transcript.get(entry.id), entry.id in transcript, transcript.parent(entry.id)),
        )
        yield (
            f"path to {entry.id}",
            (
                len(path),
                path[0],
                path[-1],
                tuple(path),
                tuple(path[len(path) // 3 : -1]),
                path[len(path) // 2],
            ),
        )
        yield f"settings at {entry.id}", list(transcript.settings(entry.id).items())
        yield f"view at {entry.id}", build_view(path)
        yield f"branch {entry.id}", transcript.branch_entries(entry.id)


def require_same(path: Path, *, every: int | None = None) -> Transcript:
    """Compare what a transcript answers with the index and without it."""
    by_index, whole = Transcript(indexed(path)), Transcript(in_full(path))
    every = every or 1 + len(whole) // 6
    for (question, one), (_, other) in zip(
        answers(by_index, every=every), answers(whole, every=every), strict=True
    ):
        assert one == other, question
    return by_index


def build(path: Path, steps: list[Step]) -> Transcript:
    transcript = new_transcript(indexed(path))
    for number, step in enumerate(steps):
        grow(transcript, step)
        if step[1] % 7 == 0 and transcript.leaf:
            transcript.append(
                Label(label=f"l{step[1] % 3}", target=transcript.leaf),
                Setting(name=f"s{number % 2}", value=number),
            )
    return transcript


@pytest.mark.long
@given(steps(), st.integers(0, 30))
def test_a_transcript_that_is_opened_by_its_index_answers_the_same(
    steps: list[Step], opened_at: int
) -> None:
    with new_file() as path:
        build(path, steps[:opened_at])
        transcript = build(path, steps[opened_at:])
        again = require_same(path)
        if transcript.entries:
            assert isinstance(again.entries, EntrySequence)
            assert index_path(path).exists()
        # What is said from here on is checked against entries that are only in the file.
        whole = new_transcript(in_full(path))
        said: list[EntryPayload] = [
            MessageEntry(message=Message(role="tool", tool_call_id=call, content=("late",)))
            for call in ("c0_0", "c2_0", "never")
        ]
        for target in ("e0", "e1", "never"):
            said += (
                Edit(target=target, content=None, reason="r"),
                Checkpoint(summary="s", first_kept=target),
                Label(label="l", target=target),
            )
        for payload in said:
            assert append(again, payload) == append(whole, payload)
        require_same(path)


def test_an_index_that_was_given_up_is_not_used_after_the_file_was_cut_shorter() -> None:
    with new_file() as path:
        build(path, [("user", 0)])
        lines = path.read_bytes().split(b"\n")[:-1]
        # an id that is used twice, and a long end of a write that was cut short
        lines.insert(1, lines[1])
        path.write_bytes(b"\n".join(lines) + b'{"id": "torn')
        Transcript(indexed(path)).append(Setting(name="s", value=1))
        require_same(path)


def test_a_file_without_entries_has_no_index_and_says_nothing() -> None:
    with new_file() as path:
        path.write_bytes(b'{"promptkit":"transcript","version":1}\n')
        store = indexed(path)
        assert not Transcript(store).entries
        assert store.index_problem is None
        assert not index_path(path).exists()


@pytest.mark.long
@given(steps(), st.data())
def test_whatever_damages_the_file_is_found(steps: list[Step], data: st.DataObject) -> None:
    with new_file() as path:
        transcript = build(path, steps)
        if not transcript.entries:
            return
        lines = path.read_bytes().split(b"\n")[:-1]
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(1, len(lines) - 1))
            change = data.draw(
                st.sampled_from(["flip", "cut", "drop", "twice", "blank", "swap", "rename"])
            )
            line = lines[at]
            if change == "flip" and line:
                place = data.draw(st.integers(0, len(line) - 1))
                lines[at] = line[:place] + bytes([line[place] ^ 1]) + line[place + 1 :]
            elif change == "cut":
                lines[at] = line[: len(line) // 2]
            elif change == "drop" and len(lines) > 2:
                del lines[at]
            elif change == "twice":
                lines.insert(at, line)
            elif change == "blank":
                lines.insert(at, b"")
            elif change == "rename":
                lines[at] = line.replace(b'"id":"e', b'"id":"f')
            else:
                lines[at], lines[-1] = lines[-1], lines[at]
        torn = data.draw(st.sampled_from([b"", b'{"id": "torn', b"{}"]))
        content = b"\n".join(lines) + data.draw(st.sampled_from([b"\n", b""])) + torn
        if data.draw(st.booleans()):
            with path.open("r+b") as file:  # the same file, not a new one
                file.truncate(0)
                file.write(content)
        else:
            path.write_bytes(content)
        require_same(path)
        require_same(path)
        with suppress(TranscriptError):
            Transcript(indexed(path)).append(Setting(name="s", value=1))
        require_same(path)


@given(steps(), st.data())
def test_an_index_that_was_changed_is_thrown_away(steps: list[Step], data: st.DataObject) -> None:
    with new_file() as path:
        transcript = build(path, steps)
        if not transcript.entries:
            return
        index = index_path(path)
        content = index.read_bytes()
        used = len(content)
        match data.draw(
            st.sampled_from(["flip", "flip", "cut", "zeros", "foreign", "folder", "link", "text"])
        ):
            case "flip":
                place = data.draw(st.integers(0, used - 1))
                index.write_bytes(
                    content[:place]
                    + bytes([content[place] ^ (1 << data.draw(st.integers(0, 7)))])
                    + content[place + 1 :]
                )
            case "cut":
                index.write_bytes(content[: data.draw(st.integers(0, used))])
            case "zeros":
                start = data.draw(st.integers(0, used))
                index.write_bytes(content[:start] + bytes(used - start))
            case "foreign":
                other = path.with_name("other.jsonl")
                build(other, [("user", 1), ("answer", 2), ("user", 3)])
                index.write_bytes(index_path(other).read_bytes())
            case "folder":
                index.unlink()
                index.mkdir()
            case "link":
                index.unlink()
                precious = path.with_name("precious")
                precious.write_bytes(content)
                index.symlink_to(precious)
            case _:
                index.write_text("not an index", encoding="utf-8")
        require_same(path)
        transcript = Transcript(indexed(path))
        transcript.append(Setting(name="s", value=1))
        require_same(path)
        if path.with_name("precious").exists():
            assert path.with_name("precious").read_bytes() == content


@pytest.mark.parametrize("page", range(1, 7))
def test_a_page_of_the_index_that_was_emptied_is_thrown_away(tmp_path: Path, page: int) -> None:
    """Its first byte still says which kind of page it is, so SQLite reads it as one without rows."""
    path = tmp_path / "talk.jsonl"
    build(path, [("user", 1), ("answer", 2), ("user", 3), ("answer", 5)])
    index = index_path(path)
    content = index.read_bytes()
    start = page * PAGE_BYTES
    index.write_bytes(content[: start + 1] + bytes(PAGE_BYTES - 1) + content[start + PAGE_BYTES :])
    require_same(path)


def forge(path: Path, *statements: str) -> None:
    """Change the index of a file as someone could who knows its tables. The stamp in it stays right."""
    with closing(sqlite3.connect(index_path(path), isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


COLUMNS = {
    "entries": ("number", "id", "offset", "size", "kind", "parent"),
    "head": ("version", "stamp", "end", "lines", "checksum", "refused"),
    "problems": ("line", "detail", "misplaced"),
}

FORGERIES: dict[str, tuple[str, ...]] = {
    "the last entry follows the third": (
        "UPDATE entries SET parent = 3 WHERE number = (SELECT max(number) FROM entries)",
    ),
    "the last entry is a root": (
        "UPDATE entries SET parent = -1 WHERE number = (SELECT max(number) FROM entries)",
    ),
    "an entry in the middle is a root": ("UPDATE entries SET parent = -1 WHERE number = 150",),
    "no entry is a branch": ("UPDATE entries SET parent = NULL WHERE number > 0",),
    "every entry is a branch": ("UPDATE entries SET parent = 0 WHERE number > 1",),
    "an entry follows a later one": ("UPDATE entries SET parent = 1 << 40 WHERE number = 99",),
    "checkpoints, edits and settings are messages": (
        "UPDATE entries SET kind = x'6d657373616765'",
    ),
    "messages are edits": ("UPDATE entries SET kind = x'65646974'",),
    "kinds are no kinds": ("UPDATE entries SET kind = NULL",),
    "two entries have each other's id": (
        "UPDATE entries SET id = x'00' WHERE number = 20",
        "UPDATE entries SET id = CAST('e20' AS BLOB) WHERE number = 21",
        "UPDATE entries SET id = CAST('e21' AS BLOB) WHERE number = 20",
    ),
    "ids are numbers": ("UPDATE entries SET id = number",),
    "an entry is missing": ("DELETE FROM entries WHERE number = 40",),
    "the first entries are missing": ("DELETE FROM entries WHERE number < 40",),
    "the last entries are missing": ("DELETE FROM entries WHERE number > 250",),
    "all entries are missing": ("DELETE FROM entries",),
    "there are many more entries": (
        "INSERT INTO entries SELECT 1 << 40, x'00', offset, size, kind, NULL FROM entries WHERE number = 9",
    ),
    "entries overlap": ("UPDATE entries SET offset = offset - 10 WHERE number = 30",),
    "an entry is before the file": ("UPDATE entries SET offset = -1 WHERE number = 30",),
    "an entry is behind the file": ("UPDATE entries SET offset = 1 << 40 WHERE number = 30",),
    "an entry has sixteen gigabytes": ("UPDATE entries SET size = 1 << 34 WHERE number = 30",),
    "the last entry has the rest of the file": (
        "UPDATE entries SET size = (SELECT end FROM head) - offset WHERE number = 30",
        "DELETE FROM entries WHERE number > 30",
    ),
    "an entry has no size": ("UPDATE entries SET size = 0 WHERE number = 30",),
    "the end is before the entries": ("UPDATE head SET end = 60",),
    "the end is behind the file": ("UPDATE head SET end = 1 << 40",),
    "the end is negative": ("UPDATE head SET end = -1",),
    "there are two heads": ("INSERT INTO head SELECT * FROM head",),
    "there is no head": ("DELETE FROM head",),
    "the file was refused": ("UPDATE head SET refused = 1",),
    "a state of the file is missing": ("UPDATE head SET stamp = NULL",),
    "a file without a state was refused": ("UPDATE head SET refused = 1, stamp = NULL",),
    "the end is a text": ("UPDATE head SET end = 'end'",),
    "a view stands for a table": (
        "ALTER TABLE entries RENAME TO hidden",
        (
            "CREATE VIEW entries AS WITH RECURSIVE e(number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM e)"
            " SELECT number, x'00' AS id, 0 AS offset, 1 AS size, x'00' AS kind, NULL AS parent FROM e"
        ),
    ),
    "a trigger deletes what is added": (
        "CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries; END",
    ),
}


@pytest.mark.parametrize("statements", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_index_shows_what_the_file_says(
    tmp_path: Path, statements: tuple[str, ...]
) -> None:
    path = tmp_path / "talk.jsonl"
    write_long(path, 300)
    Transcript(indexed(path))
    forge(path, *statements)
    require_same(path, every=60)
    Transcript(indexed(path)).append(Setting(name="s", value=1))
    require_same(path, every=60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_an_index_with_forged_fields_shows_what_the_file_says(
    long_file: Path, tmp_path: Path, seed: int
) -> None:
    path, rng = copy(long_file, tmp_path), random.Random(seed)
    Transcript(indexed(path))
    whole = Transcript(in_full(path))
    count = len(whole)
    for _ in range(rng.choice([1, 3])):
        table = rng.choice(["entries", "entries", "entries", "head", "problems"])
        column = rng.choice(COLUMNS[table])
        where = f"number = {rng.randrange(count)}" if table == "entries" else "1"
        neighbours = (f"{column} + 1", f"{column} - 1", str(rng.randrange(count)))
        value = rng.choice(
            ["NULL", "0", "-1", "1 << 31", "1 << 62", "'text'", "x'00'", *neighbours]
        )
        with suppress(sqlite3.Error):
            forge(
                path,
                f"UPDATE OR REPLACE {table} SET {column} = {value} WHERE {where}",  # noqa: S608  # values of this test
            )

    def ask() -> None:
        transcript = Transcript(indexed(path))
        assert build_view(transcript.path()) == build_view(whole.path())
        assert transcript.entries == whole.entries
        assert transcript.path() == whole.path()
        assert transcript.leaves() == whole.leaves()
        assert transcript.labels == whole.labels
        assert transcript.settings() == whole.settings()
        assert all(transcript.get(entry.id) == entry for entry in whole.entries[::40])

    # An index that turns out to have another number of entries is made again, and says so once.
    try:
        ask()
    except TranscriptError as error:
        assert str(error).endswith("open the transcript again.")  # noqa: PT017  # other errors fail the test, and most runs raise none
        ask()


def test_an_entry_that_was_hidden_with_its_number_is_found_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    write_long(path, 900)
    Transcript(indexed(path))
    forge(
        path,
        "DELETE FROM entries WHERE number = 40",
        "UPDATE entries SET parent = parent - 1 WHERE parent >= 40",
        "UPDATE entries SET number = number - 1 WHERE number > 40",
    )
    transcript = Transcript(indexed(path))
    with pytest.raises(TranscriptError, match="open the transcript again"):
        list(transcript.entries)
    require_same(path, every=200)


def test_an_index_that_has_a_number_twice_is_thrown_away(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    write_long(path, 900)
    whole = Transcript(indexed(path)).entries
    content = index_path(path).read_bytes()
    # The number of a row, and the beginning of what follows it: the table refuses to have it twice.
    row, other = (bytes([0x80 | number >> 7, number & 0x7F, 7, 0]) for number in (300, 301))
    assert content.count(row) == 1
    index_path(path).write_bytes(content.replace(row, other))
    entries = Transcript(indexed(path)).entries
    assert tuple(reversed(entries)) == tuple(reversed(in_full(path).load().entries))
    assert tuple(entries) == tuple(whole)


@pytest.mark.long
def test_a_forged_index_takes_no_memory_by_a_number_in_it(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    write_long(path, 900)
    for statement in (
        "UPDATE entries SET number = 1 << 31 WHERE number = (SELECT max(number) FROM entries)",
        "UPDATE entries SET size = 1 << 34 WHERE number = 100",
        "UPDATE entries SET offset = 1 << 34 WHERE number = 100",
    ):
        Transcript(indexed(path))
        forge(path, statement)
        tracemalloc.start()
        transcript = Transcript(indexed(path))
        assert len(attempt(lambda: list(transcript.path()))) > 1  # noqa: B023  # called at once
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
        tracemalloc.stop()


def test_the_index_and_its_journal_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    Transcript(JsonlStore(path)).append(Setting(name="s", value=1))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    Transcript(indexed(path))
    assert stat.S_IMODE(index_path(path).stat().st_mode) == 0o600
    with closing(sqlite3.connect(index_path(path), isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE head SET end = 1")
        journal = index_path(path).with_name(f"{index_path(path).name}-journal")
        assert stat.S_IMODE(journal.stat().st_mode) == 0o600
        db.execute("ROLLBACK")
    Transcript(indexed(path)).append(Setting(name="s", value=2))
    assert {each.name for each in tmp_path.iterdir()} == {
        "talk.jsonl",
        ".talk.jsonl.index",
        ".talk.jsonl.lock",
    }


def test_an_index_of_an_earlier_format_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    write_long(path, 300)
    index_path(path).write_bytes(b"pkindex1" + bytes(1 << 15))
    store = indexed(path)
    assert isinstance(Transcript(store).entries, EntrySequence)
    assert store.index_problem is None
    assert index_path(path).read_bytes().startswith(b"SQLite format 3")
    require_same(path, every=60)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="gives files to another user")
def test_an_index_that_another_user_put_there_is_thrown_away(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    build(path, [("user", 1), ("answer", 2), ("user", 3)])
    index = index_path(path)
    os.chown(index, 65534, 65534)
    require_same(path)
    assert index.stat().st_uid == 0
    # Whoever owns the transcript may change it anyway.
    os.chown(path, 65534, 65534)
    os.chown(index, 65534, 65534)
    require_same(path)
    assert index.stat().st_uid == 65534


def write_long(path: Path, count: int) -> None:
    """A long conversation with branches, labels and repeated call ids, in batches of every size up to 300."""
    rng = random.Random(count)
    entries: list[Entry] = []
    with path.open("wb") as file:
        file.write(encode_header(Header()))
        while len(entries) < count:
            size = rng.choice([1, 2, 5, 40, 300])
            batch: list[Entry] = []
            for number in range(len(entries), len(entries) + size):
                last = batch[-1].id if batch else entries[-1].id if entries else None
                parent = (
                    entries[rng.randrange(len(entries))].id
                    if entries and rng.random() < 0.002
                    else last
                )
                batch.append(
                    Entry(
                        id=f"e{number}",
                        parent_id=parent,
                        time=float(number),
                        payload=make_payload(rng, number, entries),
                    )
                )
            entries += batch
            file.write(encode_batch(batch))


def make_payload(rng: random.Random, number: int, entries: list[Entry]) -> EntryPayload:  # noqa: PLR0911  # a line for each kind
    kind = rng.random()
    target = rng.choice(entries[-400:]).id if entries else "e0"
    if kind < 0.002:
        return Checkpoint(summary=f"summary {number}", first_kept=target)
    if kind < 0.003:
        return Reset(reason="manual")
    if kind < 0.01:
        return Edit(
            target=target,
            content=None if kind < 0.006 else ("edited",),
            reason=rng.choice(["redacted", "undone", "pruned"]),
        )
    if kind < 0.02:
        return Label(label=f"l{number % 50}", target=target)
    if kind < 0.03:
        return Setting(name=f"s{number % 3}", value=number)
    if kind < 0.3:
        return MessageEntry(
            message=Message(
                role="assistant", tool_calls=(ToolCall(id=f"c{number % 90}", name="read"),)
            )
        )
    if kind < 0.5:
        return MessageEntry(
            message=Message(
                role="tool",
                tool_call_id=f"c{(number - 1) % 90}",
                content=(f"result {number} of Anfang",),
            )
        )
    return MessageEntry(
        message=Message(role="user", content=(f"word{number % 97} and word{number % 89}",))
    )


@pytest.fixture(scope="module")
def long_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with some 6,000 entries and its index. It is not changed."""
    path = tmp_path_factory.mktemp("long") / "talk.jsonl"
    write_long(path, 5_300)
    Transcript(indexed(path))
    return path


def copy(path: Path, folder: Path) -> Path:
    target = folder / path.name
    shutil.copyfile(path, target)
    shutil.copyfile(index_path(path), index_path(target))
    return target


@pytest.mark.slow
def test_a_long_transcript_answers_the_same(long_file: Path, tmp_path: Path) -> None:
    path = copy(long_file, tmp_path)
    transcript = require_same(path, every=700)
    whole = Transcript(in_full(path))
    assert all(transcript.get(entry.id) == entry for entry in whole.entries)
    assert not any(f"e{number}" in transcript for number in range(len(whole), len(whole) + 300))
    for transcript in (Transcript(indexed(path)) for _ in range(3)):
        for number in range(90):
            transcript.append_messages(
                *(Message(role="user", content=(f"more {number}",)) for _ in range(number % 7))
            )
    require_same(path, every=900)


@pytest.mark.slow
def test_an_index_is_made_once_and_used_from_then_on(long_file: Path, tmp_path: Path) -> None:
    path = copy(long_file, tmp_path)
    Transcript(indexed(path))  # compares the copy with its index
    before = index_path(path).stat()
    os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))
    Transcript(indexed(path)).append(Setting(name="s", value=1))
    assert index_path(path).stat().st_ino == before.st_ino
    with path.open("r+b") as file:  # behind the back of the index, with the same size
        file.seek(path.stat().st_size // 2)
        file.write(b"#")
    require_same(path, every=2_000)
    assert index_path(path).stat().st_ino != before.st_ino


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_flipped_bits_of_a_long_index_change_no_answer(
    long_file: Path, tmp_path: Path, seed: int
) -> None:
    path, rng = copy(long_file, tmp_path), random.Random(seed)
    Transcript(indexed(path))
    content = bytearray(index_path(path).read_bytes())
    for _ in range(rng.choice([1, 30])):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    with index_path(path).open("r+b") as file:
        file.write(content)
    by_index, whole = Transcript(indexed(path)), Transcript(in_full(path))
    for entry in whole.entries[::50]:
        assert by_index.get(entry.id) == entry
    assert f"e{len(whole)}" not in by_index
    assert by_index.leaves() == whole.leaves()
    assert by_index.labels == whole.labels
    assert by_index.entries == whole.entries


QUESTIONS: list[dict[str, object]] = [
    {"query": "word7 word11"},
    {"query": "word7", "page": 2},
    {"query": "result Anfang", "page": 3},
    {"query": "read"},
    {"query": "summary nothing"},
    {"query": "the"},
    {"query": "reading"},
    {"query": "anfangs"},
    {"query": "tail"},
    {"query": "rezult"},
    {"query": "wrod7"},
    {"pattern": "word5.*word[23]"},
    {"pattern": "result 1", "page": 2},
    {"pattern": "("},
    *(dict[str, object](entry=f"e{number}") for number in range(0, 700, 40)),
    {"entry": "never"},
]


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_recall_answers_the_same_from_an_indexed_file(
    recalled: tuple[Transcript, Transcript], question: dict[str, object]
) -> None:
    by_index, whole = recalled
    for redactor in (None, _hide_words):
        assert recall(by_index.path(), question, max_tokens=300, redactor=redactor) == recall(
            whole.path(), question, max_tokens=300, redactor=redactor
        )


def _hide_words(text: str) -> str:
    return text.replace("word5 and", "[gone]")


@pytest.fixture(scope="module")
def recalled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Transcript, Transcript]]:
    """A conversation, by its index and in full; the end of it is in memory."""
    path = tmp_path_factory.mktemp("recall") / "talk.jsonl"
    rng = random.Random(7)
    transcript = new_transcript(file := FileInMemory())
    for number in range(230):
        call = f"c{number}"
        name = rng.choice(["read", "recall", "mcp__x__recall"])
        answer = (
            "[user, entry e1]\nword7 word11"
            if name != "read"
            else f"result {number} of Anfang \u00c4 \ud83d\ude00"
        )
        transcript.append_messages(
            Message(
                role="user",
                content=(f"word{number % 17} and", f" word{number % 11}", f"word{number % 23}"),
            ),
            Message(
                role="assistant",
                content=("I look.",),
                tool_calls=(ToolCall(id=call, name=name, arguments={"query": f"word{number}"}),),
            ),
            Message(role="tool", tool_call_id=call, content=(answer,)),
        )
        if number % 20 == 3:
            transcript.append(
                Edit(target=rng.choice(transcript.path()).id, content=None, reason="redacted")
            )
    path.write_bytes(file.content)
    by_index = Transcript(indexed(path))
    by_index.append_messages(Message(role="user", content=("word7 at theTailEnd",)))
    assert isinstance(by_index.path(), EntrySequence)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recall_tool, "LONG", 0)
        patch.setattr(recall_tool, "PART", 50)
        yield by_index, Transcript(in_full(path))


def kill_while(work: Callable[[], object], seconds: float) -> bool:
    """Run work in a process of its own and kill it after a time. Return whether it was still running."""
    process = os.fork()
    if process == 0:
        try:
            work()
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(process, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(process, 0)[1])


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_makes_an_index_changes_no_answer(
    long_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / long_file.name
    shutil.copyfile(long_file, path)
    killed = [kill_while(lambda: Transcript(indexed(path)), 0.02 * step) for step in range(1, 16)]
    assert any(killed)
    store = indexed(path)
    assert Transcript(store).entries == Transcript(in_full(path)).entries
    assert store.index_problem is None
    index_path(path).unlink()
    Transcript(store)
    assert [each.name for each in tmp_path.glob(".promptkit-*")] == []


@pytest.mark.slow
def test_a_process_that_is_killed_while_an_index_grows_changes_no_answer(
    long_file: Path, tmp_path: Path
) -> None:
    path = copy(long_file, tmp_path)
    Transcript(indexed(path))
    before = index_path(path).stat().st_ino

    def work() -> None:
        transcript = Transcript(indexed(path))
        while True:
            transcript.append_messages(*(Message(role="user", content=("more",)) for _ in range(9)))

    for step in range(12):
        assert kill_while(work, 0.03 + 0.007 * step)
        by_index, whole = Transcript(indexed(path)), Transcript(in_full(path))
        assert by_index.entries == whole.entries
        assert by_index.leaves() == whole.leaves()
    assert path.stat().st_size > long_file.stat().st_size
    assert index_path(path).stat().st_ino == before, "what a kill left was made good"


def test_a_repeated_id_is_answered_as_before(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    write_long(path, 700)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[5], *lines[-3:]]))
    store = indexed(path)
    assert len(Transcript(store)) == len(Transcript(in_full(path)))
    assert store.index_problem == f"{path} was read in full: two entries have one id."
    require_same(path, every=60)


@pytest.mark.parametrize("place", range(4))
def test_messages_of_half_a_megabyte_are_indexed_wherever_they_stand(
    tmp_path: Path, place: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "talk.jsonl"
    texts = ["short"] * place + ["x" * 500_000] * 3 + ["short"] * (4 - place)
    Transcript(indexed(path)).append_messages(
        *(Message(role="user", content=(text,)) for text in texts)
    )
    answer = Transcript(indexed(path))
    assert [entry.message.text for entry in answer.path() if entry.message] == texts
    assert (index_path(path).is_file(), caplog.messages) == (True, [])


@pytest.mark.skipif(
    os.name != "posix" or os.geteuid() == 0, reason="the superuser may write anywhere"
)
def test_in_a_folder_that_cannot_be_written_a_transcript_is_read_in_full(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    write_long(path, 300)
    tmp_path.chmod(0o500)
    try:
        store = indexed(path)
        assert Transcript(store).entries == Transcript(in_full(path)).entries
        assert store.index_problem is not None
    finally:
        tmp_path.chmod(0o700)


@contextmanager
def full_disk(size: int) -> Generator[None]:
    """Let no file become larger than a size in bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_where_the_disk_is_full_a_transcript_is_read_in_full(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    write_long(path, 300)
    store = indexed(path)
    with full_disk(20_000):
        transcript = Transcript(store)
    assert store.index_problem is not None
    assert store.index_problem.startswith(f"{path} was read in full: its index cannot be written: ")
    transcript.append(Setting(name="s", value=1))
    assert transcript.entries == Transcript(in_full(path)).entries
    assert [each.name for each in tmp_path.iterdir() if each.name.endswith(".new")] == []


def test_where_files_cannot_be_locked_a_transcript_is_read_in_full_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "talk.jsonl"
    write_long(path, 300)
    locks: list[sqlite3.Connection] = []

    def create_locked(beside: Path, *, mode: int) -> tuple[Path, int]:
        made, descriptor = create_beside(beside, mode=mode)
        locks.append(sqlite3.connect(made, isolation_level=None))
        locks[-1].execute("BEGIN EXCLUSIVE")
        return made, descriptor

    monkeypatch.setattr("promptkit.transcript.stores.jsonl.index.create_beside", create_locked)
    store, began = indexed(path), time.monotonic()
    transcript = Transcript(store)
    assert time.monotonic() - began < 4
    assert store.index_problem is not None
    assert transcript.entries == Transcript(in_full(path)).entries
    for lock in locks:
        lock.close()


def test_without_the_module_sqlite3_a_long_transcript_is_read_in_full(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    write_long(path, 300)
    program = """
import sys
sys.modules["_sqlite3"] = None
from promptkit.transcript import JsonlStore, Setting, Transcript
transcript = Transcript(JsonlStore(sys.argv[1], index_from=1))
transcript.append(Setting(name="s", value=1))
"""
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    assert Transcript(in_full(path)).settings()["s"] == 1


def test_an_index_that_was_given_up_stays_so_that_it_is_not_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    write_long(path, 300)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[5]]))
    store = JsonlStore(path, index_from=path.stat().st_size + 1)
    Transcript(store).append(Setting(name="s", value=1))
    assert store.index_problem == f"{path} has no index: two entries have one id."
    given_up = index_path(path).stat().st_ino
    require_same(path, every=60)
    assert index_path(path).stat().st_ino == given_up


def test_an_index_that_an_append_could_not_extend_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    write_long(path, 300)
    store = indexed(path)
    transcript = Transcript(store)
    forge(path, "CREATE TRIGGER t BEFORE INSERT ON entries BEGIN SELECT RAISE(ABORT, 'full'); END")
    transcript.append(Setting(name="s", value=1))
    assert store.index_problem == f"{path} has no index: it is not an index."
    assert not index_path(path).exists()
    require_same(path, every=60)


@pytest.mark.slow
def test_archiving_discards_the_index_and_a_reader_reads_on(
    long_file: Path, tmp_path: Path
) -> None:
    path = copy(long_file, tmp_path)
    reader, whole = Transcript(indexed(path)), Transcript(in_full(path))
    indexed(path).archive(through="e5000")
    assert not index_path(path).exists()
    assert reader.entries == whole.entries
    assert [entry.payload for entry in reader.append(Setting(name="s", value=1))] == [
        Setting(name="s", value=1)
    ]
    assert Transcript(indexed(path)).entries == Transcript(in_full(path)).entries


@pytest.mark.slow
def test_another_process_reads_what_is_appended(long_file: Path, tmp_path: Path) -> None:
    path = copy(long_file, tmp_path)
    one, other = Transcript(indexed(path)), Transcript(indexed(path))
    for number in range(200):
        one.append_messages(
            *(Message(role="user", content=(str(number),)) for _ in range(number % 5))
        )
        if number % 9 == 0:
            other.append(Label(label=str(number), target=other.path()[0].id))
    one.refresh()
    other.refresh()
    assert one.path() == other.path() == Transcript(in_full(path)).path()
    require_same(path, every=3_000)
