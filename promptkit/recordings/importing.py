"""A recording of another agent, read to the end: counted, and written as a transcript of our own if that is wanted.

The formats that are known, and which of them a file has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.errors import TranscriptError, TranscriptFormatError, TranscriptWriteError
from promptkit.recordings.counts import RecordingCounts, RecordingTotals
from promptkit.recordings.formats.anthropic import AnthropicFormat
from promptkit.recordings.formats.claude_code import ClaudeCodeFormat
from promptkit.recordings.formats.codex import CodexFormat
from promptkit.recordings.formats.gemini_cli import GeminiCliFormat
from promptkit.recordings.formats.mini_swe_agent import MiniSweAgentFormat
from promptkit.recordings.formats.openai_chat import OpenAIChatFormat
from promptkit.recordings.formats.openhands import OpenHandsFormat
from promptkit.recordings.formats.pi import PiFormat
from promptkit.recordings.formats.promptkit import PromptkitFormat
from promptkit.recordings.formats.swe_agent import SweAgentFormat
from promptkit.recordings.formats.tau_bench import TauBenchFormat
from promptkit.recordings.reading.codec import Batch, read_head
from promptkit.recordings.reading.source import open_source
from promptkit.transcript.jsonl.format import Header, encode_batch, encode_header
from promptkit.transcript.jsonl.store import JsonlStore, replace_file
from promptkit.transcript.store import ReadProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from promptkit.recordings.reading.codec import RecordingFormat
    from promptkit.recordings.reading.source import RecordingSource

__all__ = ["AUTO", "FORMATS", "ImportResult", "detect_format", "import_recording", "read_recording"]


FORMATS: dict[str, RecordingFormat] = {
    codec.name: codec
    for codec in (
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
"""By name; those whose files also look like those of a later one come first."""


def detect_format(source: RecordingSource) -> RecordingFormat:
    """The codec for a file. Raises TranscriptFormatError where none knows it."""
    head = read_head(source)
    for codec in FORMATS.values():
        if codec.matches(head):
            return codec
    if not source.open().read(1):
        problem = "the file is empty."
    else:
        problem = f"this is no recording of a format that is known: {', '.join(FORMATS)}. If you know better, name one with --format."
    raise TranscriptFormatError(problem, file=source.path)


AUTO = "auto"
"""The name of the format that the file itself says."""

MAX_LISTED_PROBLEMS = 20
"""Problems of each kind that are told one by one."""


@attrs.frozen(kw_only=True)
class ImportResult:
    """What came of an import."""

    format: str
    counts: RecordingCounts
    entries: int
    kept_by_name: Mapping[str, int]
    """What was kept as it is, by name: the custom entries and observations, most frequent first."""
    skipped: tuple[ReadProblem, ...] = ()
    """The first lines that could not be read; `counts.skipped_lines` says how many there are."""
    relocated: tuple[ReadProblem, ...] = ()
    """The first lines that could not stand where the recording puts them."""
    relocated_count: int = 0
    """How many there are of those."""


def read_recording(
    path: Path,
    *,
    format_name: str = AUTO,
    progress: Callable[[int, int], None] | None = None,  # it is the option's name
) -> Iterator[tuple[RecordingFormat, Batch]]:
    """What a recording holds, batch by batch, each with the codec that reads it. Holds ids and one round, never the whole file.

    `progress` is told the bytes that were read and those that there are. Where a file breaks off after messages, what was read counts, and
    the last batch reports the rest as skipped. Raises TranscriptFormatError for a file of no known format and for one in which nothing can
    be read, TranscriptError for one that cannot be opened, and for a format that is not known.
    """
    with open_source(path) as source:
        reader = _codec(source, format_name)
        read = 0
        try:
            for batch in reader.read(source):
                read += batch.messages
                yield reader, batch
                if progress:
                    progress(source.position, source.size)
        except (TranscriptFormatError, OSError) as error:
            if not read:
                raise
            yield reader, Batch(skipped=(ReadProblem(line=1, detail=f"nothing behind it could be read: {error}"),))


def import_recording(
    path: Path,
    out: Path | None = None,
    *,
    format_name: str = AUTO,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ImportResult:
    """Read a recording, and write it to `out` as a transcript; what the figures are is returned.

    The file is written beside, made safe and renamed: it is there as a whole or not at all. Raises what `read_recording` raises, and
    TranscriptWriteError for a file that is there already, unless `overwrite`, or cannot be written.
    """
    reading = _Reading(path, format_name, progress)
    if out is None:
        for _ in reading.entries():
            pass
        return reading.result
    if out.exists() and not overwrite:
        problem = "it is there already: name another file, or pass --force to replace it."
        raise TranscriptWriteError(problem, file=str(out))
    store = JsonlStore(out)
    if out.exists() and store.path == path.resolve():
        problem = "that is the recording itself: name another file."
        raise TranscriptWriteError(problem, file=str(out))

    def write(file: BinaryIO) -> None:
        file.write(encode_header(Header()))
        file.writelines(reading.entries())

    with store.lock():
        try:
            replace_file(store.path, write)
        except OSError as error:
            problem = f"nothing was written: {error.strerror}."
            raise TranscriptWriteError(problem, file=str(out)) from error
    return reading.result


class _Reading:
    """One import."""

    def __init__(self, path: Path, codec: str, progress: Callable[[int, int], None] | None) -> None:
        self._batches = read_recording(path, format_name=codec, progress=progress)
        self._tally = RecordingTotals()
        self._format = ""
        self._skipped: list[ReadProblem] = []
        self._mended: list[ReadProblem] = []
        self._mended_lines = 0

    def entries(self) -> Iterator[bytes]:
        """The lines of the transcript; counts on the way."""
        for codec, batch in self._batches:
            self._format = codec.name
            self._tally.add(batch)
            self._skipped += batch.skipped[: MAX_LISTED_PROBLEMS - len(self._skipped)]
            self._mended += batch.relocated[: MAX_LISTED_PROBLEMS - len(self._mended)]
            self._mended_lines += len(batch.relocated)
            for entry in batch.entries:
                yield encode_batch([entry])

    @property
    def result(self) -> ImportResult:
        return ImportResult(
            format=self._format,
            counts=self._tally.result,
            entries=self._tally.entries,
            kept_by_name=self._tally.kept_by_name,
            skipped=tuple(self._skipped),
            relocated=tuple(self._mended),
            relocated_count=self._mended_lines,
        )


def _codec(source: RecordingSource, name: str) -> RecordingFormat:
    if name == AUTO:
        return detect_format(source)
    if name not in FORMATS:
        problem = f"there is no format {name!r}. Known are {', '.join(FORMATS)}."
        raise TranscriptError(problem)
    return FORMATS[name]
