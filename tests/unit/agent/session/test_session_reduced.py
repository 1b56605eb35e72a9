"""Decisions follow the size of the request: what processors take out of it does not count."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit import AgentSession, ContextBudget, Message, Tool, ToolCall, ToolDefinition, Usage
from promptkit.compaction import CompactionCommitted, Event, Events
from promptkit.compaction.presets.coding_agents import ClaudeCode, claude_code, vscode
from promptkit.compaction.pruning.processors import cap_tool_results
from promptkit.compaction.pruning.tool_outputs import ReduceToolResults
from promptkit.providers import Reply
from promptkit.testing import WordTokenizer
from promptkit.transcript.log.entries import Edit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.compaction.presets.preset import Preset
    from promptkit.compaction.pruning.processors import RequestLimits

WORDS = WordTokenizer()
RESULT = "data " * 300


class Reader:
    """A model that reads one file for each message of the user, and reports the words that it was sent."""

    name = "reader"

    def __init__(self, *, reports: bool = True) -> None:
        self.sizes: list[int] = []
        self._reports = reports

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        size = sum(map(WORDS.count, (message.text for message in messages)))
        self.sizes.append(size)
        usage = Usage(input_tokens=size if self._reports else 0, output_tokens=1)
        if messages[-1].role == "user":
            call = ToolCall(id=f"c{len(self.sizes)}", name="read", arguments="{}")
            return Reply(
                message=Message(role="assistant", tool_calls=[call]),
                usage=usage,
                finish="tool_calls",
            )
        return Reply(message=Message(role="assistant", content="ok"), usage=usage, finish="stop")


def read_session(preset: Preset, told: list[Event], *, reports: bool = True) -> AgentSession:
    return AgentSession(
        model=Reader(reports=reports),
        budget=ContextBudget(window=10_000, reserved_output_tokens=800),
        tokenizer=WORDS,
        preset=preset,
        events=Events(told.append),
        tools=[Tool(definition=ToolDefinition(name="read"), run=lambda _: RESULT)],
    )


def test_a_conversation_whose_requests_are_small_after_a_processor_is_not_compacted() -> None:
    told: list[Event] = []
    session = read_session(claude_code(ClaudeCode(keep_results=2)), told)
    view: list[int] = []

    async def talk() -> None:
        for turn in range(40):
            await session.run(f"q{turn}")
            view.append(sum(WORDS.count(message.text) for message in session.window.view.messages))

    asyncio.run(talk())
    assert view[-1] > 10_000  # what the transcript shows does not fit the window; what is sent does
    assert max(session.model.sizes) < 4_000  # type: ignore[attr-defined]  # a Reader
    assert not [event for event in told if isinstance(event, CompactionCommitted)]


def test_the_size_of_a_conversation_is_that_of_its_next_request_also_where_a_processor_has_just_cleared_results() -> (
    None
):
    for reports in (True, False):
        session = read_session(claude_code(ClaudeCode(keep_results=1)), [], reports=reports)
        model = session.model
        assert isinstance(model, Reader)

        async def talk(session: AgentSession = session, sizes: list[int] = model.sizes) -> None:
            for turn in range(12):
                await session.run(f"q{turn}")
                session.window.add(Message(role="user", content="next"))
                measured = session.compaction.usage().tokens
                await session.resume()
                assert abs(sizes[-2] - measured) <= 3, turn

        asyncio.run(talk())


def test_a_processor_that_shortens_what_does_not_fit_does_not_hide_that_a_conversation_grows() -> (
    None
):
    limits: list[int | None] = []

    def fit(messages: Sequence[Message], given: RequestLimits) -> Sequence[Message]:
        limits.append(given.limit)
        return messages if given.limit is None else messages[-4:]

    told: list[Event] = []
    session = read_session(attrs.evolve(vscode(), processors=(fit,)), told)

    async def talk() -> None:
        for turn in range(40):
            await session.run(f"q{turn}")

    asyncio.run(talk())
    assert [event for event in told if isinstance(event, CompactionCommitted)]
    assert limits[0] is None


def test_a_view_is_processed_once_for_its_measurement_and_its_request() -> None:
    calls: list[tuple[Message, ...]] = []

    def count(messages: Sequence[Message], given: RequestLimits) -> Sequence[Message]:
        calls.append(tuple(messages))
        return cap_tool_results(100)(messages, given)

    session = read_session(attrs.evolve(vscode(), processors=(count,)), [])

    async def talk() -> None:
        for turn in range(6):
            await session.run(f"q{turn}")

    asyncio.run(talk())
    assert len(calls) == len(set(calls))


class Rereader(Reader):
    """A model that reads the same file twice in each turn."""

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        if [message.role for message in messages[-3:]] == ["user", "assistant", "tool"]:
            call = ToolCall(id=f"again{len(self.sizes)}", name="read", arguments="{}")
            return Reply(
                message=Message(role="assistant", tool_calls=[call]),
                usage=Usage(input_tokens=0),
                finish="tool_calls",
            )
        return await super().complete(messages, tools=tools)


def test_superseded_results_are_replaced_in_any_preset_where_the_cache_is_cold_and_never_in_a_turn() -> (
    None
):
    session = AgentSession(
        model=Rereader(reports=False),
        budget=ContextBudget(window=10_000, reserved_output_tokens=0),
        tokenizer=WORDS,
        reduce=ReduceToolResults(),
        tools=[Tool(definition=ToolDefinition(name="read"), run=lambda _: RESULT)],
    )
    full: list[list[bool]] = []

    async def talk() -> None:
        for turn in range(3):
            await session.run(f"q{turn}")
            results = [
                message.text for message in session.window.view.messages if message.role == "tool"
            ]
            full.append([text == RESULT for text in results])

    asyncio.run(talk())
    assert full == [[True] * 2, [False, True] + [True] * 2, [False] * 3 + [True] * 3]
    edits = [
        entry.payload for entry in session.transcript.path() if isinstance(entry.payload, Edit)
    ]
    assert {edit.reason for edit in edits} == {"superseded"}
    assert (
        len(
            [
                entry
                for entry in session.transcript.path()
                if entry.message and entry.message.text == RESULT
            ]
        )
        == 6
    )


def test_a_reduction_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match=r"reduce must be a ReduceToolResults"):
        AgentSession(model="gpt-5", reduce="superseded")  # type: ignore[arg-type]  # the point of the test
