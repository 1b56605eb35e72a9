"""Transcripts in object storage: a folder, and S3."""

from __future__ import annotations

import uuid
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from promptkit import Message
from promptkit.errors import (
    InvalidArgumentError,
    TranscriptError,
    TranscriptFormatError,
    TranscriptWriteError,
)
from promptkit.testing import StoreContract
from promptkit.transcript import JsonlStore, ObjectStore, Transcript, list_transcripts, open_store
from tests.servers import s3_server

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from promptkit.transcript import TranscriptStore


pytest.importorskip(
    "obstore", reason="transcripts in object storage need obstore: pip install '.[objects]'"
)


def said(text: str) -> Message:
    return Message(role="user", content=(text,))


class TestFolder(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], TranscriptStore]:
        return partial(ObjectStore, f"file://{tmp_path}/talks#42")


@pytest.fixture(scope="module")
def s3() -> Generator[str]:
    with s3_server("talks") as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield "s3://talks/folder"


class TestS3(StoreContract):
    @pytest.fixture
    def open_store(self, s3: str) -> Callable[[], TranscriptStore]:
        return partial(ObjectStore, s3, str(uuid.uuid4()))

    @pytest.mark.slow  # a request of the killed process may hold the server for half a minute
    def test_a_killed_process_loses_nothing_that_was_acknowledged(
        self, open_store: Callable[[], TranscriptStore]
    ) -> None:
        super().test_a_killed_process_loses_nothing_that_was_acknowledged(open_store)


@pytest.fixture(params=["file", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file://{tmp_path}"
    url: str = request.getfixturevalue("s3")
    return f"{url}/{uuid.uuid4()}"


def test_one_place_keeps_many_conversations_apart(place: str) -> None:
    ids = ["a b", "ä#1", "..", "a/b", "a", "A=2Fb"]
    for conversation in ids:
        Transcript(ObjectStore(place, conversation)).append_messages(said(conversation))
    for conversation in ids:
        assert [
            entry.message for entry in Transcript(ObjectStore(place, conversation)).entries
        ] == [said(conversation)]
    assert [open_store(address).address for address in list_transcripts(place)] == [
        ObjectStore(place, conversation).address for conversation in sorted(ids)
    ]


def test_a_writer_that_was_away_while_entries_were_archived_does_not_take_their_place(
    place: str,
) -> None:
    away = ObjectStore(place, "1")
    away.load()
    here = Transcript(ObjectStore(place, "1"))
    for text in ("one", "two", "three"):
        here.append_messages(said(text))
    archiving = ObjectStore(place, "1")
    archiving.archive(through=here.path()[1].id)
    late = Transcript(away)
    late.append_messages(said("four"))
    assert [
        entry.message.text for entry in Transcript(ObjectStore(place, "1")).path() if entry.message
    ] == ["one", "two", "three", "four"]


def test_an_archiving_that_was_cut_short_loses_nothing_and_can_be_repeated(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import obstore

    transcript = Transcript(ObjectStore(place, "1"))
    for number in range(5):
        transcript.append_messages(said(str(number)), said("more"))
    put: Any = obstore.put  # Any: its arguments are passed on
    for fails_at in range(4):
        calls = iter(range(10))

        def failing(
            *arguments: object,
            calls: Iterator[int] = calls,
            fails_at: int = fails_at,
            **named: object,
        ) -> object:
            if next(calls) == fails_at:
                raise OSError("the connection broke")
            return put(*arguments, **named)

        with monkeypatch.context() as patch:
            patch.setattr(obstore, "put", failing)
            with suppress(TranscriptWriteError):
                ObjectStore(place, "1").archive(through=transcript.path()[5].id)
        assert Transcript(ObjectStore(place, "1")).entries == transcript.entries
    ObjectStore(place, "1").archive(through=transcript.path()[5].id)
    assert Transcript(ObjectStore(place, "1")).entries == transcript.entries
    assert len(ObjectStore(place, "1", read_archives=False).load().entries) == 4


def test_an_object_whose_answer_was_lost_is_not_written_twice(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import obstore

    put: Any = obstore.put  # Any: its arguments are passed on

    def answering_nothing(*arguments: object, **named: object) -> object:
        put(*arguments, **named)
        raise OSError("the connection broke")

    transcript = Transcript(ObjectStore(place, "1"))
    with monkeypatch.context() as patch:
        patch.setattr(obstore, "put", answering_nothing)
        transcript.append_messages(said("one"))
    transcript.append_messages(said("two"))
    assert [entry.message for entry in Transcript(ObjectStore(place, "1")).path()] == [
        said("one"),
        said("two"),
    ]


def test_each_object_is_a_transcript_file(tmp_path: Path) -> None:
    Transcript(ObjectStore(f"file://{tmp_path}#1")).append_messages(said("one"), said("two"))
    (file,) = (tmp_path / "1").iterdir()
    assert file.name == "0000000001.jsonl"
    assert len(JsonlStore(file).load().entries) == 2


def test_an_object_of_a_newer_version_or_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "0000000001.jsonl").write_text('{"promptkit":"transcript","version":9}\n')
    with pytest.raises(TranscriptFormatError, match="use a newer promptkit"):
        ObjectStore(f"file://{tmp_path}#1").load()
    (tmp_path / "1" / "0000000001.jsonl").write_text("something else")
    with pytest.raises(TranscriptFormatError, match="this is not a transcript"):
        ObjectStore(f"file://{tmp_path}#1").load()


def test_a_bucket_that_is_not_there_is_an_error_in_one_line(s3: str) -> None:
    with pytest.raises(
        TranscriptError, match=r"s3://nowhere/x#1 cannot be read: .* 404 Not Found"
    ) as caught:
        ObjectStore("s3://nowhere/x#1").load()
    assert "\n" not in str(caught.value)
    with pytest.raises(TranscriptWriteError, match="nothing was written: ") as caught:
        ObjectStore("s3://nowhere/x#1").append(Transcript().append_messages(said("one")))
    assert "\n" not in str(caught.value)
    assert s3


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("s3://talks", "no conversation is named"),
        ("memory:///#1", "is not a place for objects: write a URL such as"),
        ("talks#1", "is not a place for objects"),
        ("ftp://host/x#1", "is not a place for objects"),
        ("s3://talks#" + "%E2%82%AC" * 81, "too long for the name of a folder"),
    ],
)
def test_what_cannot_be_a_conversation_is_refused_with_a_sentence(url: str, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        ObjectStore(url)
    assert issubclass(TranscriptWriteError, TranscriptError)
