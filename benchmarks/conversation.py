"""Measure a long conversation with tools, over real HTTP in a small context window: overflows, waits, cached tokens."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs
import openai
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import TypeAdapter, ValidationError

from benchmarks.conversation_idle import measure_decisions, measure_idle
from benchmarks.conversation_script import FACTS, INSTRUCTIONS, Script, is_summary_request, tools
from promptkit.agent.session.session import AgentSession
from promptkit.compaction import CompactionCommitted, CompactionFailed, Events
from promptkit.compaction.policy.rules import (
    Policy,
    compact_on_demand,
    default_policy,
    discard_stale,
    first_match,
    on_overflow,
)
from promptkit.providers.openai.client import OpenAIModel
from promptkit.testing.server import Server, serve
from promptkit.tokens.budget import ContextBudget
from promptkit.tokens.models import tokenizer_for
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.store import JsonlStore

__all__ = ["ConversationResult", "Figures", "main", "measure", "run_conversation"]

MODEL = "gpt-4.1"
WINDOW = 16_000
REPLY = 1_500


@attrs.frozen(kw_only=True)
class ConversationResult:
    """The result of one conversation."""

    turns: int
    overflows: int
    """Requests that the server rejected as too large."""
    invalid: int
    """Requests that the server rejected as invalid, or that the SDK's types do not allow."""
    facts: int
    """Facts that the model knew in its last reply."""
    compactions: dict[str, int]
    """Trigger and mode → number of compactions."""
    summary_cached: float
    """The share of the input tokens of summary requests that was cached."""
    request_cached: float
    """The same for all other requests."""
    longest_wait: float
    """Seconds of the longest turn."""


@attrs.frozen(kw_only=True)
class Figures:
    """What is printed."""

    turns: int
    overflow_failures: int
    invalid_requests: int
    facts_reachable: float
    """The share of the planted facts."""
    summary_cached_share: float
    request_cached_share: float
    wait_ratio_foreground_over_background: float
    memory_per_idle_conversation_kib: float
    decide_ms_5000_entries: float
    compactions: dict[str, dict[str, int]]
    longest_wait_seconds: dict[str, float]
    idle_conversations: int
    idle_summaries: int


async def run_conversation(
    script: Script,
    folder: Path,
    *,
    background: bool = True,
    pause: float = 0.0,
    window: int = WINDOW,
) -> ConversationResult:
    """Hold the conversation.

    `pause` is the seconds between two turns. Without `background`, a summary is made only when a
    request does not fit.
    """
    made: list[CompactionCommitted | CompactionFailed] = []
    events = Events(
        lambda event: (
            made.append(event)
            if isinstance(event, CompactionCommitted | CompactionFailed)
            else None
        )
    )
    offered = tools()
    budget = ContextBudget.for_model(
        MODEL,
        tokenizer=tokenizer_for(MODEL),
        tools=[tool.definition for tool in offered],
        window=window,
        reserved_output_tokens=REPLY,
    )
    with serve(window=window, rules=[script.rule()], after=script.answer) as server:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0) as client:
            session = AgentSession(
                model=OpenAIModel(
                    MODEL, api="chat", client=client, options={"max_output_tokens": REPLY}
                ),
                transcript=Transcript(JsonlStore(folder / "conversation.jsonl")),
                instructions=INSTRUCTIONS,
                tools=offered,
                budget=budget,
                policy=_policy(background=background),
                events=events,
            )
            waits: list[float] = []
            text = ""
            for turn in range(1, script.turns + 1):
                started = time.perf_counter()
                text = (await session.run(script.asks(turn))).text
                waits.append(time.perf_counter() - started)
                await asyncio.sleep(pause)
            await session.close()
        compactions: dict[str, int] = {}
        for event in made:
            what = f"{event.trigger} {event.mode if isinstance(event, CompactionCommitted) else event.reason}"
            compactions[what] = compactions.get(what, 0) + 1
        return ConversationResult(
            turns=script.turns,
            overflows=server.stats.overflows,
            invalid=server.stats.invalid
            + sum(1 for exchange in server.requests if not _is_valid(exchange.body)),
            facts=sum(value in text for value in FACTS.values()),
            compactions=compactions,
            summary_cached=_cached(server, summaries=True),
            request_cached=_cached(server, summaries=False),
            longest_wait=max(waits),
        )


