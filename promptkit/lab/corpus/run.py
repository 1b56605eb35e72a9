"""Run a job over the files of a corpus: on any executor, with an output that depends on neither it nor the order of the work. The jobs of the command line are replay, fit and import.

Jobs and what they return are values that other processes receive and send. The unfinished work is a
database of SQLite. It has the names of all files in their order, and what came of those that are
done. So the results may come in any order and be more than the memory holds, and a run that was
killed goes on where it was.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import stat
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing, contextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import quote

import attrs
import cattrs

from promptkit.errors import PromptKitError, TranscriptWriteError
from promptkit.fitting.fit import fit, format_ranges
from promptkit.lab.corpus.files import (
    CorpusError,
    check_output,
    is_pattern,
    list_inputs,
    write_rows,
)
from promptkit.lab.engines import Engine, LostItem, run_each
from promptkit.lab.recordings import (
    AUTO,
    import_recording,
    read_recording,
    to_anthropic_json,
    to_chat_json,
)
from promptkit.lab.recordings.reading.remote import fetch_file, is_remote
from promptkit.lab.replay import (
    LOST_WORKER,
    FileResult,
    Recording,
    ReplayOptions,
    count_overhead,
    describe_failure,
    hash_recording,
    read_recordings,
    replay_conversations,
    result_rows,
    sum_results,
)
from promptkit.messages import Json
from promptkit.reprs import describe_fields
from promptkit.tokens import tokenizer_for
from promptkit.tokens.tokenizer import count_message
from promptkit.transcript import open_store
from promptkit.transcript.stores.addresses import is_conversation, is_url
from promptkit.wire import tools_to_anthropic, tools_to_chat


@attrs.frozen(kw_only=True)
class FileRows:
    """The rows of a file, and what is added up over all files."""

    rows: Sequence[Mapping[str, object]] = ()
    """Rows of the output. Their values are JSON. A row with an `error` tells why there is no
    other."""
    totals: Json = None

    __repr__ = describe_fields


class CorpusJob(Protocol):
    """Works on the files of a corpus, one at a time.

    A frozen value that can be pickled; its `repr` tells one job from another.
    """

    def run(self, file: str) -> FileRows:
        """Work on a file. An exception becomes a row with the file's name and an `error`."""
        ...


@attrs.frozen(kw_only=True)
class ReplayJob:
    """Replay the conversations of each file: a row for each conversation and policy.

    >>> run_job(ReplayJob(options=options), ["logs/*.jsonl"], "replay.jsonl", executor=engine)
    """

    options: ReplayOptions

    def run(self, file: str) -> FileRows:
        """Replay a file. Its totals are its `FileResult`, which `read_totals` reads."""
        results = list(replay_conversations(file, self.options))
        return FileRows(
            rows=[
                row for number, result in enumerate(results) for row in result_rows(result, number)
            ],
            totals=cattrs.unstructure(sum_results(results, self.options, file=file)),
        )

    @staticmethod
    def read_totals(totals: Json) -> FileResult:
        """Return the result of a file from its totals."""
        return cattrs.structure(totals, FileResult)


