"""promptkit's pytest plugin: the snapshot fixtures, and the report of a snapshot that does not match.

pytest loads this module in every test session where promptkit is installed, so it imports only
pytest until a test uses a fixture.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from promptkit.testing.snapshots.snapshot import Mismatch

pytest_plugins = ["promptkit.testing.bench_fixture", "promptkit.testing.network_guard_plugin"]

MISMATCHES: pytest.StashKey[list[Mismatch]] = pytest.StashKey()
"""The failed comparisons of a test."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the fixtures, and have the assertions of `StoreContract` explained.

    Without syrupy, fixtures fail and say what to install.
    """
    pytest.register_assert_rewrite("promptkit.testing.store_contracts")
    present = config.pluginmanager.hasplugin("syrupy")
    config.pluginmanager.import_plugin(
        f"promptkit.testing.snapshots.{'fixtures' if present else 'missing_syrupy'}"
    )


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
