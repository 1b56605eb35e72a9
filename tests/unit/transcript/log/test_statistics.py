"""What a transcript comes to."""

from __future__ import annotations

from promptkit import Message, ToolCall, Usage
from promptkit.transcript.log.entries import (
    CacheMissed,
    Checkpoint,
    Entry,
    MessageEntry,
    Observation,
    Reset,
    UnknownEntry,
)
from promptkit.transcript.log.statistics import (
    TranscriptStatistics,
    TranscriptTotals,
    compute_statistics,
)


def entry(name: str, parent: str | None, time: float, payload: object) -> Entry:
    return Entry(id=name, parent_id=parent, time=time, payload=payload)  # type: ignore[arg-type]  # a payload of any kind


ASKED = Message(role="user", content=("one two",))
CALLED = Message(
    role="assistant", tool_calls=(ToolCall(id="c", name="read"), ToolCall(id="d", name="read"))
)
ENTRIES = [
    entry("a", None, 3, MessageEntry(message=ASKED)),
    entry(
        "b",
        "a",
        1,
        MessageEntry(
            message=CALLED,
            usage=Usage(input_tokens=7, output_tokens=2),
            cache_miss=CacheMissed(reason="expired", expected=5, common=5),
        ),
    ),
    entry("b", "a", 99, Reset()),
    entry("c", "a", 2, Checkpoint(summary="s", usage=Usage(input_tokens=1, cached_tokens=1))),
    entry("d", "c", 5, UnknownEntry(kind="novel", data={})),
    entry("e", "d", 4, Observation(name="o")),
]


def test_counts_each_entry_once() -> None:
    assert compute_statistics(ENTRIES) == TranscriptStatistics(
        entries=5,
        kinds={"message": 2, "checkpoint": 1, "novel": 1, "observation": 1},
        roles={"user": 1, "assistant": 1},
        tool_calls=2,
        tokens=None,
        usage=Usage(input_tokens=8, output_tokens=2, cached_tokens=1),
        checkpoints=1,
        cache_misses={"expired": 1},
        facts={},
        branches=2,
        first=1,
        last=5,
    )


def test_no_time_is_no_time() -> None:
    said = MessageEntry(message=ASKED)
    made = compute_statistics([entry("a", None, 0, said), entry("b", "a", 7, said)])
    assert (made.first, made.last) == (7, 7)
    made = compute_statistics([entry("a", None, 0, said)])
    assert (made.first, made.last) == (None, None)


def test_the_placeholder_of_a_stream_is_no_bill() -> None:
    said = Message(role="assistant", content=("One word after the other. " * 40,))

    def usage_of(output_tokens: int, finish: str | None = None) -> int:
        usage = Usage(input_tokens=7, output_tokens=output_tokens)
        reply = MessageEntry(message=said, usage=usage, model="claude-opus-4-6", finish=finish)
        return compute_statistics([entry("a", None, 1, reply)]).usage.output_tokens

    written = usage_of(1)
    assert 240 < written < 320
    assert usage_of(25) == written
    assert usage_of(250) == 250
    assert usage_of(1, finish="aborted") == 1


def test_counts_tokens_if_it_is_told_how() -> None:
    assert compute_statistics(
        ENTRIES, count_tokens=lambda message: len(message.text.split()) + 1
    ).tokens == {"user": 3, "assistant": 1}


def test_of_nothing_is_nothing() -> None:
    made = TranscriptTotals().result
    assert (made.entries, made.branches, made.first, made.last, made.usage) == (
        0,
        0,
        None,
        None,
        Usage(input_tokens=0),
    )
