"""In a LegacyPrioritization everything competes by its own priority, whatever is around it."""

from __future__ import annotations

from promptkit import AssistantMessage, Text, ToolCall, ToolMessage, UserMessage, render
from promptkit.elements import LegacyPrioritization
from promptkit.testing import WordTokenizer


def test_a_message_whose_text_is_gone_leaves_with_its_calls_before_what_has_a_higher_priority() -> None:
    call = ToolCall(id="c1", name="read", arguments="{}")
    prompt = LegacyPrioritization()[
        AssistantMessage(priority=1, tool_calls=[call])[Text(priority=0)["I read it now"]],
        ToolMessage(tool_call_id="c1")[Text(priority=9)["content"]],
        UserMessage()[Text(priority=5)["Why?"]],
    ]
    whole = render(prompt, budget=1_000, tokenizer=WordTokenizer())
    kept = [
        [message.role for message in render(prompt, budget=budget, tokenizer=WordTokenizer()).messages]
        for budget in range(whole.tokens, 0, -1)
    ]
    assert kept[0] == ["assistant", "tool", "user"]
    assert kept[-1] == ["user"]
    assert all("user" in roles for roles in kept)
