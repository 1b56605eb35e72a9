"""Results that the model has not replied to stay after a compaction within a turn, with every preset."""

from __future__ import annotations

import asyncio

import pytest

from promptkit import ContextBudget, ContextWindow, Message, ToolCall
from promptkit.compaction import PRESETS
from promptkit.testing import ScriptedModel, WordTokenizer, summary_answer

# gsv_process keeps 80 messages
SUMMARIZING = [name for name in PRESETS if name not in {"off", "truncate_only", "gsv_process"}]


@pytest.mark.parametrize("name", SUMMARIZING)
def test_the_calls_that_the_model_has_just_made_and_their_results_are_in_the_next_request(
    name: str,
) -> None:
    window = ContextWindow(
        model="m",
        preset=name,
        budget=ContextBudget(window=20_000, reserved_output_tokens=1_000),
        tokenizer=WordTokenizer(),
        summarizer=ScriptedModel([summary_answer("The job goes on.")] * 3),
    )
    window.add(Message(role="user", content="Do the big job."))
    for step in range(6):
        window.add(
            Message(
                role="assistant", tool_calls=(ToolCall(id=f"c{step}", name="look", arguments="{}"),)
            )
        )
        window.add(Message(role="tool", tool_call_id=f"c{step}", content="word " * 1_500))

    async def compact() -> tuple[Message, ...]:
        assert await window.compact() is not None
        return (await window.request()).messages

    shown = asyncio.run(compact())
    assert [message.role for message in shown[-2:]] == ["assistant", "tool"]
    assert shown[-1].tool_call_id == "c5"
    assert any(message.text == "Do the big job." for message in shown)
