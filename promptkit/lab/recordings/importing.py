"""Import of another agent's recording: recognize its format, read it, count it, and write it as a transcript."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import attrs

from promptkit.errors import TranscriptError, TranscriptFormatError, TranscriptWriteError
from promptkit.files import write_output
from promptkit.lab.recordings.counts import RecordingCounts, RecordingTotals
from promptkit.lab.recordings.formats.anthropic import AnthropicFormat
from promptkit.lab.recordings.formats.claude_code import ClaudeCodeFormat
from promptkit.lab.recordings.formats.codex import CodexFormat
from promptkit.lab.recordings.formats.gemini_cli import GeminiCliFormat
from promptkit.lab.recordings.formats.mini_swe_agent import MiniSweAgentFormat
from promptkit.lab.recordings.formats.openai_chat import OpenAIChatFormat
from promptkit.lab.recordings.formats.openhands import OpenHandsFormat
from promptkit.lab.recordings.formats.pi import PiFormat
from promptkit.lab.recordings.formats.promptkit import PromptkitFormat, batches_from_items
from promptkit.lab.recordings.formats.swe_agent import SweAgentFormat
from promptkit.lab.recordings.formats.tau_bench import TauBenchFormat
from promptkit.lab.recordings.reading.format import Batch, RecordingFormat, read_head
from promptkit.lab.recordings.reading.remote import fetch_file
from promptkit.lab.recordings.reading.source import RecordingSource, open_source
from promptkit.transcript.stores.addresses import (
    create_conversation,
    is_conversation,
    is_url,
    open_reader,
)
from promptkit.transcript.stores.jsonl.format import Header, encode_batch, encode_header
from promptkit.transcript.stores.jsonl.store import JsonlStore
from promptkit.transcript.stores.store import ReadProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from promptkit.transcript.log.entries import Entry

FORMATS: dict[str, RecordingFormat] = {
    recording_format.name: recording_format
    for recording_format in (
        PromptkitFormat(),
        ClaudeCodeFormat(),
        PiFormat(),
        CodexFormat(),
        GeminiCliFormat(),
        TauBenchFormat(),
        SweAgentFormat(),
        MiniSweAgentFormat(),
        OpenHandsFormat(),
        AnthropicFormat(),
        OpenAIChatFormat(),
    )
}
"""The formats by name. A format whose files also match a more general one comes before that one."""

AUTO = "auto"
"""The format name that means: recognize the format."""

MAX_LISTED_PROBLEMS = 20
"""Problems of each kind that an import reports one by one."""


@attrs.frozen(kw_only=True)
class ImportResult:
    """The result of an import."""

    format: str
    """The name of the format."""
    counts: RecordingCounts
    """The counts of the recording."""
    entries: int
    """Entries of the transcript."""
    kept_by_name: Mapping[str, int]
    """The number of custom entries and observations by name, most frequent first: what was kept
    unchanged."""
    skipped: tuple[ReadProblem, ...] = ()
    """The first lines that could not be read; `counts.skipped_lines` is the number of all of
    them."""
    relocated: tuple[ReadProblem, ...] = ()
    """The first lines whose parent is missing, and which were therefore placed elsewhere."""
    relocated_count: int = 0
    """The number of all lines that were placed elsewhere."""


def import_recording(
    path: Path | str,
    out: Path | str | None = None,
    *,
    format_name: str = AUTO,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ImportResult:
    """Read a recording, count it and write it as a transcript.

    The transcript is written completely or not at all.

    Args:
        path: The recording, compressed with gzip or not, as a path or as a URL of a file, or the
            URL of a transcript.
        out: The transcript to write, a file or a URL. None: only count.
        format_name: The format of the recording, a name in `FORMATS`. By default it is recognized.
        overwrite: Whether to replace `out` if it exists.
        progress: Called with the bytes that were read and the size of the file, after each batch.

    Returns:
        The counts, and what could not be read.

    Raises:
        TranscriptFormatError: The file has no known format, or nothing in it can be read.
        TranscriptError: The file cannot be opened, or there is no format `format_name`.
        TranscriptWriteError: `out` exists and `overwrite` is off, or it cannot be written.

    >>> import_recording(Path("session.jsonl"), Path("talk.jsonl")).counts.messages
    """
    recording = _Import(path, format_name, progress)
    if out is None:
        for _ in recording.read_entries():
            pass
        return recording.result
    if isinstance(out, str) and is_url(out):
        if overwrite:
            problem = "--force replaces files, and no conversation: write another id after the #."
            raise TranscriptWriteError(problem, file=out)
        create_conversation(out, list(recording.read_entries()))
        return recording.result
    out = Path(out)
    special = out.exists() and not (out.is_file() or out.is_dir())
    if out.exists() and not overwrite and not special:
        problem = "the file already exists: name another file, or pass --force to replace it."
        raise TranscriptWriteError(problem, file=str(out))
    store = JsonlStore(out)
    if out.exists() and not is_url(path) and store.path == Path(path).resolve():
        problem = "this is the recording itself: name another file."
        raise TranscriptWriteError(problem, file=str(out))

    def write(file: BinaryIO) -> None:
        file.write(encode_header(Header()))
        file.writelines(encode_batch([entry]) for entry in recording.read_entries())

    # A device, such as /dev/null, has no other writers, and no lock file can be created beside it.
    with nullcontext() if special else store.lock():
        try:
            write_output(store.path, write, locked=not special)
        except OSError as error:
            problem = f"nothing was written: {error.strerror}."
            raise TranscriptWriteError(problem, file=str(out)) from error
    return recording.result


class _Import:
    """One import: the lines of the transcript, counted while they are written."""

    def __init__(
        self, path: Path | str, format_name: str, progress: Callable[[int, int], None] | None
    ) -> None:
        self._batches = read_recording(path, format_name=format_name, progress=progress)
        self._totals = RecordingTotals()
        self._format_name = ""
        self._skipped: list[ReadProblem] = []
        self._relocated: list[ReadProblem] = []
        self._relocated_count = 0

    def read_entries(self) -> Iterator[Entry]:
        """Yield the entries of the transcript and count the batches on the way."""
        for recording_format, batch in self._batches:
            self._format_name = recording_format.name
            self._totals.add(batch)
            self._skipped += batch.skipped[: MAX_LISTED_PROBLEMS - len(self._skipped)]
            self._relocated += batch.relocated[: MAX_LISTED_PROBLEMS - len(self._relocated)]
            self._relocated_count += len(batch.relocated)
            yield from batch.entries

    @property
    def result(self) -> ImportResult:
        return ImportResult(
            format=self._format_name,
            counts=self._totals.result,
            entries=self._totals.entries,
            kept_by_name=self._totals.kept_by_name,
            skipped=tuple(self._skipped),
            relocated=tuple(self._relocated),
            relocated_count=self._relocated_count,
        )


def read_recording(
    path: Path | str,
    *,
    format_name: str = AUTO,
    progress: Callable[[int, int], None] | None = None,
    address: str | None = None,
) -> Iterator[tuple[RecordingFormat, Batch]]:
    """Read a recording batch by batch, without keeping the whole file in memory.

    If a file breaks off after messages, the messages before are yielded, and the last batch reports
    the rest as skipped.

    Args:
        path: The recording, compressed with gzip or not, as a path or as a URL of a file, or the
            URL of a transcript.
        format_name: The format of the recording, a name in `FORMATS`. By default it is recognized.
        progress: Called with the bytes that were read and the size of the file, after each batch.
        address: How errors name the file, if it is a copy of another one. By default `path`.

    Yields:
        The format that reads the file, and a batch.

    Raises:
        TranscriptFormatError: The file has no known format, or nothing in it can be read.
        TranscriptError: The file cannot be opened, or there is no format `format_name`.
    """
    if isinstance(path, str) and is_conversation(path):
        for batch in batches_from_items(open_reader(path)):
            yield FORMATS[PromptkitFormat.name], batch
        return
    with fetch_file(path) as file:
        yield from _read_file(Path(file), address or str(path), format_name, progress)


def _read_file(
    path: Path, address: str, format_name: str, progress: Callable[[int, int], None] | None
) -> Iterator[tuple[RecordingFormat, Batch]]:
    with open_source(path, address=address) as source:
        recording_format = _find_format(source, format_name)
        messages = 0
        try:
            for batch in recording_format.read(source):
                messages += batch.messages
                yield recording_format, batch
                if progress:
                    progress(source.position, source.size)
        except (TranscriptFormatError, OSError) as error:
            if not messages:
                raise
            yield (
                recording_format,
                Batch(
                    skipped=(
                        ReadProblem(
                            line=1, detail=f"the rest of the file could not be read: {error}"
                        ),
                    )
                ),
            )


def detect_format(source: RecordingSource) -> RecordingFormat:
    """Recognize the format of a file. Raises TranscriptFormatError if no format matches."""
    head = read_head(source)
    for recording_format in FORMATS.values():
        if recording_format.matches(head):
            return recording_format
    if not source.open().read(1):
        problem = "the file is empty."
    else:
        problem = f"the file has no known format. Known formats are {', '.join(FORMATS)}. `promptkit import --format NAME` reads it as one of them."
    raise TranscriptFormatError(problem, file=source.path)


def _find_format(source: RecordingSource, name: str) -> RecordingFormat:
    if name == AUTO:
        return detect_format(source)
    if name not in FORMATS:
        problem = f"there is no format {name!r}. Known formats are {', '.join(FORMATS)}."
        raise TranscriptError(problem)
    return FORMATS[name]
