"""A process that does nothing but write to a transcript, and says what it was told is safe."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

from promptkit import Message
from promptkit.errors import TranscriptError
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.store import JsonlStore

if TYPE_CHECKING:
    import random
    from pathlib import Path

__all__ = ["write_until_killed"]

HUGE = 200_000
"""Characters of the longest message: many pages of a file, so that a kill can fall between them."""

WRITE = os.write


def write_until_killed(path: Path, acknowledged: int, rng: random.Random) -> None:
    """Append batches of all sizes for ever, and archive now and then.

    Each batch is acknowledged, as a line of ids on a pipe, when `append` has returned.
    """
    if rng.random() < 0.5:
        _write_in_pieces(rng)
    store = JsonlStore(path, index_from=rng.choice([1, 1 << 18]))
    transcript = Transcript(store)
    while True:
        size = rng.choice([1, 1, 2, 5, 40])
        length = rng.choice([10, 300, 5_000, HUGE if size < 5 else 5_000])
        name = f"batch {rng.getrandbits(64):x} of {size}"
        made = transcript.append_messages(
            *(
                Message(role="user", name=name, content=("\u2028é" * (length // 2),))
                for _ in range(size)
            )
        )
        WRITE(acknowledged, f"{json.dumps([entry.id for entry in made])}\n".encode())
        if rng.random() < 0.2:
            transcript.refresh()
        if rng.random() < 0.1:
            try:
                store.archive(through=rng.choice(transcript.entries).id)
            except TranscriptError:
                continue  # nothing stands behind that entry


def _write_in_pieces(rng: random.Random) -> None:
    """Have the system take few bytes at a time, as it may: then most kills fall into the middle of a batch."""

    def some(descriptor: int, data: bytes) -> int:
        if rng.random() < 0.3:
            time.sleep(0.0002)
        return WRITE(descriptor, memoryview(data)[: rng.randint(1, 4_096)])

    os.write = some  # type: ignore[assignment]  # only what a store gives it
