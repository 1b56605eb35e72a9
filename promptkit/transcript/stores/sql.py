"""The store of transcripts in a SQL database, SQLite or PostgreSQL: many conversations in one database, and an index of their words.

A writer locks its conversation, compares the last entry, and inserts the batch in one transaction,
so that entries have their numbers in the order of their commits. The words of messages are in an
index of the database: FTS5 in SQLite, a `tsvector` column in PostgreSQL.
"""

from __future__ import annotations

import json
import os
import weakref
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from promptkit.errors import (
    InvalidArgumentError,
    TranscriptConflictError,
    TranscriptError,
    TranscriptFormatError,
    TranscriptWriteError,
)
from promptkit.transcript.log.search import encode_words, extract_words, list_lines
from promptkit.transcript.stores.jsonl.format import EntryLine, encode_batch, line_from_bytes
from promptkit.transcript.stores.store import (
    ConversationStore,
    LoadedEntries,
    ReadProblem,
    archiving_error,
    check_conversation,
    settle_write,
    split_address,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from sqlalchemy import Connection, CursorResult, Engine
    from sqlalchemy.pool import Pool

    from promptkit.transcript.log.entries import Entry

SCHEMA_VERSION = 1
"""The version of the schema that is written."""

LOCK_SECONDS = 30
"""Seconds to wait while another process writes to the same SQLite file."""

MAX_VECTOR_BYTES = 500_000
"""PostgreSQL refuses a `tsvector` of 1 MiB. A message with more words than these is not in the
index, and always looked at."""

_SQL_HINT = (
    "run `pip install 'sqlalchemy>=2.0'`, or `pip install '.[sql]'` in a checkout of promptkit"
)
_POSTGRES_HINT = "run `pip install 'psycopg[binary]>=3.2'`, or `pip install '.[postgres]'` in a checkout of promptkit"

_COMMON_SCHEMA = (
    "CREATE TABLE promptkit_schema (version INTEGER NOT NULL)",
    """CREATE TABLE promptkit_conversations (
        id TEXT PRIMARY KEY, last_number BIGINT NOT NULL, last_id TEXT NOT NULL, archived_through BIGINT NOT NULL)""",
)
_SCHEMA = {
    "sqlite": (
        *_COMMON_SCHEMA,
        """CREATE TABLE promptkit_entries (
            key INTEGER PRIMARY KEY, conversation TEXT NOT NULL, number BIGINT NOT NULL, id TEXT NOT NULL, record TEXT NOT NULL,
            UNIQUE (conversation, number))""",
        "CREATE VIRTUAL TABLE promptkit_words USING fts5(words, content='', detail='none', tokenize='ascii')",
    ),
    "postgresql": (
        *_COMMON_SCHEMA,
        """CREATE TABLE promptkit_entries (
            conversation TEXT NOT NULL, number BIGINT NOT NULL, id TEXT NOT NULL, record TEXT NOT NULL, words TSVECTOR,
            PRIMARY KEY (conversation, number))""",
        "CREATE INDEX promptkit_words ON promptkit_entries USING GIN (words)",
    ),
}
"""For each database the statements that create the schema."""


class SqlStore(ConversationStore):
    """Keep the entries of a conversation in a SQL database, SQLite or PostgreSQL.

    The first append creates the tables, which begin with `promptkit_`. Several processes may append
    to one conversation. Stores with the same URL share a pool of connections. SQLite files are used
    with a write-ahead log, and must be on a local disk.

    Args:
        url: The database, such as `sqlite:///talks.db` or `postgresql://user@host/name`, with the
            conversation after a `#` unless that is given apart. Or an engine of SQLAlchemy.
        conversation: The id of the conversation: up to 200 characters.
        read_archives: Read entries that were archived. Without them a transcript begins later and
            loads faster.

    Raises:
        InvalidArgumentError: The URL names no conversation, or a database of another kind.
        TranscriptError: SQLAlchemy or the database's driver is not installed.

    >>> transcript = Transcript(SqlStore("sqlite:///talks.db#42"))
    """

    def __init__(
        self, url: str | Engine, conversation: str | None = None, *, read_archives: bool = True
    ) -> None:
        if isinstance(url, str) and conversation is None:
            url, conversation = split_address(url)
        self._database = _Database(url)
        super().__init__(
            self._database.address, check_conversation(conversation), read_archives=read_archives
        )
        self._number = 0  # the number of the last entry that was read or written

    def load(self) -> LoadedEntries:
        """Read all entries.

        Raises TranscriptFormatError if the database was written by a newer version, TranscriptError
        if it cannot be read.
        """
        self._number = 0
        return self.refresh()

    def refresh(self) -> LoadedEntries:
        """Read what was appended since the last read. Raises what `load` raises."""
        with self._database.read() as connection:
            if connection is None:
                return LoadedEntries()
            # before the entries, so that all up to this number are read
            last_number, last_id, archived = self._read_row(connection)
            if self._read_archives:
                archived = 0
            loaded = self._select(
                connection, "number > :after ORDER BY number", after=max(self._number, archived)
            )
            if loaded.line_numbers and loaded.line_numbers[-1] >= last_number:
                last_number, last_id = loaded.line_numbers[-1], loaded.last_id
            self._number = last_number
        return attrs.evolve(loaded, last_id=last_id, partial=archived > 0)

    def append(self, entries: Sequence[Entry], *, expect: str | None = None) -> None:
        """Append a batch in one transaction.

        Args:
            entries: The batch.
            expect: The id of the entry that the caller believes to be the last; an empty string for
                an empty conversation. None: append whatever the last entry is.

        Raises:
            TranscriptConflictError: Another writer appended entries since. The error carries them.
            TranscriptWriteError: The database cannot be written.
            TranscriptFormatError: The database was written by a newer version.
        """
        records = [encode_batch([entry]).decode().removesuffix("\n") for entry in entries]
        if not entries:
            return
        with self._database.write(lambda: self._holds(entries[0].id)) as connection:
            last_number, last_id, _ = self._read_row(connection, lock=True)
            if expect not in {None, last_id}:
                raise TranscriptConflictError(
                    expect or "",
                    self._select(
                        connection, "number > :after ORDER BY number", after=self._number
                    ).entries,
                )
            rows = [
                {
                    "c": self._conversation,
                    "n": last_number + at,
                    "i": _escape(entry.id),
                    "r": record,
                    "w": encode_words(extract_words("\n".join(list_lines(entry)))),
                }
                for at, (entry, record) in enumerate(zip(entries, records, strict=True), 1)
            ]
            self._database.insert(connection, rows)
            _execute(
                connection,
                "UPDATE promptkit_conversations SET last_number = :n, last_id = :i WHERE id = :c",
                {"c": self._conversation, "n": rows[-1]["n"], "i": rows[-1]["i"]},
            )
        # otherwise the next refresh reads what is between, and these entries again
        if self._number == last_number:
            self._number += len(entries)

    def archive(self, *, through: str) -> None:
        """Mark the entries up to one as archived: `read_archives=False` leaves them out.

        Raises TranscriptError if there is no such entry or none after it, TranscriptWriteError if
        the database cannot be written.
        """
        with self._database.write(None) as connection:
            last_number, _, archived = self._read_row(connection, lock=True)
            found = self._select(connection, "id = :id ORDER BY number", id=_escape(through))
            number = found.line_numbers[0] if found.line_numbers else 0
            if number in {0, last_number}:
                raise archiving_error(self.address, through, exists=number > 0)
            _execute(
                connection,
                "UPDATE promptkit_conversations SET archived_through = :n WHERE id = :c",
                {"c": self._conversation, "n": max(number, archived)},
            )

    def find_entries(self, stems: Iterable[str]) -> frozenset[str]:
        """Return the ids of the entries whose messages contain a word that begins with one of the stems, from the index of the database."""
        with self._database.read() as connection:
            terms = encode_words(stems)
            if connection is None or not terms:
                return frozenset()
            rows = self._database.search(connection, self._conversation, terms)
        return frozenset(_unescape(row) for row in rows)

    def _holds(self, entry_id: str) -> bool:
        with self._database.read() as connection:
            return connection is not None and bool(
                self._select(connection, "id = :id", id=_escape(entry_id)).line_numbers
            )

    def _read_row(self, connection: Connection, *, lock: bool = False) -> tuple[int, str, int]:
        """Return the number and the id of the last entry, and the number up to which entries are archived."""
        if lock:
            _execute(
                connection,
                "INSERT INTO promptkit_conversations VALUES (:c, 0, '', 0) ON CONFLICT DO NOTHING",
                {"c": self._conversation},
            )
        for_update = " FOR UPDATE" if lock and not self._database.is_sqlite else ""
        query = f"SELECT last_number, last_id, archived_through FROM promptkit_conversations WHERE id = :c{for_update}"  # noqa: S608  # constants
        row = _execute(connection, query, {"c": self._conversation}).first()
        return (0, "", 0) if row is None else (int(row[0]), _unescape(row[1]), int(row[2]))

    def _select(self, connection: Connection, condition: str, **values: object) -> LoadedEntries:
        """Read the entries that meet a condition, a constant of this module."""
        query = (
            f"SELECT number, record FROM promptkit_entries WHERE conversation = :c AND {condition}"  # noqa: S608  # as above
        )
        rows = [
            (int(number), line_from_bytes(str(record).encode()))
            for number, record in _execute(connection, query, {"c": self._conversation, **values})
        ]
        found = [(number, line.entry) for number, line in rows if isinstance(line, EntryLine)]
        return LoadedEntries(
            entries=tuple(entry for _, entry in found),
            problems=tuple(
                ReadProblem(line=number, detail=line or "the record is empty.")
                for number, line in rows
                if not isinstance(line, EntryLine)
            ),
            line_numbers=tuple(number for number, _ in found),
            last_id=found[-1][1].id if found else "",
        )


def list_conversations(url: str) -> list[str]:
    """Return the ids of the conversations in a database, sorted.

    Raises TranscriptError if it cannot be read.
    """
    with _Database(url).read() as connection:
        listed = "SELECT id FROM promptkit_conversations WHERE last_number > 0 ORDER BY id"
        return (
            [] if connection is None else [str(row[0]) for row in _execute(connection, listed, {})]
        )


class _Database:
    """A database: its connections, its schema, and the statements that differ between databases."""

    def __init__(self, url: str | Engine) -> None:
        engine = _open_engine(url, os.getpid(), Path.cwd()) if isinstance(url, str) else url
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self.is_sqlite = self._engine.dialect.name == "sqlite"
        self._schema_known = False
        self._file: Path | None = None
        location = self._engine.url
        if self.is_sqlite:
            self._file = Path(location.database or "").absolute()
            location = location.set(database=str(self._file))
        # Without the password, and without options, which may contain one.
        location = location.create(
            location.get_backend_name(),
            location.username,
            None,
            location.host,
            location.port,
            location.database,
        )
        self.address = location.render_as_string()

    @contextmanager
    def read(self) -> Generator[Connection | None]:
        """Open a connection for reading.

        None: there is no database yet, or it has no tables of promptkit.
        """
        from sqlalchemy.exc import SQLAlchemyError

        if self._file is not None and not self._file.exists():
            yield None
            return
        try:
            with self._engine.connect() as connection:
                self._schema_known = self._schema_known or self._check_schema(connection)
                yield connection if self._schema_known else None
        except SQLAlchemyError as error:
            raise TranscriptError(f"{self.address} cannot be read: {_describe(error)}.") from error

    @contextmanager
    def write(self, is_done: Callable[[], bool] | None) -> Generator[Connection]:
        """Open a connection in a transaction, which is committed at the end.

        If the connection breaks, `is_done` finds out whether the transaction was committed
        nevertheless.
        """
        from sqlalchemy.exc import SQLAlchemyError

        if self._file is not None and not self._file.parent.is_dir():
            raise TranscriptWriteError(
                f"there is no directory {self._file.parent}: create it first.", file=self.address
            )
        committing = False
        try:
            with self._engine.connect() as connection:
                if not (self._schema_known or self._check_schema(connection)):
                    self._create_schema(connection)
                self._schema_known = True
                with self._transact(connection):
                    yield connection
                    committing = True
        except SQLAlchemyError as error:
            settle_write(
                error,
                _describe(error),
                lambda: committing and is_done is not None and is_done(),
                file=self.address,
            )

    # Any: numbers, texts, and the list of words
    def insert(self, connection: Connection, rows: list[dict[str, Any]]) -> None:
        """Insert entries, and their words into the index."""
        if self.is_sqlite:
            values = [{name: row[name] for name in "cnir"} for row in rows]
            _execute(
                connection,
                "INSERT INTO promptkit_entries (conversation, number, id, record) VALUES (:c, :n, :i, :r)",
                values,
            )
            words = [
                {"c": row["c"], "n": row["n"], "w": " ".join(row["w"])} for row in rows if row["w"]
            ]
            if words:
                _execute(
                    connection,
                    "INSERT INTO promptkit_words (rowid, words) "
                    "SELECT key, :w FROM promptkit_entries WHERE conversation = :c AND number = :n",
                    words,
                )
            return
        values = [
            row | {"w": vector if len(vector) <= MAX_VECTOR_BYTES else None}
            for row in rows
            for vector in [" ".join(row["w"])]
        ]
        _execute(
            connection,
            "INSERT INTO promptkit_entries (conversation, number, id, record, words) VALUES (:c, :n, :i, :r, CAST(:w AS tsvector))",
            values,
        )

    def search(self, connection: Connection, conversation: str, terms: list[str]) -> list[str]:
        """Return the ids of entries, as they are stored, that have a term in the index that begins with one of these, or are not in the index."""
        if self.is_sqlite:
            query = (
                "SELECT id FROM promptkit_words JOIN promptkit_entries ON key = promptkit_words.rowid "
                "WHERE promptkit_words MATCH :q AND conversation = :c"
            )
            wanted = " OR ".join(f"{term}*" for term in terms)
        else:
            query = "SELECT id FROM promptkit_entries WHERE conversation = :c AND (words @@ CAST(:q AS tsquery) OR words IS NULL)"
            wanted = " | ".join(f"{term}:*" for term in terms)
        return [
            str(row[0]) for row in _execute(connection, query, {"c": conversation, "q": wanted})
        ]

    def _check_schema(self, connection: Connection) -> bool:
        """Return whether the database has tables of promptkit.

        Raises TranscriptFormatError for those of a newer version.
        """
        if not _has_table(connection):
            return False
        version = int(
            _execute(connection, "SELECT version FROM promptkit_schema", {}).scalar() or 0
        )
        if version > SCHEMA_VERSION:
            raise TranscriptFormatError(
                f"the database has version {version} of the schema, and this promptkit knows up to {SCHEMA_VERSION}: use a newer promptkit. "
                "Nothing was changed.",
                file=self.address,
                line=None,
            )
        return True

    def _create_schema(self, connection: Connection) -> None:
        """Create the tables, unless another process does it first."""
        from sqlalchemy.exc import OperationalError

        if self.is_sqlite:
            # another process creates the file; without the log it is slower, and as safe
            with suppress(OperationalError):
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")
        with self._transact(connection):
            if not self.is_sqlite:
                # any number that is always the same
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7205759403)")
            if not _has_table(connection):
                for statement in _SCHEMA[self._engine.dialect.name]:
                    connection.exec_driver_sql(statement)
                _execute(
                    connection, "INSERT INTO promptkit_schema VALUES (:v)", {"v": SCHEMA_VERSION}
                )
        self._check_schema(connection)

    @contextmanager
    def _transact(self, connection: Connection) -> Generator[None]:
        """Commit what is done within, or take it back if that raises an error."""
        from sqlalchemy.exc import SQLAlchemyError

        connection.exec_driver_sql("BEGIN IMMEDIATE" if self.is_sqlite else "BEGIN")
        try:
            yield
            connection.exec_driver_sql("COMMIT")
        except BaseException:
            try:
                connection.exec_driver_sql("ROLLBACK")
            except SQLAlchemyError:
                connection.invalidate()
            raise


