"""The soak: a server with faults, processes with conversations, kills, and the account of what is in the files afterwards."""

from __future__ import annotations

import json
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import attrs

from benchmarks.conversation_script import is_summary_request
from promptkit import ToolCall
from promptkit.errors import TranscriptError
from promptkit.testing.server import (
    ConnectionReset,
    Delay,
    Hang,
    MalformedBody,
    TruncatedBody,
    rate_limit_error,
    serve,
    server_error,
)
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.reader import TranscriptReader, find_problems
from promptkit.transcript.stores.jsonl.store import JsonlStore
from tests.behaviour.transcript_strategies import MEMORY
from tests.conversations import summary_reply
from tests.paths import ROOT
from tests.soak.conversation import WINDOW
from tests.soak.worker import count_open_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptkit.testing.server import Exchange
    from promptkit.testing.server.journal import Answer, Fault

__all__ = ["Account", "Figures", "soak"]

KILL_SECONDS = 6.0
"""About the time from when a process is ready to its kill."""
LAST_SECONDS = 60.0
"""How long a process may take to end after it was asked to."""
MARK = re.compile(r"\[(said|read|answer) ([\w.]+)\]")
NAME = re.compile(r"\[conversation ([\w.]+)\]")


@attrs.frozen(kw_only=True)
class Figures:
    """What came of a soak.

    `lost`, `duplicated`, `invalid_requests`, `open_files` and `errors` are 0 where all is well.
    """

    sessions: int
    """Conversations at once."""
    opened: int
    """Sessions that were opened, after kills and reopenings again over the same files."""
    turns: int
    requests: int
    faults: int
    """Requests that the server answered with a fault."""
    overflows: int
    """Requests that the server refused for their length."""
    cancellations: int
    awaits: int
    """At how many different awaits of a turn something was cancelled."""
    kills: int
    lost: int
    """Messages that a session had said are safe, or had sent to the server, and that are not in the
    file."""
    duplicated: int
    """Messages that are more than once in a file."""
    invalid_requests: int
    open_files: int
    """Files and sockets that were open at the end and not at the start, in the process that was not
    killed and in that of the server."""
    memory_growth_mb: float
    """Between the middle and the end of the time, in the process that was not killed."""
    errors: tuple[str, ...]
    """What else was wrong."""


