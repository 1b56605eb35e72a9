"""One turn of many tool calls grows without end: it is compacted within the turn, whatever a preset keeps of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit import AgentSession, ContextBudget, Tool, ToolCall, ToolDefinition
from promptkit.compaction import PRESETS, Events, KeepLastTurns, Preset, compact_at, compact_on_demand, first_match, on_overflow
from promptkit.compaction.events import CompactionCommitted
from promptkit.testing import ScriptedModel, WordTokenizer, summary_answer

if TYPE_CHECKING:
    from promptkit.compaction.events import Event
    from promptkit.testing.scripted_model import Request

STEPS = 45
TURNS = Preset(
    name="turns",
    policy=lambda _: first_match((compact_on_demand, on_overflow(), compact_at(0.7, phases=("before_render", "turn_end")))),
    keep=lambda _: KeepLastTurns(count=2),
)
"""Keeps the newest turns whole, which may be all there is."""

GROWING = ("pi", "oh_my_pi", "codex", "claude_code", "opencode", "vscode", "copilot_cli")


@pytest.mark.parametrize(
    "preset", [TURNS, *(attrs.evolve(PRESETS[name](), reduce=None) for name in GROWING)], ids=lambda preset: preset.name
)
def test_a_turn_that_never_ends_is_summarized_and_not_truncated_request_by_request(preset: Preset) -> None:
    told: list[Event] = []
    calls = 0

    def step(_: Request) -> ToolCall | str:
        nonlocal calls
        calls += 1
        return ToolCall(id=f"c{calls}", name="look", arguments="{}") if calls < STEPS else "Done."

    session = AgentSession(
        model=ScriptedModel([step] * 400),
        budget=ContextBudget(window=40_000, reserved_output_tokens=1_000),
        tokenizer=WordTokenizer(),
        preset=preset,
        tools=[Tool(definition=ToolDefinition(name="look", description=""), run=lambda _: "d " * 1_600)],
        events=Events(told.append),
        summarizer=ScriptedModel([summary_answer("The job goes on.")] * 40),
    )

    async def work() -> str:
        return (await session.run("Do the big job.")).text

    assert asyncio.run(work()) == "Done."
    committed = [event for event in told if isinstance(event, CompactionCommitted)]
    assert 1 <= len(committed) <= 8
    assert calls == STEPS
