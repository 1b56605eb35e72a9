"""Run the tests of a room against mutants, each in a process of its own and on a copy of the checkout.

`mutmut` skips every decorated function, so all properties, and what runs at import; `cosmic-ray`
writes its mutants into the checkout and starts a new interpreter for each. Here a process that has
loaded pytest and third-party libraries, but nothing of the checkout, forks for each mutant.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
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
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

import attrs
import pytest

from tests.mutants.accepted import accepts
from tests.mutants.operators import Mutant, find_mutants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.mutants.accepted import Accepted
    from tests.mutants.rooms import Room

__all__ = ["BrokenTestsError", "Found", "Survivor", "choose_mutants", "run_room"]

Verdict: TypeAlias = Literal["killed", "survived", "timeout"]

MEMORY_BYTES = 6 << 30
"""Of one process. A mutant that needs more is killed by the MemoryError."""
PROCESSOR_SECONDS = 600
"""Of one process. An endless loop ends there also if the process that should end it is gone."""
SLOWER = 5.0
"""A mutant is ended when its tests take this many times as long as without a mutant."""
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
    """The numbers of mutants of a room by their outcome. `mutants` is the sum of the others."""

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
        only: Files to choose from, instead of all of the room.
        limit: Size of the sample, or None for all.
        seed: Of the sample.

    Returns:
        Pairs of a file, as a path from `root`, and a mutant, in the order of the files.
    """
    files = sorted(
        {path.relative_to(root).as_posix() for pattern in room.files for path in root.glob(pattern)}
    )
    mutants = [
        (file, mutant)
        for file in files
        if not only or file in only
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
    report: Callable[[Survivor], object] = lambda _: None,
) -> Found:
    """Run the tests of a room against mutants.

    Args:
        root: The top of the checkout. Nothing in it is changed.
        room: Which tests run.
        mutants: What to try, with the file of each.
        accepted: Survivors that are known.
        workers: Number of processes at once.
        least_seconds: How long the tests of a mutant may take at least; more if they take long
            without one.
        report: Is given each survivor that is not known, when it is found.

    Raises:
        BrokenTestsError: The tests fail without a mutant.
    """
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:  # noqa: S108  # a file system without a disk
        places = [
            _Place(root, Path(folder, str(number)), room)
            for number in range(max(1, min(workers, len(mutants))))
        ]
        seconds = _rehearse(places[0])
        outcomes: Counter[Verdict | Literal["accepted"]] = Counter()
        survivors: dict[int, Survivor] = {}
        for number, verdict in _try_all(places, mutants, limit=least_seconds + SLOWER * seconds):
            file, each = mutants[number]
            known = verdict == "survived" and accepts(accepted, file, each)
            outcomes["accepted" if known else verdict] += 1
            if verdict == "survived" and not known:
                survivors[number] = Survivor(
                    file, each.line, each.operator, each.before, each.after
                )
                report(survivors[number])
    return Found(
        mutants=len(mutants),
        killed=outcomes["killed"],
        timeout=outcomes["timeout"],
        accepted=outcomes["accepted"],
        survivors=tuple(survivors[number] for number in sorted(survivors)),
    )


def _rehearse(place: _Place) -> float:
    """Run the tests without a mutant, twice: the first time loads what each later process finds loaded, and compiles the tests.

    Returns:
        Seconds that the tests take.
    """
    started = time.monotonic()
    for number in range(2):
        started = time.monotonic()
        place.start(None)
        if os.waitstatus_to_exitcode(os.waitpid(place.process, 0)[1]) != pytest.ExitCode.OK:
            raise BrokenTestsError(place.log.read_text(encoding="utf-8", errors="replace"))
        if number == 0:
            for name in json.loads(place.loaded.read_text()):
                with contextlib.suppress(Exception):  # a module that only another one may import
                    importlib.import_module(name)
            gc.collect()
            gc.freeze()  # a collection in a child would copy what parent and child share
    return time.monotonic() - started


def _try_all(
    places: Sequence[_Place], mutants: Sequence[tuple[str, Mutant]], *, limit: float
) -> Iterator[tuple[int, Verdict]]:
    """Try mutants in processes, one in each place at a time.

    Yields the number of each with what came of it.
    """
    waiting = deque(range(len(mutants)))
    busy: dict[_Place, tuple[int, float]] = {}
    try:
        while waiting or busy:
            for place in places:
                if place not in busy and waiting:
                    number = waiting.popleft()
                    place.start(mutants[number])
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
    """A copy of the checkout, in which one process at a time tries a mutant."""

    def __init__(self, root: Path, folder: Path, room: Room) -> None:
        self.root = root
        self.top = folder / "checkout"
        self.log = folder / "log"
        self.loaded = folder / "loaded"
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

    def start(self, mutated: tuple[str, Mutant] | None) -> None:
        """Write a mutant into the copy and start its process."""
        first: list[str] = []
        if mutated is not None:
            file, mutant = mutated
            self.changed = self.top / file
            self._write(self.changed, mutant.source)
            first = self._own_tests(file)
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir()
        sys.stdout.flush()
        sys.stderr.flush()
        self.process = os.fork()
        if self.process == 0:
            self._run(first)

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

    def _run(self, first: Sequence[str]) -> NoReturn:
        """Be the process: forget the checkout, run the first tests of the copy, and the others if these pass."""
        code = 70
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS))
            output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.chdir(self.top)
            # compiling the unchanged files takes longer than most tests
            sys.dont_write_bytecode = False
            paths = [str(path) for path in (self.top, self.top / "components") if path.is_dir()]
            own = {path.stem for top in paths for path in Path(top).iterdir()}
            for name in [name for name in sys.modules if name.partition(".")[0] in own]:
                del sys.modules[name]
            sys.path[:] = [
                *paths,
                *(
                    path
                    for path in sys.path
                    if path and Path(path) not in {self.root, self.root / "components"}
                ),
            ]
            os.environ.update(PYTHONPATH=os.pathsep.join(paths), TMPDIR=str(self.temporary))
            options = [*OPTIONS, f"--rootdir={self.top}", f"--basetemp={self.temporary / 'pytest'}"]
            others = [name for name in self.room.tests if name not in first]
            code = int(pytest.main([*first, *options])) if first else 0
            if code in PASSED and others:
                code = int(
                    pytest.main([*others, *options, *(f"--ignore={name}" for name in first)])
                )
            loaded = [
                name for name, module in sys.modules.items() if self._is_foreign(name, module, own)
            ]
            self.loaded.write_text(json.dumps(loaded))
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:  # noqa: BLE001  # a process of its own ends here, whatever happened
            traceback.print_exc()
        finally:
            os._exit(code)

    def _is_foreign(self, name: str, module: object, own: set[str]) -> bool:
        file = getattr(module, "__file__", None)
        return (
            isinstance(file, str)
            and name.partition(".")[0] not in own
            and not Path(file).is_relative_to(self.top)
        )
