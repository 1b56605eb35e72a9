"""What a job does with one file, and what comes of it.

Both are values that other processes receive and send.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

import attrs

from promptkit.errors import PromptKitError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptkit.messages import Json


@attrs.frozen(kw_only=True)
class FileRows:
    """The rows of a file, and what is added up over all files."""

    rows: Sequence[Mapping[str, object]] = ()
    """Rows of the output. Their values are JSON. A row with an `error` tells why there is no
    other."""
    totals: Json = None


class CorpusJob(Protocol):
    """Works on the files of a corpus, one at a time.

    A frozen value that can be pickled; its `repr` tells one job from another.
    """

    def run(self, file: str) -> FileRows:
        """Work on a file. An exception becomes a row with the file's name and an `error`."""
        ...


@attrs.frozen(kw_only=True)
class FileOutcome:
    """What came of a file, as it is kept until the output is written."""

    lines: bytes
    """The rows as JSON lines."""
    totals: str = "null"
    """JSON."""
    errors: tuple[str, ...] = ()
    """A sentence for each row that has an error."""


def run_files(job: CorpusJob, files: tuple[str, ...]) -> list[FileOutcome]:
    """Work on files, one after the other. This is what a worker runs."""
    return [_run(job, file) for file in files]


def _run(job: CorpusJob, file: str) -> FileOutcome:
    try:
        result = job.run(file)
    except PromptKitError as error:
        return outcome_of_failure(file, str(error))
    except Exception as error:  # noqa: BLE001  # a defect that one file meets must not cost the others their results
        return outcome_of_failure(file, f"{type(error).__name__}: {error}")
    errors = tuple(str(row["error"]) for row in result.rows if "error" in row)
    return FileOutcome(
        lines=b"".join(map(_encode, result.rows)), totals=json.dumps(result.totals), errors=errors
    )


def outcome_of_failure(file: str, reason: str) -> FileOutcome:
    """Return what comes of a file that could not be worked on: one row."""
    reason = " ".join(reason.split())
    return FileOutcome(lines=_encode({"file": file, "error": reason}), errors=(reason,))


def _encode(row: Mapping[str, object]) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode("utf-8", errors="backslashreplace") + b"\n"
