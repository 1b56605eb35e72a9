"""Drive every preset over HTTP through a conversation in which everything goes wrong and through one with each kind of trouble, and count what a session must never do."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anthropic
import attrs
import openai

from benchmarks.sessions_world import TROUBLES, Files, Model, Task, make_tasks, make_trouble
from promptkit.agent.session.session import AgentSession
from promptkit.compaction import (
    CompactionCommitted,
    Event,
    Events,
    RequestPruned,
    RequestSent,
    SummaryAttemptFailed,
)
from promptkit.compaction.policy.state import Compact, Wait
from promptkit.compaction.presets import PRESETS
from promptkit.compaction.recall.tool import RECALL, recall
from promptkit.errors import (
    ContextWindowFullError,
    MaxStepsExceededError,
    ModelError,
    NoPendingMessageError,
    RateLimitedError,
    SummaryError,
)
from promptkit.providers.anthropic.client import AnthropicModel
from promptkit.providers.openai.client import OpenAIModel
from promptkit.testing.server import Server, serve
from promptkit.tokens.budget import ContextBudget
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.store import JsonlStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptkit.compaction.policy.rules import Policy
    from promptkit.compaction.policy.state import Decision, PolicyState
    from promptkit.messages import Message

__all__ = ["Figures", "main", "run_preset"]

WINDOWS = {
    "openai": {"gpt-4.1": 16_000, "gpt-4.1-mini": 9_000},
    "anthropic": {"claude-sonnet-4-6": 16_000, "claude-haiku-4-5": 9_000},
}
"""The large and the small model of each API, and their windows in tokens."""
REPLY_TOKENS = 1_000
WAIT_SECONDS = 1.0
"""The longest time that one summarizer may take in the foreground."""
CLIENT_SECONDS = 2.5
"""The longest time that the client waits for any answer."""
TOLERANCE_SECONDS = 0.4
"""A busy machine delays a time limit by so much."""
MAX_RESUMES = 8
CONCURRENT = 3
"""Presets at a time."""
MARKER = re.compile(
    r"\[[^\]]*\b(?:omitted|left out|cut out|cleared|removed|truncated|pruned|trimmed|superseded)\b"
)
"""The markers that a request has in place of messages that it leaves out."""


SUMS = ("requests", "invalid_requests", "silent_omissions", "wedged", "lost")
"""The figures that are added up over all conversations."""


@attrs.frozen(kw_only=True)
class Figures:
    """The figures of one preset.

    Zero is right for `invalid_requests`, `silent_omissions`, `wedged`, `lost`,
    `repeated_tool_runs` and `longest_wait_over_limit`. `requests`, `invalid_requests`,
    `silent_omissions`, `wedged` and `lost` are sums over all conversations, the others are of the
    first one.
    """

    requests: int
    """Requests to the provider, those for summaries included."""
    invalid_requests: int
    """Requests that the provider refused as ill-formed, or that have a message without content."""
    silent_omissions: int
    """Requests that leave out or shorten messages without an event, or without a word to the
    model."""
    wedged: int
    """Turns without an answer, although their trouble is over."""
    overflows: int
    """Requests that the provider refused as too large, and turns that the session gave up because
    nothing fits."""
    lost: int
    """Messages that are not in the transcript, or neither in the view nor found by following the
    breadcrumb; and tasks that no request showed."""
    repeated_tool_runs: int
    """Reads of files that the model had read before, because its request did not show it."""
    longest_wait_over_limit: float
    """Seconds by which a summary in the foreground took longer than it may."""
    details_found: float | None
    """The share of details that were asked for after they had been dropped, and that the model
    found. None: none was dropped."""
    details_dropped: int
    compactions: int
    unfinished: int
    """Turns without an answer, after all that could be tried."""
    cached_share: float
    """The share of input tokens that the provider's cache had. Over Chat Completions."""
    cached_share_anthropic: float
    """The same over Anthropic's API, where requests say what is to be cached."""


@attrs.frozen
class _Limited:
    """A policy whose decisions wait for a short time."""

    policy: Policy

    def decide(self, state: PolicyState) -> Decision:
        decision = self.policy.decide(state)
        return (
            attrs.evolve(decision, seconds=WAIT_SECONDS)
            if isinstance(decision, Compact | Wait)
            else decision
        )


