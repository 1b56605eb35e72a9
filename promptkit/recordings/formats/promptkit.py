"""Transcripts of our own, so that they can be counted and copied like any other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from promptkit.recordings.reading.codec import Batch
from promptkit.transcript.entries import BranchSummary, Checkpoint, CustomMessage, MessageEntry
from promptkit.transcript.jsonl.format import header_from_line
from promptkit.transcript.jsonl.reader import TranscriptReader, LineScanner, StoredEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.recordings.reading.codec import FileHead
    from promptkit.recordings.reading.source import RecordingSource
    from promptkit.transcript.entries import Entry
    from promptkit.transcript.store import ReadProblem

__all__ = ["PromptkitFormat"]


class PromptkitFormat:
    """Reads promptkit's transcripts, with their archives. Each root is a conversation."""

    name = "promptkit"
    about = "promptkit transcript"

    def detects(self, head: FileHead) -> bool:
        """The header."""
        return bool(head.records) and head.records[0].get("promptkit") == "transcript"

    def read(self, source: RecordingSource) -> Iterator[Batch]:
        """The entries of a file, one by one."""
        seen: set[str] = set()
        roots: set[str] = set()  # roots, and what stands behind them without a message
        for item in _items(source):
            if not isinstance(item, StoredEntry):
                yield Batch(skipped=(item,))
                continue
            entry = item.entry
            if entry.id in seen:
                continue
            seen.add(entry.id)
            is_said = _is_said(entry)
            at_root = entry.parent_id is None or entry.parent_id in roots
            if at_root and not is_said:
                roots.add(entry.id)
            yield Batch(entries=(entry,), messages=int(is_said), conversations=int(at_root and is_said))


def _items(source: RecordingSource) -> Iterator[StoredEntry | ReadProblem]:
    """What is in a file; a compressed one is read by itself, whatever archives it names."""
    if not source.is_compressed:
        return iter(TranscriptReader(Path(source.path)))
    file = source.open()
    header = file.readline()
    header_from_line(header, source.path)
    return LineScanner(end=len(header), lines=1).scan(iter(file.readline, b""))


def _is_said(entry: Entry) -> bool:
    payload = entry.payload
    return isinstance(payload, MessageEntry | CustomMessage) or (isinstance(payload, Checkpoint | BranchSummary) and bool(payload.summary))
