"""Files that were damaged: a loader says so, keeps what is intact, and what is appended afterwards is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
from hypothesis import given, strategies as st

from promptkit import Message
from promptkit.errors import TranscriptError
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.log.view import build_view
from promptkit.transcript.stores.jsonl.reader import TranscriptReader, find_problems
from promptkit.transcript.stores.jsonl.store import JsonlStore
from tests.behaviour.transcript_strategies import (
    FileInMemory,
    grow,
    new_file,
    new_transcript,
    steps,
)
from tests.conversations import user_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import DrawFn

    from tests.behaviour.transcript_strategies import Step

HEADER = b'{"promptkit":"transcript","version":1}\n'


@attrs.frozen
class Damage:
    """What was done to a file, and the first byte that it touched."""

    content: bytes
    at: int


@st.composite
def damages(draw: DrawFn, content: bytes) -> Damage:
    """One or two of: bytes changed, cut out, put in, moved from elsewhere; the end cut off."""
    first = len(content)
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, max(len(content) - 1, 0)))
        length = draw(st.integers(1, 40))
        other = draw(st.integers(0, max(len(content) - 1, 0)))
        kind = draw(st.sampled_from(["flip", "truncate", "cut", "repeat", "junk", "zero"]))
        match kind:
            case "flip":
                content = (
                    content[:at]
                    + bytes([content[at] ^ 1 << other % 8] if content else b"")
                    + content[at + 1 :]
                )
            case "truncate":
                content = content[:at]
            case "cut":
                content = content[:at] + content[at + length :]
            case "repeat":
                content = content[:at] + content[other : other + 10 * length] + content[at:]
            case "junk":
                content = content[:at] + draw(st.binary(max_size=20)) + content[at:]
            case _:
                content = (
                    content[:at] + b"\0" * len(content[at : at + length]) + content[at + length :]
                )
        first = min(first, at)
    return Damage(content, first)


@given(steps(), st.data())
def test_a_loader_keeps_what_is_intact_before_the_damage_and_writing_goes_on(
    steps: list[Step], data: st.DataObject
) -> None:
    with new_file() as path:
        file = FileInMemory()
        transcript = new_transcript(file)
        for step in [("user", 1), *steps]:
            grow(transcript, step)
        damage = data.draw(damages(file.content))
        path.write_bytes(damage.content)
        intact = file.ends[max(end for end in file.ends if end <= damage.at)]
        try:
            transcript = Transcript(JsonlStore(path))
        except TranscriptError:
            assert damage.at < len(HEADER), "only a file without its header is refused"
            with pytest.raises(TranscriptError):
                JsonlStore(path).append(new_transcript().append_messages(user_message("no")))
            assert path.read_bytes() == damage.content, "and it is left as it is"
            return
        found = [entry.id for entry in transcript.entries]
        assert found[: len(intact)] == intact
        assert len(found) == len(set(found))
        for leaf in transcript.leaves():
            build_view(transcript.path(leaf.id))
        list(find_problems(TranscriptReader(path)))
        new = transcript.append_messages(user_message("afterwards"))[0].id
        assert [entry.id for entry in Transcript(JsonlStore(path)).entries] == [*found, new]


@given(st.binary(max_size=300), st.booleans())
def test_whatever_a_file_holds_a_loader_raises_nothing_but_its_own_errors(
    junk: bytes, headed: bool
) -> None:
    with new_file() as path:
        path.write_bytes(HEADER + junk if headed else junk)
        try:
            Transcript(JsonlStore(path))
        except TranscriptError:
            assert not headed


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["user", "tool", "e1", "message"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "role", "content", "type", "message", "summary", "target", "batch", "usage"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "id": JSON | st.sampled_from(["e1", "e2"]),
        "parent_id": JSON,
        "kind": st.sampled_from(
            [
                "message",
                "checkpoint",
                "edit",
                "reset",
                "label",
                "setting",
                "branch_summary",
                "custom_message",
                "x",
                "",
            ]
        ),
        "time": JSON | st.just(1.5),
        "data": st.dictionaries(
            st.sampled_from(
                ["message", "summary", "target", "content", "label", "name", "value", "reason"]
            ),
            JSON,
        ),
        "batch": JSON | st.tuples(st.integers(0, 3), st.integers(0, 3)),
    },
)


@given(st.lists(RECORDS, max_size=6))
def test_whatever_records_hold_a_loader_reads_them_or_reports_them(records: list[object]) -> None:
    import json

    with new_file() as path:
        path.write_bytes(
            HEADER + b"".join(json.dumps(record).encode() + b"\n" for record in records)
        )
        transcript = Transcript(JsonlStore(path))
        assert len(transcript) + len(transcript.problems) + 1 >= bool(records)
        for leaf in transcript.leaves():
            build_view(transcript.path(leaf.id))
        transcript.append_messages(user_message("afterwards"))
        assert transcript.leaf in Transcript(JsonlStore(path))


@given(st.data())
def test_a_damaged_archive_costs_what_is_in_it_and_no_more(data: st.DataObject) -> None:
    with new_file() as path:
        store = JsonlStore(path)
        transcript = new_transcript(store)
        for number in range(8):
            transcript.append_messages(user_message(f"{number}"))
        segment = store.archive(through="e3")
        place = path.with_name(segment.file)
        damage = data.draw(damages(place.read_bytes()))
        place.write_bytes(damage.content)
        loaded = Transcript(JsonlStore(path))
        ids = [entry.id for entry in loaded.entries]
        assert ids[-4:] == ["e4", "e5", "e6", "e7"]
        assert ids == ["e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7"] or loaded.problems
        loaded.append_messages(user_message("afterwards"))
        assert JsonlStore(path, read_archives=False).load().entries[-1].message == user_message(
            "afterwards"
        )


def deep(depth: int) -> bytes:
    nested = (
        b'{"id":"e1","parent_id":null,"kind":"custom","time":0,"data":{"name":"n","data":'
        + b"[" * depth
        + b"]" * depth
    )
    return HEADER + nested + b"}}\n"


@pytest.mark.parametrize(
    "content",
    [
        lambda: deep(100_000),
        lambda: HEADER + b'{"id":' + b"9" * 10_000 + b"}\n",
        lambda: HEADER + b"\n\r\n\x0c\n",
        lambda: HEADER * 2,
    ],
    ids=["deep", "long number", "blank lines", "two headers"],
)
def test_hostile_lines_are_reported(content: Callable[[], bytes], tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_bytes(content())
    transcript = Transcript(JsonlStore(path))
    assert len(transcript) == 0
    transcript.append_messages(user_message("afterwards"))
    assert Transcript(JsonlStore(path)).path()[-1].message == user_message("afterwards")


def test_what_cannot_be_written_is_refused_before_anything_is(tmp_path: Path) -> None:
    from promptkit.transcript.log.entries import CustomEntry

    transcript = new_transcript(JsonlStore(tmp_path / "talk.jsonl"))
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for bad in (float("nan"), object(), b"bytes", deep, 10**5_000):
        with pytest.raises(TranscriptError, match="cannot be written as JSON"):
            transcript.append(CustomEntry(name="bad", data=bad))  # type: ignore[arg-type]  # that is the point
    assert len(transcript) == 0
    assert transcript.leaf is None
    assert list(tmp_path.iterdir()) == []


@given(
    st.text(st.characters(), max_size=20),
    st.sampled_from(["", "\ud800", "\udc00a", "\udc00\ud800"]),
)
def test_any_text_comes_back_as_it_was(text: str, half: str) -> None:
    with new_file() as path:
        message = Message(role="user", content=(text, "\u2028\u2029\x85\x0b\x1c\r\n", half))
        new_transcript(JsonlStore(path)).append_messages(message, user_message(text))
        assert Transcript(JsonlStore(path)).path()[0].message == message
        assert path.read_bytes().count(b"\n") == 3
