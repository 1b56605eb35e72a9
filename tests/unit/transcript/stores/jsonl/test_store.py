"""`JsonlStore`: what is in the file, what a writer does when it cannot write, and what several writers see of each other."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
from filelock import FileLock

from promptkit import Message
from promptkit.errors import (
    TranscriptConflictError,
    TranscriptError,
    TranscriptFormatError,
    TranscriptWriteError,
)
from promptkit.transcript.log.entries import MessageEntry, UnknownEntry
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl import format as jsonl_format, reader, store as jsonl_store
from promptkit.transcript.stores.jsonl.format import EntryLine, line_from_bytes
from promptkit.transcript.stores.jsonl.store import JsonlStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from promptkit.messages import Json

HEADER = b'{"promptkit":"transcript","version":1}\n'


def said(text: str) -> Message:
    return Message(role="user", content=(text,))


def texts(transcript: Transcript) -> list[str]:
    return [entry.message.text for entry in transcript.entries if entry.message]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "talk.jsonl"


def opened(path: Path) -> Transcript:
    return Transcript(JsonlStore(path))


class TestTheFile:
    def test_has_a_header_and_then_a_line_for_each_entry(self, path: Path) -> None:
        transcript = opened(path)
        transcript.append_messages(said("Grüße\u2028"))
        lines = path.read_bytes().split(b"\n")
        assert lines[0] + b"\n" == HEADER
        assert lines[2] == b""
        assert json.loads(lines[1]) == {
            "id": transcript.leaf,
            "parent_id": None,
            "kind": "message",
            "time": transcript.entries[0].time,
            "data": {"message": {"role": "user", "content": ["Grüße\u2028"]}},
        }
        assert "Grüße\u2028".encode() in lines[1], "a person can read and search it"

    def test_says_of_each_entry_of_a_batch_where_it_stands_in_it(self, path: Path) -> None:
        opened(path).append_messages(said("one"), said("two"))
        assert [json.loads(line)["batch"] for line in path.read_bytes().splitlines()[1:]] == [
            [1, 2],
            [2, 2],
        ]

    def test_is_made_when_the_first_entry_is_written_and_for_its_owner_alone(
        self, path: Path
    ) -> None:
        transcript = opened(path)
        assert not path.exists()
        transcript.append_messages(said("one"))
        assert path.stat().st_mode & 0o777 == 0o600

    def test_is_not_made_for_nothing(self, path: Path) -> None:
        assert opened(path).append() == []
        assert not path.exists()

    def test_that_is_a_link_stays_one(self, path: Path, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(path)
        transcript = opened(tmp_path / "link")
        transcript.append_messages(said("one"))
        assert (tmp_path / "link").is_symlink()
        assert transcript.store.address == str(path.resolve())

    def test_may_lack_its_last_line_break(self, path: Path) -> None:
        opened(path).append_messages(said("one"), said("two"))
        path.write_bytes(path.read_bytes()[:-1])
        transcript = opened(path)
        assert texts(transcript) == ["one", "two"]
        transcript.append_messages(said("three"))
        assert texts(opened(path)) == ["one", "two", "three"]
        assert path.read_bytes().count(b"\n") == 4


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("content", "why"),
        [
            (b"hello\n", "this is not a transcript"),
            (b'{"id": "e1"}\n', "this is not a transcript"),
            (b'{"promptkit": "transcript", "version": true}\n', "this is not a transcript"),
            (b"\xff\xfe\n", "this is not a transcript"),
            (
                b'{"promptkit": "transcript", "version": 2}\n',
                "version 2 of the format, and this promptkit reads up to 1",
            ),
            (
                b'{"promptkit": "transcript", "version": 0}\n',
                "version 0 of the format, which is unknown",
            ),
            (
                b'{"promptkit": "transcript", "version": 1, "archives": 3}\n',
                "list of archives in the header is damaged",
            ),
            (
                b'{"promptkit":"transcript","version":1,"archives":[{"file":"../../x.jsonl.gz","entries":1,"first":"a","last":"b"}]}\n',
                "list of archives in the header is damaged",
            ),
        ],
    )
    def test_is_left_as_it_is(self, path: Path, content: bytes, why: str) -> None:
        path.write_bytes(content)
        with pytest.raises(TranscriptFormatError, match=why) as caught:
            opened(path)
        assert caught.value.file == str(path)
        with pytest.raises(TranscriptFormatError):
            JsonlStore(path).append(Transcript().append_messages(said("no")))
        assert path.read_bytes() == content

    def test_is_what_is_no_regular_file(self, path: Path) -> None:
        os.mkfifo(path)
        with pytest.raises(TranscriptFormatError, match="not a regular file"):
            opened(path)
        path.unlink()
        path.mkdir()
        with pytest.raises(TranscriptFormatError, match="not a regular file"):
            opened(path)

    def test_is_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        transcript = opened(tmp_path / "none" / "talk.jsonl")
        with pytest.raises(
            TranscriptWriteError, match=r"there is no directory .*none: create it first"
        ):
            transcript.append_messages(said("one"))

    def test_is_a_path_through_a_file(self, path: Path) -> None:
        path.write_bytes(b"")
        with pytest.raises(TranscriptError, match="cannot be read: Not a directory"):
            opened(path / "talk.jsonl")


class TestAWriteThatWasCutShort:
    @pytest.mark.parametrize("torn", [b'{"id":"x', b'{"id":"x"}', HEADER[:10]])
    def test_is_no_problem_and_goes_with_the_next_write(self, path: Path, torn: bytes) -> None:
        opened(path).append_messages(said("one"))
        whole = path.read_bytes()
        path.write_bytes(whole + torn)
        transcript = opened(path)
        loaded = JsonlStore(path).load()
        assert (loaded.problems, len(loaded.entries), loaded.torn_bytes) == ((), 1, len(torn))
        transcript.append_messages(said("two"))
        assert path.read_bytes().startswith(whole)
        assert texts(opened(path)) == ["one", "two"]

    def test_takes_its_whole_batch_with_it(self, path: Path) -> None:
        opened(path).append_messages(said("one"))
        whole = path.read_bytes()
        opened(path).append_messages(said("two"), said("three"), said("four"))
        lines = path.read_bytes()[len(whole) :].splitlines(keepends=True)
        for left in (lines[0], lines[0] + lines[1], lines[0] + lines[1] + lines[2][:-5]):
            path.write_bytes(whole + left)
            loaded = JsonlStore(path).load()
            assert len(loaded.entries) == 1
            assert loaded.problems == ()
            assert loaded.torn_bytes == len(left)

    def test_of_the_header_is_met_like_any_other(self, path: Path) -> None:
        for end in range(len(HEADER)):
            path.write_bytes(HEADER[:end])
            transcript = opened(path)
            assert transcript.problems == ()
            transcript.append_messages(said("one"))
            assert path.read_bytes().startswith(HEADER)
            assert texts(opened(path)) == ["one"]

    def test_is_told_apart_from_damage(self, path: Path) -> None:
        opened(path).append_messages(said("one"), said("two"), said("three"))
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([*lines[:2], b"damaged\n", lines[3]]))
        transcript = opened(path)
        assert texts(transcript) == ["one", "three"], (
            "the batch was there once: what is intact of it stays"
        )
        assert [problem.line for problem in transcript.problems] == [3, 4], (
            "and what is behind it stands where it can"
        )
        path.write_bytes(b"".join([*lines[:2], b"damaged\n"]))
        assert texts(opened(path)) == ["one"]


class TestWhatCannotBeRead:
    def test_is_reported_with_its_line_and_stays_where_it_is(self, path: Path) -> None:
        opened(path).append_messages(said("one"))
        path.write_bytes(path.read_bytes() + b'not json\n\n{"id": 7}\n')
        transcript = opened(path)
        transcript.append_messages(said("two"))
        assert [problem.line for problem in transcript.problems] == [3, 5]
        assert b"\nnot json\n\n" in path.read_bytes()
        assert texts(opened(path)) == ["one", "two"]

    def test_is_kept_where_it_is_only_unknown(self, path: Path) -> None:
        record = {
            "id": "n1",
            "parent_id": None,
            "kind": "novel",
            "time": 1,
            "data": {"a": [1, None]},
        }
        path.write_bytes(HEADER + json.dumps(record).encode() + b"\n")
        transcript = opened(path)
        assert transcript.entries[0].payload == UnknownEntry(kind="novel", data={"a": [1, None]})
        copy = transcript.fork(JsonlStore(path.with_name("copy.jsonl")))
        assert copy.entries == transcript.entries

    def test_is_an_id_that_was_there_before(self, path: Path) -> None:
        opened(path).append_messages(said("one"))
        content = path.read_bytes()
        path.write_bytes(content + content[len(HEADER) :])
        transcript = opened(path)
        assert texts(transcript) == ["one"]
        assert [
            (problem.line, "was used by an earlier entry" in problem.detail)
            for problem in transcript.problems
        ] == [(3, True)]


FAILURES: dict[str, tuple[str, int]] = {
    "a full disk": ("write", errno.ENOSPC),
    "an error of the disk": ("fsync", errno.EIO),
}


class TestAFailedWrite:
    @pytest.mark.parametrize("failure", FAILURES)
    @pytest.mark.parametrize("first", [True, False], ids=["a new file", "a file"])
    def test_leaves_memory_and_file_as_they_were(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, failure: str, first: bool
    ) -> None:
        transcript = opened(path)
        if not first:
            transcript.append_messages(said("before"))
        before = path.read_bytes() if path.exists() else None
        name, code = FAILURES[failure]
        calls = 0

        def fail(descriptor: int, *data: bytes) -> int:
            nonlocal calls
            calls += 1
            if calls > 1 or name == "fsync":
                raise OSError(code, os.strerror(code))
            return write(descriptor, data[0][:7])  # a part of it fits

        write = os.write
        with monkeypatch.context() as patched:
            patched.setattr(os, name, fail)
            with pytest.raises(TranscriptWriteError, match=os.strerror(code)) as caught:
                transcript.append_messages(said("lost"), said("lost"))
        assert str(caught.value).startswith(f"{path}: nothing was written")
        assert (path.read_bytes() if path.exists() else None) == before
        transcript.append_messages(said("after"))
        assert texts(transcript) == texts(opened(path)) == ["before"] * (not first) + ["after"]

    def test_by_the_limit_of_the_process_says_so(self, path: Path) -> None:
        code = f"""
