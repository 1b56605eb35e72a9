"""Try mutants in a process that has loaded the checkout and collected the tests: it forks, and the code of the live function is replaced.

A mutant that changes more than the bodies of functions (a default, a constant of a module) is left
to a process that loads everything anew.
"""

from __future__ import annotations

import ast
import bisect
import contextlib
import functools
import gc
import importlib
import inspect
import itertools
import json
import mmap
import os
import signal
import sys
import threading
import time
import traceback
from collections import Counter, defaultdict
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path
    from types import FrameType

    import pytest
    from _typeshed import TraceFunction

    from tests.mutants.operators import Mutant

__all__ = ["LiveTrial", "Verdict", "find_changed_codes", "find_statement", "import_modules"]

Verdict: TypeAlias = Literal["killed", "survived", "timeout"]

SLOWER = 2.0
"""A mutant is ended when a test takes this many times as long as in the rehearsal, which is traced."""
LEAST_SECONDS = 2.0
"""Processor time that any test may take: the first one fills the caches."""
MOST_SECONDS = 100
"""Time that any test may take: it may wait for what never happens."""
TIMEOUTS = frozenset({signal.SIGPROF, signal.SIGALRM})


def find_changed_codes(old: CodeType, new: CodeType) -> list[tuple[CodeType, CodeType]]:
    """Pair the codes in two versions of a file that differ, the outer ones first.

    The code of a module or class is among them only if it differs itself, that of a function also
    if one in it does.
    """
    if old == new:
        return []
    pairs = zip(_inner_codes(old), _inner_codes(new), strict=False)
    changed = [each for pair in pairs for each in find_changed_codes(*pair)]
    if _is_function(old) or _without_inner(old) != _without_inner(new):
        return [(old, new), *changed]
    return changed


def _is_function(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_OPTIMIZED)