@attrs.frozen(kw_only=True)
class FitJob:
    """Make a window of each conversation: a row with its messages, and a receipt of what was kept.

    >>> run_job(FitJob(budget=8_000, model="gpt-5"), ["logs/*.jsonl"], "windows.jsonl", executor=engine)
    """

    budget: int | None = None
    """The most tokens of a window. None: the context window of the model, less the tokens reserved
    for the reply."""
    model: str | None = None
    """Decides the tokenizer. None: o200k_base with OpenAI's framing."""
    to: Literal["chat", "anthropic"] = "chat"
    """The format of the messages."""
    keep: Literal["newest", "oldest"] = "newest"
    """The rounds that stay longest."""
    shorten: bool = True
    """True: messages may be shortened. False: rounds are kept whole, or removed."""

    def run(self, file: str) -> FileRows:
        """Make the windows of a file.

        A conversation that does not fit has a row with an `error`.
        """
        with fetch_file(file) as place:
            source = {"file": file, "sha256": hash_recording(place)}
            return FileRows(
                rows=[
                    {**source, "conversation": number, **self._make_window(recording)}
                    for number, recording in enumerate(read_recordings(place, address=file))
                ]
            )

    def _make_window(self, recording: Recording) -> dict[str, object]:
        messages = (*recording.system, *recording.messages)
        tokenizer = tokenizer_for(self.model)
        try:
            fitted = fit(
                messages,
                budget=self.budget,
                model=self.model,
                tools=recording.tools,
                keep=self.keep,
                shorten=self.shorten,
            )
            window = (
                to_chat_json(fitted.messages)
                if self.to == "chat"
                else to_anthropic_json(fitted.messages)
            )
        except PromptKitError as error:
            return {"error": str(error)}
        convert_tools = tools_to_chat if self.to == "chat" else tools_to_anthropic
        return {
            **({"messages": window} if isinstance(window, list) else window),
            **({"tools": convert_tools(recording.tools)} if recording.tools else {}),
            "tokens": fitted.tokens,
            # The tokenizer has counted most of these messages already, and keeps the counts.
            "tokens_before": count_overhead(tokenizer, recording.tools, recording.system)
            + sum(count_message(message, tokenizer) for message in messages),
            "exact": fitted.exact,
            "budget": fitted.budget,
            "model": self.model,
            "tokenizer": tokenizer.name,
            "messages_before": len(messages),
            "kept": format_ranges(fitted.kept),
            "changed": format_ranges(fitted.changed),
            "removed": format_ranges(fitted.removed),
            "repairs": len(fitted.repairs),
        }


@attrs.frozen(kw_only=True)
class ImportJob:
    """Write each recording as a transcript: a row with its counts.

    >>> run_job(ImportJob(out="talks", root="logs/"), ["logs/**/*.jsonl"], "counts.jsonl", executor=engine)
    """

    out: str | None = None
    """The folder of the transcripts, which every worker must see, or the URL of a place for
    conversations. None: only count."""
    root: str = ""
    """The beginning of the files' names that is left out of the names of the transcripts. See
    `find_root`."""
    format_name: str = AUTO
    """The format of all files, a name in `FORMATS`. By default it is recognized."""

    def run(self, file: str) -> FileRows:
        """Import a file."""
        target = self.find_target(file)
        if isinstance(target, Path):
            if not target.resolve().is_relative_to(Path(self.out or "").resolve()):
                raise TranscriptWriteError(f"a link leads out of {self.out}.", file=str(target))
            target.parent.mkdir(parents=True, exist_ok=True)
        try:
            result = import_recording(
                file, target, format_name=self.format_name, overwrite=isinstance(target, Path)
            )
        except TranscriptWriteError:
            # A worker that died after it wrote the conversation, and before it said so, has left
            # the same entries.
            batches = read_recording(file, format_name=self.format_name)
            if not isinstance(target, str) or open_store(target).load().entries != tuple(
                entry for _, batch in batches for entry in batch.entries
            ):
                raise
            result = import_recording(file, format_name=self.format_name)
        counts: dict[str, Json] = attrs.asdict(result.counts)
        return FileRows(
            rows=[
                {
                    "file": file,
                    **({} if target is None else {"transcript": str(target)}),
                    "format": result.format,
                    "entries": result.entries,
                    **counts,
                }
            ],
            totals=counts,
        )

    def find_target(self, file: str) -> Path | str | None:
        """Return where the transcript of a file is written; None if it is not."""
        if self.out is None:
            return None
        name = self._make_name(file)
        return (
            f"{self.out}#{quote(name.removesuffix('.jsonl'), safe='')}"
            if is_url(self.out)
            else Path(self.out, name)
        )

    def _make_name(self, file: str) -> str:
        """Return the path of a transcript below the output. Nothing in it leads out of there."""
        parts = [
            part
            for part in file.removeprefix(self.root).replace("\\", "/").replace("#", "/").split("/")
            if part not in ("", ".")
        ]
        name = "/".join("__" if part == ".." else part.replace(":", "") for part in parts)
        return name if name.endswith(".jsonl") else f"{name}.jsonl"


