"""The demonstration: a real recording that shows nothing of the machine it was made on."""

from __future__ import annotations

import re

import pytest
from promptkit_components.demo import load_demo, messages_from_jsonl, messages_to_jsonl

from promptkit import Message, ToolCall, render
from promptkit.pairing import pair_tool_calls

SHOWN = load_demo()


def test_is_a_conversation_of_some_length() -> None:
    assert 60 <= len(SHOWN.conversation) <= 120
    assert 30_000 <= sum(len(message.text) for message in SHOWN.conversation) <= 60_000


def test_is_well_paired() -> None:
    assert not pair_tool_calls(SHOWN.conversation).repairs


def test_every_edit_and_run_was_a_real_one() -> None:
    text = "\n".join(message.text for message in SHOWN.conversation)
    assert "Nothing was changed" not in text
    assert "ImportError" not in text
    assert "ModuleNotFoundError" not in text
    assert re.search(r"\d+ passed", text)


@pytest.mark.parametrize(
    "pattern",
    [
        r"/home/",
        r"/t[m]p/",
        r"/root",
        r"/w[o]rk/",
        r"/usr/",
        r"site-packages",
        r"\.venv",
        r"0x[0-9a-f]{6}",
        r"https?://",
        r"/Users/",
    ],
)
def test_names_nothing_of_the_machine(pattern: str) -> None:
    found = [message.text for message in SHOWN.conversation if re.search(pattern, message.text)]
    assert not found


@pytest.mark.parametrize("budget", SHOWN.budgets)
def test_renders_at_its_budgets(budget: int) -> None:
    rendered = render(SHOWN.prompt, budget=budget)
    assert rendered.tokens <= budget
    assert rendered.removals or budget == max(SHOWN.budgets)
    assert not rendered.repairs


def test_replays_turn_by_turn() -> None:
    assert len(render(SHOWN.prompt_after(1)).messages) < len(render(SHOWN.prompt_after(2)).messages)


def test_a_saved_conversation_loads_as_it_was() -> None:
    turns = [
        Message(role="user", content=("Grüße\n",)),
        Message(
            role="assistant", tool_calls=(ToolCall(id="a", name="read", arguments='{"path": 1}'),)
        ),
        Message(role="tool", tool_call_id="a", content=("ok",)),
    ]
    assert list(messages_from_jsonl(messages_to_jsonl(turns))) == turns
