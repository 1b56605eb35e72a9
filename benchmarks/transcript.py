"""Measure what a long transcript costs: opening it, appending to it, recalling from it, and reading all of it once.

A transcript of 1,000,000 entries is compared with one of 10,000. Each figure is measured in
processes of its own. It takes some minutes, nearly all of them for making the file and its index.

    python -m benchmarks.transcript            # the table
    python -m benchmarks.transcript --json
    python -m benchmarks.transcript --check    # exit code 1 if a bar is missed
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from promptkit.compaction.recall.tool import recall
from promptkit.messages import Message
from promptkit.transcript.log.entries import Checkpoint, Entry, MessageEntry
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.log.view import build_view
from promptkit.transcript.stores.jsonl.format import Header, encode_batch, encode_header
from promptkit.transcript.stores.jsonl.store import JsonlStore

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BARS", "main", "measure", "write_transcript"]

SHORT, LONG = 10_000, 1_000_000
BATCH, CHECKPOINT_EVERY, KEPT = 4, 1_000, 50
APPENDS = 100
BARS = {"open_ratio": 5.0, "open_peak_mb": 150.0, "append_ratio": 1.5}
"""The largest figures that pass."""

QUESTION = {"query": "unicorn 123456"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bar is missed")
    parser.add_argument("--entries", type=int, default=LONG, help="entries of the long transcript")
    parser.add_argument("--rounds", type=int, default=7, help="processes for each figure")
    parser.add_argument("--in-process", nargs=2, metavar=("WHAT", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.in_process:
        what, file = options.in_process
        print(json.dumps(_measure_here(what, Path(file))))
        return 0
    figures = measure(options.entries, rounds=options.rounds)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            bar = f"   (bar {BARS[name]:g})" if name in BARS else ""
            print(f"{name:20} {value:12,.3f}{bar}")
    return int(options.check and any(figures[name] > bar for name, bar in BARS.items()))


def measure(entries: int = LONG, *, rounds: int = 7) -> dict[str, float]:
    """Measure everything.

    Args:
        entries: Entries of the long transcript.
        rounds: Processes for each figure, of which the median counts.

    Returns:
        The figures by name. Times are processor time: waiting for a busy machine or a disk is not
        counted.
    """
    with TemporaryDirectory() as folder:
        short, long = Path(folder, "short.jsonl"), Path(folder, "long.jsonl")
        write_transcript(short, SHORT)
        write_transcript(long, entries)
        _measure("first", short)
        first = _measure("first", long)
        size = long.stat().st_size / 1e6
        opened: dict[Path, list[dict[str, float]]] = {short: [], long: []}
        appended: dict[Path, list[dict[str, float]]] = {short: [], long: []}
        for what, figures in (("open", opened), ("append", appended)):
            for number in range(rounds):
                # in turns, so that a slow moment affects both
                for path in (short, long)[:: -1 if number % 2 else 1]:
                    figures[path].append(_measure(what, path))
        recalled = [_measure("recall", long)["seconds"] for _ in range(min(rounds, 3))]
        index = long.with_name(f".{long.name}.index").stat().st_size / 1e6
    open_seconds = {path: _median(opened[path]) for path in opened}
    append_seconds = {path: _median(appended[path]) for path in appended}
    return {
        "open_ratio": open_seconds[long] / open_seconds[short],
        "open_peak_mb": max(each["peak_mb"] for each in opened[long]),
        "append_ratio": append_seconds[long] / append_seconds[short],
        "recall_ms": statistics.median(recalled) * 1e3,
        "full_read_mb_per_s": size / first["seconds"],
        "open_ms": open_seconds[long] * 1e3,
        "append_ms": append_seconds[long] * 1e3,
        "first_open_s": first["seconds"],
        "first_open_peak_mb": first["peak_mb"],
        "file_mb": size,
        "index_mb": index,
    }


def write_transcript(path: Path, count: int) -> None:
    """Write a conversation of short messages, in batches of four, with a checkpoint every thousand entries."""
    rng = random.Random(count)
    words = [
        f"{syllable}{number}" for syllable in ("ka", "lo", "mi", "ne") for number in range(500)
    ]
    last: Entry | None = None
    recent: list[Entry] = []
    with path.open("wb") as file:
        file.write(encode_header(Header()))
        for start in range(0, count, BATCH):
            batch: list[Entry] = []
            for number in range(start, start + BATCH):
                text = f"{' '.join(rng.choices(words, k=4))}{f' unicorn {number}' if number % (count // 10) == 0 else ''}"
                payload = (
                    Checkpoint(summary=f"The work up to {number}.", first_kept=recent[-KEPT].id)
                    if number % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1
                    else MessageEntry(
                        message=Message(role="assistant" if number % 2 else "user", content=(text,))
                    )
                )
                last = Entry(
                    id=f"{number:x}",
                    parent_id=None if last is None else last.id,
                    time=float(number),
                    payload=payload,
                )
                batch.append(last)
            recent = [*recent[-KEPT:], *batch]
            file.write(encode_batch(batch))


def _measure(what: str, path: Path) -> dict[str, float]:
    """Measure one thing in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.transcript", "--in-process", what, str(path)]
    found: dict[str, float] = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout  # noqa: S603  # this program
    )
    return found


def _measure_here(what: str, path: Path) -> dict[str, float]:
    start = time.process_time()
    transcript = _open(path)
    if what == "recall":
        recall(Transcript().path(), QUESTION)  # loads the tokenizer
    if what != "first":
        start = time.process_time()
        transcript = _open(path)
    seconds = time.process_time() - start
    if what == "append":
        payloads = [
            MessageEntry(message=Message(role="user", content=("A few words.",)))
            for _ in range(BATCH)
        ]
        transcript.append(*payloads)
        start = time.process_time()
        for _ in range(APPENDS):
            transcript.append(*payloads)
        seconds = (time.process_time() - start) / APPENDS
    elif what == "recall":
        start = time.process_time()
        found = recall(transcript.path(), QUESTION)
        seconds = time.process_time() - start
        if "unicorn" not in found:
            raise ValueError(found)
    return {"seconds": seconds, "peak_mb": _read_peak()}


def _open(path: Path) -> Transcript:
    """Open a transcript, and build the view that the next request shows."""
    transcript = Transcript(JsonlStore(path))
    if len(build_view(transcript.path()).items) > CHECKPOINT_EVERY + APPENDS * BATCH * 20:
        raise ValueError(path)
    return transcript


def _read_peak() -> float:
    """Return the peak of this process's memory, in MB.

    `ru_maxrss` would count that of the process that started it.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return next(
            int(line.split()[1]) * 1024 / 1e6
            for line in status.read_text().splitlines()
            if line.startswith("VmHWM")
        )
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _median(figures: Sequence[dict[str, float]]) -> float:
    return statistics.median(each["seconds"] for each in figures)


if __name__ == "__main__":
    raise SystemExit(main())
