"""What is counted after a real compaction: uses from memory, and what the summaries show of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from benchmarks.compactions import MIN_BEFORE, find_uses_from_memory, measure, read_compactions
from promptkit import JsonlStore, Message, Transcript
from promptkit.transcript import Checkpoint
from promptkit.transcript.log.entries import MessageEntry
from tests.conversations import assistant_message, user_message

if TYPE_CHECKING:
    from pathlib import Path


def record(file: Path, *after: Message) -> None:
    """Write a conversation that its agent compacted, and what followed."""
    transcript = Transcript(JsonlStore(file))
    for number in range(MIN_BEFORE):
        transcript.append(MessageEntry(message=user_message(f"Mend load_row_{number}, please.")))
    transcript.append(Checkpoint(summary="They mended load_row_18."))
    transcript.append(*(MessageEntry(message=message) for message in after))


def test_a_name_is_used_from_memory_once_and_not_after_it_was_shown(tmp_path: Path) -> None:
    record(
        tmp_path / "talk.jsonl",
        user_message("Go on with load_row_17."),
        assistant_message("load_row_18, load_row_19 and load_row_17 are whole."),
        assistant_message("load_row_19 again, and new_row."),
    )
    (compaction,) = read_compactions(tmp_path / "talk.jsonl")
    assert len(compaction.before) == MIN_BEFORE
    before, kept, after = (
        [entry.message for entry in entries if entry.message is not None]
        for entries in (compaction.before, compaction.kept, compaction.after)
    )
    assert find_uses_from_memory(before, kept, after) == {
        ("name", "load_row_18"): 1,
        ("name", "load_row_19"): 1,
    }
    counts = asyncio.run(measure(compaction))
    assert (counts["names"], counts["names, recorded"]) == (2, 1)
    assert counts["names, extract"] <= counts["names, extract and names"] == 2


def test_a_compaction_that_nothing_follows_shows_nothing(tmp_path: Path) -> None:
    record(tmp_path / "talk.jsonl")
    assert list(read_compactions(tmp_path / "talk.jsonl")) == []
