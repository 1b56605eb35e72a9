"""Writing files so that a crash leaves the old content or the new one, and reading compressed ones that a stranger may have made."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

MAX_LINE_BYTES = 1 << 28
"""The most bytes of one line of a compressed file: no agent writes a longer one, and it could fill
the memory."""

MAX_RATIO, CHECKED_BYTES = 100, 1 << 26
"""Data that is compressed more than a hundredfold is refused once it has 64 MB: a small file could
take minutes and fill the memory."""

_NEW = (
    os.O_RDWR
    | os.O_CREAT
    | os.O_EXCL
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


def replace_file(
    path: Path, write: Callable[[BinaryIO], object], *, mode: int = 0o600, locked: bool = False
) -> None:
    """Replace a file atomically: other processes read the old or the new content, never half of either.

    The new content goes into a new file in the same directory. Its name cannot be guessed, so no
    other user can plant a link in its place. What is at `path` is replaced, a symbolic link too. A
    crash may leave the new file, `.promptkit-….new`, which can be deleted.

    Args:
        path: The file.
        write: Write the new content into a binary file.
        mode: The permissions of the new file, less those that the process's umask takes away.
        locked: Whether the caller holds the lock of `path`. New files that an earlier crash left
            are deleted then.

    Raises:
        OSError: The file cannot be replaced; it was not changed.
    """
    if locked:
        remove_leftovers(path)
    beside, descriptor = create_beside(path, mode=mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def create_beside(path: Path, *, mode: int = 0o600) -> tuple[Path, int]:
    """Create a file in the directory of another one, with a name that cannot be guessed.

    Return its path, and it, open for both ways.

    Raises OSError if it cannot be created.
    """
    beside = path.with_name(f"{_new_prefix(path)}{secrets.token_hex(8)}.new")
    return beside, os.open(beside, _NEW, mode)


def remove_leftovers(path: Path) -> None:
    """Delete the files that `create_beside` made for a file and a crash left.

    The caller holds the lock of `path`.
    """
    for leftover in path.parent.glob(f"{_new_prefix(path)}*.new"):
        leftover.unlink(missing_ok=True)


def _new_prefix(path: Path) -> str:
    # a long name has no room for more
    return f".promptkit-{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}-"


def write_output(
    path: Path, write: Callable[[BinaryIO], object], *, mode: int = 0o600, locked: bool = False
) -> None:
    """Write a file that a user named. A regular file is replaced atomically.

    A symbolic link is followed. A device or a pipe, such as /dev/null, is written to directly,
    because it must not be replaced by a file.

    Args:
        path: The file.
        write: Write the content into a binary file.
        mode: The permissions of a new file. By default only the user may read it, since it may hold
            a conversation.
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


def open_gzip(path: Path) -> BinaryIO:
    """Open a compressed file for reading. See `read_gzip`.

    Raises OSError if it is no regular file (opening a pipe would wait for a writer), or cannot be
    opened.
    """
    raw = os.fdopen(
        os.open(
            path,
            os.O_RDONLY
            | getattr(os, "O_NONBLOCK", 0)
            | getattr(os, "O_CLOEXEC", 0)
            | getattr(os, "O_BINARY", 0),
        ),
        "rb",
    )
    if not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
        raw.close()
        raise OSError("it is not a regular file")
    return io.BufferedReader(_GzipContent(raw, closes=True))


def read_gzip(raw: BinaryIO) -> BinaryIO:
    """Return the content of a compressed file that is open.

    Closing the content does not close the file.

    Reading raises EOFError, zlib.error or gzip.BadGzipFile if the data is damaged, and OSError if
    it is compressed so much that it may have been made to fill the memory.
    """
    return io.BufferedReader(_GzipContent(raw, closes=False))


class _GzipContent(io.RawIOBase):
    """The content of a compressed file. It checks the ratio while it is read."""

    def __init__(self, raw: BinaryIO, *, closes: bool) -> None:
        self._raw, self._closes = raw, closes
        self._content = gzip.GzipFile(fileobj=raw, mode="rb")
        self._unpacked = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401  # Any: a writable buffer, which has no type before Python 3.12
        data = self._content.read(len(buffer))
        buffer[: len(data)] = data
        self._unpacked += len(data)
        if self._unpacked > CHECKED_BYTES and self._unpacked > MAX_RATIO * max(self._raw.tell(), 1):
            raise OSError(
                f"it is compressed more than {MAX_RATIO:,} times, as data made to fill the memory is; if you trust it, unpack it first"
            )
        return len(data)

    def close(self) -> None:
        if self._closes and not self.closed:
            self._raw.close()
        super().close()


def read_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file. Raises OSError for a line of more than `MAX_LINE_BYTES`."""
    while line := file.readline(MAX_LINE_BYTES):
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            raise OSError(f"a line has more than {MAX_LINE_BYTES:,} bytes")
        yield line
