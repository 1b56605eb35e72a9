"""Try inputs of a target for some seconds, in a process of its own, and keep the smallest input of each way to fail.

With atheris the inputs follow the code that they reach; without it they come from hypothesis alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

import attrs
from hypothesis import HealthCheck, Phase, Verbosity, given, seed as seeded, settings
from hypothesis.errors import HypothesisException

if TYPE_CHECKING:
    from types import FrameType

    from tests.fuzz.target import Target

__all__ = ["CORPUS", "Engine", "Failure", "Outcome", "TooSlowError", "fuzz", "keep"]

Engine: TypeAlias = Literal["atheris", "hypothesis"]

CORPUS = Path(__file__).with_name("corpus")
"""By target: inputs that failed once. They are tried again as ordinary tests."""

SLOW_SECONDS = 10
"""An input that takes longer is a failure."""
PATIENCE_SECONDS = 60
"""How much later than it should a process may end before it is killed, and what it did is a
failure."""
MEMORY_BYTES = 6 << 30
"""Of one process; a MemoryError is a failure."""
SHRINK_SECONDS = 5
"""For all failures of a target together."""


class TooSlowError(Exception):
    """An input took too long."""


@attrs.frozen
class Failure:
    """A way to fail: the smallest input that was found for it, and the error's last lines."""

    case: bytes
    error: str


@attrs.frozen
class Outcome:
    """What came of a target."""

    inputs: int
    failures: tuple[Failure, ...]


def fuzz(
    target: Target, *, seconds: float, seed: int, engine: Engine, corpus: Path | None = None
) -> Outcome:
    """Try inputs in a process of its own, which may be killed.

    Args:
        target: What is tried.
        seconds: How long.
        seed: Of the random inputs.
        engine: What chooses inputs. The process that calls must have imported the code with
            atheris's instruments.
        corpus: A folder with inputs to begin with.
    """
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:  # noqa: S108  # a file system without a disk
        process = os.fork()
        if process == 0:
            _Worker(target, Path(folder), until=time.monotonic() + seconds).run(
                engine, seed, corpus
            )
        ended = _wait(process, seconds + SHRINK_SECONDS + PATIENCE_SECONDS)
        report = Path(folder, "report")
        if report.exists():
            found = json.loads(report.read_text())
            return Outcome(
                found["inputs"],
                tuple(Failure(bytes.fromhex(case), error) for case, error in found["failures"]),
            )
        current = Path(folder, "current")
        return Outcome(1, (Failure(current.read_bytes() if current.exists() else b"", ended),))


