"""A summary is checked before it replaces a conversation, costs what it must, and takes no longer than it may: whole sessions."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import attrs
import openai
import pytest

from benchmarks.conversation_script import is_summary_request
from promptkit import AgentSession, ContextBudget, Message, ToolCall, ToolDefinition
from promptkit.compaction import Events, SummaryAttemptFailed
from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.planning.plan import Summary
from promptkit.compaction.policy.rules import Thresholds, default_policy
from promptkit.compaction.presets import PRESETS
from promptkit.errors import SummaryError
from promptkit.providers.openai.client import OpenAIModel
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.testing.server import Hang, Rule, rate_limit_error, serve
from promptkit.tools import Tool
from promptkit.transcript.log.entries import Checkpoint
from tests.behaviour.storm import asks_for_summary
from tests.conversations import summary_reply, words
from tests.unit.compaction.summarizers.writers import Recorder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.compaction.planning.plan import SummaryTask
    from promptkit.providers import Reply
    from promptkit.testing.scripted_model import Request
    from promptkit.testing.server import Exchange
    from promptkit.testing.server.journal import Answer

FACT = "The deploy key lives in vault path kv/42."
NO_SUMMARY = [
    "I'm sorry, but I can't assist with that.",
    "Let me continue with the tests.",
    "ok",
    "<summary>ok</summary>",
    "",
]


PARTS = {"pi": 2}
"""A turn that pi cuts in two has two summaries, which are written at the same time."""


def attempts(told: Recorder) -> list[str]:
    return [event.reason for event in told.events if isinstance(event, SummaryAttemptFailed)]


@pytest.mark.spec("E60")
@pytest.mark.parametrize("answer", NO_SUMMARY)
def test_a_refusal_or_small_talk_replaces_no_conversation(answer: str) -> None:
    told = Recorder()
    model = ScriptedModel([f"Noted. {words(600)}"] * 3 + [answer] * 3 + ["Go on."])
    each = AgentSession(
        model=model,
        budget=ContextBudget(window=8_000, reserved_output_tokens=400),
        events=Events(told),
    )

    async def talk() -> None:
        for number in range(3):
            await each.run(f"Step {number}: {FACT}")
        before = each.compaction.view.messages
        with pytest.raises(SummaryError):
            await each.compact()
        assert each.compaction.view.messages == before
        assert len(attempts(told)) >= 2
        model.requests.clear()

    asyncio.run(talk())
    told.check()
    assert told.ends == ["failed"]


def test_a_summary_without_a_model_is_taken_where_the_caller_allows_it_and_keeps_the_user_s_words() -> (
    None
):
    model = ScriptedModel([f"Noted. {words(600)}"] * 3 + ["ok"] * 3)
    each = AgentSession(model=model, budget=ContextBudget(window=8_000, reserved_output_tokens=400))

    async def talk() -> Checkpoint:
        for number in range(3):
            await each.run(f"Step {number}: {FACT}")
        entry = await each.compact(allow_extractive=True)
        assert entry is not None
        assert isinstance(entry.payload, Checkpoint)
        return entry.payload

    payload = asyncio.run(talk())
    assert payload.model is None
    assert FACT in each.compaction.view.messages[0].text


@attrs.define
class Hanging:
    """A model that answers, but never writes a summary."""

    name: str = "hanging"
    asked: int = 0

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        if asks_for_summary(messages):
            self.asked += 1
            await asyncio.Event().wait()
        return await ScriptedModel([words(300)]).complete(messages, tools=tools)


def test_a_summarizer_that_hangs_holds_up_a_request_no_longer_than_it_may() -> None:
    told, model = Recorder(), Hanging()
    each = AgentSession(
        model=model,
        tokenizer=WordTokenizer(),
        budget=ContextBudget(window=1_000, reserved_output_tokens=100),
        policy=default_policy(rng=lambda: 0.5, thresholds=Thresholds(wait_seconds=0.05)),
        events=Events(told),
    )

    async def talk() -> float:
        longest = 0.0
        for number in range(6):
            started = time.monotonic()
            await each.run(f"q{number} {words(50)}")
            longest = max(longest, time.monotonic() - started)
        await each.close()
        return longest

    assert asyncio.run(asyncio.wait_for(talk(), 30)) < 5
    assert "timeout" in attempts(told)
    # without a model, as nothing else fitted
    assert any(isinstance(entry.payload, Checkpoint) for entry in each.transcript.path())
    told.check()


def over_http(
    preset: str, answer: Answer, *, turns: int = 6
) -> tuple[list[Exchange], Recorder, list[SummaryError]]:
    """The summary requests of a preset's conversation that is compacted on demand, its events, and the error."""
    told, raised = Recorder(), list[SummaryError]()

    async def talk(url: str) -> None:
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            each = AgentSession(
                model=OpenAIModel("gpt-4.1", api="chat", client=client),
                budget=ContextBudget(window=60_000, reserved_output_tokens=8_000),
                preset=PRESETS[preset](),
                events=Events(told),
            )
            for number in range(turns):
                await each.run(f"question {number} " + "lorem ipsum " * 2_500)
            try:
                await each.compact()
            except SummaryError as error:
                raised.append(error)
            await each.close()

    with serve(
        window=60_000,
        rules=[Rule(match=is_summary_request, answer=answer)],
        after=lambda _: "So it is. " * 50,
    ) as server:
        asyncio.run(talk(server.url))
        return (
            [exchange for exchange in server.requests if is_summary_request(exchange)],
            told,
            raised,
        )


