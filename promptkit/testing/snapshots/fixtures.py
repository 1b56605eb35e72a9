"""The snapshot fixtures.

They are built on syrupy's fixture, so `--snapshot-update` and its other options apply to them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from promptkit.testing.snapshots.plugin import MISMATCHES

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from promptkit.testing.snapshots.snapshot import (
        MessagesSnapshot,
        PromptSnapshot,
        ReceiptSnapshot,
    )
    from promptkit.testing.snapshots.stabilize import MachineFolders


@pytest.fixture
def prompt_snapshot(snapshot: SnapshotAssertion, request: pytest.FixtureRequest) -> PromptSnapshot:
    """Compare a prompt as readable Markdown: `assert prompt == prompt_snapshot`."""
    from promptkit.testing.snapshots.snapshot import PromptExtension, PromptSnapshot

    return PromptSnapshot(
        assertion=snapshot.use_extension(PromptExtension),
        find_folders=lambda: _find_folders(request),
        mismatches=request.node.stash.setdefault(MISMATCHES, []),
    )


@pytest.fixture
def messages_snapshot(
    snapshot: SnapshotAssertion, request: pytest.FixtureRequest
) -> MessagesSnapshot:
    """Compare the messages that are sent: `assert prompt == messages_snapshot`, or `messages_snapshot.to("anthropic")`."""
    from promptkit.testing.snapshots.snapshot import MessagesExtension, MessagesSnapshot

    return MessagesSnapshot(
        assertion=snapshot.use_extension(MessagesExtension),
        find_folders=lambda: _find_folders(request),
        mismatches=request.node.stash.setdefault(MISMATCHES, []),
    )


@pytest.fixture
def receipt_snapshot(
    snapshot: SnapshotAssertion, request: pytest.FixtureRequest
) -> ReceiptSnapshot:
    """Compare the receipt, what a prompt cost and lost: `assert prompt == receipt_snapshot.at(budgets=[4_000])`."""
    from promptkit.testing.snapshots.snapshot import ReceiptExtension, ReceiptSnapshot

    return ReceiptSnapshot(
        assertion=snapshot.use_extension(ReceiptExtension),
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
