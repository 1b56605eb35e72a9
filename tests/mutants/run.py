"""Run the tests of a room against mutants, each in a process of its own and on a copy of the checkout.

`mutmut` skips every decorated function, so all properties, and what runs at import; `cosmic-ray`
writes its mutants into the checkout and starts a new interpreter for each. Here mutants of what
functions do are tried in forks of a process that has collected the tests (`tests/mutants/live.py`).
For each of the others, a process forks that has loaded pytest and third-party libraries, but
nothing of the checkout.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter, deque
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs
import pytest

from tests.mutants.accepted import accepts
from tests.mutants.live import LiveTrial, Verdict, import_modules
from tests.mutants.operators import Mutant, find_mutants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.mutants.accepted import Accepted
    from tests.mutants.rooms import Room

__all__ = ["BrokenTestsError", "Found", "Survivor", "choose_mutants", "run_room"]

Outcome: TypeAlias = Verdict | Literal["accepted"]

MEMORY_BYTES = 6 << 30
"""Of one process. A mutant that needs more is killed by the MemoryError."""
PROCESSOR_SECONDS = 600
"""Of one process. An endless loop ends there also if the process that should end it is gone."""
SLOWER = 2.0
"""A mutant is ended when its tests take this many times as long as without a mutant, and traced."""
OPTIONS = (
    *("-o", "addopts=", "--import-mode=importlib", "-m", "not slow and not static"),
    *("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:benchmark"),
    # pytest asks for that of plugins that are loaded before it; here they were.
    *("-W", "ignore:Module already imported so cannot be rewritten"),
)
PASSED = frozenset({pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED})
"""Without tests are the others of a room where the first ones are all that it has."""


class BrokenTestsError(Exception):
    """The tests of a room fail without any mutant."""


@attrs.frozen
class Survivor:
    """A mutant that no test noticed."""

    file: str
    line: int
    operator: str
    before: str
    after: str


@attrs.frozen
class Found:
    """The numbers of mutants of a file by their outcome. `mutants` is the sum of the others."""

    mutants: int
    killed: int
    """Mutants with which a test failed."""
    timeout: int
    """Mutants with which the tests did not end."""
    accepted: int
    """Survivors that are in the list of known ones."""
    survivors: tuple[Survivor, ...]


def choose_mutants(
    root: Path, room: Room, *, only: Sequence[str] = (), limit: int | None = None, seed: int = 0
) -> list[tuple[str, Mutant]]:
    """List the mutants of a room with their files.

    Args:
        root: The top of the checkout.
        room: Where to look.
        only: Files to choose from, in this order, instead of all of the room.
        limit: Size of the sample, or None for all.
        seed: Of the sample.

    Returns:
        Pairs of a file, as a path from `root`, and a mutant, in the order of the files.
    """
    found = {
        path.relative_to(root).as_posix() for pattern in room.files for path in root.glob(pattern)
    }
    files = [file for file in only if file in found] if only else sorted(found)
    mutants = [
        (file, mutant)
        for file in files
        for mutant in find_mutants(root.joinpath(file).read_text(encoding="utf-8"))
    ]
    if limit is None or limit >= len(mutants):
        return mutants
    return [mutants[at] for at in sorted(random.Random(seed).sample(range(len(mutants)), limit))]


def run_room(
    root: Path,
    room: Room,
    mutants: Sequence[tuple[str, Mutant]],
    *,
    accepted: Sequence[Accepted] = (),
    workers: int = 2,
    least_seconds: float = 10.0,
    most_seconds: float = math.inf,
    report: Callable[[Survivor], object] = lambda _: None,
) -> dict[str, Found]:
    """Run the tests of a room against mutants.

    Args:
        root: The top of the checkout. Nothing in it is changed.
        room: Which tests run.
        mutants: What to try, with the file of each.
        accepted: Survivors that are known.
        workers: Number of processes at once.
        least_seconds: How long the tests of a mutant may take at least; more if they take long
            without one.
        most_seconds: Processor time after which no further test of a mutant is begun, if it needs
            no new start.
        report: Is given each survivor that is not known, when it is found.

    Returns:
        What came of the mutants of each file.

    Raises:
        BrokenTestsError: The tests fail without a mutant.
    """
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:  # noqa: S108  # a file system without a disk
        places = [
            _Place(root, Path(folder, str(number)), room)
            for number in range(max(1, min(workers, len(mutants))))
        ]
        outcomes: dict[str, Counter[Outcome]] = {file: Counter() for file, _ in mutants}
        survivors: dict[int, Survivor] = {}
        for number, verdict in _try_all(
            places, mutants, least_seconds=least_seconds, most_seconds=most_seconds
        ):
            file, each = mutants[number]
            known = verdict == "survived" and accepts(accepted, file, each)
            outcomes[file]["accepted" if known else verdict] += 1
            if verdict == "survived" and not known:
                survivors[number] = Survivor(
                    file, each.line, each.operator, each.before, each.after
                )
                report(survivors[number])
    return {
        file: Found(
            mutants=counts.total(),
            killed=counts["killed"],
            timeout=counts["timeout"],
            accepted=counts["accepted"],
            survivors=tuple(each for _, each in sorted(survivors.items()) if each.file == file),
        )
        for file, counts in outcomes.items()
    }


def _try_all(
    places: Sequence[_Place],
    mutants: Sequence[tuple[str, Mutant]],
    *,
    least_seconds: float,
    most_seconds: float,
) -> Iterator[tuple[int, Verdict]]:
    """Yield the number of each mutant with what came of it."""
    waiting = dict.fromkeys(range(len(mutants)))
    for number, verdict in _try_live(places, mutants, most_seconds):
        del waiting[number]
        yield number, verdict
    seconds, _, modules = json.loads(places[0].learned.read_text())
    import_modules(name for name in modules if not places[0].is_own(name))
    gc.collect()
    gc.freeze()  # a collection in a fork would copy what it shares
    limit = least_seconds + SLOWER * sum(seconds)
    yield from _try_anew(places, {number: mutants[number] for number in waiting}, limit)


def _try_live(
    places: Sequence[_Place], mutants: Sequence[tuple[str, Mutant]], most_seconds: float
) -> Iterator[tuple[int, Verdict]]:
    """Try the mutants that need no new start, one in each place at a time.

    Yields the number of each with what came of it.
    """
    reading, writing = os.pipe()
    for at, place in enumerate(places):
        share = [(number, *mutants[number]) for number in range(at, len(mutants), len(places))]
        place.start_live(share, most_seconds, reading, writing)
    os.close(writing)
    try:
        with os.fdopen(reading, encoding="utf-8") as lines:
            for line in lines:
                number, verdict = json.loads(line)
                yield number, verdict
    except BaseException:  # an interrupt arrives in this process alone
        for place in places:
            place.look(late=True)
        raise
    for place in places:
        while (verdict := place.look(late=False)) is None:
            time.sleep(0.005)
        if verdict == "killed":
            raise BrokenTestsError(place.log.read_text(encoding="utf-8", errors="replace"))


def _try_anew(
    places: Sequence[_Place], mutants: Mapping[int, tuple[str, Mutant]], limit: float
) -> Iterator[tuple[int, Verdict]]:
    """Try mutants with everything loaded anew, one in each place at a time.

    Yields the number of each with what came of it.
    """
    waiting = deque(mutants)
    busy: dict[_Place, tuple[int, float]] = {}
    try:
        while waiting or busy:
            for place in places:
                if place not in busy and waiting:
                    number = waiting.popleft()
                    place.start(*mutants[number])
                    busy[place] = number, time.monotonic() + limit
            for place, (number, until) in list(busy.items()):
                verdict = place.look(late=time.monotonic() > until)
                if verdict is not None:
                    del busy[place]
                    yield number, verdict
            time.sleep(0.005)
    finally:
        for place in busy:  # an interrupt arrives in this process alone
            place.look(late=True)


class _Place:
    """A copy of the checkout, in which one process at a time tries mutants."""

    def __init__(self, root: Path, folder: Path, room: Room) -> None:
        self.root = root
        self.top = folder / "checkout"
        self.log = folder / "log"
        self.learned = folder / "learned"
        self.temporary = folder / "temporary"
        self.room = room
        self.process = 0
        self.changed: Path | None = None
        self.clock = int(time.time())
        shutil.copytree(
            root, self.top, ignore=shutil.ignore_patterns(".*", "__pycache__", "node_modules")
        )
        if root.with_name("shared").is_dir():  # recordings that lie beside the checkout
            self.top.with_name("shared").symlink_to(root.with_name("shared"))
        self.paths = [str(path) for path in (self.top, self.top / "components") if path.is_dir()]
        self.own = {path.stem for top in self.paths for path in Path(top).iterdir()}

    def is_own(self, module: str) -> bool:
        """Return whether a module belongs to the checkout, by its name."""
        return module.partition(".")[0] in self.own

    def start_live(
        self,
        mutants: Sequence[tuple[int, str, Mutant]],
        most_seconds: float,
        reading: int,
        writing: int,
    ) -> None:
        """Start the process that tries mutants in its forks, and writes what came of them into a pipe."""

        def report(number: int, verdict: Verdict) -> None:
            os.write(writing, f"{json.dumps([number, verdict])}\n".encode())

        def work() -> int:
            os.close(reading)
            trial = LiveTrial(
                self.top, mutants, most_seconds=most_seconds, learned=self.learned, report=report
            )
            trial.begin()
            return self._run_tests(self.room.tests, plugins=[trial])

        self._fork(work)

    def start(self, file: str, mutant: Mutant) -> None:
        """Write a mutant into the copy and start the process that tries it: the tests of the file first, and the others if these pass."""
        self.changed = self.top / file
        self._write(self.changed, mutant.source)
        first = self._own_tests(file)
        others = [name for name in self.room.tests if name not in first]

        def work() -> int:
            resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS))
            code = self._run_tests(first) if first else 0
            if code in PASSED and others:
                return self._run_tests([*others, *(f"--ignore={name}" for name in first)])
            return code

        self._fork(work)

    def look(self, *, late: bool) -> Verdict | None:
        """Return what came of the mutant, or None while its tests run.

        If it is late, they end here.
        """
        done, status = os.waitpid(self.process, os.WNOHANG)
        if not done and not late:
            return None
        with contextlib.suppress(ProcessLookupError):  # also what the tests have started and left
            os.killpg(self.process, signal.SIGKILL)
        if not done:
            os.waitpid(self.process, 0)
        if self.changed is not None:
            self._write(
                self.changed,
                self.root.joinpath(self.changed.relative_to(self.top)).read_text(encoding="utf-8"),
            )
            self.changed = None
        if not done:
            return "timeout"
        return "survived" if os.waitstatus_to_exitcode(status) in PASSED else "killed"

    def _own_tests(self, file: str) -> list[str]:
        """The test files that are named after a file, in the folders of the room's tests."""
        name = f"test_{Path(file).stem}.py"
        folders = dict.fromkeys(
            path if path.is_dir() else path.parent
            for path in map(self.top.joinpath, self.room.tests)
        )
        found = dict.fromkeys(path for folder in folders for path in folder.rglob(name))
        return [path.relative_to(self.top).as_posix() for path in found]

    def _write(self, file: Path, text: str) -> None:
        """Write a file with a time of its own, by which Python knows that what it has compiled is another one."""
        self.clock += 1
        file.write_text(text, encoding="utf-8")
        os.utime(file, (self.clock, self.clock))

    def _fork(self, work: Callable[[], int]) -> None:
        """Start the process of this place, which has the copy in place of the checkout."""
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir()
        sys.stdout.flush()
        sys.stderr.flush()
        self.process = os.fork()
        if self.process == 0:
            code = 70
            try:
                self._enter()
                code = work()
                sys.stdout.flush()
                sys.stderr.flush()
            except BaseException:  # noqa: BLE001  # a process of its own ends here, whatever happened
                traceback.print_exc()
            finally:
                os._exit(code)

    def _enter(self) -> None:
        """Forget the checkout, and find the copy instead."""
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(self.top)
        # compiling the unchanged files takes longer than most tests
        sys.dont_write_bytecode = False
        for name in filter(self.is_own, [*sys.modules]):
            del sys.modules[name]
        before = {self.root, self.root / "components"}
        sys.path[:] = [
            *self.paths,
            *(path for path in sys.path if path and Path(path) not in before),
        ]
        os.environ.update(
            PYTHONPATH=os.pathsep.join(self.paths),
            TMPDIR=str(self.temporary),
            HYPOTHESIS_PROFILE="mutants",
        )

    def _run_tests(self, tests: Sequence[str], plugins: Sequence[object] = ()) -> int:
        places = [f"--rootdir={self.top}", f"--basetemp={self.temporary / 'pytest'}"]
        return int(pytest.main([*tests, *OPTIONS, *places], plugins=plugins))
