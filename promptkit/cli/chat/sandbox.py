"""A folder that a model may look into, and nothing beside it: every step down is taken without following links."""

from __future__ import annotations

import errno
import os
import posixpath
import secrets
import stat
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

import attrs

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

__all__ = ["MAX_READ_BYTES", "Folder", "FolderEntry", "RefusedError"]

MAX_READ_BYTES = 64_000_000
"""Bytes of a file that is read at all."""

MAX_WRITTEN_BYTES = 1_000_000
"""Bytes of a file that is written or edited."""

SNIFFED = 8_192
"""Bytes at the beginning of a file that tell whether it is text."""

_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
# Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
_FILE = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class RefusedError(ValueError):
    """What a tool was asked for cannot be, or may not. The text is for the model."""


@attrs.frozen
class FolderEntry:
    """Something in a folder. `kind` is `file`, `folder`, `link` or `other`; `size` is bytes."""

    name: str
    kind: str
    size: int


@attrs.frozen
class Folder:
    """A folder and what is below it. Paths are relative to it, or begin with its own.

    Each folder of a path is opened from the one before it, and a link is never followed: neither `..` nor a link, nor one that is put
    there in between, leads out. `transcript` is the one file that may be read wherever it is, and written nowhere.
    """

    root: Path
    """The folder, from the root, links resolved."""
    transcript: Path | None = None

    @staticmethod
    def is_supported() -> bool:
        """Whether this system can open a file from an open folder: where it cannot, there is nothing to rely on."""
        return os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")

    def split_path(self, path: str) -> list[str]:
        """The names that lead from the folder to a path. Raises RefusedError for one that leads out."""
        if "\0" in path:
            why = "a path has no NUL characters."
            raise RefusedError(why)
        named = posixpath.normpath(path.strip() or ".")
        root = self.root.as_posix()
        if named == root:
            return []
        if named.startswith("/"):
            prefix = root.rstrip("/") + "/"
            if not named.startswith(prefix):
                raise RefusedError(_outside(path))
            named = named[len(prefix) :]
        steps = [] if named == "." else named.split("/")
        if ".." in steps:
            raise RefusedError(_outside(path))
        return steps

    def list_entries(self, path: str) -> list[FolderEntry]:
        """What is in a folder, sorted by name. Raises RefusedError."""
        with self._folder(self.split_path(path), path) as folder:
            found: list[FolderEntry] = []
            with os.scandir(folder) as names:
                for each in names:
                    with suppress(OSError):  # it was removed meanwhile
                        status = each.stat(follow_symlinks=False)
                        found.append(FolderEntry(each.name, _kind(status.st_mode), status.st_size))
        return sorted(found, key=lambda each: each.name)

    def walk_files(self, path: str) -> Iterator[str]:
        """The files below a folder, sorted, with their paths from the root of all; the file itself for a file.

        Left out is what is behind a link and what is in a folder whose name begins with a dot. Raises RefusedError.
        """
        if self._is_transcript(path):
            yield path
            return
        steps = self.split_path(path)
        if steps and self._kind_of(steps, path) == "file":
            yield "/".join(steps)
            return
        waiting = ["/".join(steps)]
        while waiting:
            folder = waiting.pop()
            try:
                entries = self.list_entries(folder)
            except RefusedError:
                if folder == "/".join(steps):
                    raise
                continue  # it was removed or locked meanwhile
            below = [(posixpath.join(folder, each.name), each) for each in entries]
            yield from (name for name, each in below if each.kind == "file")
            waiting.extend(name for name, each in reversed(below) if each.kind == "folder" and not each.name.startswith("."))

    @contextmanager
    def open_text(self, path: str) -> Generator[BinaryIO]:
        """A text file, opened. Raises RefusedError for anything else."""
        if self._is_transcript(path):
            opened = self._opened(str(self.transcript), None, path)
        else:
            steps = self.split_path(path)
            if not steps:
                raise RefusedError(_no_file(path))
            with self._folder(steps[:-1], path) as folder:
                opened = self._opened(steps[-1], folder, path)
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            os.close(opened)
            raise RefusedError(_no_file(path))
        with os.fdopen(opened, "rb") as file:
            if status.st_size > MAX_READ_BYTES:
                why = f"{path} has {status.st_size:,} bytes, and {MAX_READ_BYTES:,} are the most that is read."
                raise RefusedError(why)
            if b"\0" in file.read(SNIFFED):
                why = f"{path} is no text: it holds NUL bytes."
                raise RefusedError(why)
            file.seek(0)
            yield file

    def write(self, path: str, text: str, *, new: bool = False) -> None:
        """Put a whole file in place at once. `new`: it must not be there yet. Raises RefusedError."""
        data = text.encode(errors="replace")
        if len(data) > MAX_WRITTEN_BYTES:
            why = f"{len(data):,} bytes are too many: {MAX_WRITTEN_BYTES:,} are the most that is written."
            raise RefusedError(why)
        steps = self.split_path(path)
        if not steps or self._is_ours(steps):
            why = f"{path} is not for writing."
            raise RefusedError(why)
        with self._folder(steps[:-1], path) as folder:
            mode = None
            with suppress(FileNotFoundError):
                status = os.stat(steps[-1], dir_fd=folder, follow_symlinks=False)
                if new or not stat.S_ISREG(status.st_mode):
                    why = f"{path} is there already." if new else _no_file(path)
                    raise RefusedError(why)
                mode = stat.S_IMODE(status.st_mode)
            try:
                _replace(folder, steps[-1], data, mode)
            except OSError as error:
                raise RefusedError(_why(path, error)) from error

    def _is_transcript(self, path: str) -> bool:
        return self.transcript is not None and path.strip() == str(self.transcript)

    def _is_ours(self, steps: list[str]) -> bool:
        """Whether a path is the transcript, or the lock beside it."""
        if self.transcript is None:
            return False
        named = self.root.joinpath(*steps)
        lock = self.transcript.with_name(f".{self.transcript.name}.lock")
        if named in {self.transcript, lock}:
            return True
        return any(ours.exists() and named.exists() and named.samefile(ours) for ours in (self.transcript, lock))

    def _kind_of(self, steps: list[str], path: str) -> str:
        with self._folder(steps[:-1], path) as folder:
            try:
                return _kind(os.stat(steps[-1], dir_fd=folder, follow_symlinks=False).st_mode)
            except OSError as error:
                raise RefusedError(_why(path, error)) from error

    @contextmanager
    def _folder(self, steps: list[str], path: str) -> Generator[int]:
        """A folder, opened step by step from the root."""
        held = -1
        try:
            held = os.open(self.root, _FOLDER)
            for step in steps:
                below = os.open(step, _FOLDER, dir_fd=held)
                os.close(held)
                held = below
        except OSError as error:
            if held >= 0:
                os.close(held)
            raise RefusedError(_why(path, error)) from error
        with closing(_Open(held)):
            yield held

    def _opened(self, name: str, folder: int | None, path: str) -> int:
        try:
            return os.open(name, _FILE, dir_fd=folder)
        except OSError as error:
            raise RefusedError(_why(path, error)) from error


@attrs.frozen
class _Open:
    descriptor: int

    def close(self) -> None:
        os.close(self.descriptor)


def _replace(folder: int, name: str, data: bytes, mode: int | None) -> None:
    beside = f".{name[:100]}.{secrets.token_hex(4)}"
    descriptor = os.open(beside, _NEW, 0o666, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "folder"
    if stat.S_ISLNK(mode):
        return "link"
    return "file" if stat.S_ISREG(mode) else "other"


def _outside(path: str) -> str:
    return f"{path} is outside of the folder. Paths are relative to it."


def _no_file(path: str) -> str:
    return f"{path} is no file, but a folder or something else."


def _why(path: str, error: OSError) -> str:
    """Why something could not be opened. What the system says of a link differs from one to the next."""
    if isinstance(error, FileNotFoundError):
        return f"there is no {path}."
    if isinstance(error, NotADirectoryError) or error.errno in {errno.ELOOP, errno.EMLINK}:
        return f"{path} is no folder, or a link on the way to it; links are not followed."
    return f"{path}: {error.strerror}."
