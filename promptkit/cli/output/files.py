"""Check and write the files that a command line names for output."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from promptkit.cli.output.terminal import show_json, usage_error

_PAGE_MARKS = (
    b'<meta name="generator" content="promptkit">',
    b"<dc:title>promptkit</dc:title>",  # the creator in the metadata of an SVG
    b"Software\0promptkit",  # in a PNG
)
_HEAD = 4_096  # bytes of a page or a picture that have its mark


def check_output(*paths: Path | None, force: bool) -> None:
    """End the command with a sentence, before its work begins, if a file cannot be written or may not be replaced.

    A page or a picture that promptkit wrote is replaced, any other file only with `force`. `-` is
    stdout.
    """
    for path in paths:
        if path is None or str(path) == "-":
            continue
        if not path.resolve().parent.is_dir():
            usage_error(f"cannot write {path}: there is no folder {path.parent}.")
        if path.is_dir():
            usage_error(f"cannot write {path}: it is a folder.")
        if path.is_file() and not force and not _is_page(path):
            usage_error(f"{path} already exists: name another file, or pass --force to replace it.")


def _is_page(path: Path) -> bool:
    """Return whether promptkit wrote a file as a page or a picture."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    return any(mark in head for mark in _PAGE_MARKS)


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
