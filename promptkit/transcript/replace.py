"""Files that are replaced as a whole: whoever opens one reads the old or the new, never half of either."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import BinaryIO

__all__ = ["replace", "sync_folder"]


def replace(path: Path, write: Callable[[BinaryIO], None], *, mode: int = 0o600) -> None:
    """Have `write` fill a file beside `path`, make sure that it is on the disk, and put it there. Raises OSError; `path` is as it was then.

    Only for who holds the lock: the file beside has a fixed name, so that one which a crash left is used up by the next attempt.
    """
    beside = path.with_name(f".{path.name}.new")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), mode), "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make sure that the names in a folder are on the disk. Raises OSError."""
    if os.name != "posix":
        return  # other systems cannot open a folder, and keep names safe themselves
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
