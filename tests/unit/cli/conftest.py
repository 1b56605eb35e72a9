"""The command line leaves the process as it found it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    # a host may set it for processes without a terminal, too
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def untouched_import_state() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("promptkit_file_") or name == "neighbour_of_prompt":
            del sys.modules[name]