def _policy(*, background: bool) -> Policy:
    chance = random.Random(4).random
    return (
        default_policy(rng=chance)
        if background
        else first_match((compact_on_demand, discard_stale, on_overflow()))
    )


def _cached(server: Server, *, summaries: bool) -> float:
    used = [
        each.usage
        for each in server.requests
        if each.usage is not None and is_summary_request(each) == summaries
    ]
    return sum(usage.cached_tokens for usage in used) / max(
        1, sum(usage.input_tokens for usage in used)
    )


# Any: a union of TypedDicts, which nothing is read from
_MESSAGES: TypeAdapter[Any] = TypeAdapter(list[ChatCompletionMessageParam])
_TOOLS: TypeAdapter[Any] = TypeAdapter(list[ChatCompletionToolParam])  # Any: likewise


def _is_valid(body: Any) -> bool:  # noqa: ANN401  # Any: JSON as it came over the wire
    try:
        _read_all(_MESSAGES.validate_python(body["messages"]))
        _read_all(_TOOLS.validate_python(body.get("tools", [])))
    except (ValidationError, KeyError):
        return False
    return True


def _read_all(value: object) -> None:
    """Read all values: pydantic validates an iterable only when it is read."""
    if isinstance(value, dict):
        value = list(value.values())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  # JSON of any shape
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for item in value:  # pyright: ignore[reportUnknownVariableType]  # likewise
            _read_all(item)  # pyright: ignore[reportUnknownArgumentType]  # likewise


async def measure(
    *, turns: int, conversations: int, answer: float, summary: float, pause: float
) -> Figures:
    """Measure all figures. Times are in seconds."""
    script = Script(turns=turns, answer_seconds=answer, summary_seconds=summary)
    held: dict[str, ConversationResult] = {}
    for name in ("background", "foreground"):
        with tempfile.TemporaryDirectory() as folder:
            held[name] = await run_conversation(
                script, Path(folder), background=name == "background", pause=pause
            )
    background, foreground = held["background"], held["foreground"]
    rest = await measure_idle(conversations)
    return Figures(
        turns=turns,
        overflow_failures=background.overflows + foreground.overflows,
        invalid_requests=background.invalid + foreground.invalid,
        facts_reachable=min(background.facts, foreground.facts) / len(FACTS),
        summary_cached_share=round(background.summary_cached, 4),
        request_cached_share=round(background.request_cached, 4),
        wait_ratio_foreground_over_background=round(
            foreground.longest_wait / background.longest_wait, 2
        ),
        memory_per_idle_conversation_kib=round(rest.kib, 1),
        decide_ms_5000_entries=round(await measure_decisions(5_000), 3),
        compactions={name: each.compactions for name, each in held.items()},
        longest_wait_seconds={name: round(each.longest_wait, 3) for name, each in held.items()},
        idle_conversations=rest.conversations,
        idle_summaries=rest.summaries,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit status 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conversation", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--turns", type=int, default=200, help="of the conversation, at least 10 (default 200)"
    )
    parser.add_argument(
        "--conversations",
        type=int,
        default=1_000,
        help="that are idle in one process (default 1,000)",
    )
    parser.add_argument(
        "--answer", type=float, default=0.02, help="seconds that an answer takes (default 0.02)"
    )
    parser.add_argument(
        "--summary", type=float, default=2.0, help="seconds that a summary takes (default 2)"
    )
    parser.add_argument(
        "--pause", type=float, default=0.3, help="seconds between two turns (default 0.3)"
    )
    asked = parser.parse_args(arguments)
    figures = asyncio.run(
        measure(
            turns=max(10, asked.turns),
            conversations=asked.conversations,
            answer=asked.answer,
            summary=asked.summary,
            pause=asked.pause,
        )
    )
    found = attrs.asdict(figures)
    if asked.json:
        print(json.dumps(found, indent=2))
    else:
        width = max(map(len, found))
        for name, value in found.items():
            print(f"{name:{width}}  {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