@lru_cache(maxsize=64)
def _open_engine(url: str, _process: int, _folder: Path) -> Engine:
    """Return the engine for a URL, one for each process and each current folder.

    SQLAlchemy makes a relative path absolute when it creates the engine.

    Raises InvalidArgumentError for a database that is not supported.
    """
    try:
        import sqlalchemy as sa
        from sqlalchemy import event
        from sqlalchemy.exc import ArgumentError
    except ImportError as error:
        raise TranscriptError(
            f"a transcript in a database needs SQLAlchemy: {_SQL_HINT}."
        ) from error
    try:
        location = sa.make_url(url.replace("postgres://", "postgresql://", 1))
    except ArgumentError as error:
        raise InvalidArgumentError(
            f"{url!r} is not the URL of a database: write one such as sqlite:///talks.db or postgresql://user@host/name."
        ) from error
    kind = location.get_backend_name()
    if kind not in _SCHEMA:
        raise InvalidArgumentError(
            f"the database must be SQLite or PostgreSQL, not {kind!r}: write a URL such as sqlite:///talks.db."
        )
    if kind == "sqlite" and location.database in {None, "", ":memory:"}:
        raise InvalidArgumentError(
            f"{url!r} names no file: write one such as sqlite:///talks.db, or use InMemoryStore."
        )
    if location.drivername == kind == "postgresql":
        location = location.set(drivername="postgresql+psycopg")
    try:
        engine = sa.create_engine(
            location, connect_args={"timeout": LOCK_SECONDS} if kind == "sqlite" else {}
        )
    except ImportError as error:
        raise TranscriptError(f"PostgreSQL needs psycopg: {_POSTGRES_HINT}.") from error
    if kind == "sqlite":
        event.listen(engine, "connect", _sync_fully)
    # Connections are closed with their engine, but not by a child process, to which they do not
    # belong.
    weakref.finalize(engine, _close_pool, engine.pool, os.getpid())
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=partial(_forget_connections, weakref.ref(engine)))
    return engine


