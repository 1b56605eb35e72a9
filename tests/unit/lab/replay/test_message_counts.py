"""Tests of the counts of a replay's messages."""

from __future__ import annotations

from promptkit.lab.replay.prompt_cache import MessageCounts
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
    assert [first.number, other.number] == [0, 1]


def test_claudes_thinking_is_no_input_of_another_provider_and_is_billed_as_output() -> None:
    thought = OpaquePart(
        value={"type": "thinking", "thinking": "hm " * 50, "signature": "s"}, provider="anthropic"
    )
    reply = Message(role="assistant", content=(thought, "so"))
    bare = Message(role="assistant", content=("so",))
    shown = MessageCounts(WordTokenizer())
    hidden = MessageCounts(WordTokenizer(), shows_thinking=False)
    (full,), (without,) = shown.count_messages([reply]), hidden.count_messages([reply])
    assert without.tokens == hidden.count_messages([bare])[0].tokens
    assert full.tokens == full.output_tokens == without.output_tokens > without.tokens + 40
