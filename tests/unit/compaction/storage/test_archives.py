"""Archives: written before the checkpoint, and removed if the checkpoint is not written."""

from __future__ import annotations

import asyncio
import gzip
import os
from typing import TYPE_CHECKING, NoReturn

import pytest

from promptkit.compaction import Events
from promptkit.compaction.planning.selection import KeepNothing
from promptkit.compaction.run.replacement import Replacement
from promptkit.compaction.storage import ArchiveDirectory, ArchivingCompactor
from promptkit.errors import TranscriptWriteError
from promptkit.testing import WordTokenizer
from promptkit.transcript.log.entries import Checkpoint, Edit
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.format import EntryLine, line_from_bytes
from promptkit.transcript.stores.store import InMemoryStore
from tests.conversations import ConversationBuilder, words
from tests.unit.compaction.summarizers.writers import Recorder, Writer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from promptkit.transcript.log.entries import Entry


class Full(InMemoryStore):
    """A disk that is full when a checkpoint comes."""

    def append(self, entries: Sequence[Entry], *, expect: str | None = None) -> None:
        if any(isinstance(entry.payload, Checkpoint) for entry in entries):
            problem = "the disk is full."
            raise TranscriptWriteError(problem, file="t.jsonl")
        super().append(entries, expect=expect)


def compactor(
    log: Transcript, folder: Path, told: Recorder, writer: Writer | None = None
) -> ArchivingCompactor:
    made = ArchivingCompactor(
        log,
        summarizer=writer or Writer(),
        keep=KeepNothing(),
        replacement=Replacement(originals=None, carry=None),
        tokenizer=WordTokenizer(),
        max_summary_tokens=15,
        events=Events(told),
    )
    made.archives = ArchiveDirectory(folder)
    return made


def read_archive(path: Path) -> list[Entry]:
    _, *lines = gzip.decompress(path.read_bytes()).splitlines()
    return [line.entry for line in map(line_from_bytes, lines) if isinstance(line, EntryLine)]


def spoken(talk: ConversationBuilder, name: str) -> None:
    talk.user(f"{name} {words(50)}")
    talk.answer(words(50))


def test_each_compaction_leaves_an_archive_of_what_it_dropped_and_nothing_is_in_two(
    tmp_path: Path,
) -> None:
    talk, told = ConversationBuilder(), Recorder()
    made = compactor(talk.log, tmp_path / "a", told)
    for name in ("one", "two", "three"):
        spoken(talk, name)
        asyncio.run(made.compact(trigger="manual"))
    talk.user("next")
    asyncio.run(made.compact(trigger="manual"))
    archived = [
        [entry.id for entry in read_archive(path)]
        for path in ArchiveDirectory(tmp_path / "a").files
    ]
    assert len(archived) == told.ends.count("committed") >= 2
    flat = [each for ids in archived for each in ids]
    assert len(flat) == len(set(flat))
    assert [
        entry for path in ArchiveDirectory(tmp_path / "a").files for entry in read_archive(path)
    ] == [entry for entry in talk.path if entry.id in flat]
    assert [path.name[:5] for path in ArchiveDirectory(tmp_path / "a").files] == [
        f"{number:04}-" for number in range(1, len(archived) + 1)
    ]


def test_a_folder_that_may_not_be_listed_is_an_error_and_no_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> NoReturn:
        raise PermissionError(tmp_path)

    monkeypatch.setattr(os, "listdir", refuse)
    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError):
        _ = ArchiveDirectory(tmp_path).files


@pytest.mark.spec("E85")
def test_a_checkpoint_that_is_not_written_leaves_no_archive(tmp_path: Path) -> None:
    log, told = Transcript(Full()), Recorder()
    talk = ConversationBuilder()
    talk.log = log
    spoken(talk, "one")
    talk.user("next")
    with pytest.raises(TranscriptWriteError):
        asyncio.run(compactor(log, tmp_path, told).compact(trigger="manual"))
    assert ArchiveDirectory(tmp_path).files == ()
    assert told.ends == ["failed"]


@pytest.mark.spec("E85")
def test_a_conversation_that_changed_meanwhile_leaves_no_archive(tmp_path: Path) -> None:
    talk, told = ConversationBuilder(), Recorder()
    spoken(talk, "one")
    talk.user("next")

    async def run() -> None:
        gate = asyncio.Event()
        made = compactor(talk.log, tmp_path, told, Writer(gate=gate))
        running = asyncio.ensure_future(made.compact(trigger="manual"))
        await asyncio.sleep(0)
        talk.append(Edit(target=talk.path[0].id, content=None, reason="redacted"))
        gate.set()
        assert await running is None

    asyncio.run(run())
    assert ArchiveDirectory(tmp_path).files == ()
    assert told.ends == ["discarded"]


@pytest.mark.spec("E34")
def test_what_is_said_meanwhile_is_kept_and_not_archived(tmp_path: Path) -> None:
    talk, told = ConversationBuilder(), Recorder()
    spoken(talk, "one")

    async def run() -> None:
        gate = asyncio.Event()
        made = compactor(talk.log, tmp_path, told, Writer(gate=gate))
        running = asyncio.ensure_future(made.compact(trigger="manual"))
        await asyncio.sleep(0)
        talk.user("late")
        gate.set()
        assert await running is not None

    asyncio.run(run())
    (path,) = ArchiveDirectory(tmp_path).files
    assert [entry.id for entry in read_archive(path)] == ["e1", "e2"]
    assert [message.text for message in talk.view.messages][1:] == ["late"]


def test_where_no_archive_can_be_written_no_checkpoint_is_and_it_ends_with_one_event(
    tmp_path: Path,
) -> None:
    talk, told = ConversationBuilder(), Recorder()
    spoken(talk, "one")
    talk.user("next")
    (tmp_path / "file").write_text("", encoding="utf-8")
    before = len(talk.log)
    with pytest.raises(OSError, match="file"):
        asyncio.run(compactor(talk.log, tmp_path / "file", told).compact(trigger="manual"))
    assert len(talk.log) == before
    assert told.ends == ["failed"]
    told.check()


def test_the_same_entries_are_archived_once(tmp_path: Path) -> None:
    talk = ConversationBuilder()
    spoken(talk, "one")
    archives = ArchiveDirectory(tmp_path)
    archive = archives.write(talk.path)
    assert archive is not None
    before = archive.read_bytes()
    assert archives.write(talk.path) is None
    assert archives.files == (archive,)
    assert archive.read_bytes() == before


def test_without_a_folder_it_is_any_compactor(tmp_path: Path) -> None:
    talk = ConversationBuilder()
    spoken(talk, "one")
    made = compactor(talk.log, tmp_path, Recorder())
    made.archives = None
    assert asyncio.run(made.compact(trigger="manual")) is not None
    assert list(tmp_path.iterdir()) == []
