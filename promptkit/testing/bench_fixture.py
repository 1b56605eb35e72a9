"""The fixture `prompt_bench`: a test fails when a prompt keeps less of itself at some budget than its baseline says.

It is loaded in every test session where promptkit is installed, so it imports pytest only; the rest is imported by the test that uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import attrs
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from promptkit.bench.baseline import Comparison
    from promptkit.bench.results import Run
    from promptkit.element import Child

__all__ = ["prompt_bench", "pytest_addoption", "pytest_configure"]

MARKER = "prompt_bench"
OPTION = "--prompt-bench-update"

Bench: TypeAlias = "Callable[[Child], Run]"


@attrs.frozen(kw_only=True)
class _Guard:
    """What the marker says."""

    baseline: str
    """A file, relative to the root of the test suite (pytest's rootdir)."""
    budgets: str | Sequence[int] = "1k:128k:log16"
    tolerance: float = 0.05
    models: Sequence[str] = ()
    depth: int = 3
    repeat: int = 0
    time_tolerance: float | None = None


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and given >= 0


_TAKEN: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "baseline": (lambda given: isinstance(given, str), "a path from the rootdir"),
    "budgets": (lambda given: isinstance(given, Sequence), "a list of tokens, or text such as '1k:128k:log16'"),
    "tolerance": (_is_number, "a number, 0 or more"),
    "models": (lambda given: isinstance(given, Sequence) and not isinstance(given, str), "a list of names"),
    "depth": (lambda given: isinstance(given, int) and given >= 1, "a whole number, 1 or more"),
    "repeat": (lambda given: isinstance(given, int) and given >= 0, "a whole number, 0 or more"),
    "time_tolerance": (lambda given: given is None or _is_number(given), "a number, 0 or more, or None"),
}
"""What each argument of the marker may be, and how that is said."""


_BASELINES: pytest.StashKey[dict[Path, str]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that writes baselines."""
    help_text = "write the baselines of the tests that use prompt_bench, instead of holding prompts against them"
    parser.getgroup("promptkit").addoption(OPTION, action="store_true", default=False, help=help_text)


def pytest_configure(config: pytest.Config) -> None:
    """The marker that says what is measured and held against what."""
    config.stash[_BASELINES] = {}
    config.addinivalue_line(
        "markers",
        f"{MARKER}(baseline, budgets='1k:128k:log16', tolerance=0.05, models=(), depth=3, repeat=0, time_tolerance=None): "
        f"what the fixture {MARKER} measures, and the file, relative to the rootdir, that it holds the prompt against",
    )


@pytest.fixture
def prompt_bench(request: pytest.FixtureRequest) -> Bench:
    """A function that measures the prompt it is given at the marker's budgets, and fails the test if it is worse than the baseline.

    It returns the run. Times are taken only if the marker has a `repeat`.
    """
    guard = _guard(request)
    path = request.config.rootpath / guard.baseline
    owner = request.config.stash[_BASELINES].setdefault(path, request.node.nodeid)
    if owner != request.node.nodeid:
        _fail(f"the baseline {guard.baseline} is that of {owner}: give each test its own.")
    ran: list[Run] = []

    def bench(prompt: Child) -> Run:
        __tracebackhide__ = True
        if ran:
            _fail("a test measures one prompt: its baseline holds no more.")
        if not (path.exists() or request.config.getoption(OPTION)):
            _fail(f"there is no baseline {guard.baseline} yet. Write it: {_update(request)}")
        ran.append(_measured(prompt, guard, request.node.nodeid))
        if request.config.getoption(OPTION):
            _write(path, ran[0])
        else:
            _hold(ran[0], path, guard, request)
        return ran[0]

    return bench


def _guard(request: pytest.FixtureRequest) -> _Guard:
    __tracebackhide__ = True
    marker = request.node.get_closest_marker(MARKER)
    if marker is None:
        _fail('the test needs the marker that says what is measured: @pytest.mark.prompt_bench(baseline="tests/bench/NAME.json").')
    if marker.args:
        _fail("the marker takes its arguments by name.")
    known = [field.name for field in attrs.fields(_Guard)]
    wrong = sorted(marker.kwargs.keys() - set(known))
    if wrong or "baseline" not in marker.kwargs:
        said = f"has no {', '.join(wrong)}" if wrong else "needs a baseline"
        _fail(f"the marker {said}; it takes {', '.join(known)}.")
    for name, given in marker.kwargs.items():
        fits, taken = _TAKEN[name]
        if not fits(given):
            _fail(f"the marker's {name} is {taken}, not {given!r}.")
    return _Guard(**marker.kwargs)


def _measured(prompt: Child, guard: _Guard, name: str) -> Run:
    from promptkit.bench.budget_ranges import parse_budgets
    from promptkit.bench.sweep import measure

    budgets = parse_budgets(guard.budgets) if isinstance(guard.budgets, str) else tuple(sorted(set(guard.budgets)))
    return measure(prompt, budgets=budgets, models=guard.models, repeat=guard.repeat, depth=guard.depth, target=name)


def _write(path: Path, run: Run) -> None:
    from promptkit.bench.results import run_to_json, write_atomically

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, run_to_json(run).encode())


def _hold(run: Run, path: Path, guard: _Guard, request: pytest.FixtureRequest) -> None:
    from promptkit.bench.baseline import BaselineMismatchError, compare, format_comparison
    from promptkit.bench.results import UnreadableRunError, read_run
    from promptkit.errors import PromptKitError

    __tracebackhide__ = True
    found: Comparison | PromptKitError
    try:
        found = compare(run, read_run(path), tolerance=guard.tolerance, time_tolerance=guard.time_tolerance)
    except (BaselineMismatchError, UnreadableRunError) as error:
        found = error  # pytest would show what a failure was raised for
    if isinstance(found, PromptKitError):
        _fail(f"{found}\nWrite it anew: {_update(request)}")
    if found.worse:
        _fail(
            f"the prompt is worse than {guard.baseline}.\n{format_comparison(found)}\nWhere that is meant, write the baseline anew: {_update(request)}"
        )
    request.node.add_report_section("call", MARKER, format_comparison(found))


def _update(request: pytest.FixtureRequest) -> str:
    return f'pytest {OPTION} "{request.node.nodeid}"'


def _fail(why: str) -> NoReturn:
    __tracebackhide__ = True
    pytest.fail(f"{MARKER}: {why}", pytrace=False)
