"""A running adapter: asked by a line, answered by a line, ended when it takes too long."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

__all__ = ["Answer", "Speaker", "SpeakerError", "TooLongError"]

START: Final = 60.0
"""Seconds that a process may take beyond the limit before its first answer: it imports its library and loads a vocabulary."""

TICK: Final = 0.25
"""Seconds between two looks at what a process has used."""

STUCK: Final = 20
"""How often the limit may pass on the clock, on a machine that is busy with something else."""


class SpeakerError(Exception):
    """An adapter that raised, or ended. The message is its first line about it."""


class TooLongError(SpeakerError):
    """An adapter that did not answer in time. It was ended."""


@attrs.frozen
class Answer:
    """What one run came to."""

    seconds: float
    """Processor time."""
    clock: float
    """The same in seconds on the clock, which say little on a busy machine."""
    floor: float
    """Processor seconds of tokenising every text once, with the tokenizer that the peer uses."""
    claim: int | None
    """The tokens of the result as the peer counts them."""
    messages: Sequence[Mapping[str, Any]]  # Any: JSON


class Speaker:
    """The process that speaks for a peer. It starts with the first question, and again after it was ended."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.command = list(command)
        self.environment = dict(environment)
        self.log = log
        """Where all that the process says beside its answers goes."""
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def ask(self, work: Path, limit: float) -> Answer:
        """One run on the workload in a file. Raises TooLongError after `limit` seconds of processor time, and SpeakerError."""
        patience = limit if self._process else limit + START
        try:
            process = self._running()
            assert process.stdin is not None  # noqa: S101  # it was opened with a pipe
            process.stdin.write(f"{work}\n")
            process.stdin.flush()
            line = self._answered(process, patience)
        except OSError as error:
            self.end()
            raise SpeakerError(self._last_words() or str(error)) from error
        if line is None:
            self.end()
            message = f"over {limit:g} s"
            raise TooLongError(message)
        if not line:
            self.end()
            raise SpeakerError(self._last_words() or "the adapter ended without a word")
        told: dict[str, Any] = json.loads(line)  # Any: JSON
        if "error" in told:
            raise SpeakerError(told["error"])
        return Answer(**told)

    def end(self) -> None:
        """End the process and all that it started, if it runs."""
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
        """The next line; an empty one if there will be none, None if the process took too long."""
        before, start = _used(process), time.monotonic()
        while _used(process) - before < patience and time.monotonic() - start < STUCK * patience:
            try:
                return self._lines.get(timeout=TICK)
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
            threading.Thread(target=_read, args=(self._process, self._lines), daemon=True).start()
        return self._process

    def _last_words(self) -> str:
        """The last line of the log: there a traceback says what happened."""
        lines = [line.strip() for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else ""


def _used(process: subprocess.Popen[str]) -> float:
    """Seconds of processor time that a process has used; where the system does not say, the clock."""
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return time.monotonic()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # user and system time, by proc(5)


def _read(process: subprocess.Popen[str], lines: queue.SimpleQueue[str]) -> None:
    """Pass lines on as they come; an empty one says that there will be no more."""
    assert process.stdout is not None  # noqa: S101  # it was opened with a pipe
    try:
        for line in process.stdout:
            lines.put(line)
    except ValueError:  # closed while it was read
        pass
    lines.put("")
