"""Check and write the files that a command line names for output."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from promptkit.cli.output.terminal import show_json, usage_error

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def check_place(*paths: Path | None) -> None:
    """End the command with a sentence, before its work begins, if a file cannot be written because of its folder. `-` is stdout."""
    for path in paths:
        if path is None or str(path) == "-":
            continue
        if not path.resolve().parent.is_dir():
            usage_error(f"cannot write {path}: there is no folder {path.parent}.")
        if path.is_dir():
            usage_error(f"cannot write {path}: it is a folder.")


def check_new(output: Path | None, *, force: bool) -> None:
    """End the command with a sentence if a file exists that may not be replaced."""
    if output is not None and (output.is_file() or output.is_dir()) and not force:
        usage_error(f"{output} already exists: name another file, or pass --force to replace it.")


def write_file(path: Path, content: bytes | Iterable[bytes], *, mode: int = 0o600) -> None:
    """Write a file, or end the command with a sentence. `-` is stdout.

    Args:
        path: The file.
        content: The content, whole or in chunks.
        mode: The permissions of a new file. By default only the user may read it, since it may hold
            a conversation.
    """
    from promptkit.files import write_output

    chunks = [content] if isinstance(content, bytes) else content
    if str(path) == "-":
        sys.stdout.buffer.writelines(chunks)
        return
    try:
        write_output(path, lambda file: file.writelines(chunks), mode=mode)
    except OSError as error:
        usage_error(f"cannot write {path}: {error.strerror}.")


def write_json(output: Path | None, chunks: Iterable[bytes]) -> None:
    """Write JSON to a file, or to stdout, as it is printed there."""
    if output is not None:
        write_file(output, chunks)
        return
    for chunk in chunks:
        sys.stdout.write(show_json(chunk.decode("utf-8", errors="surrogatepass")))
