"""The summary of a branch and the document of a handoff fail, are reported and are billed as every summary is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit import ToolCall, tool
from promptkit.agent import AgentSession, ContextWindow
from promptkit.compaction import (
    PRESETS,
    CompactionCommitted,
    CompactionFailed,
    CompactionHooks,
    CompactionStarted,
    Events,
    HookChain,
    Plan,
    PreCompactResult,
    ReplyReceived,
    RequestSent,
    Summary,
    SummaryAttemptFailed,
)
from promptkit.compaction.summarizers.summarizer import HANDOFF_SECTIONS, sum_usage
from promptkit.errors import ModelUnavailableError, SummaryError
from promptkit.messages import Message, Usage
from promptkit.providers import Reply
from promptkit.testing import ScriptedModel, WordTokenizer, summary_answer
from promptkit.tokens import ContextBudget
from promptkit.transcript import (
    BranchSummary,
    CustomMessage,
    InMemoryStore,
    JsonlStore,
    MessageEntry,
    Transcript,
)
from promptkit.transcript.log.statistics import compute_statistics
from tests.conversations import words
from tests.unit.compaction.summarizers.writers import Recorder

if TYPE_CHECKING:
    from pathlib import Path

    from promptkit.testing.scripted_model import Step

PAID = Usage(input_tokens=700, output_tokens=30)


def paid(text: str) -> Reply:
    return Reply(message=Message(role="assistant", content=(text,)), usage=PAID, finish="stop")


def spoken(
    *answers: Step, preset: str = "vscode", hooks: CompactionHooks | None = None
) -> tuple[AgentSession, str, Recorder]:
    """A session of three turns, the id of the answer to the first, and its events since."""
    told = Recorder()
    session = AgentSession(
        model=ScriptedModel([words(50, "one"), words(200, "two"), words(200, "three"), *answers]),
        tokenizer=WordTokenizer(),
        budget=ContextBudget(window=50_000, max_output_tokens=1_000),
        preset=preset,
        hooks=hooks,
        events=Events(told),
    )
    for number in range(3):
        asyncio.run(session.run(f"Question {number}"))
    told.events.clear()
    return session, session.transcript.path()[1].id, told


@pytest.mark.parametrize("preset", sorted(PRESETS))
@pytest.mark.parametrize("refused", ["no", ModelUnavailableError("down")])
def test_a_branch_is_not_left_with_an_extract_where_the_model_writes_no_summary(
    preset: str, refused: Step
) -> None:
    session, first, told = spoken(*[refused] * 8, preset=preset)
    before = session.transcript.leaf
    with pytest.raises(SummaryError):
        asyncio.run(session.switch_branch(first))
    assert session.transcript.leaf == before
    told.check()
    (failed,) = [each for each in told.events if isinstance(each, CompactionFailed)]
    assert failed.trigger == "branch"
    assert any(isinstance(each, SummaryAttemptFailed) for each in told.events)


def test_without_a_summarizing_model_the_summary_of_a_branch_is_extracted() -> None:
    window = ContextWindow(model="gpt-4o")
    window.add(*(Message(role="user", content=text) for text in ("one", "two")))
    entry = asyncio.run(window.switch_branch(window.transcript.path()[0].id))
    assert entry is not None
    assert isinstance(entry.payload, BranchSummary)
    assert "two" in entry.payload.summary
    assert (entry.payload.author, entry.payload.model) == ("extract", None)


def test_the_summary_of_a_branch_is_reported_and_recorded_with_what_it_cost(
    tmp_path: Path,
) -> None:
    session, first, told = spoken("no", paid(summary_answer(words(60))))
    conversation = session.transcript.path()[0].id
    size = session.context_usage().parts
    entry = asyncio.run(session.switch_branch(first))
    told.check()
    (started,) = [each for each in told.events if isinstance(each, CompactionStarted)]
    assert (started.trigger, started.messages, started.conversation) == ("branch", 4, conversation)
    sent = [each for each in told.events if isinstance(each, RequestSent)]
    assert [each.compaction for each in sent] == [started.number] * 2
    (done,) = [each for each in told.events if isinstance(each, CompactionCommitted)]
    assert entry is not None
    assert (done.checkpoint, done.trigger, done.model) == (entry.id, "branch", "scripted")
    total = sum_usage(each.usage for each in told.events if isinstance(each, ReplyReceived))
    assert total is not None
    assert total.input_tokens > PAID.input_tokens
    assert done.usage == total
    assert started.before == done.before == size
    assert done.after == session.context_usage().parts
    assert done.tokens_after < done.tokens_before
    assert isinstance(entry.payload, BranchSummary)
    assert (entry.payload.model, entry.payload.usage) == ("scripted", total)
    replies = [
        each.payload.usage
        for each in session.transcript.entries
        if isinstance(each.payload, MessageEntry)
    ]
    assert compute_statistics(session.transcript.entries).usage == sum_usage([*replies, total])
    copied = session.transcript.fork(JsonlStore(tmp_path / "copy.jsonl"))
    assert Transcript(copied.store).path()[-1].payload == entry.payload


def test_a_handoff_is_reported_and_recorded_with_what_it_cost() -> None:
    document = summary_answer(words(60), sections=HANDOFF_SECTIONS)
    session, _, told = spoken(paid(document))
    new = asyncio.run(session.handoff("Ship it.", InMemoryStore()))
    told.check()
    (done,) = [each for each in told.events if isinstance(each, CompactionCommitted)]
    last = new.transcript.path()[-1]
    assert (done.trigger, done.checkpoint, done.usage) == ("handoff", last.id, PAID)
    assert done.after == new.context_usage().parts
    assert isinstance(last.payload, CustomMessage)
    assert (last.payload.model, last.payload.usage) == ("scripted", PAID)
    assert compute_statistics(new.transcript.entries).usage == PAID


def test_a_handoff_that_fails_is_reported_with_what_it_cost() -> None:
    session, _, told = spoken(*[paid("no")] * 4)
    with pytest.raises(SummaryError):
        asyncio.run(session.handoff("Ship it.", InMemoryStore()))
    told.check()
    (failed,) = [each for each in told.events if isinstance(each, CompactionFailed)]
    assert failed.trigger == "handoff"
    assert failed.usage is not None
    assert failed.usage.input_tokens >= PAID.input_tokens


@attrs.define
class Asked(CompactionHooks):
    """A hook that answers before a branch is left what a test says."""

    answer: PreCompactResult | Exception
    calls: list[tuple[int, str | None, str | None]] = attrs.field(
        factory=list[tuple[int, "str | None", "str | None"]]
    )

    async def pre_branch(
        self, plan: Plan, *, to: str | None, instructions: str | None
    ) -> PreCompactResult:
        self.calls.append((len(plan.dropped), to, instructions))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("summarize", [True, False])
def test_a_hook_may_keep_the_conversation_on_its_branch(*, summarize: bool) -> None:
    hook = Asked(PreCompactResult(cancel=True))
    session, first, told = spoken(hooks=HookChain(hook))
    before = session.transcript.leaf
    switched = session.switch_branch(first, instructions="Be brief.", summarize=summarize)
    assert asyncio.run(switched) is None
    assert session.transcript.leaf == before
    assert hook.calls == [(4, first, "Be brief.")]
    told.check()
    assert told.ends == (["cancelled"] if summarize else [])


def test_a_hook_may_write_the_summary_of_a_branch() -> None:
    given = Summary(text=words(60, "given"), mode="own")
    answer = PreCompactResult(summary=given, data={"ticket": 12})
    session, first, _ = spoken(hooks=Asked(answer))
    entry = asyncio.run(session.switch_branch(first))
    assert entry is not None
    assert isinstance(entry.payload, BranchSummary)
    assert (entry.payload.author, entry.payload.data) == ("hook", {"ticket": 12})
    assert words(60, "given") in session.window.view.items[-1].message.text


@pytest.mark.parametrize(
    "answer",
    [PreCompactResult(summary=Summary(text=" ", mode="own")), RuntimeError("broken")],
)
def test_a_hook_that_raises_or_writes_nothing_does_not_prevent_a_change_of_the_branch(
    answer: PreCompactResult | Exception,
) -> None:
    session, first, told = spoken(summary_answer(words(60, "own")), hooks=Asked(answer))
    asyncio.run(session.switch_branch(first))
    assert words(60, "own") in session.window.view.items[-1].message.text
    assert told.ends == ["committed"]


def test_a_hook_may_add_instructions_for_the_summary_of_a_branch() -> None:
    hook = Asked(PreCompactResult(instructions=("Name every file.",)))
    session, first, told = spoken(summary_answer(words(60)), hooks=HookChain(hook))
    asyncio.run(session.switch_branch(first, instructions="Be brief."))
    (sent,) = [each for each in told.events if isinstance(each, RequestSent)]
    text = "\n".join(message.text for message in sent.messages)
    assert "Be brief." in text
    assert "Name every file." in text


def test_the_summary_of_a_branch_is_asked_for_with_the_tools_of_the_conversation() -> None:
    """Anthropic refuses tool calls in a request without tools."""

    @tool
    def read_file(path: str) -> str:
        """Read a file."""
        return words(50, path)

    model = ScriptedModel(
        [
            words(50, "one"),
            ToolCall(id="call_1", name="read_file", arguments='{"path": "a.py"}'),
            words(200, "two"),
            summary_answer("It was tried."),
        ]
    )
    session = AgentSession(
        model=model,
        tools=[read_file],
        tokenizer=WordTokenizer(),
        budget=ContextBudget(window=50_000, max_output_tokens=1_000),
    )
    for number in range(2):
        asyncio.run(session.run(f"Question {number}"))
    asyncio.run(session.switch_branch(session.transcript.path()[1].id))
    assert "read_file" in [each.name for each in model.requests[-1].tools]
