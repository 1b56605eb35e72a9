"""What `problems` finds in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from promptkit import Message, ToolCall
from promptkit.transcript.log.entries import (
    BranchSummary,
    Checkpoint,
    Edit,
    Entry,
    Label,
    MessageEntry,
    Reset,
)
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.format import Header, encode_batch, encode_header
from promptkit.transcript.stores.jsonl.reader import TranscriptReader, find_problems
from promptkit.transcript.stores.jsonl.store import JsonlStore

if TYPE_CHECKING:
    from pathlib import Path

    from promptkit.transcript.log.entries import EntryPayload


def found(path: Path) -> list[tuple[int, str]]:
    return [(problem.line, problem.detail) for problem in find_problems(TranscriptReader(path))]


def write(path: Path, *payloads: EntryPayload) -> None:
    """A file whatever it holds: the library would not write all of these."""
    entries = [
        Entry(id=f"e{at}", parent_id=f"e{at - 1}" if at else None, time=0, payload=payload)
        for at, payload in enumerate(payloads)
    ]
    path.write_bytes(encode_header(Header()) + b"".join(encode_batch([entry]) for entry in entries))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "talk.jsonl"


def test_nothing_in_what_the_library_wrote(path: Path) -> None:
    transcript = Transcript(JsonlStore(path))
    call = Message(role="assistant", tool_calls=(ToolCall(id="c", name="read"),))
    made = transcript.append_messages(
        Message(role="user"), call, Message(role="tool", tool_call_id="c")
    )
    transcript.append(
        Checkpoint(summary="s", first_kept=made[1].id), Label(target=made[0].id, label="l")
    )
    transcript.rewind(made[0].id)
    transcript.append(
        BranchSummary(summary="s", leaf=made[2].id),
        Edit(target=made[0].id, content=None, reason="r"),
    )
    assert found(path) == []
    JsonlStore(path).archive(through=made[2].id)
    assert found(path) == []
    path.write_bytes(path.read_bytes() + b'{"torn')
    assert found(path) == []


@pytest.mark.parametrize(
    ("payload", "detail"),
    [
        (
            Edit(target="e9", content=None, reason="r"),
            "the edit refers to the entry 'e9', which is not before it.",
        ),
        (
            Edit(target="e1", content=None, reason="r"),
            "the edit refers to the entry 'e1', which is not before it.",
        ),
        (
            Label(target="e9", label="l"),
            "the label refers to the entry 'e9', which is not before it.",
        ),
        (
            BranchSummary(leaf="e9", summary="s"),
            "the branch_summary refers to the entry 'e9', which is not before it.",
        ),
        (
            Checkpoint(summary="s", first_kept="e9"),
            "the checkpoint refers to the entry 'e9', which is not before it.",
        ),
        (
            MessageEntry(message=Message(role="tool", tool_call_id="c")),
            "a tool result answers the call 'c', which is not before it.",
        ),
    ],
)
def test_what_refers_to_nothing(path: Path, payload: EntryPayload, detail: str) -> None:
    write(path, Reset(), payload)
    assert found(path) == [(3, detail)]


def test_an_id_that_was_there_before_and_a_parent_that_was_not(path: Path) -> None:
    write(path, Reset(), Reset(), Reset())
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[1], lines[1], b"bad\n", lines[3]]))
    assert found(path) == [
        (3, "the id 'e0' was used by an earlier entry; this entry is ignored."),
        (4, "the line is not JSON: Expecting value at column 1."),
        (
            5,
            "the entry 'e2' follows 'e1', which is not before it in the file; it was placed after 'e0' instead.",
        ),
    ]


def test_a_missing_archive_but_not_what_refers_into_it(path: Path) -> None:
    transcript = Transcript(JsonlStore(path))
    made = transcript.append_messages(Message(role="user"))
    transcript.append(Reset())
    transcript.append(Edit(target=made[0].id, content=None, reason="r"))
    path.with_name(JsonlStore(path).archive(through=made[0].id).file).unlink()
    assert found(path) == [
        (1, "the archive talk.0001.jsonl.gz does not exist; missing entries: 1.")
    ]
