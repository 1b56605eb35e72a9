"""Files that were made to take long or to fill the memory are read in linear time or refused with a sentence."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import ijson
import pytest

from promptkit.errors import TranscriptError, TranscriptFormatError
from promptkit.lab.recordings.importing import read_recording
from promptkit.lab.recordings.reading import files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_one_long_text_is_given_to_the_parser_in_few_pieces_since_each_makes_it_scan_the_text_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"x": "a" * 16_000_000}), encoding="utf-8")
    pieces: list[int] = []
    reader = vars(files)["_Utf8Reader"]
    read: Callable[[object, int], bytes] = reader.read

    def count(self: object, size: int) -> bytes:
        chunk = read(self, size)
        pieces.append(len(chunk))
        return chunk

    monkeypatch.setattr(reader, "read", count)
    with pytest.raises(TranscriptFormatError, match="no known format"):
        list(read_recording(path))
    assert sum(pieces) >= 16_000_000
    assert len(pieces) < 12  # 64 KB, 128 KB, and so on


def test_an_interrupt_while_a_file_is_parsed_is_not_held_back_by_what_was_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"history": [{"role": "user", "content": "Hello"}]}', encoding="utf-8")
    create = ijson.basic_parse_coro

    class Interrupted:
        def __init__(self, events: list[ijson.Event], *, multiple_values: bool) -> None:
            self.parser = create(events, multiple_values=multiple_values)

        def send(self, chunk: bytes) -> None:
            self.parser.send(chunk)
            raise KeyboardInterrupt

    monkeypatch.setattr(ijson, "basic_parse_coro", Interrupted)
    with files.open_source(path) as source, pytest.raises(KeyboardInterrupt):
        next(files.walk_members(source, [("history", None)]))


def test_a_small_file_that_unpacks_to_a_large_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'{"x": "')
        for _ in range(80):
            file.write(b"a" * 1_000_000)
        file.write(b'"}\n')
    with pytest.raises(TranscriptError, match=r"compressed more than 100 times.*unpack it first"):
        list(read_recording(path))
