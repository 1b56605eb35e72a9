"""One turn of many tool calls grows without end: it is compacted within the turn, whatever a preset keeps of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit import (
    AgentSession,
    ContextBudget,
    ContextWindow,
    Message,
    Tool,
    ToolCall,
    ToolDefinition,
)
from promptkit.compaction import (
    PRESETS,
    CompactionCommitted,
    Events,
    KeepLastMessages,
    KeepLastRound,
    KeepLastTurns,
    KeepRecentTokens,
    KeepUserMessages,
    Preset,
    RequestPruned,
    compact_above,
    compact_on_demand,
    first_match,
    on_overflow,
)
from promptkit.compaction.planning.blocks import unmark_request
from promptkit.compaction.planning.facts import Facts
from promptkit.testing import ScriptedModel, WordTokenizer, summary_answer
from promptkit.transcript.log.entries import Checkpoint

if TYPE_CHECKING:
    from promptkit.compaction import Event
    from promptkit.compaction.planning.selection import Keep
    from promptkit.testing.scripted_model import Request

STEPS = 45
TURNS = Preset(
    name="turns",
    policy=lambda _: first_match(
        (
            compact_on_demand,
            on_overflow(),
            compact_above(
                lambda budget: 0.7 * (budget.render_budget or 0), "before_render", "turn_end"
            ),
        )
    ),
    keep=lambda _: KeepLastTurns(count=2),
)
"""Keeps the newest turns whole, which may be all there is."""

GROWING = ("pi", "oh_my_pi", "codex", "claude_code", "opencode", "vscode", "copilot_cli")


def work_through_many_calls(
    preset: Preset, *, keep: Keep | None = None, window: int = 40_000
) -> list[Event]:
    """Run one turn of many tool calls; the events."""
    told: list[Event] = []
    calls = 0

    def step(_: Request) -> ToolCall | str:
        nonlocal calls
        calls += 1
        return ToolCall(id=f"c{calls}", name="look", arguments="{}") if calls < STEPS else "Done."

    session = AgentSession(
        model=ScriptedModel([step] * 400),
        budget=ContextBudget(window=window, reserved_output_tokens=window // 40),
        tokenizer=WordTokenizer(),
        preset=preset,
        keep=keep,
        tools=[
            Tool(
                definition=ToolDefinition(name="look", description=""),
                run=lambda _: "d " * (window // 25),
            )
        ],
        events=Events(told.append),
        summarizer=ScriptedModel([summary_answer("The job goes on.")] * 40),
    )

    async def work() -> str:
        return (await session.run("Do the big job.")).text

    assert asyncio.run(work()) == "Done."
    assert calls == STEPS
    return told


@pytest.mark.parametrize(
    "preset",
    [TURNS, *(attrs.evolve(PRESETS[name](), reduce=None) for name in GROWING)],
    ids=lambda preset: preset.name,
)
def test_a_turn_that_never_ends_is_summarized_and_not_truncated_request_by_request(
    preset: Preset,
) -> None:
    committed = [
        event for event in work_through_many_calls(preset) if isinstance(event, CompactionCommitted)
    ]
    assert 1 <= len(committed) <= 8


TOO_MUCH: tuple[Keep, ...] = (
    KeepRecentTokens(tokens=15_000),
    KeepRecentTokens(tokens=40_000),
    KeepRecentTokens(tokens=40_000, at_least=True),
    KeepLastRound(count=30),
    KeepLastTurns(count=2, max_tokens=40_000),
    KeepLastMessages(count=60, max_tokens=40_000),
    KeepUserMessages(tokens=40_000),
)
"""Of a window of 20,000 tokens."""


@pytest.mark.parametrize("keep", TOO_MUCH, ids=lambda keep: type(keep).__name__)
def test_a_keep_larger_than_the_window_leaves_room_after_each_compaction(keep: Keep) -> None:
    told = work_through_many_calls(PRESETS["vscode"](), keep=keep, window=20_000)
    committed = [event for event in told if isinstance(event, CompactionCommitted)]
    assert 1 <= len(committed) <= 8
    assert not [event for event in told if isinstance(event, RequestPruned)]
    assert all(event.tokens_after < 14_000 for event in committed)


ASKED = [f"request {number}: {'word ' * 60}" for number in range(80)]


@pytest.mark.parametrize("preset", ["vscode", "codex", "claude_code"])
def test_open_requests_that_are_repeated_stay_within_a_share_however_many_there_are(
    preset: str,
) -> None:
    told: list[Event] = []
    budget = ContextBudget(window=8_000, reserved_output_tokens=200)
    window = ContextWindow(
        model=ScriptedModel([]),
        preset=preset,
        budget=budget,
        tokenizer=WordTokenizer(),
        events=Events(told.append),
        summarizer=ScriptedModel(
            [summary_answer("The job goes on, and here is what was found so far.")] * 80
        ),
    )

    async def work() -> list[int]:
        sizes: list[int] = []
        # the user writes between the rounds, and the turn never ends
        for number, text in enumerate(ASKED):
            window.add(Message(role="user", content=(text,)))
            sizes.append((await window.request()).tokens)
            window.add_reply(
                Message(role="assistant", tool_calls=(ToolCall(id=f"c{number}", name="look"),))
            )
            window.add(Message(role="tool", tool_call_id=f"c{number}", content=("d " * 100,)))
        return sizes

    assert max(asyncio.run(work())) <= 7_800
    checkpoints = [
        entry.payload for entry in window.transcript.path() if isinstance(entry.payload, Checkpoint)
    ]
    assert 2 <= len(checkpoints) <= 10
    assert not [event for event in told if isinstance(event, RequestPruned)]
    most = 7_800 // (2 if preset == "codex" else 4)  # Codex shows older ones as messages, too
    for checkpoint in checkpoints:
        said = [unmark_request(message).text for message in checkpoint.replacement or ()]
        repeated = [text for text in said if text in ASKED]
        assert sum(map(WordTokenizer().count, repeated[:-1])) <= most
        # the newest ones, without a gap
        assert repeated == ASKED[ASKED.index(repeated[0]) : ASKED.index(repeated[-1]) + 1]
        recorded = Facts.from_json(checkpoint.facts).requests
        newest = ASKED.index(repeated[-1]) + 1
        assert [
            *dict.fromkeys(
                (*(text.strip() for text in recorded), *(text.strip() for text in repeated))
            )
        ] == [text.strip() for text in ASKED[:newest]]
