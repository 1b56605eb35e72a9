"""What changes the branch of a session goes through its lock: in a running turn it is refused, and nothing is broken by it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from promptkit.agent import AgentSession, ContextWindow, SyncSession
from promptkit.compaction import KeepLastTurns, Summary, SummaryTask
from promptkit.compaction.policy.rules import Thresholds, default_policy
from promptkit.compaction.recall.tool import RECALL
from promptkit.compaction.summarizers.summarizer import HANDOFF_SECTIONS
from promptkit.errors import (
    ModelUnavailableError,
    NoPendingMessageError,
    SummaryError,
    TurnInProgressError,
)
from promptkit.messages import Message, ToolCall, ToolDefinition
from promptkit.testing import ScriptedModel, WordTokenizer, summary_answer
from promptkit.tokens.budget import ContextBudget
from promptkit.tools import Tool
from promptkit.transcript.log.entries import BranchSummary
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.store import JsonlStore
from promptkit.transcript.stores.store import InMemoryStore
from tests.conversations import summary_reply, words
from tests.unit.compaction.summarizers.writers import Writer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from promptkit.testing.scripted_model import Request
    from promptkit.transcript.log.entries import Entry


def session_of(model: ScriptedModel, **arguments: object) -> AgentSession:
    async def wait(_: object) -> str:
        STARTED[0].set()
        await GATES[0].wait()
        return "result"

    tool = Tool(definition=ToolDefinition(name="slow"), run=wait)
    budget = ContextBudget(window=50_000, max_output_tokens=1_000)
    return AgentSession(
        model=model,
        budget=budget,
        tokenizer=WordTokenizer(),
        tools=[tool],
        **arguments,  # type: ignore[arg-type]  # the test's
    )


GATES: list[asyncio.Event] = []
"""Opened by a test, so that the slow tool returns."""
STARTED: list[asyncio.Event] = []
"""Set when the slow tool runs."""


def answer(request: Request) -> str | ToolCall:
    last = request.messages[-1]
    return (
        ToolCall(id="t1", name="slow", arguments="{}")
        if last.role == "user" and last.text == "go now"
        else "done"
    )


async def undo(session: AgentSession, _: str) -> object:
    return session.undo_compaction()


CHANGES: dict[str, Callable[[AgentSession, str], Awaitable[object]]] = {
    "switch_branch": lambda session, entry: session.switch_branch(entry),
    "undo_compaction": undo,
    "reset": lambda session, _: session.reset(),
    "handoff": lambda session, _: session.handoff("Ship it.", InMemoryStore()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_in_a_running_turn_a_change_of_the_branch_is_refused_and_the_turn_ends_as_it_would(
    change: str,
) -> None:
    async def go() -> None:
        GATES[:], STARTED[:] = [asyncio.Event()], [asyncio.Event()]
        session = session_of(ScriptedModel([answer] * 20))
        await session.run("one")
        first = session.transcript.leaf
        assert first is not None
        await session.run("two")
        turn = asyncio.ensure_future(session.run("go now"))
        await asyncio.wait_for(STARTED[0].wait(), 10)
        before = session.transcript.leaf
        with pytest.raises(TurnInProgressError):
            await CHANGES[change](session, first)
        assert session.transcript.leaf == before
        GATES[0].set()
        assert (await asyncio.wait_for(turn, 10)).text == "done"
        assert (await session.run("three")).text == "done"

    asyncio.run(go())


def forked(model: ScriptedModel) -> tuple[AgentSession, str]:
    session = session_of(model)
    asyncio.run(session.run("one"))
    first = session.transcript.leaf
    assert first is not None
    asyncio.run(session.run("two"))
    return session, first


def test_a_session_leaves_a_branch_with_a_summary_of_it() -> None:
    session, first = forked(ScriptedModel(["a", "b", "c"]))
    session.compaction.compactor.summarizer = Summarized()
    entry = asyncio.run(session.switch_branch(first))
    assert entry is not None
    assert isinstance(entry.payload, BranchSummary)
    assert [item.message.text for item in session.window.view.items][:2] == ["one", "a"]
    assert "tried" in session.window.view.items[2].message.text
    assert asyncio.run(session.run("three")).text == "c"


def test_a_branch_may_be_left_without_a_summary() -> None:
    session, first = forked(ScriptedModel(["a", "b"]))
    asyncio.run(session.switch_branch(first, summarize=False))
    assert [item.message.text for item in session.window.view.items] == ["one", "a"]


def test_after_a_reset_nothing_is_shown_and_everything_is_kept() -> None:
    session, _ = forked(ScriptedModel(["a", "b", "c"]))
    entries = len(session.transcript)
    assert asyncio.run(session.reset()) is not None
    assert not session.window.view.messages
    assert len(session.transcript) == entries + 1
    asyncio.run(session.run("three"))
    assert [item.message.text for item in session.window.view.items] == ["three", "c"]


def test_a_handoff_starts_a_session_that_knows_the_goal() -> None:
    document = summary_answer(words(30, "ship"), sections=HANDOFF_SECTIONS)
    session, _ = forked(ScriptedModel(["a", "b", document, "shipped"]))
    new = asyncio.run(session.handoff("Ship it.", InMemoryStore()))
    assert new.transcript is not session.transcript
    assert words(30, "ship") in new.window.view.items[0].message.text
    assert asyncio.run(new.run("Go.")).text == "shipped"
    assert session.window.view.items[-1].message.text == "b"


def test_a_handoff_that_is_not_written_changes_nothing() -> None:
    session, _ = forked(ScriptedModel(["a", "b", "", ""]))
    before = session.transcript.leaf
    with pytest.raises(SummaryError):
        asyncio.run(session.handoff("Ship it.", InMemoryStore()))
    assert session.transcript.leaf == before


async def waiting() -> tuple[ContextWindow, str]:
    """A window whose newest reply has a call without a result; the id of its first entry."""
    window = ContextWindow(
        model="gpt-4o",
        budget=ContextBudget(window=5_000, reserved_output_tokens=100),
        tokenizer=WordTokenizer(),
    )
    window.add({"role": "user", "content": "one"})
    first = window.transcript.leaf
    assert first is not None
    await window.request()
    window.add_reply(Message(role="assistant", tool_calls=(ToolCall(id="t1", name="slow"),)))
    return window, first


LEAVING: dict[str, Callable[[ContextWindow, str, bool], Awaitable[object]]] = {
    "reset": lambda window, _, abandon: window.reset(abandon_calls=abandon),
    "rewind": lambda window, entry, abandon: asyncio.to_thread(
        window.rewind, entry, abandon_calls=abandon
    ),
    "switch_branch": lambda window, entry, abandon: window.switch_branch(
        entry, summarize=False, abandon_calls=abandon
    ),
}


@pytest.mark.parametrize("change", LEAVING)
def test_a_window_leaves_no_calls_that_wait_for_results_unless_told_to(change: str) -> None:
    async def go() -> None:
        window, first = await waiting()
        before = window.transcript.leaf
        with pytest.raises(TurnInProgressError, match=r"slow \(t1\).*abandon_calls=True"):
            await LEAVING[change](window, first, False)
        assert window.transcript.leaf == before
        window.add({"role": "tool", "tool_call_id": "t1", "content": "result"})
        assert [message.role for message in (await window.request()).messages] == [
            "user",
            "assistant",
            "tool",
        ]
        window, first = await waiting()
        await LEAVING[change](window, first, True)
        assert not window.pending_calls

    asyncio.run(go())


def test_a_conversation_that_another_program_resets_in_a_turn_sends_no_request_without_messages(
    tmp_path: Path,
) -> None:
    async def go() -> None:
        GATES[:], STARTED[:] = [asyncio.Event()], [asyncio.Event()]
        model = ScriptedModel([answer] * 20)
        session = session_of(
            model, transcript=Transcript(JsonlStore(tmp_path / "talk.jsonl")), recall=False
        )
        turn = asyncio.ensure_future(session.run("go now"))
        await asyncio.wait_for(STARTED[0].wait(), 10)
        await session_of(
            ScriptedModel([]), transcript=Transcript(JsonlStore(tmp_path / "talk.jsonl"))
        ).reset()
        GATES[0].set()
        with pytest.raises(NoPendingMessageError, match="reset meanwhile"):
            await turn
        assert all(request.messages for request in model.requests)
        assert (await session.run("two")).text == "done"

    asyncio.run(go())


@pytest.mark.parametrize("system", [(), (Message(role="system", content="Be brief."),)])
def test_a_window_without_messages_makes_no_request(system: tuple[Message, ...]) -> None:
    window = ContextWindow(model="gpt-4o", tokenizer=WordTokenizer())
    window.add(*system)
    with pytest.raises(NoPendingMessageError):
        asyncio.run(window.request())


REFUSAL = (
    "I'm sorry, but I can't assist with that request. It contains material that I am not able to process under the policies that I have "
    "to follow, so please rephrase it or ask me about something else entirely."
)
NO_DOCUMENT = [
    REFUSAL,
    f"<summary>{REFUSAL}</summary>",
    "ok",
    summary_answer("ok", sections=HANDOFF_SECTIONS),
    summary_answer(words(60)),
]


@pytest.mark.parametrize("answered", NO_DOCUMENT)
def test_a_refusal_or_small_talk_opens_no_new_conversation(answered: str) -> None:
    session = session_of(ScriptedModel([words(900), words(900), answered, answered]))
    asyncio.run(session.run("one"))
    asyncio.run(session.run("two"))
    before, store = session.transcript.leaf, InMemoryStore()
    with pytest.raises(SummaryError):
        asyncio.run(session.handoff("Ship it.", store))
    assert (session.transcript.leaf, store.load().entries) == (before, ())


def test_no_short_answer_of_a_summarizer_of_one_s_own_stands_for_a_branch() -> None:
    session, first = forked(ScriptedModel(["a", words(900)]))
    session.compaction.compactor.summarizer = Writer(text="ok")
    before = session.transcript.leaf
    with pytest.raises(SummaryError, match="ok"):
        asyncio.run(session.switch_branch(first))
    assert session.transcript.leaf == before


@pytest.mark.parametrize("change", ["switch_branch", "handoff"])
def test_a_summarizing_model_that_hangs_holds_up_a_change_of_the_branch_no_longer_than_it_may(
    change: str,
) -> None:
    async def hang(_: Request) -> str:
        await asyncio.Event().wait()
        return ""

    policy = default_policy(rng=lambda: 0.5, thresholds=Thresholds(wait_seconds=0.05))
    session = session_of(ScriptedModel(["a", "b", hang, hang]), policy=policy)
    asyncio.run(session.run("one"))
    first = session.transcript.leaf
    assert first is not None
    asyncio.run(session.run("two"))

    async def go() -> None:
        async with asyncio.timeout(5):
            await CHANGES[change](session, first)

    before = session.transcript.leaf
    with pytest.raises(SummaryError, match=r"0\.05 seconds"):
        asyncio.run(go())
    assert session.transcript.leaf == before


def test_a_session_that_is_given_a_transcript_offers_recall_unless_told_not_to() -> None:
    assert RECALL.name in session_of(ScriptedModel([]), transcript=Transcript()).tools
    assert (
        RECALL.name
        not in session_of(ScriptedModel([]), transcript=Transcript(), recall=False).tools
    )
    assert RECALL.name not in session_of(ScriptedModel([])).tools
    assert RECALL.name in session_of(ScriptedModel([]), recall=True).tools


def test_a_fork_recalls_its_own_conversation() -> None:
    call = ToolCall(id="r1", name=RECALL.name, arguments='{"query": "kumquat"}')
    model = ScriptedModel(["a", call, "b"])
    session = session_of(model, recall=True)
    asyncio.run(session.run("first"))
    fork = session.fork(InMemoryStore())
    asyncio.run(fork.run("a kumquat"))
    result = next(
        item.message.text for item in fork.window.view.items if item.message.role == "tool"
    )
    assert "a kumquat" in result


def test_a_program_without_an_event_loop_does_the_same() -> None:
    with SyncSession(
        session_of(
            ScriptedModel(
                ["a", "b", summary_answer("the document", sections=HANDOFF_SECTIONS), "c"]
            )
        )
    ) as talk:
        talk.run("one")
        talk.run("two")
        with talk.handoff("Ship it.", InMemoryStore()) as new:
            assert new.run("Go.").text == "c"
        entry: Entry | None = talk.reset()
        assert entry is not None


class Summarized:
    """Writes that something was tried."""

    async def summarize(self, task: SummaryTask) -> Summary:
        _ = task
        return Summary(text="It was tried.", mode="test")


def test_a_session_bounds_what_its_program_keeps() -> None:
    session = session_of(ScriptedModel([]), keep=KeepLastTurns(count=2))
    assert session.compaction.budget.base
    assert session.compaction.compactor.keep == KeepLastTurns(
        count=2, max_tokens=session.compaction.budget.base // 2
    )


@pytest.mark.parametrize("preset", ["codex", "claude_code"])
def test_a_turn_is_resumed_after_a_compaction_that_leaves_its_question_before_the_summary(
    preset: str,
) -> None:
    model = ScriptedModel(
        [
            words(900, "a"),
            ModelUnavailableError("away"),
            summary_reply(words(20)),
            words(900, "b"),
            summary_reply(words(20)),
        ]
    )
    session = session_of(model, preset=preset)

    async def talk() -> None:
        await session.run("one")
        with pytest.raises(ModelUnavailableError):
            await session.run("two")
        assert await session.compact() is not None
        assert (await session.resume()).text.startswith("b b")
        assert await session.compact() is not None
        with pytest.raises(NoPendingMessageError):
            await session.resume()

    asyncio.run(talk())