MAX_CHUNK = 32
"""The most files of a task."""

TASKS_PER_WORKER = 20
"""The fewest tasks for each worker, if there are enough files: so that none is left with much work
at the end."""

MAX_ERRORS = 20
"""Errors that a summary holds."""


@attrs.frozen(kw_only=True)
class CorpusSummary:
    """What a run did."""

    files: int
    rows: int
    failures: int
    """Rows with an error."""
    errors: tuple[str, ...]
    """The first of them, each with the name of its file."""

    __repr__ = describe_fields


def run_job(  # noqa: PLR0913  # keywords
    job: CorpusJob,
    files: Sequence[Path | str],
    output: Path | str | None,
    *,
    executor: Executor,
    state: Path | None = None,
    force: bool = False,
    on_progress: Callable[[int, int], object] | None = None,
    on_totals: Callable[[Json], object] | None = None,
) -> CorpusSummary:
    """Run a job over files, and write its rows in the order of the files.

    A file that cannot be read has a row with an `error`. If the run ends early, the same call goes
    on where it was: which files there are is decided when it begins.

    Args:
        job: What is done with each file.
        files: Paths, globs and URLs. The files of a glob are sorted by their names; one that is
            named twice counts once.
        output: The file of the rows, `.jsonl` or `.parquet`, or its URL. None: rows are not
            written.
        executor: Runs the job, for example an engine of `promptkit.lab.engines`.
        state: The file that keeps unfinished work. It is deleted at the end. Default:
            `find_state(output)`.
        force: Whether to replace an output that exists.
        on_progress: Called with the number of files that are done and of all.
        on_totals: Called with the totals of each file that has some, in order.

    Returns:
        The numbers of files, rows and failures.

    Raises:
        CorpusError: The run cannot begin, go on, or write its output.
        TranscriptError: A place cannot be listed, or the output cannot be written.
        InvalidArgumentError: A URL is of no use here.

    >>> with open_engine("local") as engine:
    ...     run_job(ReplayJob(options), ["logs/**/*.jsonl"], "replay.parquet", executor=engine)
    """
    if output is not None:
        check_output(output, force=force)
    path = state or find_state(output or "promptkit")
    if output is not None and _identify(path) == _identify(output):
        raise CorpusError(f"{path} is the output: name another file for the unfinished work.")
    with open_state(
        path,
        json.dumps([version("promptkit"), repr(job), [str(file) for file in files]]),
        (_list_inputs(file, output, path) for file in files),
        find_target=getattr(job, "find_target", None),
    ) as run:
        _work(run, job, executor, on_progress or (lambda _done, _total: None))
        if output is not None:
            write_rows(output, lambda: (outcome.lines for _, outcome in run.read()))
        summary = _summarize(run, on_totals or (lambda _: None))
    path.unlink(missing_ok=True)
    return summary


def _list_inputs(file: Path | str, output: Path | str | None, state: Path) -> Iterator[str]:
    """Yield the files that an address names.

    Neither the output nor the state may be one of them; a glob leaves the state out.
    """
    target = None if output is None else _identify(output)
    kept = {_identify(state), _identify(f"{state}-journal")}
    for name in list_inputs(file):
        found = _identify(name)
        if found == target:
            raise CorpusError(f"{output} is also an input: name another file.")
        if found not in kept:
            yield name
        elif not is_pattern(file):
            raise CorpusError(
                f"{name} is an input, and unfinished work cannot be kept in it: name another file."
            )


