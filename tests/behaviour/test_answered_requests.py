"""What was answered is never shown as open, whatever form the user's messages have beside a summary."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit.agent import AgentSession, ContextWindow
from promptkit.compaction import PRESETS, KeepUserMessages
from promptkit.compaction.presets.coding_agents import CopilotCLI, copilot_cli
from promptkit.messages import Message, ToolCall
from promptkit.testing import ScriptedModel, WordTokenizer, summary_answer
from promptkit.tokens import ContextBudget
from tests.conversations import words

if TYPE_CHECKING:
    from promptkit.compaction import Preset
    from promptkit.compaction.planning.selection import Keep

BUDGET = ContextBudget(window=20_000, reserved_output_tokens=0)
SUMMARY = summary_answer("Work goes on here.")
ASKED = ("Delete the old branch.", "Send the mail to Ann.")


def shown_after(preset: Preset, keep: Keep | None = None) -> list[Message]:
    """The messages of the last request, after two compactions."""
    done = words(900, "done")
    session = AgentSession(
        model=ScriptedModel([done, done, SUMMARY, done, SUMMARY, "It is noon."]),
        tokenizer=WordTokenizer(),
        preset=preset,
        keep=keep,
        budget=BUDGET,
    )

    async def talk() -> None:
        for text in ASKED:
            await session.run(text)
        await session.compact()
        await session.run("Once more?")
        await session.compact()
        await session.run("What time is it?")

    asyncio.run(talk())
    assert session.last_rendered is not None
    return list(session.last_rendered.messages)


@pytest.mark.parametrize("preset", sorted(PRESETS.keys() - {"off", "truncate_only", "gsv_process"}))
def test_a_request_whose_answer_is_gone_is_marked_as_answered(preset: str) -> None:
    messages = shown_after(PRESETS[preset]())
    assert messages[-1].text == "What time is it?"
    for message, following in itertools.pairwise(messages):
        for asked in (*ASKED, "Once more?"):
            if asked in message.text and message.role == "user":
                is_marked = f"[answered] {asked}" in message.text.splitlines()
                assert is_marked or following.role == "assistant"


@pytest.mark.parametrize(
    ("preset", "keep"),
    [
        (PRESETS["codex"](), None),
        (PRESETS["vscode"](), KeepUserMessages(tokens=1_000)),
    ],
)
def test_messages_that_stay_as_messages_are_marked_once(preset: Preset, keep: Keep | None) -> None:
    texts = [message.text for message in shown_after(preset, keep)]
    marked = [f"[answered] {asked}" for asked in (*ASKED, "Once more?")]
    assert [text for text in texts if text.startswith("[")] == marked


def test_copilot_cli_shows_the_user_s_messages_inside_the_summary_within_its_settings() -> None:
    limits = CopilotCLI(user_message_tokens=120, max_user_message_tokens=20)
    window = ContextWindow(
        model="gpt-4o", tokenizer=WordTokenizer(), preset=copilot_cli(limits), budget=BUDGET
    )
    for number in range(12):
        window.add(
            Message(role="user", content=f"Wish {number} {words(40, 'please')}"),
            Message(role="assistant", content=words(300, "done")),
        )
    asyncio.run(window.compact())
    (summary,) = window.view.messages
    history = summary.text[summary.text.index("<user-messages>") :]
    assert WordTokenizer().count(history) <= 120
    assert "Wish 11" in history
    lines = [line for line in history.splitlines() if line.startswith("[answered] ")]
    assert lines
    assert all(WordTokenizer().count(line) <= 21 for line in lines)


def test_in_a_turn_that_is_compacted_twice_what_was_answered_before_is_not_repeated_as_open() -> (
    None
):
    window = ContextWindow(
        model=ScriptedModel([]),
        summarizer=ScriptedModel([SUMMARY] * 2),
        tokenizer=WordTokenizer(),
        preset=attrs.evolve(PRESETS["codex"]()),
        budget=BUDGET,
    )

    async def work() -> None:
        window.add(
            Message(role="user", content="Delete the old branch."),
            Message(role="assistant", content=words(300, "done")),
            Message(role="user", content="Now port the parser."),
        )
        for number in range(2):
            call = ToolCall(id=f"c{number}", name="look")
            window.add(
                Message(role="assistant", content=words(300, "look"), tool_calls=(call,)),
                Message(role="tool", tool_call_id=call.id, content=words(300, "found")),
            )
            window.add(
                Message(role="assistant", tool_calls=(ToolCall(id=f"d{number}", name="look"),)),
                Message(role="tool", tool_call_id=f"d{number}", content="nothing"),
            )
            await window.compact()

    asyncio.run(work())
    said = [message.text for message in window.view.messages if message.role == "user"]
    assert said[:2] == ["[answered] Delete the old branch.", "Now port the parser."]


def test_a_conversation_of_a_model_with_an_unknown_window_is_compacted_on_request() -> None:
    window = ContextWindow(model="nobody-knows", tokenizer=WordTokenizer())
    for number in range(4):
        window.add(
            Message(role="user", content=f"Wish {number}"),
            Message(role="assistant", content=words(300, "done")),
        )
    assert asyncio.run(window.compact()) is not None
