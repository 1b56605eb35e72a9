"""promptkit's pytest plugin: the snapshot fixtures with the report of a snapshot that does not match, the fixture `prompt_bench`, and the network guard.

pytest loads this module in every test session where promptkit is installed, so it imports only
pytest, attrs and the guard until a test uses a fixture. The snapshot fixtures are built on syrupy's,
so `--snapshot-update` and its other options apply to them; without syrupy they fail and say what to
install.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import attrs
import pytest

import promptkit
from promptkit import bench as benches, testing
from promptkit.testing.network_guard import Refusal, describe_refusals, record_refusals

if TYPE_CHECKING:
    from promptkit.testing.snapshots.documents import MachineFolders
    from promptkit.testing.snapshots.snapshot import Mismatch

T = TypeVar("T", bound="testing.PromptSnapshot")

MISMATCHES: pytest.StashKey[list[Mismatch]] = pytest.StashKey()
"""The failed comparisons of a test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes baselines, and the ini option that guards every test of a suite."""
    parser.getgroup("promptkit").addoption(
        _BENCH_OPTION,
        action="store_true",
        default=False,
        help="write the baselines of tests that use prompt_bench instead of comparing with them",
    )
    parser.addini(
        _GUARD_OPTION,
        "fail every test that opens a connection beyond loopback",
        type="bool",
        default=False,
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and have the assertions of `StoreContract` explained."""
    pytest.register_assert_rewrite("promptkit.testing.contracts")
    config.stash[_BASELINES] = {}
    for marker in (
        f"{_BENCH_MARKER}{_BENCH_HELP}",
        f"{_GUARD_MARKER}(on=True): {_GUARD_HELP}",
    ):
        config.addinivalue_line("markers", marker)


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Describe a mismatch in one line. pytest would cut a longer text off, so the report shows the diff in its own section."""
    if op != "==" or "promptkit.testing.snapshots.snapshot" not in sys.modules:
        return None
    for prompt, snapshot in ((left, right), (right, left)):
        if isinstance(snapshot, testing.PromptSnapshot) and snapshot.mismatches:
            mismatch = snapshot.mismatches[-1]
            return [f"{type(prompt).__name__} == {mismatch.path}", str(mismatch)]
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the diff of each failed comparison to the report of the test."""
    report = yield
    mismatches = item.stash.setdefault(MISMATCHES, [])
    if report.failed:
        for mismatch in mismatches:
            text = "\n".join(mismatch.shown_lines)
            # a failure without a traceback is a plain string
            add = getattr(report.longrepr, "addsection", None)
            if add:
                add(mismatch.path, text)
            else:
                report.sections.append((mismatch.path, text))
    mismatches.clear()
    return report


@pytest.fixture
def prompt_snapshot(request: pytest.FixtureRequest) -> testing.PromptSnapshot:
    """Compare a prompt as readable Markdown: `assert prompt == prompt_snapshot`."""
    return _make_snapshot(lambda: testing.PromptSnapshot, request)


@pytest.fixture
def messages_snapshot(request: pytest.FixtureRequest) -> testing.MessagesSnapshot:
    """Compare the messages that are sent: `assert prompt == messages_snapshot`, or `messages_snapshot.to("anthropic")`."""
    return _make_snapshot(lambda: testing.MessagesSnapshot, request)


@pytest.fixture
def receipt_snapshot(request: pytest.FixtureRequest) -> testing.ReceiptSnapshot:
    """Compare the receipt, what a prompt cost and lost: `assert prompt == receipt_snapshot.at(budgets=[4_000])`."""
    return _make_snapshot(lambda: testing.ReceiptSnapshot, request)


@pytest.fixture
def wire_snapshot(request: pytest.FixtureRequest) -> testing.WireSnapshot:
    """Compare whole requests as a provider gets them: `assert server.requests[-1] == wire_snapshot`."""
    return _make_snapshot(lambda: testing.WireSnapshot, request)


