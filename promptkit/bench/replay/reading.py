"""Recordings out of files, whoever wrote them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.bench.replay.conversations import conversations
from promptkit.recordings.importing import read_recording

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from promptkit.bench.replay.recording import Recording

__all__ = ["read_recordings"]


def read_recordings(file: Path) -> Iterator[Recording]:
    """The conversations of a file in any known format. Raises TranscriptError for what cannot be read."""
    return conversations(entry for _, batch in read_recording(file) for entry in batch.entries)