def _identify(address: Path | str) -> object:
    """Return what two addresses have in common if they name one file, also by links."""
    if is_remote(address) or is_conversation(address):
        return str(address)
    path = os.path.abspath(address)  # noqa: PTH100  # links count by what they lead to, and a Path would be slow for a million files
    with suppress(OSError):
        status = os.stat(path)  # noqa: PTH116  # as above
        return status.st_dev, status.st_ino
    return path


def find_state(output: Path | str) -> Path:
    """Return the file that keeps unfinished work by default: beside the output, or for a URL in the current folder."""
    place = Path(str(output).rstrip("/").rpartition("/")[2]) if is_remote(output) else Path(output)
    if place.name in ("", ".."):
        place = place.resolve()
    return place.with_name(f"{place.name}.unfinished")


def _work(
    run: RunState, job: CorpusJob, executor: Executor, tell: Callable[[int, int], object]
) -> None:
    """Work on all files that are not done."""
    done, total = run.progress
    engine = executor if isinstance(executor, Engine) else Engine(executor)
    chunk = max(1, min(MAX_CHUNK, (total - done) // (engine.workers * TASKS_PER_WORKER)))
    tell(done, total)
    for _, result in run_each(engine, partial(_run_files, job), run.list_missing(), chunk=chunk):
        number, outcome = (
            (result.item[0], _describe_failed(result.item[1], LOST_WORKER))
            if isinstance(result, LostItem)
            else result
        )
        run.save(number, outcome)
        done += 1
        tell(done, total)


def _run_files(job: CorpusJob, files: tuple[tuple[int, str], ...]) -> list[tuple[int, FileOutcome]]:
    """Work on files with their numbers, one after the other. This is what a worker runs."""
    return [(number, _run(job, file)) for number, file in files]


def _run(job: CorpusJob, file: str) -> FileOutcome:
    try:
        result = job.run(file)
    except PromptKitError as error:
        return _describe_failed(file, str(error))
    except Exception as error:  # noqa: BLE001  # a defect that one file meets must not cost the others their results
        return _describe_failed(file, f"{type(error).__name__}: {error}")
    return FileOutcome(
        lines=b"".join(map(_encode_row, result.rows)),
        totals=json.dumps(result.totals),
        errors=tuple(str(row["error"]) for row in result.rows if "error" in row),
    )


def _describe_failed(file: str, reason: str) -> FileOutcome:
    """Return what comes of a file that could not be worked on: one row."""
    reason = " ".join(reason.split())
    return FileOutcome(lines=_encode_row({"file": file, "error": reason}), errors=(reason,))


def _encode_row(row: Mapping[str, object]) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode("utf-8", errors="backslashreplace") + b"\n"


def _summarize(run: RunState, on_totals: Callable[[Json], object]) -> CorpusSummary:
    files = rows = failures = 0
    errors: list[str] = []
    for name, outcome in run.read():
        files += 1
        rows += outcome.lines.count(b"\n")
        failures += len(outcome.errors)
        errors += [describe_failure(name, error) for error in outcome.errors][
            : MAX_ERRORS - len(errors)
        ]
        totals: Json = json.loads(outcome.totals)
        if totals is not None:
            on_totals(totals)
    return CorpusSummary(files=files, rows=rows, failures=failures, errors=tuple(errors))


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
    return CorpusError(
        f"{path} cannot be used to keep unfinished work: {error}."
        + (
            ""
            if isinstance(error, sqlite3.OperationalError)
            else " Delete it to begin again, or name another output."
        )
    )


@attrs.frozen
class RunState:
    """The state of a run that is open."""

    _database: sqlite3.Connection
    _saved: list[float] = attrs.field(factory=lambda: [time.monotonic()])

    @property
    def progress(self) -> tuple[int, int]:
        """The number of files that are done, and of all."""
        done, total = self._database.execute(
            "SELECT (SELECT count(*) FROM outcomes), (SELECT count(*) FROM files)"
        ).fetchone()
        return int(done), int(total)

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
