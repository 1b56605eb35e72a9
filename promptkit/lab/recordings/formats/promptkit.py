"""promptkit's own transcripts, so that they can be counted and copied like recordings of other agents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from promptkit.lab.recordings.reading.format import Batch, FileHead
from promptkit.lab.recordings.reading.source import RecordingSource
from promptkit.transcript import (
    BranchSummary,
    Checkpoint,
    CustomMessage,
    MessageEntry,
    ReadProblem,
)
from promptkit.transcript.stores.jsonl.reader import (
    StoredEntry,
    TranscriptReader,
    scan_archive,
)


class PromptkitFormat:
    """Read promptkit's transcripts with their archives. Each root is a conversation."""

    name = "promptkit"

    def matches(self, head: FileHead) -> bool:
        """Return whether the first line is the header of a transcript."""
        return bool(head.records) and head.records[0].get("promptkit") == "transcript"

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """Yield the entries of a file, one by one."""
        return batches_from_items(_read_items(source))


def batches_from_items(items: Iterable[StoredEntry | ReadProblem]) -> Iterator[Batch]:
    """Yield the entries of a transcript, one by one, each once."""
    seen: set[str] = set()
    roots: set[str] = set()  # ids of entries without a message on their path
    for item in items:
        if not isinstance(item, StoredEntry):
            yield Batch(skipped=(item,))
            continue
        entry = item.entry
        if entry.id in seen:
            continue
        seen.add(entry.id)
        is_message = isinstance(entry.payload, MessageEntry | CustomMessage) or (
            isinstance(entry.payload, Checkpoint | BranchSummary) and bool(entry.payload.summary)
        )
        at_root = entry.parent_id is None or entry.parent_id in roots
        if at_root and not is_message:
            roots.add(entry.id)
        yield Batch(
            entries=(entry,), messages=int(is_message), conversations=int(at_root and is_message)
        )


def _read_items(source: RecordingSource) -> Iterator[StoredEntry | ReadProblem]:
    """Read the entries of a file. A compressed file is read without the archives that it names."""
    return (
        scan_archive(iter(source.open().readline, b""), source.path)
        if source.is_compressed
        else iter(TranscriptReader(Path(source.path)))
    )
