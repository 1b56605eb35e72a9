"""The snapshot fixtures, built on syrupy's own: `--snapshot-update` and its other options work on them as on all snapshots."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from promptkit.testing.snapshots.plugin import MISMATCHES

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from promptkit.testing.snapshots.snapshot import MessagesSnapshot, PromptSnapshot, ReceiptSnapshot
    from promptkit.testing.snapshots.stabilize import Places

__all__ = ["messages_snapshot", "prompt_snapshot", "receipt_snapshot"]


@pytest.fixture
def prompt_snapshot(snapshot: SnapshotAssertion, request: pytest.FixtureRequest) -> PromptSnapshot:
    """A prompt as readable Markdown: `assert prompt == prompt_snapshot`."""
    from promptkit.testing.snapshots.snapshot import PromptExtension, PromptSnapshot

    return PromptSnapshot(
        assertion=snapshot.use_extension(PromptExtension),
        find_places=lambda: _places(request),
        mismatches=request.node.stash.setdefault(MISMATCHES, []),
    )


@pytest.fixture
def messages_snapshot(snapshot: SnapshotAssertion, request: pytest.FixtureRequest) -> MessagesSnapshot:
    """A prompt as the messages that are sent: `assert prompt == messages_snapshot`, or `messages_snapshot.to("anthropic")`."""
    from promptkit.testing.snapshots.snapshot import MessagesExtension, MessagesSnapshot

    return MessagesSnapshot(
        assertion=snapshot.use_extension(MessagesExtension),
        find_places=lambda: _places(request),
        mismatches=request.node.stash.setdefault(MISMATCHES, []),
    )


@pytest.fixture
def receipt_snapshot(snapshot: SnapshotAssertion, request: pytest.FixtureRequest) -> ReceiptSnapshot:
    """What a prompt cost and lost: `assert prompt == receipt_snapshot.at(budgets=[4_000])`."""
    from promptkit.testing.snapshots.snapshot import ReceiptExtension, ReceiptSnapshot

    return ReceiptSnapshot(
        assertion=snapshot.use_extension(ReceiptExtension),
        find_places=lambda: _places(request),
        mismatches=request.node.stash.setdefault(MISMATCHES, []),
    )


def _places(request: pytest.FixtureRequest) -> Places:
    from promptkit.testing.snapshots.stabilize import Places

    pytest_folder: Path | None = None
    if request.config.pluginmanager.hasplugin("tmpdir"):
        factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
        pytest_folder = factory.getbasetemp()
    return Places(root=request.config.rootpath, home=Path.home(), temporary=Path(tempfile.gettempdir()), pytest=pytest_folder)
