"""After a compaction at the end of a turn: the model is asked to go on, once.

And oh-my-pi's handoff in place of a summary.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit import Tool, ToolCall, ToolDefinition
from promptkit.agent.session.session import AgentSession
from promptkit.agent.window.continuation import AUTO_CONTINUE
from promptkit.compaction import PRESETS, compact_above, first_match
from promptkit.compaction.planning.blocks import is_user_request
from promptkit.compaction.planning.selection import KeepNothing
from promptkit.compaction.policy.rules import compact_on_demand, on_overflow
from promptkit.compaction.presets.coding_agents import OhMyPi, oh_my_pi
from promptkit.compaction.presets.preset import Preset
from promptkit.compaction.summarizers.summarizer import HANDOFF_SECTIONS
from promptkit.testing import ScriptedModel, WordTokenizer, summary_answer
from promptkit.tokens.budget import ContextBudget
from promptkit.transcript.log.entries import Checkpoint, CustomMessage, MessageEntry
from tests.conversations import words
from tests.unit.compaction.summarizers.writers import Writer

if TYPE_CHECKING:
    from promptkit.testing.scripted_model import Step

MINE = Preset(
    name="mine",
    policy=lambda _: first_match(
        (compact_on_demand, on_overflow(), compact_above(lambda _: 400, "turn_end"))
    ),
    keep=lambda _: KeepNothing(),
)
"""Compacts at the end of a turn from 400 tokens on, and keeps nothing."""


def session_of(
    *steps: Step,
    preset: Preset = MINE,
    auto_continue: bool | None = None,
    max_steps: int = 100,
    writes: bool = True,
) -> AgentSession:
    return AgentSession(
        model=ScriptedModel(steps),
        budget=ContextBudget(window=2_000, reserved_output_tokens=100),
        tokenizer=WordTokenizer(),
        summarizer=Writer() if writes else None,
        tools=[Tool(definition=ToolDefinition(name="read"), run=lambda _: words(500, "r"))],
        preset=preset,
        auto_continue=auto_continue,
        max_steps=max_steps,
    )


def asked(session: AgentSession) -> int:
    return sum(
        isinstance(entry.payload, CustomMessage) and entry.payload.name == AUTO_CONTINUE
        for entry in session.transcript.path()
    )


def test_the_model_is_asked_to_go_on_after_a_compaction_at_the_end_of_a_turn_and_no_answer_is_lost() -> (
    None
):
    session = session_of(words(500, "a"), "And the tests pass.", auto_continue=True)
    turn = asyncio.run(session.run("Go."))
    assert turn.text == f"{words(500, 'a')}\n\nAnd the tests pass."
    assert (turn.steps, asked(session)) == (2, 1)


def test_nothing_is_asked_without_a_compaction_and_where_it_is_not_wanted() -> None:
    for session in (
        session_of("short", auto_continue=True),
        session_of(words(500, "a")),
        session_of(words(500, "a"), auto_continue=False),
    ):
        assert asyncio.run(session.run("Go.")).steps == 1
        assert asked(session) == 0


def test_the_message_is_not_the_user_s_and_stands_beside_no_summary() -> None:
    session = session_of(words(500, "a"), words(500, "b"), "Fine.", auto_continue=True)
    asyncio.run(session.run("Go."))
    asked_for = [item for item in session.window.view.items if item.kind == "custom_message"]
    assert asked_for == []  # the second compaction has dropped it
    users = [
        entry.payload
        for entry in session.transcript.path()
        if isinstance(entry.payload, MessageEntry) and entry.payload.message.role == "user"
    ]
    assert [payload.message.text for payload in users] == ["Go."]
    asyncio.run(session.run("And now?"))
    assert [item.message.text for item in session.window.view.items if is_user_request(item)] == [
        "And now?"
    ]


def test_it_is_asked_once_for_each_user_message_and_again_only_after_tool_calls() -> None:
    session = session_of(
        words(500, "a"), words(500, "b"), words(500, "c"), words(500, "d"), auto_continue=True
    )
    assert [asyncio.run(session.run(text)).steps for text in ("one", "two")] == [2, 2]
    working = session_of(
        words(500, "a"),
        ToolCall(id="c1", name="read"),
        words(500, "b"),
        words(500, "c"),
        auto_continue=True,
    )
    assert asyncio.run(working.run("one")).steps == 4
    assert asked(working) == 2


def test_the_most_steps_of_a_turn_hold() -> None:
    session = session_of(words(500, "a"), auto_continue=True, max_steps=1)
    assert asyncio.run(session.run("Go.")).steps == 1


@pytest.mark.parametrize(
    ("name", "goes_on"), [("opencode", True), ("oh_my_pi", True), ("pi", False), ("vscode", False)]
)
def test_presets_go_on_by_themselves_where_their_originals_do(name: str, goes_on: bool) -> None:
    preset = attrs.evolve(
        PRESETS[name](), policy=MINE.policy, keep=MINE.keep, adjust_budget=MINE.adjust_budget
    )
    session = session_of(words(500, "a"), *["Done."] * goes_on, preset=preset)
    assert asyncio.run(session.run("Go.")).steps == 1 + goes_on


class TestHandoff:
    """`OhMyPi(strategy="handoff")` in a window of 2,000."""

    PRESET = oh_my_pi(OhMyPi(strategy="handoff", threshold=400, auto_continue=False))

    def test_a_document_for_the_rest_of_the_work_replaces_the_whole_conversation(self) -> None:
        document = summary_answer("Fix b.py next.", sections=HANDOFF_SECTIONS)
        session = session_of(words(500, "a"), document, "Done.", preset=self.PRESET, writes=False)
        asyncio.run(session.run("Fix a.py."))
        (entry,) = [
            entry for entry in session.transcript.path() if isinstance(entry.payload, Checkpoint)
        ]
        assert isinstance(entry.payload, Checkpoint)
        assert (entry.payload.trigger, entry.payload.first_kept) == ("handoff", None)
        assert "Fix b.py next." in entry.payload.summary
        assert isinstance(session.model, ScriptedModel)
        assert "another agent that has seen nothing" in session.model.requests[1].messages[-1].text
        assert asyncio.run(session.run("Go on.")).text == "Done."

    def test_without_a_document_the_conversation_is_summarized_as_ever(self) -> None:
        session = session_of(
            words(300, "a"),
            words(150, "b"),
            "No.",
            "No.",
            summary_answer("It was fixed."),
            preset=self.PRESET,
            writes=False,
        )
        asyncio.run(session.run("Fix a.py."))
        asyncio.run(session.run("Fix b.py."))
        triggers = [
            entry.payload.trigger
            for entry in session.transcript.path()
            if isinstance(entry.payload, Checkpoint)
        ]
        assert triggers == ["threshold"]

    def test_a_refusal_replaces_nothing(self) -> None:
        refusal = f"I'm sorry, but I can't assist with that. {words(36)}"
        session = session_of(words(500, "a"), refusal, refusal, preset=self.PRESET, writes=False)
        asyncio.run(session.run("Fix a.py."))
        assert not [
            entry for entry in session.transcript.path() if isinstance(entry.payload, Checkpoint)
        ]
        assert session.window.view.messages[-1].text == words(500, "a")

    def test_a_request_that_does_not_fit_is_summarized(self) -> None:
        preset = oh_my_pi(OhMyPi(strategy="handoff", threshold=1_999, keep_recent_tokens=300))
        session = session_of(
            words(1_000, "a"), summary_answer("It was long."), "Done.", preset=preset, writes=False
        )

        async def talk() -> None:
            await session.run("One.")
            await session.run(words(950, "two"))

        asyncio.run(talk())
        triggers = [
            entry.payload.trigger
            for entry in session.transcript.path()
            if isinstance(entry.payload, Checkpoint)
        ]
        assert triggers == ["foreground"]
