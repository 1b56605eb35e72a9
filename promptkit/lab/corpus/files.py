"""The files of a job: those that it works on, as paths, globs and URLs, and its output, rows as JSON lines or as Parquet."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

from promptkit.errors import InvalidArgumentError, PromptKitError, TranscriptError
from promptkit.files import write_output
from promptkit.lab.recordings.reading.remote import (
    is_remote,
    list_remote,
    remote_exists,
    write_remote,
)
from promptkit.transcript import list_transcripts
from promptkit.transcript.stores.addresses import is_conversation


class CorpusError(PromptKitError):
    """A run over many files cannot begin, go on, or write its output."""


_WILD = re.compile(r"[*?\[]")


def is_pattern(address: Path | str) -> bool:
    """Return whether an address names several files: a glob, or all conversations of a database."""
    text = str(address)
    return (
        "#" not in text
        if is_conversation(text)
        else _WILD.search(text) is not None and (is_remote(text) or not Path(text).exists())
    )


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
    names = _list_pattern(text) if is_pattern(text) else iter([text])
    if (first := next(names, None)) is None:
        raise TranscriptError(f"no file matches {text!r}.")
    yield first
    yield from names


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


ROWS_PER_GROUP = 10_000
"""Rows of Parquet that are in memory at the same time, and together in the file."""


def check_output(output: Path | str, *, force: bool) -> None:
    """Check that an output can be written, before any work is done.

    Args:
        output: The file, or its URL.
        force: Whether it may be replaced.

    Raises:
        CorpusError: It has another suffix, exists, or needs a library that is missing.
        TranscriptError: The URL cannot be reached.
        InvalidArgumentError: The URL can only be read.
    """
    suffix = Path(str(output)).suffix
    if suffix not in (".jsonl", ".parquet") or is_conversation(output):
        raise CorpusError(
            f"rows are written as JSON lines or as Parquet: name {output} with the suffix .jsonl or .parquet."
        )
    if suffix == ".parquet" and find_spec("pyarrow") is None:
        raise CorpusError(
            "Parquet needs pyarrow: run `pip install 'pyarrow>=17'`, or `pip install '.[parquet]'` in a checkout of promptkit."
        )
    if is_remote(output):
        exists = remote_exists(str(output))
    else:
        path = Path(output)
        exists = path.exists()
        if path.is_dir():
            raise CorpusError(f"{output} is a folder: name a file.")
        if not path.resolve().parent.is_dir():
            raise CorpusError(f"cannot write {output}: there is no folder {path.parent}.")
    if exists and not force:
        raise CorpusError(
            f"{output} already exists: name another file, or pass --force to replace it."
        )


def write_rows(output: Path | str, read_lines: Callable[[], Iterable[bytes]]) -> None:
    """Write rows, completely or not at all.

    Args:
        output: The file, or its URL. The suffix decides the format.
        read_lines: Yields JSON lines, one or several at a time. For Parquet it is called twice.

    Raises:
        CorpusError: The file cannot be written.
        TranscriptError: The URL cannot be written.
    """

    def write(file: BinaryIO) -> None:
        if Path(str(output)).suffix == ".parquet":
            _write_parquet(file, read_lines)
        else:
            file.writelines(read_lines())

    if is_remote(output):
        write_remote(str(output), write)
        return
    try:
        write_output(Path(output), write)
    except OSError as error:
        raise CorpusError(f"cannot write {output}: {error.strerror or error}.") from error


def _write_parquet(file: BinaryIO, read_lines: Callable[[], Iterable[bytes]]) -> None:
    """Write rows as Parquet.

    Each column has the type that all its values have; lists, objects and mixtures are written as
    JSON.
    """
    import pyarrow as pa
    from pyarrow import parquet

    found: dict[str, set[str]] = {}
    for row in _read_rows(read_lines()):
        for name, value in row.items():
            found.setdefault(name, set()).add(type(value).__name__)
    types = {name: _find_type(kinds - {"NoneType"}) for name, kinds in found.items()}
    arrow = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64()}
    schema = pa.schema([(name, arrow.get(kind, pa.string())) for name, kind in types.items()])
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        rows = _read_rows(read_lines())
        while group := list(islice(rows, ROWS_PER_GROUP)):
            columns = [
                pa.array([_convert(row.get(name), kind) for row in group], type=field.type)
                for (name, kind), field in zip(types.items(), schema, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _read_rows(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:  # Any: JSON
    return map(json.loads, chain.from_iterable(block.splitlines() for block in lines))


def _find_type(kinds: set[str]) -> str:
    return (
        next(iter(kinds)) if len(kinds) == 1 else "float" if kinds == {"int", "float"} else "json"
    )


def _convert(value: object, kind: str) -> object:
    if value is None or kind in ("bool", "int"):
        return value
    if kind == "float" and isinstance(value, int | float):
        return float(value)
    text = (
        value if isinstance(value, str) and kind == "str" else json.dumps(value, ensure_ascii=False)
    )
    # As in JSON lines: Parquet has no lone surrogates, and JSON and names of files may.
    return text.encode("utf-8", "backslashreplace").decode()
