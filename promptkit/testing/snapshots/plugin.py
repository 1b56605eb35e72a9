"""promptkit's pytest plugin: the snapshot fixtures, and the report of a snapshot that does not match.

pytest loads this module in every test session where promptkit is installed, so it imports only
pytest until a test uses a fixture. The fixtures are built on syrupy's, so `--snapshot-update` and its
other options apply to them; without syrupy they fail and say what to install.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from promptkit import testing

if TYPE_CHECKING:
    from promptkit.testing.snapshots.snapshot import Mismatch
    from promptkit.testing.snapshots.stabilize import MachineFolders

T = TypeVar("T", bound="testing.PromptSnapshot")

pytest_plugins = ["promptkit.testing.bench_fixture", "promptkit.testing.network_guard_plugin"]

MISMATCHES: pytest.StashKey[list[Mismatch]] = pytest.StashKey()
"""The failed comparisons of a test."""


def pytest_configure() -> None:
    """Have the assertions of `StoreContract` explained."""
    pytest.register_assert_rewrite("promptkit.testing.store_contracts")


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
    from promptkit.testing.snapshots.stabilize import MachineFolders

    return MachineFolders(
        root=request.config.rootpath,
        home=Path.home(),
        temporary=Path(tempfile.gettempdir()),
        pytest=request.getfixturevalue("tmp_path_factory").getbasetemp()
        if request.config.pluginmanager.hasplugin("tmpdir")
        else None,
    )
