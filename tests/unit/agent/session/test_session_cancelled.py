"""A session is cancelled at each await of a conversation in turn, over HTTP, with a file, tools in threads and summaries.

Whatever the await was: what a turn acknowledged and what a tool returned is in the file, each
checkpoint was reported and each that was reported is there, no tool runs twice, and the
conversation goes on with valid requests.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs
import openai
import pytest

from benchmarks.conversation_script import is_summary_request
from promptkit import (
    AgentSession,
    ContextBudget,
    JsonlStore,
    Message,
    ToolCall,
    ToolDefinition,
    Transcript,
)
from promptkit.compaction import (
    ArchiveDirectory,
    CompactionCancelled,
    CompactionCommitted,
    CompactionFailed,
    CompactionHooks,
    CompactionStarted,
    Events,
    PreCompactResult,
    SummaryDiscarded,
    ToolCalled,
    ToolReturned,
)
from promptkit.errors import NoPendingMessageError
from promptkit.providers.openai.client import OpenAIModel
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.testing.server import serve
from promptkit.tools import Tool
from promptkit.transcript import find_problems
from promptkit.transcript.log.entries import Checkpoint
from promptkit.transcript.stores.jsonl.reader import TranscriptReader
from tests.conversations import summary_reply
from tests.soak.conversation import CancelAt
from tests.unit.compaction.summarizers.writers import Recorder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from promptkit.compaction.planning.plan import Plan
    from promptkit.testing.server import Exchange, Server
    from promptkit.testing.server.journal import Answer
    from promptkit.transcript import Entry

SIZES = (100, 100, 300, 400, 100, 400, 1_000, 100)
"""Words of the user messages: some fill the window by steps, and one leaves no time for a summary in the background."""

TURNS = len(SIZES)
WINDOW = 2_600
MARK = re.compile(r"\[(?:said|answer|read) [\w.]+\]")
MOST_AWAITS = 176
"""The awaits at which the conversation is cancelled. It has about as many: how often a stream is waited
for depends on how busy the machine is."""

SUMMARY = summary_reply("It is about the parser.")


def answer(exchange: Exchange) -> Answer:
    if is_summary_request(exchange):
        return SUMMARY
    last = exchange.messages[-1]
    if last["role"] == "user" and "Look" in exchange.text:
        return [
            ToolCall(
                id=f"c{exchange.number}.{at}",
                name="read",
                arguments=json.dumps({"at": f"{exchange.number}.{at}"}),
            )
            for at in range(2)
        ]
    return f"[answer {exchange.number}] " + "So it is. " * 30


class Waiting(CompactionHooks):
    """Hooks that await before and after a compaction."""

    async def pre_compact(
        self, plan: Plan, *, trigger: str, instructions: str | None
    ) -> PreCompactResult:
        await asyncio.sleep(0)
        return PreCompactResult()

    async def post_compact(self, checkpoint: Entry) -> None:
        await asyncio.sleep(0)


@attrs.define
class Cancelled:
    """A conversation that is cancelled once."""

    server: Server
    file: Path
    told: Recorder = attrs.field(factory=Recorder)
    runs: list[str] = attrs.field(factory=list[str])
    acknowledged: set[str] = attrs.field(factory=set[str])
    turns: int = 0
    awaits: int = 0

    def open(self, client: openai.AsyncOpenAI) -> AgentSession:
        return AgentSession(
            model=OpenAIModel(
                "gpt-4.1", api="chat", client=client, options={"max_output_tokens": 300}
            ),
            transcript=Transcript(JsonlStore(self.file)),
            instructions="Be brief.",
            tools=[Tool(definition=ToolDefinition(name="read"), run=self.read)],
            budget=ContextBudget(window=WINDOW, reserved_output_tokens=300, tools=60),
            events=Events(self.told),
            hooks=Waiting(),
            archives=ArchiveDirectory(self.archives),
            recall=False,
            rng=lambda: 0.5,
        )

    @property
    def archives(self) -> Path:
        return self.file.with_name("archives")

    def read(self, arguments: Mapping[str, object]) -> str:
        time.sleep(0.002)
        self.runs.append(str(arguments["at"]))
        return f"[read {arguments['at']}] " + "lorem ipsum dolor " * 50

    async def talk(self, session: AgentSession, turns: int) -> None:
        for number in range(self.turns, turns):
            self.turns += 1
            text = (
                f"[said {number}] {'Look' if number % 2 else 'Go on'}. "
                + "please " * SIZES[number % TURNS]
            )
            heard: list[str] = []
            result = await session.run(text, on_text=heard.append)
            self.acknowledge(f"[said {number}]", result.text)
        if turns == TURNS:
            await session.compact()
            await session.switch_branch(session.transcript.path()[3].id, summarize=False)

    def acknowledge(self, *texts: str) -> None:
        self.acknowledged.update(mark for text in texts for mark in MARK.findall(text))

    async def go_on(self, session: AgentSession) -> None:
        """Continue the turn that was cancelled, and have another one."""
        with suppress(NoPendingMessageError):
            self.acknowledge((await session.resume()).text)
        await self.talk(session, self.turns + 1)

    def check(self, session: AgentSession) -> None:
        """Compare the file with what was reported and acknowledged."""
        assert list(find_problems(TranscriptReader(self.file))) == []
        stored = Transcript(JsonlStore(self.file))
        assert [entry.id for entry in stored.entries] == [
            entry.id for entry in session.transcript.entries
        ]
        messages = [entry.message for entry in stored.entries if entry.message]
        marks = Counter(mark for message in messages for mark in MARK.findall(message.text))
        self.acknowledge(
            *(
                event.result or ""
                for event in self.told.events
                if isinstance(event, ToolReturned) and not event.error
            )
        )
        self.acknowledge(
            *(json.dumps(message) for each in self.server.requests for message in each.messages)
        )
        assert not self.acknowledged - marks.keys()
        assert set(marks.values()) <= {1}
        assert set(Counter(self.runs).values()) <= {1}
        results = Counter(message.tool_call_id for message in messages if message.role == "tool")
        assert set(results.values()) <= {1}
        assert (
            not {event.call_id for event in self.told.events if isinstance(event, ToolCalled)}
            - results.keys()
        )
        checkpoints = [
            entry.id for entry in stored.entries if isinstance(entry.payload, Checkpoint)
        ]
        assert checkpoints == [
            event.checkpoint for event in self.told.events if isinstance(event, CompactionCommitted)
        ]
        assert len(ArchiveDirectory(self.archives).files) == len(checkpoints)
        assert sorted(
            event.number for event in self.told.events if isinstance(event, CompactionStarted)
        ) == sorted(
            event.number
            for event in self.told.events
            if isinstance(
                event,
                CompactionCommitted | CompactionFailed | SummaryDiscarded | CompactionCancelled,
            )
        )
        assert not self.server.stats.invalid, [
            each.problem for each in self.server.requests if each.problem
        ]


async def hold(each: Cancelled, number: int, *, reopen: bool = False, late: bool = False) -> None:
    """Cancel a conversation at an await, go on, and check it."""
    async with openai.AsyncOpenAI(
        base_url=each.server.url, api_key="none", max_retries=0
    ) as client:
        session = each.open(client)
        work = CancelAt(each.talk(session, TURNS), number, late=late)
        task = asyncio.ensure_future(awaited(work))
        await asyncio.wait([task])
        assert task.cancelled() or task.result() is None
        assert task.cancelled() is work.cancelled
        if reopen:
            await session.close()
            session = each.open(client)
        await each.go_on(session)
        await session.close()
    for thread in threading.enumerate():
        if thread.name == "promptkit tool":
            await asyncio.to_thread(thread.join)
    each.check(session)
    each.awaits = work.count


async def awaited(work: CancelAt) -> None:
    await work


def cancel(folder: Path, number: int, *, reopen: bool, late: bool) -> Cancelled:
    with serve(after=answer, window=WINDOW) as server:
        each = Cancelled(server, folder / f"{number}.jsonl")
        asyncio.run(hold(each, number, reopen=reopen, late=late))
        return each


STEP = 23
WAYS = [(reopen, late) for reopen in (False, True) for late in (False, True)]


@pytest.mark.parametrize("number", range(0, MOST_AWAITS, STEP))
def test_a_session_goes_on_after_a_cancellation_at_any_await(number: int, tmp_path: Path) -> None:
    reopen, late = WAYS[number // STEP % len(WAYS)]
    cancel(tmp_path, number, reopen=reopen, late=late)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(MOST_AWAITS))
@pytest.mark.parametrize(("reopen", "late"), WAYS)
def test_a_session_goes_on_after_a_cancellation_at_every_await(
    number: int, tmp_path: Path, *, reopen: bool, late: bool
) -> None:
    cancel(tmp_path, number, reopen=reopen, late=late)


def test_the_conversation_that_is_cancelled_has_all_kinds_of_awaits(tmp_path: Path) -> None:
    each = cancel(tmp_path, -1, reopen=False, late=False)
    committed = [
        event.trigger for event in each.told.events if isinstance(event, CompactionCommitted)
    ]
    assert set(committed) == {"background", "foreground", "manual"}
    assert each.runs
    assert MOST_AWAITS / 3 < each.awaits < 2 * MOST_AWAITS


def test_a_result_that_a_thread_returned_before_the_cancellation_is_kept() -> None:
    started, busy = threading.Event(), threading.Event()

    def read(_: object) -> str:
        started.set()
        busy.wait()
        return "[read 1]"

    call = Message(role="assistant", tool_calls=(ToolCall(id="1", name="read", arguments="{}"),))
    session = AgentSession(
        model=ScriptedModel([call, "It is read."]),
        tools=[Tool(definition=ToolDefinition(name="read"), run=read)],
        tokenizer=WordTokenizer(),
    )

    async def talk() -> None:
        turn = asyncio.ensure_future(session.run("Read it."))
        await asyncio.to_thread(started.wait)
        busy.set()
        time.sleep(0.05)  # noqa: ASYNC251  # the loop is busy while the thread returns
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        await session.resume()

    asyncio.run(talk())
    results = [each.text for each in session.window.view.messages if each.role == "tool"]
    assert results == ["[read 1]"]
