"""The least that a conversation can be compacted to is known before the first request, and a window without room for it is refused."""

from __future__ import annotations

import asyncio

import pytest

from promptkit import (
    AgentSession,
    ContextBudget,
    ContextWindow,
    Message,
    SystemMessage,
    Tool,
    ToolCall,
    ToolDefinition,
)
from promptkit.agent.window.prompt import Conversation
from promptkit.compaction import PRESETS
from promptkit.errors import ContextWindowFullError
from promptkit.testing import ScriptedModel, WordTokenizer
from tests.conversations import words

WORDS = WordTokenizer()
SUMMARIZING = [name for name in PRESETS if name not in {"off", "amp", "truncate_only"}]
BUDGET = ContextBudget(window=10_000, reserved_output_tokens=1_000)


def open_window(
    preset: str = "vscode", *, instructions: int = 100, **settings: bool
) -> ContextWindow:
    window = ContextWindow(
        model=ScriptedModel(["Hello."]),
        instructions=words(instructions, "rule"),
        preset=preset,
        budget=BUDGET,
        tokenizer=WORDS,
        enabled=settings.get("enabled", True),
    )
    window.add(Message(role="user", content="Hello."))
    return window


@pytest.mark.parametrize("preset", SUMMARIZING)
def test_a_window_without_room_for_a_summary_is_refused_at_the_first_request_with_the_sizes(
    preset: str,
) -> None:
    window = open_window(preset, instructions=8_000)
    least = window.least_size()
    assert not least.is_possible
    with pytest.raises(
        ContextWindowFullError, match=r"instructions 8,00\d, .*the largest summary [\d,]+"
    ) as caught:
        asyncio.run(window.request())
    assert f"{least.total:,} tokens at least" in str(caught.value)
    assert f"a request may have {least.limit:,}" in str(caught.value)
    with pytest.raises(ContextWindowFullError):
        asyncio.run(window.request())


@pytest.mark.parametrize("preset", ["off", "amp", "truncate_only"])
def test_a_preset_that_never_summarizes_needs_no_room_for_a_summary(preset: str) -> None:
    window = open_window(preset, instructions=8_000)
    assert (window.least_size().summary, window.least_size().beside) == (0, 0)
    assert asyncio.run(window.request()).tokens > 8_000


def test_a_window_that_does_not_compact_needs_no_room_for_a_summary() -> None:
    assert asyncio.run(open_window(instructions=8_000, enabled=False).request()).tokens > 8_000


@pytest.mark.parametrize("preset", SUMMARIZING)
def test_the_parts_are_known_before_the_first_request(preset: str) -> None:
    tool = ToolDefinition(name="read", description=words(50, "reads"))
    window = ContextWindow(
        model="gpt-4o", instructions=words(300, "rule"), tools=[tool], preset=preset, budget=BUDGET
    )
    assert window.least_size().newest == 0
    window.add(Message(role="user", content=words(40, "ask")))
    least = window.least_size()
    assert 300 <= least.instructions < 320
    assert least.tools >= 50
    assert 40 <= least.newest < 50
    assert least.summary > 0
    assert least.is_possible
    assert (
        least.total
        == least.instructions + least.tools + least.newest + least.summary + least.beside
    )
    assert asyncio.run(window.request()).tokens <= least.total


def test_a_message_that_can_never_be_sent_is_refused_with_its_size() -> None:
    window = open_window()
    window.add(Message(role="user", content=words(9_500, "pasted")))
    with pytest.raises(ContextWindowFullError, match="the newest message 9,500"):
        asyncio.run(window.request())


def test_a_large_first_message_that_fits_is_sent() -> None:
    window = open_window()
    window.add(Message(role="user", content=words(8_500, "pasted")))
    assert asyncio.run(window.request()).tokens > 8_500


def test_a_prompt_of_one_s_own_is_refused_once_it_was_rendered_and_before_it_is_sent() -> None:
    model = ScriptedModel(["Hello."])
    session = AgentSession(
        model=model,
        prompt=lambda view: [
            SystemMessage(required=True)[words(8_000, "rule")],
            Conversation(view=view),
        ],
        budget=BUDGET,
        tokenizer=WORDS,
    )
    with pytest.raises(ContextWindowFullError, match="instructions 8,00"):
        asyncio.run(session.run("Hello."))
    assert model.requests == []


def test_a_switch_to_a_model_with_a_smaller_window_is_checked_again() -> None:
    window = open_window(instructions=3_300)
    asyncio.run(window.request())
    window.add_reply(Message(role="assistant", content="Hello."))
    window.set_model("other", budget=ContextBudget(window=4_000, reserved_output_tokens=400))
    window.add(Message(role="user", content="Go on."))
    with pytest.raises(ContextWindowFullError, match="the largest summary"):
        asyncio.run(window.request())


def test_a_session_says_so_and_can_go_on_with_a_larger_model() -> None:
    model = ScriptedModel(["Hello."])
    tool = Tool(definition=ToolDefinition(name="read"), run=lambda arguments: "x")
    session = AgentSession(
        model=model, instructions=words(8_000, "rule"), tools=[tool], budget=BUDGET, tokenizer=WORDS
    )
    with pytest.raises(ContextWindowFullError, match="use a larger window or model"):
        asyncio.run(session.run("Hello."))
    assert model.requests == []
    session.set_model(model, budget=ContextBudget(window=100_000, reserved_output_tokens=1_000))
    assert asyncio.run(session.run("Hello again.")).text == "Hello."


@pytest.mark.parametrize("preset", ["off", "amp", "gsv_process", "truncate_only"])
def test_a_request_that_fails_names_its_largest_messages(preset: str) -> None:
    window = open_window(preset)
    asyncio.run(window.request())
    window.add_reply(
        Message(
            role="assistant",
            tool_calls=[ToolCall(id="c1", name="read_file"), ToolCall(id="c2", name="search")],
        )
    )
    window.add(Message(role="tool", tool_call_id="c1", content=words(4_400, "line")))
    window.add(Message(role="tool", tool_call_id="c2", content=words(4_400, "line")))
    window.add(Message(role="user", content=words(8_950, "word")))
    with pytest.raises(
        ContextWindowFullError,
        match=r"user 8,95\d, result of \w+ 4,400.*use a larger window or model\.$",
    ):
        asyncio.run(window.request())