@attrs.define
class _Outcome:
    """Counts that are taken while the conversation is held."""

    users: Counter[str] = attrs.field(factory=Counter[str])
    answered: int = 0
    """Tasks whose turn ended."""
    given_up: int = 0
    unfinished: int = 0
    lost: int = 0
    compactions: int = 0
    over_limit: float = 0.0
    failed_seconds: dict[int, float] = attrs.field(factory=dict[int, float])
    """Number of a compaction → seconds of its attempts that failed."""
    wedged: int = 0
    silent_omissions: int = 0
    session: AgentSession | None = None
    checkpoints: set[str] = attrs.field(factory=set[str])
    """The ids of the summaries that an event told of."""
    pruned: bool = False
    """True if an event reported that the next request leaves messages out."""

    def on_event(self, event: Event) -> None:
        """Measure the attempts of summarizers in the foreground, and look at each request of the conversation."""
        match event:
            case RequestPruned():
                self.pruned = True
            case RequestSent(compaction=None, messages=messages) if self.session is not None:
                self.silent_omissions += self._is_silent(self.session, messages)
                self.pruned = False
            case SummaryAttemptFailed(number=number, trigger=trigger, seconds=seconds):
                self.failed_seconds[number] = self.failed_seconds.get(number, 0.0) + seconds
                self._measure(trigger, seconds)
            case CompactionCommitted(number=number, trigger=trigger, seconds=seconds):
                self.compactions += 1
                self.checkpoints.add(event.checkpoint)
                self._measure(trigger, seconds - self.failed_seconds.get(number, 0.0))
            case _:
                pass

    def _is_silent(self, session: AgentSession, messages: Sequence[Message]) -> bool:
        """Return whether a request leaves out what neither an event nor a word to the model tells."""
        view = session.window.view
        texts = [message.text for message in messages]
        replaced = {item.entry_id for item in view.items}
        if any(
            entry.message is not None and entry.id not in replaced
            for entry in session.transcript.path()
        ) and not (self.checkpoints & replaced):
            return True
        calls = {call.id for message in messages for call in message.tool_calls}
        whole = all(
            any(item.message.text in text for text in texts)
            and calls.issuperset(call.id for call in item.message.tool_calls)
            for item in view.items
        )
        return not whole and not (self.pruned and any(map(MARKER.search, texts)))

    def _measure(self, trigger: str, seconds: float) -> None:
        if trigger != "background":
            self.over_limit = max(self.over_limit, seconds - WAIT_SECONDS - TOLERANCE_SECONDS)


async def run_preset(
    name: str, *, rounds: int = 2, seed: int = 1, troubles: Sequence[str] = TROUBLES
) -> Figures:
    """Hold the conversations under a preset: one with many faults, and one with each kind of trouble, over both APIs.

    Args:
        name: The preset's name.
        rounds: Nine tasks each, of the conversation with many faults.
        seed: For the jitter of thresholds.
        troubles: The kinds of trouble.
    """
    first, *others = [
        await _hold(name, api, kind, rounds=rounds, seed=seed)
        for kind in (None, *troubles)
        for api in WINDOWS
    ]
    return attrs.evolve(
        first,
        cached_share_anthropic=others[0].cached_share,
        **{
            column: sum(getattr(figures, column) for figures in (first, *others)) for column in SUMS
        },
    )


