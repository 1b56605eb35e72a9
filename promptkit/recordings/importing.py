"""A recording of another agent, read to the end: counted, and written as a transcript of our own if that is wanted.

The formats that are known, and which of them a file has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.errors import TranscriptError, TranscriptFormatError, TranscriptWriteError
from promptkit.recordings.counts import Counts, RecordingTotals
from promptkit.recordings.formats.anthropic import Anthropic
from promptkit.recordings.formats.claude_code import ClaudeCode
from promptkit.recordings.formats.codex import Codex
from promptkit.recordings.formats.gemini_cli import GeminiCli
from promptkit.recordings.formats.mini_swe_agent import MiniSweAgent
from promptkit.recordings.formats.openai_chat import OpenAIChat
from promptkit.recordings.formats.openhands import OpenHands
from promptkit.recordings.formats.pi import Pi
from promptkit.recordings.formats.promptkit import PromptkitFormat
from promptkit.recordings.formats.swe_agent import SweAgent
from promptkit.recordings.formats.tau_bench import TauBench
from promptkit.recordings.reading.codec import Batch, head_of
from promptkit.recordings.reading.source import open_source
from promptkit.transcript.jsonl.format import Header, batch_lines, header_line
from promptkit.transcript.jsonl.store import JsonlStore, replace
from promptkit.transcript.store import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from promptkit.recordings.reading.codec import Codec
    from promptkit.recordings.reading.source import Source

__all__ = ["AUTO", "CODECS", "Imported", "detect", "import_recording", "read_recording"]


CODECS: dict[str, Codec] = {
    codec.name: codec
    for codec in (
        PromptkitFormat(),
        ClaudeCode(),
        Pi(),
        Codex(),
        GeminiCli(),
        TauBench(),
        SweAgent(),
        MiniSweAgent(),
        OpenHands(),
        Anthropic(),
        OpenAIChat(),
    )
}
"""By name; those whose files also look like those of a later one come first."""


def detect(source: Source) -> Codec:
    """The codec for a file. Raises TranscriptFormatError where none knows it."""
    head = head_of(source)
    for codec in CODECS.values():
        if codec.detects(head):
            return codec
    if not source.begin().read(1):
        problem = "the file is empty."
    else:
        problem = f"this is no recording of a format that is known: {', '.join(CODECS)}. If you know better, name one with --format."
    raise TranscriptFormatError(problem, file=source.path)


AUTO = "auto"
"""The name of the format that the file itself says."""

LISTED = 20
"""Problems of each kind that are told one by one."""


@attrs.frozen(kw_only=True)
class Imported:
    """What came of an import."""

    format: str
    counts: Counts
    entries: int
    kept: Mapping[str, int]
    """What was kept as it is, by name: the custom entries and observations, most frequent first."""
    skipped: tuple[Problem, ...] = ()
    """The first lines that could not be read; `counts.skipped_lines` says how many there are."""
    mended: tuple[Problem, ...] = ()
    """The first lines that could not stand where the recording puts them."""
    mended_lines: int = 0
    """How many there are of those."""


def read_recording(
    path: Path,
    *,
    codec: str = AUTO,
    progress: Callable[[int, int], None] | None = None,  # it is the option's name
) -> Iterator[tuple[Codec, Batch]]:
    """What a recording holds, batch by batch, each with the codec that reads it. Holds ids and one round, never the whole file.

    `progress` is told the bytes that were read and those that there are. Where a file breaks off after messages, what was read counts, and
    the last batch reports the rest as skipped. Raises TranscriptFormatError for a file of no known format and for one in which nothing can
    be read, TranscriptError for one that cannot be opened, and for a format that is not known.
    """
    with open_source(path) as source:
        reader = _codec(source, codec)
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
            yield reader, Batch(skipped=(Problem(line=1, detail=f"nothing behind it could be read: {error}"),))


def import_recording(
    path: Path,
    out: Path | None = None,
    *,
    codec: str = AUTO,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Imported:
    """Read a recording, and write it to `out` as a transcript; what the figures are is returned.

    The file is written beside, made safe and renamed: it is there as a whole or not at all. Raises what `read_recording` raises, and
    TranscriptWriteError for a file that is there already, unless `overwrite`, or cannot be written.
    """
    reading = _Reading(path, codec, progress)
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
        file.write(header_line(Header()))
        file.writelines(reading.entries())

    with store.locked():
        try:
            replace(store.path, write)
        except OSError as error:
            problem = f"nothing was written: {error.strerror}."
            raise TranscriptWriteError(problem, file=str(out)) from error
    return reading.result


class _Reading:
    """One import."""

    def __init__(self, path: Path, codec: str, progress: Callable[[int, int], None] | None) -> None:
        self._batches = read_recording(path, codec=codec, progress=progress)
        self._tally = RecordingTotals()
        self._format = ""
        self._skipped: list[Problem] = []
        self._mended: list[Problem] = []
        self._mended_lines = 0

    def entries(self) -> Iterator[bytes]:
        """The lines of the transcript; counts on the way."""
        for codec, batch in self._batches:
            self._format = codec.name
            self._tally.add(batch)
            self._skipped += batch.skipped[: LISTED - len(self._skipped)]
            self._mended += batch.mended[: LISTED - len(self._mended)]
            self._mended_lines += len(batch.mended)
            for entry in batch.entries:
                yield batch_lines([entry])

    @property
    def result(self) -> Imported:
        return Imported(
            format=self._format,
            counts=self._tally.result,
            entries=self._tally.entries,
            kept=self._tally.kept,
            skipped=tuple(self._skipped),
            mended=tuple(self._mended),
            mended_lines=self._mended_lines,
        )


def _codec(source: Source, name: str) -> Codec:
    if name == AUTO:
        return detect(source)
    if name not in CODECS:
        problem = f"there is no format {name!r}. Known are {', '.join(CODECS)}."
        raise TranscriptError(problem)
    return CODECS[name]
