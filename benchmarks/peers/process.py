"""The process of an adapter: it reads a line, answers with a line, and is killed if it takes too long."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

__all__ = ["AdapterError", "AdapterProcess", "AdapterTimeoutError", "Answer"]

STARTUP_SECONDS: Final = 60.0
"""Additional seconds for the first answer of a process, in which it imports its library and loads a
vocabulary."""

POLL_SECONDS: Final = 0.25
"""Seconds between two checks of the processor time of a process."""

CLOCK_FACTOR: Final = 20
"""The limit of wall-clock time as a multiple of the limit of processor time, for busy machines."""


class AdapterError(Exception):
    """An adapter raised an error, or its process ended. The message is the first relevant line."""


class AdapterTimeoutError(AdapterError):
    """An adapter did not answer in time, and was killed."""


@attrs.frozen
class Answer:
    """The result of one run."""

    seconds: float
    """Processor time in seconds."""
    clock: float
    """Wall-clock time in seconds, which means little on a busy machine."""
    floor: float
    """Processor time to tokenise every text once with the peer's tokenizer, in seconds."""
    claim: int | None
    """The tokens of the result as the peer counts them."""
    messages: Sequence[Mapping[str, Any]]  # Any: JSON


class AdapterProcess:
    """The process of a peer's adapter.

    It starts with the first question, and again after it was killed.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.command = list(command)
        self.environment = dict(environment)
        self.log = log
        """The file for everything that the process prints besides its answers."""
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def ask(self, work: Path, limit: float) -> Answer:
        """Run the workload in a file.

        Raises AdapterTimeoutError after `limit` seconds of processor time, and AdapterError.
        """
        patience = limit if self._process else limit + STARTUP_SECONDS
        try:
            process = self._running()
            assert process.stdin is not None  # noqa: S101  # it was opened with a pipe
            process.stdin.write(f"{work}\n")
            process.stdin.flush()
            line = self._answered(process, patience)
        except OSError as error:
            self.end()
            raise AdapterError(self._last_words() or str(error)) from error
        if line is None:
            self.end()
            raise AdapterTimeoutError(f"over {limit:g} s")
        if not line:
            self.end()
            raise AdapterError(self._last_words() or "the adapter ended without a word")
        told: dict[str, Any] = json.loads(line)  # Any: JSON
        if "error" in told:
            raise AdapterError(told["error"])
        return Answer(**told)

    def end(self) -> None:
        """Kill the process and its children, if it runs."""
        process, self._process = self._process, None
        if process is None:
            return
        if os.name == "posix" and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # it leads a group of its own
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def _answered(self, process: subprocess.Popen[str], patience: float) -> str | None:
        """Return the next line, an empty one if there will be none, or None if the process took too long."""
        before, start = _used(process), time.monotonic()
        while (
            _used(process) - before < patience
            and time.monotonic() - start < CLOCK_FACTOR * patience
        ):
            try:
                return self._lines.get(timeout=POLL_SECONDS)
            except queue.Empty:
                pass
        return None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._lines = queue.SimpleQueue()
            with self.log.open("w", encoding="utf-8") as log:
                self._process = subprocess.Popen(  # noqa: S603  # our own adapters
                    self.command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=self.environment,
                    text=True,
                    encoding="utf-8",
                    start_new_session=True,
                )
            if sys.platform == "linux":
                # the same processor for all: another one may be busier
                os.sched_setaffinity(self._process.pid, {max(os.sched_getaffinity(0))})
            threading.Thread(target=_read, args=(self._process, self._lines), daemon=True).start()
        return self._process

    def _last_words(self) -> str:
        """Return the last line of the log, where a traceback has its message."""
        lines = [
            line.strip()
            for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines()
            if line.strip()
        ]
        return lines[-1] if lines else ""


def _used(process: subprocess.Popen[str]) -> float:
    """Return the seconds of processor time that a process has used.

    Falls back to the clock if the system does not tell.
    """
    try:
        fields = (
            Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        )
    except OSError:
        return time.monotonic()
    # user and system time, by proc(5)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _read(process: subprocess.Popen[str], lines: queue.SimpleQueue[str]) -> None:
    """Queue lines as they arrive; an empty one marks the end."""
    assert process.stdout is not None  # noqa: S101  # it was opened with a pipe
    try:
        for line in process.stdout:
            lines.put(line)
    except ValueError:  # closed while it was read
        pass
    lines.put("")
