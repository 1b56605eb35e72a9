"""The output of a job: rows as JSON lines or as Parquet, in a file or behind a URL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

from promptkit.files import write_output
from promptkit.lab.corpus.state import CorpusError
from promptkit.lab.recordings.reading.remote import is_remote, remote_exists, write_remote
from promptkit.transcript.stores.addresses import is_conversation

ROWS_PER_GROUP = 10_000
"""Rows of Parquet that are in memory at the same time, and together in the file."""

SUFFIXES = (".jsonl", ".parquet")


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
    if suffix not in SUFFIXES or is_conversation(output):
        raise CorpusError(
            f"rows are written as JSON lines or as Parquet: name {output} with the suffix .jsonl or .parquet."
        )
    if suffix == ".parquet":
        _check_parquet()
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


def _check_parquet() -> None:
    if find_spec("pyarrow") is None:
        raise CorpusError(
            "Parquet needs pyarrow: run `pip install 'pyarrow>=17'`, or `pip install '.[parquet]'` in a checkout of promptkit."
        )


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
                [_convert(row.get(name), kind) for row in group] for name, kind in types.items()
            ]
            arrays = [
                pa.array(values, type=field.type)
                for values, field in zip(columns, schema, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _read_rows(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:  # Any: JSON
    return map(json.loads, chain.from_iterable(block.splitlines() for block in lines))


def _find_type(kinds: set[str]) -> str:
    if len(kinds) == 1:
        return next(iter(kinds))
    return "float" if kinds == {"int", "float"} else "json"


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