import resource
from promptkit import Message
from promptkit.errors import TranscriptWriteError
from promptkit.transcript.stores.jsonl.store import JsonlStore
from promptkit.transcript.log.transcript import Transcript

transcript = Transcript(JsonlStore({str(path)!r}))
resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, 3_000))
for number in range(10):
    try:
        transcript.append_messages(Message(role="user", content=("x" * 700,)))
    except TranscriptWriteError as error:
        print(number, error)
        break
transcript.append_messages(Message(role="user", content=("small",)))
print(len(transcript), len(Transcript(JsonlStore({str(path)!r}))), resource.getrlimit(resource.RLIMIT_FSIZE)[0])
"""
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout == f"3 {path}: nothing was written: File too large.\n4 4 3000\n"
        assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 3_000

    def test_that_cannot_even_be_taken_back_is_a_torn_end(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        transcript = opened(path)
        transcript.append_messages(said("before"))
        write = os.write
        pieces = iter([7])

        def fail(descriptor: int, data: bytes) -> int:
            for length in pieces:
                return write(descriptor, data[:length])
            raise OSError(errno.EIO, "gone")

        with monkeypatch.context() as patched:
            patched.setattr(os, "write", fail)
            patched.setattr(os, "ftruncate", fail)
            with pytest.raises(TranscriptWriteError):
                transcript.append_messages(said("lost"))
        assert JsonlStore(path).load().torn_bytes == 7
        transcript.append_messages(said("after"))
        assert texts(opened(path)) == ["before", "after"]

    def test_of_which_all_is_there_is_found_as_if_another_had_written_it(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        transcript = opened(path)
        transcript.append_messages(said("before"))

        def fail(*_: int) -> None:
            raise OSError(errno.EIO, "gone")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fail)
            patched.setattr(os, "ftruncate", fail)
            with pytest.raises(TranscriptWriteError):
                transcript.append_messages(said("there"))
        assert texts(transcript) == ["before"]
        assert [entry.message for entry in transcript.refresh()] == [said("there")]
        assert texts(opened(path)) == ["before", "there"]

    def test_that_is_interrupted_leaves_nothing(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        transcript = opened(path)
        transcript.append_messages(said("before"))
        before = path.read_bytes()

        def interrupt(*_: int) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(os, "write", interrupt)
            with pytest.raises(KeyboardInterrupt):
                transcript.append_messages(said("lost"))
        assert path.read_bytes() == before
        transcript.append_messages(said("after"))
        assert texts(opened(path)) == ["before", "after"]

    @pytest.mark.parametrize("name", ["talk.jsonl", ".talk.jsonl.lock"])
    def test_without_permission_says_so(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        open_ = os.open

        def refuse(place: os.PathLike[str], flags: int, *more: int, **named: int) -> int:
            if Path(place).name == name:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return open_(place, flags, *more, **named)

        monkeypatch.setattr(os, "open", refuse)  # who runs the tests may be allowed everything
        transcript = opened(path)
        with pytest.raises(TranscriptWriteError, match=r"Permission denied"):
            transcript.append_messages(said("one"))
        assert len(transcript) == 0

    @pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
    def test_to_a_folder_that_is_read_only_says_so(self, path: Path) -> None:
        opened(path).append_messages(said("one"))
        path.parent.chmod(0o500)
        try:
            transcript = opened(path)
            with pytest.raises(TranscriptWriteError, match=r"Permission denied"):
                transcript.append_messages(said("two"))
            assert texts(transcript) == ["one"]
        finally:
            path.parent.chmod(0o700)

    def test_because_of_another_process_that_keeps_the_lock_says_so(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(jsonl_store, "LOCK_SECONDS", 0.05)
        transcript = opened(path)
        with (
            FileLock(path.with_name(".talk.jsonl.lock")),
            pytest.raises(TranscriptWriteError, match=r"for more than 0\.05 seconds"),
        ):
            transcript.append_messages(said("one"))
        transcript.append_messages(said("one"))
        assert texts(opened(path)) == ["one"]


class TestTwoWriters:
    def test_see_each_others_entries_when_they_look(self, path: Path) -> None:
        one, other = opened(path), opened(path)
        one.append_messages(said("one"))
        assert texts(other) == []
        assert [entry.message for entry in other.refresh()] == [said("one")]
        assert other.leaf == one.leaf
        other.append_messages(said("two"), said("three"))
        assert [entry.message for entry in one.refresh()] == [said("two"), said("three")]
        assert one.refresh() == ()
        assert [entry.message for entry in opened(path).path()] == [
            said("one"),
            said("two"),
            said("three"),
        ]

    def test_continue_from_what_the_other_wrote(self, path: Path) -> None:
        one, other = opened(path), opened(path)
        one.append_messages(said("one"))
        other.append_messages(said("two"))
        one.append_messages(said("three"))
        assert texts(one) == texts(opened(path)) == ["one", "two", "three"]
        assert one.refresh() == ()
        assert len(opened(path).leaves()) == 1

    def test_do_not_lose_what_a_store_found_while_it_wrote_whatever_was_there(
        self, path: Path
    ) -> None:
        one, other = opened(path), opened(path)
        one.append_messages(said("one"))
        (two,) = other.append_messages(said("two"))
        three = attrs.evolve(two, id="three")
        one.store.append([three])
        with pytest.raises(TranscriptConflictError) as caught:
            one.store.append([attrs.evolve(two, id="four")], expect=two.parent_id)
        assert caught.value.entries == (two,)
        assert one.refresh() == (two,)

    @pytest.mark.parametrize("torn", [b"", b'{"id":"torn'])
    def test_can_load_while_another_writes(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, torn: bytes
    ) -> None:
        opened(path).append_messages(said("one"))
        other = opened(path)
        path.write_bytes(path.read_bytes() + torn)
        waiting = [said("two")]

        def meanwhile(line: bytes, _: object = None) -> EntryLine | str | None:
            if waiting:
                other.append_messages(waiting.pop())
            return line_from_bytes(line)

        monkeypatch.setattr(reader, "line_from_bytes", meanwhile)
        loaded = JsonlStore(path).load()
        assert list(loaded.entries) == list(other.entries), (
            "and nothing that is half torn and half new"
        )
        assert (len(other), loaded.torn_bytes, loaded.problems) == (2, 0, ())

    def test_get_a_conflict_only_if_they_ask_for_it(self, path: Path) -> None:
        one, other = opened(path), opened(path)
        one.append_messages(said("one"))
        other.refresh()
        other.append_messages(said("two"))
        before = path.read_bytes()
        with pytest.raises(TranscriptConflictError) as caught:
            one.append(MessageEntry(message=said("three")), expect=one.leaf)
        assert [entry.message for entry in caught.value.entries] == [said("two")]
        assert path.read_bytes() == before
        assert texts(one) == ["one", "two"], "what the other wrote has been read"
        one.append(MessageEntry(message=said("three")), expect=one.leaf)
        assert texts(opened(path)) == ["one", "two", "three"]

    def test_can_expect_that_nothing_is_there(self, path: Path) -> None:
        one, other = opened(path), opened(path)
        one.append(MessageEntry(message=said("one")), expect="")
        with pytest.raises(
            TranscriptConflictError, match="1 entry was appended to an empty transcript meanwhile"
        ):
            other.append(MessageEntry(message=said("two")), expect="")

    def test_on_a_file_without_a_last_line_break_go_on_counting_lines(self, path: Path) -> None:
        opened(path).append_messages(said("one"))
        path.write_bytes(path.read_bytes()[:-1])
        one, other = opened(path), opened(path)
        one.append_messages(said("two"))
        path.write_bytes(path.read_bytes() + b"bad\n")
        other.refresh()
        assert [problem.line for problem in other.problems] == [4]

    def test_say_when_the_file_was_removed_or_cut_behind_their_back(self, path: Path) -> None:
        transcript = opened(path)
        transcript.append_messages(said("one"))
        length = path.stat().st_size
        transcript.append_messages(said("two"))
        content = path.read_bytes()
        for spoil in (
            path.unlink,
            lambda: path.write_bytes(content[:length]),
            lambda: path.write_bytes(HEADER),
        ):
            spoil()
            for attempt in (lambda: transcript.append_messages(said("three")), transcript.refresh):
                with pytest.raises(
                    TranscriptError, match="removed, cut or replaced since it was read"
                ):
                    attempt()
            assert texts(transcript) == ["one", "two"]
            path.write_bytes(content)
        transcript.append_messages(said("three"))
        assert texts(opened(path)) == ["one", "two", "three"]

    def test_find_a_file_that_was_replaced_by_one_that_goes_on(self, path: Path) -> None:
        transcript = opened(path)
        transcript.append_messages(said("one"))
        opened(path).append_messages(said("two"))
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
        assert [entry.message for entry in transcript.refresh()] == [said("two")]


def numbered() -> Callable[[Mapping[str, Json]], Mapping[str, Json]]:
    """A version 0 without ids, in which a checkpoint names the place of the first record that it keeps."""
    places = count()

    def migrate(record: Mapping[str, Json]) -> Mapping[str, Json]:
        at = next(places)
        data = dict(record)
        kind = str(data.pop("kind"))
        if kind == "checkpoint":
            data["first_kept"] = f"old{data.pop('first_kept_index')}"
        parent = f"old{at - 1}" if at else None
        return {"id": f"old{at}", "parent_id": parent, "kind": kind, "time": at, "data": data}

    return migrate


class TestOlderVersions:
    OLD = (
        b'{"promptkit": "transcript", "version": 0}\n'
        b'{"kind": "message", "message": {"role": "user", "content": ["one"]}}\n'
        b"bad\n"
        b'{"kind": "message", "message": {"role": "user", "content": ["two"]}}\n'
        b'{"kind": "checkpoint", "summary": "so far", "first_kept_index": 1}\n'
        b'{"kind": "mess'
    )

    @pytest.fixture
    def store(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], JsonlStore]:
        path.write_bytes(self.OLD)
        monkeypatch.setattr(jsonl_format, "MIGRATIONS", {0: numbered})
        return lambda: JsonlStore(path)

    @pytest.mark.spec("E96")
    def test_are_read_through_the_table_and_left_as_they_are(
        self, path: Path, store: Callable[[], JsonlStore]
    ) -> None:
        transcript = Transcript(store())
        assert [entry.id for entry in transcript.path()] == ["old0", "old1", "old2"]
        assert [problem.line for problem in transcript.problems] == [3]
        assert path.read_bytes() == self.OLD

    @pytest.mark.spec("E96")
    def test_are_rewritten_when_something_is_appended_and_kept(
        self, path: Path, store: Callable[[], JsonlStore]
    ) -> None:
        transcript = Transcript(store())
        transcript.append_messages(said("three"))
        assert path.read_bytes().startswith(HEADER)
        assert path.with_name("talk.jsonl.v0").read_bytes() == self.OLD
        again = opened(path)
        assert again.path() == transcript.path()
        assert again.problems == ()

    @pytest.mark.spec("E96")
    def test_migrating_twice_gives_the_same_entries(
        self, path: Path, store: Callable[[], JsonlStore]
    ) -> None:
        once, twice = Transcript(store()), Transcript(store())
        assert once.entries == twice.entries
        once.append_messages(said("three"))
        twice.append_messages(said("four"))
        assert texts(opened(path)) == ["one", "two", "three", "four"]
        assert sorted(place.name for place in path.parent.glob("talk*")) == [
            "talk.jsonl",
            "talk.jsonl.v0",
        ]

    def test_an_old_file_that_was_kept_before_is_not_overwritten(
        self, path: Path, store: Callable[[], JsonlStore]
    ) -> None:
        path.with_name("talk.jsonl.v0").write_bytes(b"another")
        Transcript(store()).append_messages(said("three"))
        assert path.with_name("talk.jsonl.v0").read_bytes() == b"another"
        assert path.with_name("talk.jsonl.v0.2").read_bytes() == self.OLD

    def test_a_rewriting_that_fails_leaves_the_old_file(
        self, path: Path, store: Callable[[], JsonlStore], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise OSError(errno.ENOSPC, "full")

        transcript = Transcript(store())
        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(
            TranscriptWriteError, match="version 0, and it cannot be rewritten: full"
        ):
            transcript.append_messages(said("three"))
        assert path.read_bytes() == self.OLD
        assert [place.name for place in path.parent.glob("*talk*")] in [
            [".talk.jsonl.lock", "talk.jsonl"],
            ["talk.jsonl", ".talk.jsonl.lock"],
        ]
