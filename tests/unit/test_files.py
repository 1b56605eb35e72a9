"""Files are replaced whole or not at all, and nobody else's file is written through a planted link."""

from __future__ import annotations

import gzip
import os
import stat
from typing import TYPE_CHECKING

import pytest

from promptkit.files import MAX_LINE_BYTES, open_gzip, read_lines, replace_file, write_output

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import BinaryIO


def content(data: bytes) -> Callable[[BinaryIO], object]:
    return lambda file: file.write(data)


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    replace_file(path, content(b"first"))
    with path.open("rb") as reader:
        replace_file(path, content(b"second, and longer"))
        assert reader.read() == b"first"
    assert path.read_bytes() == b"second, and longer"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_to_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    replace_file(path, content(b"first"))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, content(b"second"))
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_written_through_links_that_were_planted_beside_a_file(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in (".talk.jsonl.new", f".talk.jsonl.{os.getpid()}", ".talk.jsonl.part"):
        (folder / name).symlink_to(outside)
    seen: list[set[str]] = []

    def write(file: BinaryIO) -> None:
        seen.append({path.name for path in folder.iterdir()})
        file.write(b"talk")

    for _ in range(2):
        replace_file(folder / "talk.jsonl", write)
    assert outside.read_bytes() == b"mine"
    first, second = ({name for name in names if name.startswith(".promptkit-")} for names in seen)
    assert first
    assert not first & second  # the name of the new file cannot be guessed


@pytest.mark.parametrize("planted", ["file", "link"])
def test_nothing_is_written_into_what_stands_at_the_name_of_the_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    outside, names = tmp_path / "outside", list[str]()
    outside.write_bytes(b"mine")
    folder = tmp_path / "folder"
    folder.mkdir()

    def guess(count: int) -> str:
        return "guessed"

    monkeypatch.setattr("promptkit.files.secrets.token_hex", guess)
    replace_file(
        folder / "talk.jsonl", lambda file: names.extend(path.name for path in folder.iterdir())
    )
    beside = folder / next(name for name in names if "guessed" in name)
    if planted == "link":
        beside.symlink_to(outside)
    else:
        beside.hardlink_to(outside)
    with pytest.raises(FileExistsError):
        replace_file(folder / "talk.jsonl", content(b"second"))
    assert outside.read_bytes() == b"mine"


def test_a_link_is_replaced_where_the_program_chose_the_name_and_followed_where_the_user_did(
    tmp_path: Path,
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    link = tmp_path / "link"
    link.symlink_to(outside)
    write_output(link, content(b"the user's choice"))
    assert link.is_symlink()
    assert outside.read_bytes() == b"the user's choice"
    replace_file(link, content(b"ours"))
    assert not link.is_symlink()
    assert outside.read_bytes() == b"the user's choice"


def test_what_a_crash_left_is_deleted_by_the_next_writer_that_holds_the_lock(
    tmp_path: Path,
) -> None:
    path = tmp_path / "talk.jsonl"
    replace_file(tmp_path / "other.jsonl", content(b"other"))
    leftover: list[str] = []

    def crash(_: BinaryIO) -> None:
        leftover.extend(each.name for each in tmp_path.glob(".promptkit-*"))
        (tmp_path / "copy").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace_file(path, crash)
    (tmp_path / "copy").rename(tmp_path / leftover[0])  # as it stands after a power failure
    replace_file(path, content(b"talk"))
    assert (tmp_path / leftover[0]).exists()  # it may be another writer's
    replace_file(path, content(b"talk"), locked=True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["other.jsonl", "talk.jsonl"]


@pytest.mark.parametrize(("mode", "wanted"), [(0o600, 0o600), (0o666, 0o644)])
def test_only_the_user_may_read_a_file_unless_the_caller_says_otherwise(
    tmp_path: Path, mode: int, wanted: int
) -> None:
    before = os.umask(0o022)
    try:
        write_output(tmp_path / "page.html", content(b"page"), mode=mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "page.html").stat().st_mode) == wanted


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_output(pipe, content(b"content"))
        assert os.read(reader, 100) == b"content"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_data_that_is_compressed_too_much_is_refused_and_common_data_is_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(80):
            file.write(bytes(1_000_000))
    with open_gzip(path) as content, pytest.raises(OSError, match="compressed more than 100 times"):
        content.read()
    lines = [f"line {number}: {os.urandom(30).hex()}\n".encode() for number in range(1_000)]
    path.write_bytes(gzip.compress(b"".join(lines[:500])) + gzip.compress(b"".join(lines[500:])))
    with open_gzip(path) as content:
        assert list(read_lines(content)) == lines


def test_a_pipe_with_the_name_of_an_archive_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.gz")
    with pytest.raises(OSError, match="not a regular file"):
        open_gzip(tmp_path / "x.gz")


def test_a_line_that_could_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_LINE_BYTES == 1 << 28
    monkeypatch.setattr("promptkit.files.MAX_LINE_BYTES", 1_000)
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"short\n" + os.urandom(600).hex().encode() + b"\n"))
    with (
        open_gzip(path) as content,
        pytest.raises(OSError, match="a line has more than 1,000 bytes"),
    ):
        list(read_lines(content))
