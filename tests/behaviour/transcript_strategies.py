"""Conversations of every shape that a transcript can take: rounds of tools, checkpoints, edits, resets, branches that were left."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from promptkit import Message, OpaquePart, ToolCall, Usage
from promptkit.transcript.log.entries import (
    BranchSummary,
    Checkpoint,
    CustomEntry,
    CustomMessage,
    Edit,
    Label,
    MessageEntry,
    Observation,
    Reset,
    Setting,
    UnknownEntry,
)
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.format import Header, encode_batch, encode_header
from promptkit.transcript.stores.store import InMemoryStore
from tests.conversations import user_message

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from hypothesis.strategies import DrawFn

    from promptkit.transcript.log.entries import Entry, EntryPayload
    from promptkit.transcript.stores.store import TranscriptStore

__all__ = ["MEMORY", "FileInMemory", "grow", "new_file", "new_transcript", "steps", "transcripts"]

MEMORY = Path("/dev/shm")  # noqa: S108  # a file system without a disk, where there is one


class FileInMemory(InMemoryStore):
    """Makes the bytes of a file: `content`; after each batch, `ends` has its end and the ids up to it."""

    def __init__(self) -> None:
        super().__init__()
        self.content = encode_header(Header())
        self.ends: dict[int, list[str]] = {0: []}

    def append(self, entries: Sequence[Entry], *, expect: str | None = None) -> None:
        super().append(entries, expect=expect)
        self.content += encode_batch(entries)
        self.ends[len(self.content)] = [entry.id for entry in self.load().entries]


@contextmanager
def new_file() -> Generator[Path]:
    """A place for a transcript's file, where writing need not wait for a disk if there is such a place."""
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder) / "talk.jsonl"


STEPS = (
    "user",
    "answer",
    "calls",
    "result",
    "result",
    "late",
    "checkpoint",
    "edit",
    "reset",
    "branch",
    "rewind",
    "quiet",
    "custom",
    "batch",
)
Step = tuple[str, int]


def new_transcript(store: TranscriptStore | None = None) -> Transcript:
    """A transcript whose ids and times are counted."""
    loaded = Transcript(store)
    ids = itertools.count(len(loaded))
    times = itertools.count(len(loaded))
    return Transcript(store, clock=lambda: float(next(times)), new_id=lambda: f"e{next(ids)}")


def steps() -> st.SearchStrategy[list[Step]]:
    return st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 1_000)), max_size=30)


def grow(transcript: Transcript, step: Step, *, unique: bool = True) -> None:
    """Do one step: what it is about is drawn by its number. `unique`: no call id occurs twice."""
    name, number = step
    path = transcript.path()
    if name == "rewind":
        transcript.rewind(path[number % len(path)].id if path and number % 9 else None)
    elif name == "batch":
        transcript.append(
            *(_payload("user", number + at, path, unique=unique) for at in range(2 + number % 3))
        )
    else:
        transcript.append(_payload(name, number, path, unique=unique))


@st.composite
def transcripts(draw: DrawFn, *, unique: bool = True) -> Transcript:
    """A transcript that some steps have made."""
    transcript = new_transcript()
    for step in draw(steps()):
        grow(transcript, step, unique=unique)
    return transcript


def _payload(name: str, number: int, path: Sequence[Entry], *, unique: bool) -> EntryPayload:  # noqa: C901, PLR0911  # a line for each kind
    some = path[number % len(path)].id if path else None
    match name:
        case "answer":
            usage = Usage(input_tokens=number % 7 * 10, output_tokens=number % 5)
            return MessageEntry(
                message=Message(role="assistant", content=(f"answer {number}",)),
                usage=usage,
                model="m",
                finish="stop",
            )
        case "calls":
            ids = [f"c{len(path)}_{at}" if unique else f"c{at}" for at in range(1 + number % 3)]
            calls = tuple(ToolCall(id=each, name="read") for each in ids)
            content = (f"step {number}", OpaquePart(value={"thinking": number}))[: number % 3]
            finish = ("tool_calls", "aborted", "error", None)[number % 4 if number % 5 == 0 else 0]
            return MessageEntry(
                message=Message(role="assistant", content=content, tool_calls=calls), finish=finish
            )
        case "result" | "late":
            asked = [
                call.id for entry in path if entry.message for call in entry.message.tool_calls
            ]
            answered = {entry.message.tool_call_id for entry in path if entry.message}
            waiting = (
                [call for call in asked if call not in answered] if name == "result" else asked
            )
            if waiting:
                return MessageEntry(
                    message=Message(
                        role="tool",
                        tool_call_id=waiting[number % len(waiting)],
                        content=(f"result {number}",),
                    )
                )
        case "checkpoint":
            replacement = (user_message(f"instead {number}"),) if number % 5 == 0 else None
            return Checkpoint(
                summary=f"summary {number}",
                first_kept=some if number % 4 else None,
                replacement=replacement,
            )
        case "edit" if some:
            return Edit(
                target=some, content=None if number % 2 else (f"edited {number}",), reason="pruned"
            )
        case "reset" if number % 3 == 0:
            return Reset()
        case "branch" if some:
            return BranchSummary(summary=f"branch {number}", leaf=some)
        case "quiet":
            quiet = (
                CustomEntry(name="c"),
                Setting(name="model", value="m"),
                Observation(name="o"),
                UnknownEntry(kind="later", data={"a": 1}),
            )
            return (
                Label(target=some, label="here") if some and number % 5 == 4 else quiet[number % 4]
            )
        case "custom":
            return CustomMessage(name="hook", message=user_message(f"hook {number}"))
        case _:
            pass
    return MessageEntry(message=user_message(f"said {number}"))