async def _hold(name: str, api: str, kind: str | None, *, rounds: int, seed: int) -> Figures:
    """Hold one conversation."""
    model, files, outcome = Model(kind), Files(), _Outcome()
    with (
        tempfile.TemporaryDirectory() as folder,
        serve(window=WINDOWS[api], after=model.answer) as server,
    ):
        file = Path(folder) / "talk.jsonl"
        async with (
            openai.AsyncOpenAI(
                base_url=server.url, api_key="none", max_retries=0, timeout=CLIENT_SECONDS
            ) as chat,
            anthropic.AsyncAnthropic(
                base_url=server.anthropic_url,
                api_key="none",
                max_retries=0,
                timeout=CLIENT_SECONDS,
            ) as messages,
        ):
            await _converse(
                name,
                file,
                [
                    OpenAIModel(each, api="chat", client=chat)
                    if api == "openai"
                    else AnthropicModel(each, client=messages)
                    for each in WINDOWS[api]
                ],
                WINDOWS[api],
                model=model,
                files=files,
                outcome=outcome,
                tasks=make_tasks(rounds) if kind is None else make_trouble(kind),
                rng=random.Random(seed),
            )
        outcome.lost += _count_unrecorded(
            Transcript(JsonlStore(file)), outcome.users, model.delivered, files.reads
        )
        answers = {
            text.partition(":")[0].removesuffix(" is done")
            for text in model.delivered
            if text.startswith("Task ")
        }
        # a request without the task has another answer
        outcome.lost += max(0, outcome.answered - len(answers))
        return _collect(server, model, files, outcome)


async def _converse(  # noqa: PLR0913  # keywords
    name: str,
    file: Path,
    models: Sequence[OpenAIModel | AnthropicModel],
    windows: Mapping[str, int],
    *,
    model: Model,
    files: Files,
    outcome: _Outcome,
    tasks: Sequence[Task],
    rng: random.Random,
) -> None:
    tool = files.tool()
    large, small = (
        (
            each,
            ContextBudget.for_model(
                each.name,
                window=windows[each.name],
                reserved_output_tokens=REPLY_TOKENS,
                tools=[tool.definition, RECALL],
            ),
        )
        for each in models
    )
    preset = PRESETS[name]()
    async with AgentSession(
        model=large[0],
        transcript=Transcript(JsonlStore(file)),
        instructions="You are a coding agent.",
        tools=[tool],
        budget=large[1],
        preset=preset,
        policy=_Limited(preset.policy(rng.random)),
        events=Events(outcome.on_event),
        max_steps=12,
        rng=rng.random,
    ) as session:
        outcome.session = session
        ends: list[str | None] = []
        for task in tasks:
            model.trouble = task.trouble
            if task.before in {"smaller", "larger"}:
                chosen, budget = small if task.before == "smaller" else large
                session.set_model(chosen, budget=budget)
            elif task.before == "compact":
                with suppress(SummaryError):
                    await session.compact()
            elif task.before == "branch":
                await _switch_branch(session, ends[-3])
            answered = outcome.answered
            await _do(session, task, outcome)
            outcome.wedged += not task.trouble and answered == outcome.answered
            ends.append(session.transcript.leaf)
            with suppress(TimeoutError):
                await asyncio.wait_for(session.window.wait_idle(), WAIT_SECONDS)
            outcome.lost += _count_unreachable(session)


async def _do(session: AgentSession, task: Task, outcome: _Outcome) -> None:
    """Give the session a task, and go on after failures of the provider."""
    outcome.users[task.message] += 1
    work = session.run(task.message)
    for _ in range(MAX_RESUMES):
        try:
            await work
        except RateLimitedError as error:
            await asyncio.sleep(error.retry_after or 0)
        except ModelError:
            pass
        except ContextWindowFullError:
            outcome.given_up += 1
            return
        except (MaxStepsExceededError, NoPendingMessageError):
            break
        else:
            outcome.answered += 1
            return
        work = session.resume()
    work.close()
    outcome.unfinished += 1


async def _switch_branch(session: AgentSession, to: str | None) -> None:
    """Leave the branch with a summary, or without one where the provider has none."""
    try:
        await session.switch_branch(to)
    except (SummaryError, ModelError):
        await session.switch_branch(to, summarize=False)


def _count_unreachable(session: AgentSession) -> int:
    """Count the messages of the branch that are neither in the view nor found by the way that the view shows."""
    view = session.window.view
    shown = {item.entry_id for item in view.items}
    path = session.transcript.path()
    recalls = {
        call.id
        for entry in path
        if entry.message
        for call in entry.message.tool_calls
        if call.name == RECALL.name
    }
    hidden = [
        entry
        for entry in path
        if entry.message is not None
        and entry.id not in shown
        and entry.message.tool_call_id not in recalls
    ]
    hidden = [
        entry
        for entry in hidden
        if entry.message and not any(call.id in recalls for call in entry.message.tool_calls)
    ]
    if not any("kept in the transcript" in message.text for message in view.messages):
        return len(hidden)
    return sum(
        recall(path, {"entry": entry.id}, max_tokens=50).startswith("Error: ") for entry in hidden
    )


