"""`archive`: old entries in a compressed file, none of them lost, whenever the process ends."""

from __future__ import annotations

import errno
import gzip
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from promptkit import Message
from promptkit.errors import TranscriptError, TranscriptWriteError
from promptkit.transcript.log.entries import MessageEntry
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.store import JsonlStore

if TYPE_CHECKING:
    from pathlib import Path

HEADER = b'{"promptkit":"transcript","version":1}\n'


def said(text: str) -> Message:
    return Message(role="user", content=(text,))


def talk(path: Path, *texts: str) -> Transcript:
    transcript = Transcript(
        JsonlStore(path), clock=lambda: 5.0, new_id=iter("abcdefghijklmnopqrstuvwxyz").__next__
    )
    for text in texts:
        transcript.append_messages(said(text))
    return transcript


def ids(path: Path, *, archives: bool = True) -> str:
    loaded = JsonlStore(path, read_archives=archives).load()
    assert loaded.problems == ()
    return "".join(entry.id for entry in loaded.entries)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "talk.jsonl"


def test_moves_the_lines_as_they_are(path: Path) -> None:
    talk(path, "one", "two", "three")
    lines = path.read_bytes().splitlines(keepends=True)
    segment = JsonlStore(path).archive(through="b")
    assert (segment.file, segment.entries, segment.first, segment.last) == (
        "talk.0001.jsonl.gz",
        2,
        "a",
        "b",
    )
    assert (
        gzip.decompress(path.with_name(segment.file).read_bytes()) == HEADER + lines[1] + lines[2]
    )
    assert path.read_bytes().splitlines(keepends=True)[1:] == [lines[3]]
    assert ids(path) == "abc"


def test_is_a_transcript_of_its_own(path: Path, tmp_path: Path) -> None:
    talk(path, "one", "two", "three")
    segment = JsonlStore(path).archive(through="b")
    (tmp_path / "again.jsonl").write_bytes(
        gzip.decompress(path.with_name(segment.file).read_bytes())
    )
    assert ids(tmp_path / "again.jsonl") == "ab"


def test_gives_the_same_bytes_every_time(tmp_path: Path) -> None:
    made: list[bytes] = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        place = tmp_path / name / "talk.jsonl"
        talk(place, "one", "two", "three")
        made.append(place.with_name(JsonlStore(place).archive(through="b").file).read_bytes())
    assert made[0] == made[1]
    assert made[0][3:8] == bytes(5), "no name and no time in it"


def test_asked_for_twice_changes_nothing(path: Path) -> None:
    talk(path, "one", "two", "three")
    segment = JsonlStore(path).archive(through="b")
    before = {place.name: place.read_bytes() for place in path.parent.iterdir()}
    assert JsonlStore(path).archive(through="b") == segment
    assert JsonlStore(path).archive(through="a") == segment
    assert {place.name: place.read_bytes() for place in path.parent.iterdir()} == before


def test_never_divides_a_batch(path: Path) -> None:
    transcript = talk(path, "one")
    transcript.append_messages(said("two"), said("three"))
    transcript.append_messages(said("four"))
    assert transcript_store(transcript).archive(through="b").last == "c"
    assert ids(path, archives=False) == "d"


def transcript_store(transcript: Transcript) -> JsonlStore:
    assert isinstance(transcript.store, JsonlStore)
    return transcript.store


def test_cuts_behind_a_batch_of_which_only_a_part_is_there(path: Path) -> None:
    transcript = talk(path, "one")
    transcript.append_messages(said("two"), said("three"))
    transcript.append_messages(said("four"), said("five"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], *lines[4:]]))
    segment = JsonlStore(path).archive(through="b")
    assert gzip.decompress(path.with_name(segment.file).read_bytes()) == b"".join(lines[:3])
    assert path.read_bytes().splitlines(keepends=True)[1:] == lines[4:]


def test_takes_lines_along_that_cannot_be_read(path: Path) -> None:
    talk(path, "one")
    path.write_bytes(path.read_bytes() + b"bad\n")
    Transcript(JsonlStore(path), new_id=iter("xyz").__next__).append_messages(said("two"))
    Transcript(JsonlStore(path), new_id=iter("z").__next__).append_messages(said("three"))
    segment = JsonlStore(path).archive(through="x")
    assert b"\nbad\n" in gzip.decompress(path.with_name(segment.file).read_bytes())
    (problem,) = JsonlStore(path).load().problems
    assert problem.line == 3
    assert problem.detail.startswith("in talk.0001.jsonl.gz: the line is not JSON")


