"""Tests of the counts of a replay's messages."""

from __future__ import annotations

from promptkit.lab.replay.message_counts import MessageCounts
from promptkit.messages import Message, OpaquePart
from promptkit.testing.word_tokenizer import WordTokenizer


def test_equal_messages_share_a_count_also_where_a_providers_part_cannot_be_hashed() -> None:
    counts = MessageCounts(WordTokenizer())

    def think(text: str) -> Message:
        return Message(
            role="assistant",
            content=(
                OpaquePart(value={"type": "thinking", "thinking": text}, provider="anthropic"),
                "so",
            ),
        )

    first, again, other = counts.count_messages([think("hm"), think("hm"), think("ah")])

    assert first is again
    assert other is not first
    assert len(counts) == 2