def _wait(process: int, seconds: float) -> str:
    """Wait for the end of a process, or end it. Returns how it ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return f"the process ended with status {os.waitstatus_to_exitcode(status)}"
        time.sleep(0.02)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return "the process had to be killed: an input never ends"


@attrs.define(eq=False)
class _Worker:
    """The process that tries inputs."""

    target: Target
    folder: Path
    until: float
    inputs: int = 0
    failures: dict[str, Failure] = attrs.field(factory=dict[str, Failure])
    """By what distinguishes a way to fail from others."""
    shrinking: bool = False

    def run(self, engine: Engine, seed: int, corpus: Path | None) -> NoReturn:
        """Try inputs until the time is over, write the report and end."""
        try:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            os.setpgid(0, 0)  # what a terminal sends goes to the parent alone
            signal.signal(signal.SIGALRM, _too_slow)
            random.seed(seed)
            if engine == "atheris":
                self._guided(seed, corpus)
            else:
                self._random(seed)
            self._end()
        except BaseException:  # noqa: BLE001  # a process of its own ends here, whatever happened
            traceback.print_exc()
            os._exit(70)

    def _try(self, case: bytes) -> str | None:
        """Try an input.

        Returns how it failed, and keeps it if it is the smallest that failed so.
        """
        self.inputs += 1
        self.folder.joinpath("current").write_bytes(case)
        signal.setitimer(signal.ITIMER_REAL, SLOW_SECONDS)
        try:
            self.target.check(case)
        except HypothesisException:
            raise
        except Exception as error:  # noqa: BLE001  # any error is a failure
            name = _signature(error)
            known = self.failures.get(name)
            if not self.shrinking if known is None else len(case) < len(known.case):
                self.failures[name] = Failure(case, "".join(traceback.format_exception(error)[-3:]))
            return name
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return None

    def _random(self, seed: int) -> None:
        """Let hypothesis make inputs, until the time is over.

        Failures are made smaller at the end.
        """
        number = seed
        while time.monotonic() < self.until:
            number += 1
            self._given(number)()

    def _given(self, seed: int) -> Any:  # Any: hypothesis adds attributes to a function
        """A test of hypothesis's that tries each input."""

        @seeded(seed)
        @settings(
            max_examples=200,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=[
                HealthCheck.too_slow,
                HealthCheck.data_too_large,
                HealthCheck.filter_too_much,
            ],
            verbosity=Verbosity.quiet,
        )
        @given(self.target.cases)
        def tried(case: bytes) -> None:
            if time.monotonic() < self.until:
                self._try(case)

        return tried

    def _guided(self, seed: int, corpus: Path | None) -> None:
        """Let atheris make inputs.

        It never returns: the report is written when the time is over.
        """
        import atheris

        place = self.folder / "inputs"
        place.mkdir()
        seeds = self.target.seeds or [
            random.Random(seed + at).randbytes(64 << at % 6) for at in range(32)
        ]
        for at, content in enumerate(seeds):
            place.joinpath(f"{at}").write_bytes(content)
        if self.target.seeds and corpus is not None and corpus.is_dir():
            for file in corpus.iterdir():
                place.joinpath(file.name).write_bytes(file.read_bytes())
        raw = None if self.target.seeds else self._given(seed).hypothesis.fuzz_one_input

        def one(data: bytes) -> None:
            if time.monotonic() >= self.until:
                self._end()
            if raw is None:
                self._try(data)
            else:
                raw(data)

        with self.folder.joinpath("log").open("wb") as log:
            os.dup2(log.fileno(), 2)
        options = [
            f"-seed={seed or 1}",
            "-max_len=65536",
            "-len_control=0",
            "-timeout=0",
            "-rss_limit_mb=0",
            "-verbosity=0",
        ]
        atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={self.folder}/", str(place)], one)
        atheris.Fuzz()

    def _end(self) -> NoReturn:
        """Make the failures smaller, write the report, and end the process without what other code would do at its end."""
        until, self.shrinking = time.monotonic() + SHRINK_SECONDS, True
        for name in list(self.failures):
            self._shrink(name, until)
        found = {
            "inputs": self.inputs,
            "failures": [[each.case.hex(), each.error] for each in self.failures.values()],
        }
        new = self.folder / "report.new"
        new.write_text(json.dumps(found))
        new.replace(self.folder / "report")
        os._exit(0)

    def _shrink(self, name: str, until: float) -> None:
        """Cut pieces out of an input while it still fails in the same way.

        Other ways to fail, such as JSON that is none, are not kept.
        """
        size = len(self.failures[name].case) // 2
        while size and time.monotonic() < until:
            start = 0
            while start < len(self.failures[name].case) and time.monotonic() < until:
                case = self.failures[name].case
                with suppress(HypothesisException):
                    if self._try(case[:start] + case[start + size :]) == name:
                        continue
                start += size
            size //= 2


def _signature(error: BaseException) -> str:
    """What distinguishes a way to fail from others: the type, and the last place in the code and in the check."""
    places = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "site-packages" not in frame.filename
    ]
    own = [
        f"{Path(frame.filename).name}:{frame.name}"
        for frame in places
        if "/promptkit/" in frame.filename
    ]
    return f"{type(error).__name__} {own[-1:]} {[f'{frame.name}:{frame.lineno}' for frame in places if '/tests/' in frame.filename][-1:]}"


def _too_slow(number: int, frame: FrameType | None) -> None:
    del number, frame
    problem = f"the input took more than {SLOW_SECONDS} seconds"
    raise TooSlowError(problem)


def keep(failure: Failure, folder: Path) -> Path:
    """Write an input that failed into a corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / hashlib.sha256(failure.case).hexdigest()[:12]
    file.write_bytes(failure.case)
    return file
