"""The files that a job works on: paths, globs and URLs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from promptkit.errors import InvalidArgumentError, TranscriptError
from promptkit.lab.recordings.reading.remote import is_remote, list_remote
from promptkit.transcript import list_transcripts
from promptkit.transcript.stores.addresses import is_conversation

_WILD = re.compile(r"[*?\[]")


def is_pattern(address: Path | str) -> bool:
    """Return whether an address names several files: a glob, or all conversations of a database."""
    text = str(address)
    if is_conversation(text):
        return "#" not in text
    return _WILD.search(text) is not None and (is_remote(text) or not Path(text).exists())


def list_inputs(address: Path | str) -> Iterator[str]:
    """Yield the files that an address names, in no order.

    A file that is named without a glob is not looked for.

    Args:
        address: A path or a URL. In both, `*` and `?` stand for characters of a name, `[…]` for one
            of several, and `**` for any number of folders. Names that begin with a dot are found
            only by a pattern that begins so, too.

    Raises:
        TranscriptError: A place cannot be listed, or nothing matches a glob.
        InvalidArgumentError: `https://` has no lists.
    """
    text = str(address)
    if not is_pattern(text):
        yield text
        return
    found = False
    for each in _list_pattern(text):
        found = True
        yield each
    if not found:
        raise TranscriptError(f"no file matches {text!r}.")


def _list_pattern(text: str) -> Iterator[str]:
    if is_conversation(text):
        return iter(list_transcripts(text))
    root, pattern = _split(text)
    if is_remote(text):
        if root.endswith("://"):
            raise InvalidArgumentError(
                f"{text!r} names no bucket: only what follows its name may be a glob."
            )
        return list_remote(root, compile_glob(pattern).fullmatch)
    return _walk(root, pattern)


def find_root(address: Path | str) -> str:
    """Return the folder of a file, or that below which all files of a glob lie.

    It ends with a slash, or is empty.
    """
    text = str(address)
    root = (
        _split(text)[0]
        if is_pattern(text) and not is_conversation(text)
        else text.replace(os.sep, "/").rpartition("/")[0]
    )
    return f"{root.rstrip('/')}/" if root else ""


def _split(text: str) -> tuple[str, str]:
    """Split a glob into the folder before its first wild part, and the rest."""
    wild = _WILD.search(text)
    slash = text.replace(os.sep, "/").rfind("/", 0, wild.start() if wild else None)
    return text[: slash + 1] or "", text[slash + 1 :]


def _walk(root: str, pattern: str) -> Iterator[str]:
    """Yield the files below a folder that match. One folder is read at a time, entry by entry."""
    matches = compile_glob(pattern.replace(os.sep, "/")).fullmatch
    deepest = None if "**" in pattern else pattern.count("/")
    waiting = [("", 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            with os.scandir(os.path.join(root, folder) or ".") as entries:  # noqa: PTH118  # a Path would lose the slash of `./`
                for entry in entries:
                    name = f"{folder}{entry.name}"
                    if entry.is_dir():
                        # Links to folders are not followed below `**`, where they could lead in a
                        # circle.
                        if (deepest is None and not entry.is_symlink()) or (
                            deepest is not None and depth < deepest
                        ):
                            waiting.append((f"{name}/", depth + 1))
                    elif matches(name) and (entry.is_file() or entry.is_symlink()):
                        # nothing that is read without an end, such as a pipe
                        yield f"{root}{name}"
        except OSError as error:
            raise TranscriptError(
                f"{root}{folder} cannot be listed: {error.strerror or error}."
            ) from error


def compile_glob(pattern: str) -> re.Pattern[str]:
    """Compile a glob for paths. Slashes are matched only by slashes and by `**`."""
    parts = pattern.split("/")
    compiled: list[str] = []
    for at, part in enumerate(parts):
        last = at == len(parts) - 1
        if part == "**":
            compiled.append(r"(?:(?!\.)[^/]+/)*" + (r"(?!\.)[^/]+" if last else ""))
            continue
        hidden = "" if part.startswith(".") else r"(?!\.)"
        pieces = re.findall(r"\*+|\?|\[!?\]?[^\]]*\]|.", part, re.DOTALL)
        compiled.append(hidden + "".join(map(_compile_piece, pieces)) + ("" if last else "/"))
    try:
        return re.compile("".join(compiled), re.DOTALL)
    except re.error as error:
        raise InvalidArgumentError(f"{pattern!r} is not a glob: {error}.") from error


def _compile_piece(piece: str) -> str:
    if piece.startswith("*"):
        return "[^/]*"
    if piece == "?":
        return "[^/]"
    if piece.startswith("[") and len(piece) > 1:
        inner = piece[1:-1].replace("\\", r"\\").replace("[", r"\[")
        return (
            f"[^/{inner[1:]}]"
            if inner.startswith("!")
            else "[" + re.sub(r"^\^", r"\^", inner) + "]"
        )
    return re.escape(piece)
