"""Writers that are killed lose nothing that was acknowledged, and writers at the same time do not corrupt a file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.reader import TranscriptReader, find_problems
from promptkit.transcript.stores.jsonl.store import JsonlStore
from tests.examples import keep_first
from tests.paths import ROOT

WRITER = """
import json, sys
from promptkit import Message
from promptkit.errors import TranscriptConflictError
from promptkit.transcript.log.entries import MessageEntry
from promptkit.transcript.stores.jsonl.store import JsonlStore
from promptkit.transcript.log.transcript import Transcript

path, name, count, careful = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "careful"
transcript = Transcript(JsonlStore(path))
written, conflicts = [], 0
while len(written) < count:
    said = [MessageEntry(message=Message(role="user", name=name, content=(str(len(written) + at) * 300,))) for at in range(len(written) % 3 + 1)]
    try:
        made = transcript.append(*said, expect=(transcript.leaf or "") if careful else None)
    except TranscriptConflictError:
        conflicts += 1
        continue
    written += [entry.id for entry in made]
print(json.dumps([written, conflicts]))
"""


def crash(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.crash", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_killed_writers_lose_nothing() -> None:
    done = crash("--rounds", "20", "--seed", "3")
    assert (done.stdout, done.stderr, done.returncode) == ("20 rounds, 0 lost, 0 corrupt\n", "", 0)


@pytest.mark.slow
def test_killed_writers_lose_nothing_however_often() -> None:
    done = crash("--rounds", "500")
    assert (done.stdout, done.stderr, done.returncode) == ("500 rounds, 0 lost, 0 corrupt\n", "", 0)


@pytest.mark.slow
def test_some_of_the_kills_fall_into_the_middle_of_a_batch() -> None:
    done = crash("--rounds", "40", "--seed", "1", "--verbose")
    found = re.fullmatch(
        r"([\d,]+) entries were acknowledged; (\d+) files ended in the middle of a batch\n",
        done.stderr,
    )
    assert found, done.stderr
    assert int(found[1].replace(",", "")) > 100
    assert int(found[2]) > 0


@pytest.mark.long
@pytest.mark.parametrize("manner", keep_first(1, "careless", "careful"))
def test_writers_at_the_same_time_do_not_corrupt(tmp_path: Path, manner: str) -> None:
    path = tmp_path / "talk.jsonl"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name, "60", manner],
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two", "three")
    ]
    said = [json.loads(process.communicate()[0]) for process in started]
    transcript = Transcript(JsonlStore(path))
    assert list(find_problems(TranscriptReader(path))) == []
    assert sorted(entry.id for entry in transcript.entries) == sorted(
        entry for written, _ in said for entry in written
    )
    for entries in (said[number][0] for number in range(3)):
        assert [entry.id for entry in transcript.entries if entry.id in set(entries)] == entries, (
            "each in its order"
        )
    assert len(transcript.leaves()) == 1, "each continued from what the others had written"
    batches = re.findall(rb'"batch":\[(\d),(\d)\]', path.read_bytes())
    assert batches == [
        (b"%d" % place, size) for _, size in _firsts(batches) for place in range(1, int(size) + 1)
    ], "none within another"
    if manner == "careful":
        assert transcript.path() == tuple(transcript.entries), (
            "who looks before each write makes one conversation"
        )
        assert Counter(
            entry.message.name for entry in transcript.path() if entry.message
        ).keys() == {"one", "two", "three"}


def _firsts(batches: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [mark for mark in batches if mark[0] == b"1"]