def _inner_codes(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _without_inner(code: CodeType) -> CodeType:
    consts = tuple(None if isinstance(each, CodeType) else each for each in code.co_consts)
    # the places of functions, which end elsewhere when their last line changes, are no code
    return code.replace(co_consts=consts, co_linetable=b"")


def find_statement(source: str, line: int) -> range:
    """Return the lines of the statement, or of its head, that has this line."""
    starts = _find_starts(source)
    at = bisect.bisect_right(starts, line)
    return range(starts[at - 1], starts[at] if at < len(starts) else source.count("\n") + 2)


@functools.cache
def _find_starts(source: str) -> list[int]:
    """List the lines in which statements begin."""
    starts = {
        each.pattern.lineno if isinstance(each, ast.match_case) else each.lineno
        for each in ast.walk(ast.parse(source))
        if isinstance(each, ast.stmt | ast.excepthandler | ast.match_case)
    }
    return sorted(starts)


class LiveTrial:
    """A pytest plugin that tries mutants with the collected tests."""

    def __init__(
        self,
        top: Path,
        mutants: Sequence[tuple[int, str, Mutant]],
        *,
        most_seconds: float,
        learned: Path,
        report: Callable[[int, Verdict], object],
    ) -> None:
        """Make the plugin.

        Args:
            top: The top of the checkout that is loaded.
            mutants: Numbers, files as paths from `top`, and mutants.
            most_seconds: Processor time after which no further test of a mutant is begun.
            learned: Where the rehearsal writes what it has found: processor seconds of each test,
                lines that each reaches, and loaded modules.
            report: Is given the number of each mutant that can be tried here, and what came of it.
        """
        self.top = top
        self.mutants = mutants
        self.most_seconds = most_seconds
        self.learned = learned
        self.report = report
        # lines that have run since tracing or a test began, and before the first test, by file
        self._reached: dict[str, set[int]] = {}
        self._imported: dict[str, set[int]] = {}
        self._seconds: list[float] = []
        # the tests that reach a line of a file, and the live functions of a code in a file
        self._tests: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        self._functions: defaultdict[tuple[str, CodeType], list[FunctionType]] = defaultdict(list)
        # how many mutants each test has noticed
        self._kills: Counter[int] = Counter()

    def begin(self) -> None:
        """Trace from here on, before the checkout is loaded."""
        self._forget_lines()
        sys.settrace(self._trace)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Rehearse the tests, then try the mutants."""
        sys.settrace(None)
        self._imported = self._reached
        session.testsfailed = _run_in_fork(lambda: self._rehearse(session))
        if session.testsfailed == 0:
            self._learn()
            for number, file, mutant in self.mutants:
                verdict = self._try(session, file, mutant)
                if verdict is not None:
                    self.report(number, verdict)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Show why a test fails in the rehearsal."""
        if report.failed and not self._seconds:
            print(report.nodeid, report.longreprtext, sep="\n")

    def _forget_lines(self) -> None:
        self._reached = {str(self.top / file): set() for _, file, _ in self.mutants}

    def _trace(self, frame: FrameType, event: str, argument: object) -> TraceFunction | None:
        """Trace the lines of the files with mutants."""
        lines = self._reached.get(frame.f_code.co_filename)
        if lines is None:
            return None

        def trace_line(frame: FrameType, event: str, argument: object) -> TraceFunction:
            lines.add(frame.f_lineno)
            return trace_line

        return trace_line(frame, event, argument)

    def _rehearse(self, session: pytest.Session) -> int:
        """Run all tests, and write down what there is to learn from it."""
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        seconds: list[float] = []
        reached: list[list[tuple[str, list[int]]]] = []
        order = range(len(session.items))
        for number, following in itertools.zip_longest(order, order[1:]):
            self._forget_lines()
            started = time.process_time()
            _run_test(session, number, following)
            seconds.append(time.process_time() - started)
            if session.testsfailed:
                return 1
            reached.append([(file, list(lines)) for file, lines in self._reached.items()])
        self.learned.write_text(json.dumps([seconds, reached, list(sys.modules)]))
        return 0

    def _learn(self) -> None:
        """Read what the rehearsal has found, load what it has loaded, and look for the functions."""
        self._seconds, reached, modules = json.loads(self.learned.read_text())
        for number, files in enumerate(reached):
            for file, lines in files:
                for line in lines:
                    self._tests[file, line].append(number)
        import_modules(modules)
        gc.unfreeze()
        for each in gc.get_objects():
            if type(each) is FunctionType and each.__code__.co_filename in self._imported:
                self._functions[each.__code__.co_filename, each.__code__].append(each)
        gc.collect()
        gc.freeze()  # a collection in a fork would copy what it shares

    def _try(self, session: pytest.Session, file: str, mutant: Mutant) -> Verdict | None:
        """Return what came of a mutant, or None if everything must be loaded anew for it."""
        name = str(self.top / file)
        source = (self.top / file).read_text(encoding="utf-8")
        changed = find_changed_codes(*(_compile(each, name) for each in (source, mutant.source)))
        if not all(
            _is_function(old) and old.co_freevars == new.co_freevars for old, new in changed
        ):
            return None
        if changed and not self._functions[name, changed[0][0]]:
            return None
        lines = find_statement(source, mutant.line)
        tests = {test for line in lines for test in self._tests[name, line]}
        current = mmap.mmap(-1, 4)  # shared with the fork

        def run_tests() -> int:
            session.config.pluginmanager.unregister(name="terminalreporter")
            for old, new in changed:
                for function in self._functions[name, old]:
                    function.__code__ = new
            order = sorted(tests, key=self._value, reverse=True)
            for test, following in itertools.zip_longest(order, order[1:]):
                current[:] = test.to_bytes(4, "little")
                signal.alarm(MOST_SECONDS)
                signal.setitimer(signal.ITIMER_PROF, LEAST_SECONDS + SLOWER * self._seconds[test])
                _run_test(session, test, following)
                if session.testsfailed or time.process_time() > self.most_seconds:
                    break
            return session.testsfailed

        code = _run_in_fork(run_tests)
        if code != 0:
            self._kills[int.from_bytes(current[:], "little")] += 1
            return "timeout" if -code in TIMEOUTS else "killed"
        return None if self._imported[name].intersection(lines) else "survived"

    def _value(self, test: int) -> float:
        """Return how soon a test should run: it should notice mutants, and be fast."""
        return (self._kills[test] + 1) / (self._seconds[test] + 0.01)


def import_modules(names: Iterable[str]) -> None:
    """Load modules."""
    for name in names:
        with contextlib.suppress(Exception):  # a module that only another one may import
            importlib.import_module(name)


@functools.lru_cache(maxsize=2)
def _compile(source: str, file: str) -> CodeType:
    return compile(source, file, "exec", dont_inherit=True)


def _run_test(session: pytest.Session, number: int, following: int | None) -> None:
    """Run a test, and take down the fixtures that the following one does not need."""
    after = None if following is None else session.items[following]
    session.config.hook.pytest_runtest_protocol(item=session.items[number], nextitem=after)


def _run_in_fork(work: Callable[[], int]) -> int:
    """Return the exit code of a process that does some work; it is negative if a signal has ended it."""
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process == 0:
        code = 70
        try:
            os.setsid()
            code = work()
            sys.stdout.flush()
        except BaseException:  # noqa: BLE001  # a process of its own ends here, whatever happened
            traceback.print_exc()
        finally:
            os._exit(code)
    status = os.waitpid(process, 0)[1]
    with contextlib.suppress(ProcessLookupError):  # what the tests have started and left
        os.killpg(process, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)
