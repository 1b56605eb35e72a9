"""Rounds of writing and killing: what was acknowledged must be there afterwards, and what is there must be whole."""

from __future__ import annotations

import json
import os
import random
import re
import selectors
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from promptkit.errors import TranscriptError
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.reader import TranscriptReader, find_problems
from promptkit.transcript.stores.jsonl.store import JsonlStore
from tests.crash.writer import write_until_killed

__all__ = ["Outcome", "run"]

ROUNDS_OF_A_FILE = 8
"""A file that a crash has left is written to again, so that what it left is met."""


class Outcome(NamedTuple):
    """What came of it: acknowledged entries that are gone, rounds after which a file did not load or validate."""

    lost: int
    corrupt: int
    acknowledged: int
    torn: int
    """Rounds after which a file ended in the middle of a batch."""
    notes: tuple[str, ...]


def run(rounds: int, *, seed: int) -> Outcome:
    """Kill writers `rounds` times, at moments that `seed` draws."""
    rng = random.Random(seed)
    lost = corrupt = torn = total = 0
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        path, acknowledged = Path(folder), set[str]()
        for number in range(rounds):
            if number % ROUNDS_OF_A_FILE == 0:
                path, acknowledged = Path(folder) / f"{number}" / "talk.jsonl", set[str]()
                path.parent.mkdir()
            new = _write_and_kill(path, rng)
            total += len(new)
            acknowledged |= new
            torn += path.exists() and _is_torn(path)
            missing, wrong = _look(path, acknowledged)
            lost += len(missing)
            corrupt += bool(wrong)
            notes += [
                f"round {number}: {note}"
                for note in (*wrong, *(f"lost {entry}" for entry in missing))
            ]
            acknowledged -= missing
    return Outcome(lost, corrupt, total, torn, tuple(notes))


def _write_and_kill(path: Path, rng: random.Random) -> set[str]:
    """Start writers, kill them all, and return the ids that they said were safe."""
    writers = [_start(path, rng.getrandbits(64)) for _ in range(rng.choice([1, 1, 2, 3]))]
    said: dict[int, bytes] = {pipe: b"" for _, pipe in writers}
    with selectors.DefaultSelector() as selector:
        for _, pipe in writers:
            selector.register(pipe, selectors.EVENT_READ)
        # Either while the file is being made, or some time after it has been.
        until = time.monotonic() + (rng.uniform(0, 0.02) if rng.random() < 0.3 else 10)
        while time.monotonic() < until:
            for key, _ in selector.select(max(until - time.monotonic(), 0)):
                said[key.fd] += os.read(key.fd, 65_536)
                until = min(until, time.monotonic() + rng.uniform(0, 0.06))
    for process, _ in writers:
        os.kill(process, signal.SIGKILL)
    for process, pipe in writers:
        os.waitpid(process, 0)
        while more := os.read(pipe, 65_536):
            said[pipe] += more
        os.close(pipe)
    return {
        entry
        for text in said.values()
        for line in text.split(b"\n")[:-1]
        for entry in json.loads(line)
    }


def _start(path: Path, seed: int) -> tuple[int, int]:
    """A writer: its process, and the pipe on which it acknowledges."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        try:
            write_until_killed(path, writing, random.Random(seed))
        finally:
            os._exit(1)
    os.close(writing)
    return process, reading


def _is_torn(path: Path) -> bool:
    going = TranscriptReader(path)
    for _ in going:
        pass
    return going.torn_bytes > 0


def _look(path: Path, acknowledged: set[str]) -> tuple[set[str], list[str]]:
    """What is missing of what was acknowledged, and what else is wrong with the file."""
    try:
        wrong = [
            f"{problem.line}: {problem.detail}" for problem in find_problems(TranscriptReader(path))
        ]
        transcript = Transcript(JsonlStore(path, index_from=None))
        wrong += _compare(Transcript(JsonlStore(path, index_from=1)), transcript)
        wrong += [f"{problem.line}: {problem.detail}" for problem in transcript.problems]
        names = Counter(entry.message.name or "" for entry in transcript.entries if entry.message)
        wrong += [
            f"{name}: {count} are there"
            for name, count in names.items()
            if not re.search(rf" of {count}$", name)
        ]
        made = transcript.rewind(transcript.leaf)
        if made.id not in Transcript(JsonlStore(path)):
            wrong.append("what was appended afterwards is not there")
    except TranscriptError as error:
        return acknowledged, [str(error)]
    return {entry for entry in acknowledged if entry not in transcript}, wrong


def _compare(indexed: Transcript, whole: Transcript) -> list[str]:
    """What a transcript answers otherwise when it is opened by its index."""
    same = (
        indexed.entries == whole.entries
        and indexed.leaves() == whole.leaves()
        and indexed.path() == whole.path()
    )
    same = (
        same
        and indexed.problems == whole.problems
        and all(entry.id in indexed for entry in whole.entries)
    )
    return [] if same else ["the index gives another answer"]
