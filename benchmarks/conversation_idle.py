"""Measure the memory of idle conversations, and the time of the decisions around a request in a long one.

No network, no model.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
import tracemalloc
from typing import TYPE_CHECKING

import attrs

from promptkit import Message, Usage
from promptkit.agent.session.session import AgentSession
from promptkit.compaction import CompactionCommitted, Events
from promptkit.compaction.planning.plan import LastRequest
from promptkit.compaction.run.state import PendingRequest
from promptkit.providers import Reply
from promptkit.rendering.expand.render_cache import RequestRuns
from promptkit.testing import WordTokenizer, summary_answer
from promptkit.tokens.budget import ContextBudget
from promptkit.transcript.log.entries import MessageEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.compaction import Event

__all__ = ["IdleResult", "measure_decisions", "measure_idle"]

SAID = " ".join(["word"] * 60)
TURNS = 24


@attrs.frozen
class Quick:
    """A model that replies at once, and writes a summary on request."""

    name: str = "quick"

    async def complete(self, messages: Sequence[Message], *, tools: object = ()) -> Reply:
        """Return a fixed reply."""
        _ = tools
        await asyncio.sleep(0)
        asked = any(mark in messages[-1].text for mark in ("<summary>", "Write the summary"))
        text = f"<analysis>so</analysis>{summary_answer(SAID)}" if asked else SAID
        return Reply(
            message=Message(role="assistant", content=(text,)),
            usage=Usage(input_tokens=0),
            finish="stop",
        )


@attrs.frozen(kw_only=True)
class IdleResult:
    """The result for idle conversations in one process, each summarized in the background."""

    conversations: int
    kib: float
    """Memory of each conversation in KiB, transcript included."""
    summaries: int
    """Background summaries of all conversations together."""


async def measure_idle(count: int) -> IdleResult:
    """Run `count` conversations of two dozen turns concurrently, and measure their memory when they are idle, with tracemalloc."""
    committed: list[CompactionCommitted] = []

    def tell(event: Event) -> None:
        if isinstance(event, CompactionCommitted) and event.trigger == "background":
            committed.append(event)

    tokenizer = WordTokenizer()
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    sessions = [
        AgentSession(
            model=Quick(),
            instructions="Be brief.",
            budget=ContextBudget(window=2_600, reserved_output_tokens=200),
            tokenizer=tokenizer,
            events=Events(tell),
        )
        for _ in range(count)
    ]
    for turn in range(TURNS):
        await asyncio.gather(*(session.run(f"{turn} {SAID}") for session in sessions))
    summaries = len(committed)
    committed.clear()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for session in sessions:
        await session.close()
    return IdleResult(conversations=count, kib=(after - before) / 1024 / count, summaries=summaries)


async def measure_decisions(entries: int, *, times: int = 51) -> float:
    """Return the median milliseconds of all decisions around one request, in a transcript of `entries` entries, after the first one."""
    session = AgentSession(
        model=Quick(),
        budget=ContextBudget(window=100 * entries, reserved_output_tokens=0),
        tokenizer=WordTokenizer(),
        instructions="Be brief.",
    )
    for number in range(entries // 2):
        session.transcript.append_messages(Message(role="user", content=(f"{number} {SAID}",)))
        answer = Message(role="assistant", content=(SAID,))
        session.transcript.append(
            MessageEntry(
                message=answer,
                usage=Usage(input_tokens=100 * number, output_tokens=60),
                model="quick",
            )
        )
    controller = session.compaction
    took: list[float] = []
    for number in range(times + 1):
        session.transcript.append_messages(Message(role="user", content=(f"again {number}",)))
        reply = Message(role="assistant", content=(f"and again {number}",))
        started = time.perf_counter()
        request = PendingRequest(
            state=await controller.prepare(),
            content=LastRequest(messages=controller.view.messages),
            tokens=controller.usage().local,
            model="quick",
            runs=RequestRuns(),
        )
        controller.on_rendered(request)
        seconds = time.perf_counter() - started
        session.transcript.append(
            MessageEntry(message=reply, usage=Usage(input_tokens=200_000), model="quick")
        )
        started = time.perf_counter()
        controller.on_reply(request, reply)
        took.append(seconds + time.perf_counter() - started)
    return 1_000 * statistics.median(took[1:])