def test_of_an_entry_that_is_not_there_or_is_the_last_is_refused(path: Path) -> None:
    transcript = talk(path, "one")
    transcript.append_messages(said("two"), said("three"))
    before = path.read_bytes()
    for through, why in (
        ("x", "there is no entry 'x'"),
        ("c", "no entry follows 'c'"),
        ("b", "no entry follows 'b'"),
    ):
        with pytest.raises(TranscriptError, match=why):
            JsonlStore(path).archive(through=through)
    assert path.read_bytes() == before
    assert not list(path.parent.glob("*.gz"))


def test_can_be_left_unread(path: Path) -> None:
    talk(path, "one", "two", "three")
    JsonlStore(path).archive(through="b")
    transcript = Transcript(JsonlStore(path, read_archives=False))
    assert [entry.id for entry in transcript.path()] == ["c"]
    assert transcript.problems == ()
    transcript.append_messages(said("four"))
    assert ids(path).startswith("abc")
    assert Transcript(JsonlStore(path)).problems == ()


def test_that_is_missing_is_reported_and_what_is_left_can_be_used(path: Path) -> None:
    talk(path, "one", "two", "three")
    path.with_name(JsonlStore(path).archive(through="b").file).unlink()
    transcript = Transcript(JsonlStore(path))
    assert [entry.id for entry in transcript.path()] == ["c"]
    assert [problem.detail for problem in transcript.problems] == [
        "the archive talk.0001.jsonl.gz does not exist; missing entries: 2."
    ]
    transcript.append_messages(said("four"))


def test_is_noticed_by_those_who_have_the_file_open(path: Path) -> None:
    transcript = talk(path, "one", "two", "three")
    other = Transcript(JsonlStore(path))
    lean = Transcript(JsonlStore(path, read_archives=False))
    JsonlStore(path).archive(through="b")
    assert other.refresh() == ()
    assert transcript.append(MessageEntry(message=said("four")), expect="c"), (
        "an archiving is no conflict"
    )
    assert (
        [entry.id for entry in lean.refresh()] == [entry.id for entry in other.refresh()] == ["d"]
    )
    lean.append_messages(said("five"))
    assert len(ids(path)) == len("abcd") + 32


def test_is_read_on_after_where_the_last_entry_that_was_read_is_in_the_middle_of_it(
    path: Path,
) -> None:
    talk(path, "one", "two")
    lean = Transcript(JsonlStore(path, read_archives=False))
    Transcript(JsonlStore(path), new_id=iter("cd").__next__).append_messages(said("three"))
    Transcript(JsonlStore(path), new_id=iter("d").__next__).append_messages(said("four"))
    JsonlStore(path).archive(through="c")
    assert [entry.id for entry in lean.refresh()] == ["d"]
    assert lean.problems == ()


def test_keeps_who_may_read_it(path: Path) -> None:
    talk(path, "one", "two")
    path.chmod(0o640)
    segment = JsonlStore(path).archive(through="a")
    assert (
        path.stat().st_mode & 0o777 == path.with_name(segment.file).stat().st_mode & 0o777 == 0o640
    )


@pytest.mark.parametrize("at", range(1, 8))
def test_whenever_the_process_ends_nothing_is_lost_and_the_next_attempt_succeeds(
    path: Path, at: int
) -> None:
    talk(path, "one", "two", "three")
    code = f"""
import os
from pathlib import Path
from promptkit.transcript.stores.jsonl.store import JsonlStore

steps = 0
def ending(step):
    def run(*arguments, **named):
        global steps
        steps += 1
        if steps == {at}:
            os._exit(9)
        return step(*arguments, **named)
    return run

os.fsync = ending(os.fsync)
Path.replace = ending(Path.replace)
JsonlStore({str(path)!r}).archive(through="b")
print(steps)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 9 or done.stdout == "6\n", done.stderr
    assert ids(path) == "abc"
    segment = JsonlStore(path).archive(through="b")
    assert ids(path) == "abc"
    assert sorted(place.name for place in path.parent.iterdir()) == [
        ".talk.jsonl.lock",
        segment.file,
        "talk.jsonl",
    ]


def test_does_not_overwrite_another_file(path: Path) -> None:
    talk(path, "one", "two", "three")
    path.with_name("talk.0001.jsonl.gz").write_bytes(b"something else")
    assert JsonlStore(path).archive(through="b").file == "talk.0002.jsonl.gz"
    assert path.with_name("talk.0001.jsonl.gz").read_bytes() == b"something else"
    assert ids(path) == "abc"


def test_that_cannot_be_written_says_so_and_leaves_everything(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk(path, "one", "two", "three")
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(
            TranscriptWriteError, match="nothing was archived: No space left on device"
        ):
            JsonlStore(path).archive(through="b")
    assert path.read_bytes() == before
    assert sorted(place.name for place in path.parent.iterdir()) == [
        ".talk.jsonl.lock",
        "talk.jsonl",
    ]