def _make_snapshot(find_kind: Callable[[], type[T]], request: pytest.FixtureRequest) -> T:
    """Make a snapshot of a kind, which is loaded with syrupy."""
    if not request.config.pluginmanager.hasplugin("syrupy"):
        pytest.fail(
            f"{request.fixturename} needs syrupy, which is not loaded here: run `pip install 'syrupy>=5'`, "
            "or `pip install '.[testing]'` in a checkout of promptkit.",
            pytrace=False,
        )
    kind = find_kind()
    return kind(
        assertion=request.getfixturevalue("snapshot").use_extension(kind.extension),
        find_folders=lambda: _find_folders(request),
        mismatches=request.node.stash.setdefault(MISMATCHES, []),
    )


def _find_folders(request: pytest.FixtureRequest) -> MachineFolders:
    from promptkit.testing.snapshots.documents import MachineFolders

    return MachineFolders(
        root=request.config.rootpath,
        home=Path.home(),
        temporary=Path(tempfile.gettempdir()),
        pytest=request.getfixturevalue("tmp_path_factory").getbasetemp()
        if request.config.pluginmanager.hasplugin("tmpdir")
        else None,
    )


_BENCH_MARKER = "prompt_bench"
_BENCH_OPTION = "--prompt-bench-update"
_BENCH_HELP = (
    "(baseline, budgets='1k:128k:log16', tolerance=0.05, models=(), depth=3, repeat=0, time_tolerance=None): "
    "budgets that the fixture prompt_bench measures, and the baseline file, relative to the rootdir, that it compares with"
)


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
        if not (path.exists() or request.config.getoption(_BENCH_OPTION)):
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
        if request.config.getoption(_BENCH_OPTION):
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
    marker = request.node.get_closest_marker(_BENCH_MARKER)
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
    request.node.add_report_section("call", _BENCH_MARKER, report)


def _update_command(request: pytest.FixtureRequest) -> str:
    return f'pytest {_BENCH_OPTION} "{request.node.nodeid}"'


def _fail(problem: str) -> NoReturn:
    __tracebackhide__ = True
    pytest.fail(f"{_BENCH_MARKER}: {problem}", pytrace=False)


_GUARD_OPTION = "promptkit_loopback_only"
_GUARD_MARKER = "loopback_only"
_GUARD_HELP = "fail this test if it opens a connection beyond loopback; with False, allow it to although promptkit_loopback_only is set"


REFUSALS = pytest.StashKey[list["Refusal"]]()
"""The refusals of a test that no phase of it has reported yet."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Guard the whole test, so that its threads find no gap between set-up, call and tear-down."""
    marker = item.get_closest_marker(_GUARD_MARKER)
    if not (
        item.config.getini(_GUARD_OPTION)
        if marker is None
        else marker.kwargs.get("on", marker.args[0] if marker.args else True)
    ):
        return (yield)
    with record_refusals() as refused:
        item.stash[REFUSALS] = refused
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Run a phase of a test, and fail it if anything was refused that no earlier phase has reported."""
    try:
        result = yield
    except pytest.skip.Exception:  # a test must not skip itself because it found no network
        _fail_on_refusals(item)
        raise
    except BaseException as error:  # the test failed already, perhaps because of the refusal
        if message := _describe_new_refusals(item):
            error.add_note(message)
        raise
    _fail_on_refusals(item)
    return result


# what fixtures tried, and threads since
pytest_runtest_setup = pytest_runtest_teardown = pytest_runtest_call


def _fail_on_refusals(item: pytest.Item) -> None:
    __tracebackhide__ = True
    if message := _describe_new_refusals(item):
        pytest.fail(message, pytrace=False)


def _describe_new_refusals(item: pytest.Item) -> str | None:
    refused = item.stash.get(REFUSALS, None)
    if not refused:
        return None
    new = refused[:]
    del refused[: len(new)]  # a thread may have added one in the meantime
    return f"{describe_refusals(new)}\nA test that needs the network says so: @pytest.mark.{_GUARD_MARKER}(False)."
