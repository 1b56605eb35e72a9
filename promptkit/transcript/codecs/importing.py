"""A recording of another agent, read to the end: counted, and written as a transcript of our own if that is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.errors import TranscriptError, TranscriptFormatError, TranscriptWriteError
from promptkit.transcript.codecs.codec import Batch
from promptkit.transcript.codecs.counts import Counts, Tally
from promptkit.transcript.codecs.detect import CODECS, detect
from promptkit.transcript.codecs.source import open_source
from promptkit.transcript.jsonl.format import Header, batch_lines, header_line
from promptkit.transcript.jsonl.store import JsonlStore, replace
from promptkit.transcript.store import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from promptkit.transcript.codecs.codec import Codec
    from promptkit.transcript.codecs.source import Source

__all__ = ["AUTO", "Imported", "import_recording", "read_recording"]

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
        self._tally = Tally()
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
