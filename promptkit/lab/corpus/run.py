"""Run a job over the files of a corpus: on any executor, with an output that depends on neither it nor the order of the work."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path

import attrs

from promptkit.errors import PromptKitError
from promptkit.lab.corpus.files import check_output, is_pattern, list_inputs, write_rows
from promptkit.lab.corpus.jobs import CorpusJob
from promptkit.lab.corpus.state import CorpusError, FileOutcome, RunState, open_state
from promptkit.lab.engines import Engine, LostItem, run_each
from promptkit.lab.recordings.reading.remote import is_remote
from promptkit.lab.replay.results import describe_failure
from promptkit.lab.replay.runner import LOST_WORKER
from promptkit.messages import Json
from promptkit.reprs import describe_fields
from promptkit.transcript.stores.addresses import is_conversation

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
    total, done = run.total, run.done
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
        lines=b"".join(map(_encode, result.rows)),
        totals=json.dumps(result.totals),
        errors=tuple(str(row["error"]) for row in result.rows if "error" in row),
    )


def _describe_failed(file: str, reason: str) -> FileOutcome:
    """Return what comes of a file that could not be worked on: one row."""
    reason = " ".join(reason.split())
    return FileOutcome(lines=_encode({"file": file, "error": reason}), errors=(reason,))


def _encode(row: Mapping[str, object]) -> bytes:
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