def _count_unrecorded(
    transcript: Transcript, users: Counter[str], replies: Counter[str], reads: Counter[str]
) -> int:
    """Count what was said, answered and read, and is not in the transcript as often."""
    messages = [entry.message for entry in transcript.entries if entry.message is not None]
    recorded = {
        role: Counter(message.text for message in messages if message.role == role)
        for role in ("user", "assistant")
    }
    results = Counter(
        message.text.split("\n", 1)[0].removeprefix("# ")
        for message in messages
        if message.role == "tool"
    )
    return (
        (users - recorded["user"]).total()
        + (replies - recorded["assistant"]).total()
        + (reads - results).total()
    )


def _collect(server: Server, model: Model, files: Files, outcome: _Outcome) -> Figures:
    empty = sum(_has_empty_message(exchange.messages) for exchange in server.requests)
    return Figures(
        requests=server.stats.requests,
        invalid_requests=server.stats.invalid + empty,
        silent_omissions=outcome.silent_omissions,
        wedged=outcome.wedged,
        overflows=server.stats.overflows + outcome.given_up,
        lost=outcome.lost,
        repeated_tool_runs=(files.reads - Counter(dict.fromkeys(files.reads, 1))).total(),
        longest_wait_over_limit=round(outcome.over_limit, 2),
        details_found=round(len(model.found) / len(model.dropped), 3) if model.dropped else None,
        details_dropped=len(model.dropped),
        compactions=outcome.compactions,
        unfinished=outcome.unfinished,
        cached_share=round(server.stats.cached_share, 2),
        cached_share_anthropic=0.0,
    )


def _has_empty_message(messages: Sequence[Mapping[str, Any]]) -> bool:  # Any: JSON
    """Return whether a message has neither content nor calls, which most providers refuse."""
    return any(not message.get("content") and not message.get("tool_calls") for message in messages)


async def _run(
    names: Sequence[str], rounds: int, seed: int, troubles: Sequence[str]
) -> dict[str, Figures]:
    """Run the presets, some at a time, because each waits now and then."""
    free = asyncio.Semaphore(CONCURRENT)

    async def run(name: str) -> Figures:
        async with free:
            return await run_preset(name, rounds=rounds, seed=seed, troubles=troubles)

    return dict(zip(names, await asyncio.gather(*map(run, names)), strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit status 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sessions", description=__doc__)
    parser.add_argument(
        "presets",
        nargs="*",
        metavar="PRESET",
        default=[*PRESETS],
        help="names of presets (default: all)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--rounds", type=int, default=2, help="of nine tasks each (default 2)")
    parser.add_argument(
        "--seed", type=int, default=1, help="of the jitter of thresholds (default 1)"
    )
    parser.add_argument(
        "--trouble",
        action="append",
        choices=TROUBLES,
        help="this kind of trouble only; may be repeated (default: all)",
    )
    asked = parser.parse_args(arguments)
    unknown = sorted(set(asked.presets) - set(PRESETS))
    if unknown:
        parser.error(f"there is no preset {unknown[0]!r}: use {', '.join(PRESETS)}")
    found = asyncio.run(
        _run(asked.presets, max(1, asked.rounds), asked.seed, asked.trouble or TROUBLES)
    )
    if asked.json:
        print(
            json.dumps({name: attrs.asdict(figures) for name, figures in found.items()}, indent=2)
        )
        return 0
    columns = [field.name for field in attrs.fields(Figures)]
    rows = [
        [name, *(str(getattr(figures, column)) for column in columns)]
        for name, figures in found.items()
    ]
    print("\n".join(_format_table([["preset", *columns], *rows])))
    return 0


def _format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


if __name__ == "__main__":
    sys.exit(main())
