"""Writing files so that a crash leaves the old content or the new one."""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import BinaryIO

__all__ = ["replace_file", "sync_directory", "write_output"]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def replace_file(path: Path, write: Callable[[BinaryIO], object], *, mode: int = 0o600, locked: bool = False) -> None:
    """Replace a file atomically: other processes read the old or the new content, never half of either.

    The new content goes into a new file in the same directory. Its name cannot be guessed, so no other user can plant a link in its place.
    What is at `path` is replaced, a symbolic link too. A crash may leave the new file, `.promptkit-….new`, which can be deleted.

    Args:
        path: The file.
        write: Write the new content into a binary file.
        mode: The permissions of the new file, less those that the process's umask takes away.
        locked: Whether the caller holds the lock of `path`. New files that an earlier crash left are deleted then.

    Raises:
        OSError: The file cannot be replaced; it was not changed.
    """
    prefix = f".promptkit-{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}-"  # a long name has no room for more
    if locked:
        for leftover in path.parent.glob(f"{prefix}*.new"):
            leftover.unlink(missing_ok=True)
    beside = path.with_name(f"{prefix}{secrets.token_hex(8)}.new")
    try:
        with os.fdopen(os.open(beside, _NEW, mode), "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_output(path: Path, write: Callable[[BinaryIO], object], *, mode: int = 0o600, locked: bool = False) -> None:
    """Write a file that a user named. A regular file is replaced atomically.

    A symbolic link is followed. A device or a pipe, such as /dev/null, is written to directly, because it must not be replaced by a file.

    Args:
        path: The file.
        write: Write the content into a binary file.
        mode: The permissions of a new file. By default only the user may read it, since it may hold a conversation.
        locked: As in `replace_file`.

    Raises:
        OSError: The file cannot be written. A regular file was not changed.
    """
    place = path.resolve()
    if place.exists() and not place.is_file():
        with place.open("wb") as special:
            write(special)
        return
    replace_file(place, write, mode=mode, locked=locked)


def sync_directory(directory: Path) -> None:
    """Write the file names in a directory to the disk. Raises OSError if that fails."""
    if os.name != "posix":
        return  # other systems cannot open a directory, and sync names themselves
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
