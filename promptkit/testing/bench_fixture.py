"""The pytest fixture `prompt_bench`: fail a test when a prompt keeps less of its elements at some budget than its baseline.

pytest loads this module in every test session where promptkit is installed, so it imports only
pytest until a test uses the fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import attrs
import pytest

import promptkit
from promptkit import bench as benches

MARKER = "prompt_bench"
OPTION = "--prompt-bench-update"


@attrs.frozen(kw_only=True)
class _MarkerOptions:
    """The arguments of the marker."""

    baseline: str
    """Path of the baseline file, relative to pytest's rootdir."""
    budgets: str | Sequence[int] = "1k:128k:log16"
    tolerance: float = 0.05
    models: Sequence[str] = ()
    depth: int = 3
    repeat: int = 0
    time_tolerance: float | None = None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and value >= 0


_ARGUMENT_CHECKS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "baseline": (lambda value: isinstance(value, str), "a path from the rootdir"),
    "budgets": (
        lambda value: isinstance(value, Sequence),
        "a list of tokens, or text such as '1k:128k:log16'",
    ),
    "tolerance": (_is_number, "a number, 0 or more"),
    "models": (
        lambda value: isinstance(value, Sequence) and not isinstance(value, str),
        "a list of names",
    ),
    "depth": (lambda value: isinstance(value, int) and value >= 1, "a whole number, 1 or more"),
    "repeat": (lambda value: isinstance(value, int) and value >= 0, "a whole number, 0 or more"),
    "time_tolerance": (
        lambda value: value is None or _is_number(value),
        "a number, 0 or more, or None",
    ),
}
"""Argument of the marker → a check of its value, and a description of the values that pass."""


_BASELINES: pytest.StashKey[dict[Path, str]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes baselines."""
    parser.getgroup("promptkit").addoption(
        OPTION,
        action="store_true",
        default=False,
        help="write the baselines of tests that use prompt_bench instead of comparing with them",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker that names the budgets and the baseline of a test."""
    config.stash[_BASELINES] = {}
    config.addinivalue_line(
        "markers",
        f"{MARKER}(baseline, budgets='1k:128k:log16', tolerance=0.05, models=(), depth=3, repeat=0, time_tolerance=None): "
        f"budgets that the fixture {MARKER} measures, and the baseline file, relative to the rootdir, that it compares with",
    )


@pytest.fixture
def prompt_bench(request: pytest.FixtureRequest) -> Callable[[promptkit.Child], benches.Run]:
    """Return a function that measures a prompt at the marker's budgets and fails the test if the prompt is worse than its baseline.

    The function returns the run. It measures times only if the marker has a `repeat`.
    """
    options = _read_marker(request)
    path = request.config.rootpath / options.baseline
    owner = request.config.stash[_BASELINES].setdefault(path, request.node.nodeid)
    if owner != request.node.nodeid:
        _fail(
            f"{owner} uses the baseline {options.baseline} already: give each test a baseline of its own."
        )
    runs: list[benches.Run] = []

    def bench(prompt: promptkit.Child) -> benches.Run:
        __tracebackhide__ = True
        if runs:
            _fail(
                "a test measures one prompt, because its baseline holds one run: write another test for another prompt."
            )
        if not (path.exists() or request.config.getoption(OPTION)):
            _fail(
                f"there is no baseline {options.baseline} yet. Write it: {_update_command(request)}"
            )
        run = benches.measure(
            prompt,
            budgets=benches.parse_budgets(options.budgets)
            if isinstance(options.budgets, str)
            else tuple(sorted(set(options.budgets))),
            models=options.models,
            repeat=options.repeat,
            depth=options.depth,
            target=request.node.nodeid,
        )
        runs.append(run)
        if request.config.getoption(OPTION):
            from promptkit.files import write_output

            path.parent.mkdir(parents=True, exist_ok=True)
            write_output(
                path, lambda file: file.write(benches.run_to_json(run).encode()), mode=0o666
            )
        else:
            _compare_with_baseline(run, path, options, request)
        return run

    return bench


def _read_marker(request: pytest.FixtureRequest) -> _MarkerOptions:
    __tracebackhide__ = True
    marker = request.node.get_closest_marker(MARKER)
    if marker is None:
        _fail(
            'the test has no marker with a baseline: write @pytest.mark.prompt_bench(baseline="tests/bench/NAME.json") above it.'
        )
    if marker.args:
        _fail("the marker takes its arguments by name: write baseline=…, budgets=….")
    known = [field.name for field in attrs.fields(_MarkerOptions)]
    wrong = sorted(marker.kwargs.keys() - set(known))
    if wrong or "baseline" not in marker.kwargs:
        problem = f"has no argument {', '.join(wrong)}" if wrong else "needs a baseline"
        _fail(f"the marker {problem}; it takes {', '.join(known)}.")
    for name, value in marker.kwargs.items():
        is_valid, expected = _ARGUMENT_CHECKS[name]
        if not is_valid(value):
            _fail(f"the marker's {name} must be {expected}, not {value!r}.")
    return _MarkerOptions(**marker.kwargs)


def _compare_with_baseline(
    run: benches.Run, path: Path, options: _MarkerOptions, request: pytest.FixtureRequest
) -> None:
    __tracebackhide__ = True
    found: benches.Comparison | promptkit.PromptKitError
    try:
        found = benches.compare(
            run,
            benches.read_run(path),
            tolerance=options.tolerance,
            time_tolerance=options.time_tolerance,
        )
    except (benches.BaselineMismatchError, benches.UnreadableRunError) as error:
        found = error  # a failure raised here would show this error as its context
    if isinstance(found, promptkit.PromptKitError):
        _fail(f"{found}\nWrite it again: {_update_command(request)}")
    report = benches.format_comparison(found)
    if found.worse:
        _fail(
            f"the prompt is worse than {options.baseline}.\n{report}\n"
            f"If the change is intended, write the baseline again: {_update_command(request)}"
        )
    request.node.add_report_section("call", MARKER, report)


def _update_command(request: pytest.FixtureRequest) -> str:
    return f'pytest {OPTION} "{request.node.nodeid}"'


def _fail(problem: str) -> NoReturn:
    __tracebackhide__ = True
    pytest.fail(f"{MARKER}: {problem}", pytrace=False)