@pytest.mark.parametrize("preset", ["pi", "claude_code", "codex", "vscode"])
def test_a_summary_that_is_too_long_is_asked_for_once_more_and_not_paid_for_three_times(
    preset: str,
) -> None:
    requests, told, (error,) = over_http(preset, summary_reply("long summary word " * 4_000))

    assert 2 <= len(requests) <= 2 * PARTS.get(preset, 1)
    assert all(
        int(str(request.body["max_completion_tokens"])) <= 2 * 10_400 + 2_000
        for request in requests
    )  # twice the summary, and the analysis
    again = [
        request
        for request in requests
        if "too long. Write at most" in json.dumps(request.body["messages"])
    ]
    assert requests[0] not in again
    assert again
    assert set(attempts(told)) <= {"too_large", "cut"}
    assert error.usage is not None
    assert error.usage.output_tokens > 10_000


@pytest.mark.parametrize("preset", ["pi", "claude_code", "codex", "vscode"])
def test_a_provider_that_is_busy_is_asked_once_for_a_summary(preset: str) -> None:
    requests, told, raised = over_http(preset, rate_limit_error(retry_after=20))

    assert 1 <= len(requests) <= PARTS.get(preset, 1)
    assert set(attempts(told)) == {"RateLimitedError"}
    assert len(raised) == 1
    assert told.ends == ["failed"]


@pytest.mark.long
def test_a_server_that_hangs_costs_a_compaction_on_demand_the_time_limit_once() -> None:
    told = Recorder()

    async def talk(url: str) -> None:
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            each = AgentSession(
                model=OpenAIModel("gpt-4.1", api="chat", client=client),
                budget=ContextBudget(window=20_000, reserved_output_tokens=2_000),
                policy=default_policy(rng=lambda: 0.5, thresholds=Thresholds(wait_seconds=0.4)),
                events=Events(told),
            )
            for number in range(3):
                await each.run(f"question {number} " + "lorem ipsum " * 500)
            with pytest.raises(SummaryError, match=r"within 0\.4 seconds"):
                await each.compact()
            await each.close()

    with serve(
        window=20_000,
        rules=[Rule(match=is_summary_request, answer=Hang())],
        after=lambda _: "So it is.",
    ) as server:
        asyncio.run(talk(server.url))
        assert sum(map(is_summary_request, server.requests)) == 1
    assert attempts(told) == ["timeout"]


class Counting:
    """A summarizer of a program's own, which knows nothing of facts."""

    async def summarize(self, task: SummaryTask) -> Summary:
        return Summary(text=f"{len(task.plan.dropped)} messages were exchanged.", mode="counting")


def test_the_facts_of_what_is_dropped_are_carried_whoever_writes_the_summary() -> None:
    edit = ToolDefinition(name="edit_file")
    steps = [
        [ToolCall(id=name, name="edit_file", arguments=json.dumps({"path": f"/{name}.py"}))]
        for name in ("first", "second")
    ]
    answers = [words(100, f"a{number}") for number in range(4)]
    model = ScriptedModel([steps[0], answers[0], answers[1], steps[1], answers[2], answers[3]])
    each = AgentSession(
        model=model,
        budget=ContextBudget(window=3_000, reserved_output_tokens=1_000),
        tokenizer=WordTokenizer(),
        summarizer=Counting(),
        tools=[Tool(definition=edit, run=lambda _: words(50, "ok"))],
    )

    async def compacted(*asked: str) -> Facts:
        for text in asked:
            await each.run(text)
        entry = await each.compact()
        assert entry is not None
        assert isinstance(entry.payload, Checkpoint)
        return Facts.from_json(entry.payload.facts)

    async def talk() -> tuple[Facts, Facts]:
        first = await compacted(f"IMPORTANT: always use tabs. {words(100)}", f"q2 {words(100)}")
        return first, await compacted(f"q3 {words(100)}", "q4")

    first, second = asyncio.run(talk())
    assert first.changed == ("/first.py",)
    assert first.requests[0].startswith("IMPORTANT: always use tabs.")
    assert second.changed == ("/first.py", "/second.py")
    assert second.requests[0].startswith("IMPORTANT: always use tabs.")


@pytest.mark.parametrize(("size", "asked"), [(200, 0), (600, 1)])
def test_a_compaction_of_less_than_500_tokens_asks_no_model(size: int, asked: int) -> None:
    def answer(request: Request) -> str:
        is_summary = request.purpose == "compaction"
        return summary_reply("It is about words.") if is_summary else words(size // 2)

    model = ScriptedModel([answer] * 4)
    each = AgentSession(
        model=model, budget=ContextBudget(window=200_000), tokenizer=WordTokenizer()
    )

    async def talk() -> None:
        await each.run(words(size // 2))
        await each.run("q2")
        entry = await each.compact()
        assert (entry is not None) is bool(asked)

    asyncio.run(talk())
    assert sum(request.purpose == "compaction" for request in model.requests) == asked
