"""What the tests of the engines run in other processes, in a module that loads fast."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["die_at_13", "die_once", "raise_error", "sleep_after", "square"]


def square(items: tuple[int, ...]) -> list[int]:
    return [item * item for item in items]


def die_once(folder: Path, items: tuple[int, ...]) -> list[int]:
    """End the process without a word at 13, the first time."""
    mark = folder / "died"
    if 13 in items and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return square(items)


def die_at_13(items: tuple[int, ...]) -> list[int]:
    if 13 in items:
        os.kill(os.getpid(), signal.SIGKILL)
    return square(items)


def raise_error(items: tuple[int, ...]) -> list[int]:
    raise ArithmeticError(items)


def sleep_after(mark: Path) -> None:
    mark.touch()
    time.sleep(60)
