"""In a LegacyPrioritization everything competes by its own priority, whatever is around it."""

from __future__ import annotations

from promptkit import AssistantMessage, Message, Text, ToolCall, ToolMessage, UserMessage, render
from promptkit.elements import LegacyPrioritization
from promptkit.elements.builtin import Rounds
from promptkit.testing import WordTokenizer


def test_a_message_whose_text_is_gone_leaves_with_its_calls_before_what_has_a_higher_priority() -> (
    None
):
    call = ToolCall(id="c1", name="read", arguments="{}")
    prompt = LegacyPrioritization()[
        AssistantMessage(priority=1, tool_calls=[call])[Text(priority=0)["I read it now"]],
        ToolMessage(tool_call_id="c1")[Text(priority=9)["content"]],
        UserMessage()[Text(priority=5)["Why?"]],
    ]
    whole = render(prompt, budget=1_000, tokenizer=WordTokenizer())
    kept = [
        [
            message.role
            for message in render(prompt, budget=budget, tokenizer=WordTokenizer()).messages
        ]
        for budget in range(whole.tokens, 0, -1)
    ]
    assert kept[0] == ["assistant", "tool", "user"]
    assert kept[-1] == ["user"]
    assert all("user" in roles for roles in kept)


def test_rounds_of_the_priority_of_messages_around_them_go_in_written_order() -> None:
    rounds = Rounds(
        rounds=[Message(role="user", content=(text,)) for text in ("two", "three")],
        order=[0, 1],
        priorities=[1, 1],
    )
    prompt = LegacyPrioritization()[
        UserMessage(priority=1)["one"],
        rounds,
        UserMessage(priority=1)["four"],
        UserMessage(priority=9)["Why?"],
    ]
    kept = [
        [
            message.text
            for message in render(prompt, budget=budget, tokenizer=WordTokenizer()).messages
        ]
        for budget in range(5, 0, -1)
    ]
    texts = ["one", "two", "three", "four", "Why?"]
    assert kept == [texts[dropped:] for dropped in range(5)]
