"""A sign of life for a person who waits; nothing for a pipe or a log."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["working"]


@contextmanager
def working(on: str) -> Generator[None]:
    """Show `on` beside a spinner while the block runs, on stderr and only if it is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(on)):
        yield
