"""The unfinished work of a run, in a file: the names of all files in their order, and what came of those that are done.

It is a database of SQLite. So the results may come in any order and be more than the memory holds,
a run that was killed goes on where it was, and the output is written in the order of the files.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import stat
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import attrs

from promptkit.errors import PromptKitError

SAVE_EVERY = 1.0
"""Seconds after which results are saved, at the latest: what a kill of the process may cost."""

_OPEN = (
    os.O_RDWR
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
)

_TABLES = (
    "CREATE TABLE run (identity TEXT NOT NULL)",
    "CREATE TABLE files (number INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE, checksum INTEGER NOT NULL)",
    "CREATE TABLE outcomes (number INTEGER PRIMARY KEY, lines BLOB NOT NULL, totals BLOB NOT NULL, errors BLOB NOT NULL, checksum INTEGER NOT NULL)",
)


class CorpusError(PromptKitError):
    """A run over many files cannot begin, go on, or write its output."""


@attrs.frozen(kw_only=True)
class FileOutcome:
    """What came of a file, as it is kept until the output is written."""

    lines: bytes
    """The rows as JSON lines."""
    totals: str = "null"
    """JSON."""
    errors: tuple[str, ...] = ()
    """A sentence for each row that has an error."""


@contextmanager
def open_state(
    path: Path,
    identity: str,
    inputs: Iterable[Iterable[str]],
    *,
    find_target: Callable[[str], Path | str | None] | None = None,
) -> Generator[RunState]:
    """Open the state of a run, or begin one.

    It is saved at the end of the block, also if the block fails.

    Args:
        path: The file. Whoever opens it has it alone. Only its owner may read it, and it is never
            opened through a link.
        identity: Tells this run from others: only a run of the same identity goes on.
        inputs: For a run that begins, the names of the files, in groups. Those of a group are
            sorted; one that comes twice counts once.
        find_target: Returns the file that the work on a file writes. No two may write the same one,
            and none an input.

    Yields:
        The state.

    Raises:
        CorpusError: The file belongs to another run or cannot be used, another process uses it, or
            two files have one target.
    """
    is_new = _create(path)
    try:
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as database:
            database.create_function("checksum", -1, _checksum, deterministic=True)
            fill = partial(_fill, database, identity, inputs, find_target)
            try:
                _begin(database, path, identity, fill, is_new=is_new)
            except UnicodeDecodeError as error:  # of the sentence about a damaged name of a table
                raise sqlite3.DatabaseError("its schema is damaged") from error
            try:
                yield RunState(database)
            finally:
                if database.in_transaction:
                    database.execute("COMMIT")
    except sqlite3.Error as error:
        raise _error_of(path, error) from error


def _create(path: Path) -> bool:
    """Create the file if there is none, and return whether there was none.

    What another user may have put in its place is refused.
    """
    is_new = True
    try:
        try:
            descriptor = os.open(path, _OPEN | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            is_new = False
            descriptor = os.open(path, _OPEN)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            status, folder = os.fstat(file.fileno()), path.resolve().parent.stat()
    except OSError as error:
        raise CorpusError(
            f"{path} cannot be used to keep unfinished work: {'it is a link' if error.errno == errno.ELOOP else error.strerror}."
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise CorpusError(
            f"{path} cannot be used to keep unfinished work: it is not a regular file."
        )
    # Whoever owns the folder could replace the file anyway.
    if os.name == "posix" and status.st_uid not in (os.geteuid(), folder.st_uid):
        raise CorpusError(
            f"{path} cannot be used to keep unfinished work: it belongs to another user."
        )
    return is_new


def _begin(
    database: sqlite3.Connection,
    path: Path,
    identity: str,
    fill: Callable[[], None],
    *,
    is_new: bool,
) -> None:
    """Take the database for this process alone, and fill it if it is empty."""
    database.execute("PRAGMA locking_mode = EXCLUSIVE")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute("BEGIN EXCLUSIVE")
    tables = tuple(
        sql
        for (sql,) in database.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL LIMIT 9"
        )
    )
    if not tables:
        try:
            fill()
        except BaseException:
            if is_new:
                with suppress(OSError):  # a system that keeps open files
                    path.unlink(missing_ok=True)
            raise
    elif tables != _TABLES or database.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
        raise sqlite3.DatabaseError("its tables are damaged")
    elif database.execute("SELECT identity FROM run").fetchone() != (identity,):
        raise CorpusError(
            f"{path} holds an unfinished run with other files or options: give them again, name another output, or delete {path}."
        )
    database.execute("COMMIT")


def _fill(
    database: sqlite3.Connection,
    identity: str,
    inputs: Iterable[Iterable[str]],
    find_target: Callable[[str], Path | str | None] | None,
) -> None:
    for statement in _TABLES:
        database.execute(statement)
    database.execute("INSERT INTO run VALUES (?)", (identity,))
    database.execute("CREATE TEMP TABLE listed (name BLOB PRIMARY KEY) WITHOUT ROWID")
    for group in inputs:
        database.executemany(
            "INSERT OR IGNORE INTO listed VALUES (?)", ((_encode(name),) for name in group)
        )
        database.execute(
            "INSERT OR IGNORE INTO files (name, checksum) SELECT name, 0 FROM listed ORDER BY name"
        )
        database.execute("DELETE FROM listed")
    database.execute("UPDATE files SET checksum = checksum(number, name)")
    if find_target is not None:
        _check_targets(database, find_target)


def _check_targets(
    database: sqlite3.Connection, find_target: Callable[[str], Path | str | None]
) -> None:
    """Check that no two files are written to the same place, and none over an input."""
    database.execute(
        "CREATE TEMP TABLE places (place BLOB PRIMARY KEY, name BLOB NOT NULL, is_input INTEGER NOT NULL) WITHOUT ROWID"
    )
    insert = "INSERT OR IGNORE INTO places VALUES (?, ?, ?)"
    names = "SELECT name FROM files ORDER BY number"
    database.executemany(
        insert,
        (
            (_encode(os.path.realpath(_decode(name))), name, 1)
            for (name,) in database.execute(names)
        ),
    )
    for (name,) in database.execute(names):
        if (target := find_target(_decode(name))) is None:
            return
        place = os.path.realpath(target) if isinstance(target, Path) else target
        if not database.execute(insert, (_encode(place), name, 0)).rowcount:
            other, is_input = database.execute(
                "SELECT name, is_input FROM places WHERE place = ?", (_encode(place),)
            ).fetchone()
            raise CorpusError(
                f"{_decode(name)} would be written to {target}, {'which is an input' if is_input else f'and so would {_decode(other)}'}: "
                "rename one of them, or name another folder."
            )


def _checksum(*fields: object) -> int:
    """Return the CRC-32 of the fields of a row. A damaged row may have a value of any type."""
    found = 0
    for field in fields:
        found = zlib.crc32(field if isinstance(field, bytes) else repr(field).encode(), found)
    return found


def _check_row(checksum: object, *fields: object) -> None:
    """Raise sqlite3.DatabaseError for a row that is not as it was written."""
    if checksum != _checksum(*fields):
        raise sqlite3.DatabaseError("a row of it is damaged")


def _encode(name: str) -> bytes:
    """Return a name as the database keeps it. Names of files need not be UTF-8."""
    return name.encode("utf-8", "surrogatepass")


def _decode(name: bytes) -> str:
    return name.decode("utf-8", "surrogatepass")


def _error_of(path: Path, error: sqlite3.Error) -> CorpusError:
    if "locked" in str(error):
        return CorpusError(
            f"another process works with {path}: wait until it has ended, or name another output."
        )
    advice = (
        " Delete it to begin again, or name another output."
        if not isinstance(error, sqlite3.OperationalError)
        else ""
    )
    return CorpusError(f"{path} cannot be used to keep unfinished work: {error}.{advice}")


@attrs.frozen
class RunState:
    """The state of a run that is open."""

    _database: sqlite3.Connection
    _saved: list[float] = attrs.field(factory=lambda: [time.monotonic()])

    @property
    def total(self) -> int:
        """The number of files."""
        return int(self._database.execute("SELECT count(*) FROM files").fetchone()[0])

    @property
    def done(self) -> int:
        """The number of files that are done."""
        return int(self._database.execute("SELECT count(*) FROM outcomes").fetchone()[0])

    def list_missing(self) -> Iterator[tuple[int, str]]:
        """Yield the number and name of each file that is not done, in order."""
        last = 0
        query = (
            "SELECT number, name, checksum FROM files WHERE number > ? AND NOT EXISTS (SELECT 1 FROM outcomes WHERE outcomes.number = files.number) "
            "ORDER BY number LIMIT 1000"
        )
        while page := self._database.execute(query, (last,)).fetchall():
            for number, name, checksum in page:
                _check_row(checksum, number, name)
                yield number, _decode(name)
            last = page[-1][0]

    def save(self, number: int, outcome: FileOutcome) -> None:
        """Keep what came of a file.

        It is on the disk a second later, or when the state is closed.
        """
        database = self._database
        if not database.in_transaction:
            database.execute("BEGIN")
        fields = (
            number,
            outcome.lines,
            outcome.totals.encode(),
            json.dumps(outcome.errors).encode(),
        )
        database.execute(
            "INSERT INTO outcomes VALUES (?, ?, ?, ?, ?)", (*fields, _checksum(*fields))
        )
        if time.monotonic() - self._saved[0] >= SAVE_EVERY:
            database.execute("COMMIT")
            self._saved[0] = time.monotonic()

    def read(self) -> Iterator[tuple[str, FileOutcome]]:
        """Yield the name of each file, and what came of it, in order."""
        for name, name_checksum, *fields, checksum in self._database.execute(
            "SELECT name, files.checksum, number, lines, totals, errors, outcomes.checksum "
            "FROM files JOIN outcomes USING (number) ORDER BY number"
        ):
            number, lines, totals, errors = fields
            _check_row(name_checksum, number, name)
            _check_row(checksum, *fields)
            yield (
                _decode(name),
                FileOutcome(lines=lines, totals=totals.decode(), errors=tuple(json.loads(errors))),
            )