class _World:
    """The server's side: what it answers, and what it was sent of each conversation."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lock = threading.Lock()
        self.seen: defaultdict[str, set[str]] = defaultdict(set[str])
        """Conversation → the marks of messages that were in its requests."""
        self.answers = 0
        self.faults = 0
        self.invalid: list[str] = []

    def fault(self, number: int) -> Fault | None:
        with self.lock:
            if self.rng.random() > 0.12:
                return None
            self.faults += 1
            slow: list[Fault] = [Delay(seconds=0.3), Delay(seconds=1.0), Hang()]
            quick: list[Fault] = [
                ConnectionReset(),
                TruncatedBody(),
                MalformedBody(),
                rate_limit_error(0.1),
                server_error(),
                server_error(503),
            ]
            return self.rng.choice(slow if self.rng.random() < 0.2 else quick)

    def answer(self, exchange: Exchange) -> Answer:
        texts = [
            json.dumps(message.get("content"), ensure_ascii=False) for message in exchange.messages
        ]
        name = NAME.search(" ".join(texts[:1]))
        with self.lock:
            rng = self.rng
            if name:
                self.seen[name[1]].update(
                    " ".join(mark) for text in texts for mark in MARK.findall(text)
                )
            if is_summary_request(exchange):
                good = f"<analysis>I think.</analysis>{summary_reply('It is about the parser.')}"
                return rng.choice(
                    [
                        good,
                        good,
                        good,
                        "no tags",
                        "",
                        "<summary></summary>",
                        "<summary>I cannot help with that.</summary>",
                    ]
                )
            self.answers += 1
            if rng.random() < 0.05:
                return ""
            if rng.random() < 0.4:
                tool = rng.choice(["read", "read", "fails"])
                marks = [f"{self.answers}.{at}" for at in range(rng.choice([1, 2]))]
                return [
                    ToolCall(id="", name=tool, arguments=json.dumps({"mark": mark}))
                    for mark in marks
                ]
            return f"[answer {self.answers}] " + "So it is. " * rng.randrange(1, 60)


@attrs.define
class Account:
    """What is wrong in the files."""

    lost: int = 0
    duplicated: int = 0
    errors: list[str] = attrs.field(factory=list[str])

    def check(self, folder: Path, name: str, seen: set[str]) -> None:
        """Compare a transcript with its notes and with what the server was sent."""
        file, notes = folder / f"{name}.jsonl", folder / f"{name}.notes"
        wanted = set(seen)
        for line in notes.read_text().splitlines() if notes.exists() else ():
            note: Mapping[str, Any] = json.loads(line)  # Any: JSON
            if note["answer"] is not None:
                wanted.add(note["said"])
                wanted.update(" ".join(mark) for mark in MARK.findall(note["answer"]))
        if not file.exists():
            self._lose(name, wanted)
            return
        try:
            transcript = Transcript(JsonlStore(file))
            self.errors += [
                f"{name}: line {problem.line}: {problem.detail}"
                for problem in find_problems(TranscriptReader(file))
            ]
        except TranscriptError as error:
            self.errors.append(f"{name}: {error}")
            return
        messages = [entry.message for entry in transcript.entries if entry.message is not None]
        found = Counter(
            " ".join(mark) for message in messages for mark in MARK.findall(message.text)
        )
        results = Counter(message.tool_call_id for message in messages if message.role == "tool")
        self._lose(name, wanted - found.keys())
        twice = [mark for mark, count in (found + results).items() if count > 1]
        self.duplicated += len(twice)
        self.errors += [f"{name}: {mark!r} is there more than once" for mark in twice[:3]]

    def _lose(self, name: str, marks: set[str]) -> None:
        self.lost += len(marks)
        self.errors += [f"{name}: {mark!r} is not there" for mark in sorted(marks)[:3]]


class _Worker:
    """A process with conversations."""

    def __init__(self, url: str, folder: Path, places: range, seed: int) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.soak.worker",
            url,
            str(folder),
            str(places.start),
            str(places.stop),
            str(seed),
        ]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def wait(self) -> None:
        """Wait until it has begun."""
        if self.process.stdout is not None:
            self.process.stdout.readline()

    def kill(self) -> None:
        """End it as the system does that has no memory left."""
        self.process.kill()
        self.process.communicate()

    def end(self) -> dict[str, Any]:  # Any: JSON
        """Ask it to end, and return its report."""
        self.process.send_signal(signal.SIGTERM)
        try:
            out, _ = self.process.communicate(timeout=LAST_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return {"errors": ["a process did not end when it was asked to"]}
        lines = [line for line in out.splitlines() if line.startswith("{")]
        return (
            json.loads(lines[-1])
            if lines
            else {"errors": [f"a process ended with status {self.process.returncode}"]}
        )


def soak(*, seconds: float, sessions: int = 200, seed: int = 1) -> Figures:
    """Hold conversations against a server with faults, kill half of them again and again, and look at their files.

    Args:
        seconds: How long.
        sessions: Conversations at once, in two processes.
        seed: Of what is done; how it interleaves is up to the machine.
    """
    files_before = count_open_files()
    world, account, kills = _World(seed), Account(), 0
    # In memory where that is possible: kills are tested, not power failures, and waiting for a disk
    # would be most of the time.
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as place:
        folder = Path(place)
        with serve(
            window=WINDOW, after=world.answer, faults=world.fault, max_recorded=200
        ) as server:
            steady = _Worker(server.url, folder, range(sessions // 2), seed)
            killed = _Worker(server.url, folder, range(sessions // 2, sessions), seed)
            steady.wait()
            killed.wait()
            until = time.monotonic() + seconds
            while (left := until - time.monotonic()) > 0:
                time.sleep(min(left, KILL_SECONDS * world.rng.uniform(0.2, 1.8)))
                if time.monotonic() < until:
                    killed.kill()
                    kills += 1
                    killed = _Worker(
                        server.url, folder, range(sessions // 2, sessions), seed + kills
                    )
                    killed.wait()
                _check_done(folder, world, account)
            reports = [steady.end(), killed.end()]
            stats = server.stats
            problems = [exchange.problem for exchange in server.requests if exchange.problem]
        _check_done(folder, world, account)
        for file in sorted(folder.glob("*.jsonl")):
            account.check(
                folder,
                file.name.removesuffix(".jsonl"),
                world.seen.pop(file.name.removesuffix(".jsonl"), set()),
            )
        for name, marks in world.seen.items():
            account.check(folder, name, marks)
    return Figures(
        sessions=sessions,
        opened=sum(report.get("opened", 0) for report in reports),
        turns=sum(report.get("turns", 0) for report in reports),
        requests=stats.requests,
        faults=world.faults,
        overflows=stats.overflows,
        cancellations=sum(report.get("cancelled", 0) for report in reports),
        awaits=len({number for report in reports for number in report.get("awaits", ())}),
        kills=kills,
        lost=account.lost,
        duplicated=account.duplicated,
        invalid_requests=stats.invalid,
        open_files=max(0, reports[0].get("open_files", 0))
        + max(0, count_open_files() - files_before),
        memory_growth_mb=_growth(reports[0].get("memory", [])),
        errors=tuple(
            [
                *account.errors,
                *(error for report in reports for error in report["errors"]),
                *problems,
            ][:50]
        ),
    )


def _check_done(folder: Path, world: _World, account: Account) -> None:
    """Look at the conversations that have ended, and delete them."""
    for done in folder.glob("*.done"):
        name = done.name.removesuffix(".done")
        with world.lock:
            seen = world.seen.pop(name, set())
        account.check(folder, name, seen)
        for file in [done, *folder.glob(f"{name}.*"), *folder.glob(f".{name}.*")]:
            file.unlink(missing_ok=True)


def _growth(samples: Sequence[tuple[float, float]]) -> float:
    """The difference of memory between the middle and the end of the time, in MB."""
    count = len(samples)
    if count < 10:
        return 0.0
    middle = [memory for _, memory in samples[count * 2 // 5 : count * 3 // 5]]
    end = [memory for _, memory in samples[count * 4 // 5 :]]
    return round(statistics.median(end) - statistics.median(middle), 1)
