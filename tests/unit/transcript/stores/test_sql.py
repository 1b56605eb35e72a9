"""Transcripts in SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import uuid
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

from promptkit import ContextWindow, Message, ToolDefinition
from promptkit.compaction.recall.tool import recall
from promptkit.errors import (
    InvalidArgumentError,
    TranscriptError,
    TranscriptFormatError,
    TranscriptWriteError,
)
from promptkit.testing import StoreContract
from promptkit.transcript import (
    Checkpoint,
    SearchableStore,
    SqlStore,
    Transcript,
    list_transcripts,
    open_store,
)
from promptkit.transcript.stores import sql
from tests.servers import postgres_server

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from promptkit.transcript import TranscriptStore


pytest.importorskip(
    "sqlalchemy", reason="transcripts in a database need SQLAlchemy: pip install '.[sql]'"
)


def said(text: str) -> Message:
    return Message(role="user", content=(text,))


ENTRIES = Transcript().append_messages(said("x"))


class TestSqlite(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], TranscriptStore]:
        return partial(SqlStore, f"sqlite:///{tmp_path}/talks.db#42")


@pytest.fixture(scope="module")
def postgres() -> Generator[str]:
    pytest.importorskip("psycopg", reason="PostgreSQL needs psycopg: pip install '.[postgres]'")
    with postgres_server() as url:
        yield url


class TestPostgres(StoreContract):
    @pytest.fixture
    def open_store(self, postgres: str) -> Callable[[], TranscriptStore]:
        return partial(SqlStore, postgres, str(uuid.uuid4()))


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/talks.db"
    url: str = request.getfixturevalue("postgres")
    return url


def test_one_database_keeps_many_conversations_apart(database: str) -> None:
    ids = ["a b", "ä#1", "x' OR 1=1 -- 100%"]
    for conversation in ids:
        Transcript(SqlStore(database, conversation)).append_messages(said(conversation))
    for conversation in ids:
        (entry,) = Transcript(SqlStore(database, conversation)).entries
        assert entry.message == said(conversation)
        assert SqlStore(database, conversation).find_entries(["other"]) == frozenset()
    addresses = list_transcripts(database)
    assert {SqlStore(database, conversation).load().last_id for conversation in ids} <= {
        open_store(each).load().last_id for each in addresses
    }


def test_a_database_of_a_newer_version_is_refused_and_not_changed(database: str) -> None:
    import sqlalchemy as sa

    Transcript(SqlStore(database, "old")).append_messages(said("one"))
    engine = sa.create_engine(database)
    try:
        with engine.begin() as connection:
            connection.execute(sa.text("UPDATE promptkit_schema SET version = 7"))
        store = SqlStore(database, "new")
        for use in (
            store.load,
            partial(store.append, ENTRIES),
            partial(store.archive, through="x"),
        ):
            with pytest.raises(
                TranscriptFormatError,
                match="has version 7 of the schema, and this promptkit knows up to 1: use a newer",
            ):
                use()
        with engine.begin() as connection:
            assert (
                connection.execute(
                    sa.text("SELECT count(*) FROM promptkit_conversations WHERE id = 'new'")
                ).scalar()
                == 0
            )
            connection.execute(sa.text("UPDATE promptkit_schema SET version = 1"))
    finally:
        engine.dispose()


def test_a_message_with_more_words_than_an_index_takes_is_kept_and_found(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "MAX_VECTOR_BYTES", 1_000)
    store = SqlStore(database, "large")
    (entry,) = Transcript(store).append_messages(
        said(" ".join(f"word{number}" for number in range(200)))
    )
    assert store.find_entries(["word177"]) >= {entry.id}
    assert Transcript(SqlStore(database, "large")).entries == [entry]


def test_recall_finds_the_same_with_the_index_as_without(database: str) -> None:
    transcript = Transcript(SqlStore(database, "recall"))
    for number in range(14):
        transcript.append_messages(
            said(
                f"step {number}: src/module_{number % 7}.py raises KeyError\nand more of the größenTests in line {number}"
            )
        )
    store = transcript.store
    assert isinstance(store, SearchableStore)
    for query in (
        "module_3.py",
        "KeyError step 11",
        "src/module_5.py line",
        "nothing of this",
        "größe",
        "test",
        "raising errors",
        "modul",
    ):
        arguments = {"query": query}
        assert recall(transcript.path(), arguments, index=store) == recall(
            transcript.path(), arguments
        )
    assert len(store.find_entries(["module_3.py"])) == 2, "of 14 messages only these are looked at"


def test_a_summary_names_the_url_and_the_tool_recall_but_no_tool_that_reads_files(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/talks.db#1"
    transcript = Transcript(SqlStore(url))
    for number in range(10):
        transcript.append_messages(
            said(f"question {number} " * 120), Message(role="assistant", content=("answer " * 120,))
        )
    window = ContextWindow(
        model="gpt-5", transcript=transcript, tools=[ToolDefinition(name="read_file")]
    )
    checkpoint = asyncio.run(window.compact(allow_extractive=True))
    assert checkpoint is not None
    assert isinstance(checkpoint.payload, Checkpoint)
    assert f'in the transcript "{url}".' in checkpoint.payload.summary
    assert "It had 20 entries" in checkpoint.payload.summary
    assert "read_file(" not in checkpoint.payload.summary
    assert Transcript(SqlStore(url)).path()[-1] == checkpoint


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked on this system")
@pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded, use of fork:DeprecationWarning"
)
def test_a_process_that_is_forked_uses_and_closes_connections_of_its_own(database: str) -> None:
    transcript = Transcript(SqlStore(database, "forked"))
    transcript.append_messages(said("one"))
    child = os.fork()
    if child == 0:
        status = 1
        with suppress(BaseException):
            Transcript(SqlStore(database, "forked")).append_messages(said("two"))
            transcript.append_messages(said("three"))
            gc.collect()
            status = 0
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    transcript.append_messages(said("four"))
    assert [
        entry.message.text
        for entry in Transcript(SqlStore(database, "forked")).path()
        if entry.message
    ] == [
        "one",
        "two",
        "three",
        "four",
    ]


def test_an_engine_of_the_program_can_be_used(tmp_path: Path) -> None:
    import sqlalchemy as sa

    engine = sa.create_engine(f"sqlite:///{tmp_path}/talks.db")
    try:
        Transcript(SqlStore(engine, "1")).append_messages(said("one"))
        assert len(SqlStore(f"sqlite:///{tmp_path}/talks.db#1").load().entries) == 1
    finally:
        engine.dispose()


def test_reading_creates_no_file(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/talks.db#1")
    assert len(Transcript(store)) == 0
    assert list_transcripts(f"sqlite:///{tmp_path}/talks.db") == []
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "talks.db").write_text("no database " * 100)
    with pytest.raises(TranscriptError, match=r"talks\.db cannot be read: file is not a database"):
        SqlStore(f"sqlite:///{tmp_path}/talks.db#1").load()
    with pytest.raises(
        TranscriptWriteError, match=r"talks\.db: nothing was written: file is not a database"
    ):
        SqlStore(f"sqlite:///{tmp_path}/talks.db#1").append(ENTRIES)
    with pytest.raises(TranscriptWriteError, match="there is no directory"):
        SqlStore(f"sqlite:///{tmp_path}/none/talks.db#1").append(ENTRIES)


def test_a_record_that_cannot_be_read_is_a_problem_with_its_number(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/talks.db#1"
    transcript = Transcript(SqlStore(url))
    transcript.append_messages(said("one"), said("two"))
    with sqlite3.connect(tmp_path / "talks.db") as connection:
        connection.execute("UPDATE promptkit_entries SET record = '{' WHERE number = 2")
    connection.close()
    again = Transcript(SqlStore(url))
    assert [(problem.line, problem.detail[:20]) for problem in again.problems] == [
        (2, "the line is not JSON")
    ]
    again.append_messages(said("three"))
    assert [entry.message.text for entry in Transcript(SqlStore(url)).entries if entry.message] == [
        "one",
        "three",
    ]


def test_the_address_has_no_password() -> None:
    store = SqlStore("postgresql://me:secret@127.0.0.1:1/name#a%20b")
    assert store.address == "postgresql://me@127.0.0.1:1/name#a%20b"
    with pytest.raises(TranscriptError, match="cannot be read: ") as caught:
        store.load()
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("sqlite:///talks.db", "no conversation is named: write its id after the URL"),
        ("sqlite:///talks.db#", "no conversation is named"),
        ("sqlite:///talks.db#" + "x" * 201, "has more than 200 characters"),
        ("sqlite:///talks.db#a%00b", "cannot be printed"),
        ("sqlite://#1", "names no file"),
        ("mysql://host/name#1", "must be SQLite or PostgreSQL, not 'mysql'"),
        ("nonsense#1", "is not the URL of a database"),
    ],
)
def test_what_cannot_be_a_conversation_is_refused_with_a_sentence(url: str, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        SqlStore(url)


def test_a_relative_address_is_that_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        Transcript(SqlStore("sqlite:///talks.db#1")).append_messages(said(name))
        assert (tmp_path / name / "talks.db").is_file()
