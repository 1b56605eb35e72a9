"""promptkit's pytest plugin: the snapshot fixtures, and the report of a snapshot that does not match.

pytest loads this module in every test session where promptkit is installed, so it imports only
pytest until a test uses a fixture. The fixtures are built on syrupy's, so `--snapshot-update` and its
other options apply to them; without syrupy they fail and say what to install.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from syrupy.assertion import SnapshotAssertion
    from syrupy.extensions.base import AbstractSyrupyExtension

    from promptkit.testing import MessagesSnapshot, PromptSnapshot, ReceiptSnapshot, WireSnapshot
    from promptkit.testing.snapshots.snapshot import Mismatch
    from promptkit.testing.snapshots.stabilize import MachineFolders

    T = TypeVar("T", bound=PromptSnapshot)

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
    from promptkit.testing.snapshots.snapshot import PromptSnapshot

    prompt, snapshot = (left, right) if isinstance(right, PromptSnapshot) else (right, left)
    if not isinstance(snapshot, PromptSnapshot) or not snapshot.mismatches:
        return None
    mismatch = snapshot.mismatches[-1]
    return [f"{type(prompt).__name__} == {mismatch.path}", str(mismatch)]


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
def prompt_snapshot(request: pytest.FixtureRequest) -> PromptSnapshot:
    """Compare a prompt as readable Markdown: `assert prompt == prompt_snapshot`."""
    _require_syrupy(request)
    from promptkit.testing.snapshots.snapshot import PromptExtension, PromptSnapshot

    return _make_snapshot(PromptSnapshot, PromptExtension, request)


@pytest.fixture
def messages_snapshot(request: pytest.FixtureRequest) -> MessagesSnapshot:
    """Compare the messages that are sent: `assert prompt == messages_snapshot`, or `messages_snapshot.to("anthropic")`."""
    _require_syrupy(request)
    from promptkit.testing.snapshots.snapshot import MessagesExtension, MessagesSnapshot

    return _make_snapshot(MessagesSnapshot, MessagesExtension, request)


@pytest.fixture
def receipt_snapshot(request: pytest.FixtureRequest) -> ReceiptSnapshot:
    """Compare the receipt, what a prompt cost and lost: `assert prompt == receipt_snapshot.at(budgets=[4_000])`."""
    _require_syrupy(request)
    from promptkit.testing.snapshots.snapshot import ReceiptExtension, ReceiptSnapshot

    return _make_snapshot(ReceiptSnapshot, ReceiptExtension, request)


@pytest.fixture
def wire_snapshot(request: pytest.FixtureRequest) -> WireSnapshot:
    """Compare whole requests as a provider gets them: `assert server.requests[-1] == wire_snapshot`."""
    _require_syrupy(request)
    from promptkit.testing.snapshots.snapshot import WireExtension, WireSnapshot

    return _make_snapshot(WireSnapshot, WireExtension, request)


def _require_syrupy(request: pytest.FixtureRequest) -> None:
    if not request.config.pluginmanager.hasplugin("syrupy"):
        pytest.fail(
            f"{request.fixturename} needs syrupy, which is not loaded here: run `pip install 'syrupy>=5'`, "
            "or `pip install '.[testing]'` in a checkout of promptkit.",
            pytrace=False,
        )


def _make_snapshot(
    kind: type[T], extension: type[AbstractSyrupyExtension], request: pytest.FixtureRequest
) -> T:
    assertion: SnapshotAssertion = request.getfixturevalue("snapshot")
    return kind(
        assertion=assertion.use_extension(extension),
        find_folders=lambda: _find_folders(request),
        mismatches=request.node.stash.setdefault(MISMATCHES, []),
    )


def _find_folders(request: pytest.FixtureRequest) -> MachineFolders:
    from promptkit.testing.snapshots.stabilize import MachineFolders

    pytest_folder: Path | None = None
    if request.config.pluginmanager.hasplugin("tmpdir"):
        factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
        pytest_folder = factory.getbasetemp()
    return MachineFolders(
        root=request.config.rootpath,
        home=Path.home(),
        temporary=Path(tempfile.gettempdir()),
        pytest=pytest_folder,
    )
