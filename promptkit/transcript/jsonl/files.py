"""Writing files so that a crash leaves the old content or the new one."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import BinaryIO

__all__ = ["replace_file", "sync_directory"]


def replace_file(path: Path, write: Callable[[BinaryIO], None], *, mode: int = 0o600) -> None:
    """Replace a file atomically: other processes read the old or the new content, never half of either.

    A device or a pipe, such as /dev/null, is written to directly, because it must not be replaced by a file.

    The new content goes into a temporary file with a fixed name in the same directory, so the caller must hold the lock of `path`. The
    next attempt overwrites a temporary file that a crash left.

    Args:
        path: The file.
        write: Write the new content into a binary file.
        mode: The permissions of the new file.

    Raises:
        OSError: The file cannot be replaced; it was not changed.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as special:
            write(special)
        return
    temporary = path.with_name(f".{path.name}.new")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), mode), "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Write the file names in a directory to the disk. Raises OSError if that fails."""
    if os.name != "posix":
        return  # other systems cannot open a directory, and sync names themselves
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