def _close_pool(pool: Pool, process: int) -> None:
    if os.getpid() == process:
        pool.dispose()


def _forget_connections(reference: weakref.ref[Engine]) -> None:
    if (engine := reference()) is not None:
        engine.dispose(close=False)


def _sync_fully(connection: sqlite3.Connection, _: object) -> None:
    """Have a new connection to SQLite sync each commit to the disk."""
    connection.execute("PRAGMA synchronous = FULL").close()


def _has_table(connection: Connection) -> bool:
    import sqlalchemy as sa

    return sa.inspect(connection).has_table("promptkit_schema")


def _execute(
    connection: Connection,
    statement: str,
    values: Mapping[str, object] | Sequence[Mapping[str, object]],
) -> CursorResult[*tuple[Any, ...]]:  # Any: the columns of the statement
    import sqlalchemy as sa

    return connection.execute(sa.text(statement), values)


def _describe(error: Exception) -> str:
    """Return what is wrong in one line, without SQLAlchemy's advice."""
    return " ".join(str(getattr(error, "orig", None) or error).split()).rstrip(".")


def _escape(text: str) -> str:
    """Write an id so that every database takes it: databases refuse NUL and lone surrogates."""
    return json.dumps(text)[1:-1]


def _unescape(text: str) -> str:
    return str(json.loads(f'"{text}"'))
