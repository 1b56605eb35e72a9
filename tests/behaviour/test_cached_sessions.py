"""Conversations over each API read from the provider's prompt cache what was sent before, by the server's reports."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import pytest

from promptkit import AgentSession, ContextWindow, Message, OpenAIModel, ToolCall
from promptkit.providers import AnthropicModel
from promptkit.testing.server import serve
from promptkit.testing.server.server import encode_prompt
from promptkit.tokens.budget import ContextBudget
from promptkit.transcript.log.entries import Checkpoint
from tests.conversations import summary_reply, words
from tests.unit.providers.anthropic import asking as claude
from tests.unit.providers.openai import asking as gpt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from promptkit.messages import Usage
    from promptkit.providers import Model
    from promptkit.testing.server import Exchange, Server

APIS = ("chat", "responses", "anthropic")
RULES = words(1_500, "rule")


def connect(server: Server, api: str) -> tuple[Any, Model]:
    """The SDK's client, and a model over it."""
    if api == "anthropic":
        over = claude.client(server.anthropic_url)
        return over, AnthropicModel("claude-sonnet-4-6", client=over)
    chat = gpt.client(server.url)
    return chat, OpenAIModel("gpt-4.1", api=cast("gpt.Api", api), client=chat)


def talk(
    server: Server, api: str, questions: Iterable[str], **settings: Any
) -> tuple[AgentSession, Sequence[Usage]]:
    """Ask the questions in a session and compact it; return the usage of every request."""

    async def ask() -> AgentSession:
        over, model = connect(server, api)
        async with (
            over,
            AgentSession(model=model, instructions=RULES, tools=[read_file], **settings) as session,
        ):
            for question in questions:
                await session.run(question)
            await session.compact()
        return session

    session = asyncio.run(ask())
    assert [exchange.problem for exchange in server.requests if exchange.problem] == []
    return session, [exchange.usage for exchange in server.requests if exchange.usage]


def read_file(path: str) -> str:
    """Read a file."""
    return words(80, path)


def answer(exchange: Exchange) -> Message | str:
    """Read twelve files for each question, then say something.

    Such a round has more blocks than Anthropic looks back from a breakpoint.
    """
    if exchange.purpose == "compaction":
        return f"<analysis>I think.</analysis>{summary_reply(words(120, 'parser'))}"
    if exchange.messages[-1]["role"] == "tool":
        return f"{exchange.number} {words(60, 'sound')}"
    calls = tuple(
        ToolCall(id=f"toolu_{exchange.number}_{at}", name="read_file", arguments='{"path": "a.py"}')
        for at in range(12)
    )
    return Message(role="assistant", content=("I read them.",), tool_calls=calls)


def speak(exchange: Exchange) -> Message | str:
    return answer(exchange) if exchange.purpose == "compaction" else words(400, "yes")


@pytest.mark.parametrize("api", APIS)
def test_the_second_request_and_the_summary_read_the_first_from_the_cache(api: str) -> None:
    with serve(after=speak) as server:
        session, (first, second, summary) = talk(
            server, api, [words(700, "first"), words(700, "second")]
        )
        assert server.requests[-1].purpose == "compaction"
    assert any(isinstance(entry.payload, Checkpoint) for entry in session.transcript.path())
    assert first.cached_tokens == 0
    assert second.cached_tokens > 0.9 * first.input_tokens
    assert summary.cached_tokens > 0.9 * second.input_tokens
    # nobody reads a summary's request again
    assert summary.written_tokens == 0


def common_tokens(requests: Sequence[Exchange]) -> float:
    """Tokens that the requests have in common with the beginning of an earlier one, as the provider counts them."""
    prompts = [encode_prompt(exchange.chat) for exchange in requests]
    total = 0.0
    for at, (exchange, prompt) in enumerate(zip(requests, prompts, strict=True)):
        lengths = [
            next(
                (
                    place
                    for place, (a, b) in enumerate(zip(prompt, earlier, strict=False))
                    if a != b
                ),
                min(len(prompt), len(earlier)),
            )
            for earlier in prompts[:at]
        ]
        assert exchange.usage is not None
        total += max(lengths, default=0) / len(prompt) * exchange.usage.input_tokens
    return total


@pytest.mark.long
@pytest.mark.parametrize("api", APIS)
def test_a_session_reaches_nine_tenths_of_what_its_requests_have_in_common(api: str) -> None:
    """Through long rounds of tool calls, and through compactions."""
    budget = ContextBudget(window=16_000, reserved_output_tokens=2_000)
    with serve(window=16_000, after=answer) as server:
        session, usages = talk(
            server, api, [words(200, f"q{turn}") for turn in range(11)], budget=budget
        )
        common = common_tokens(server.requests)
    assert sum(isinstance(entry.payload, Checkpoint) for entry in session.transcript.entries) > 1
    assert sum(usage.cached_tokens for usage in usages) >= 0.9 * common


def test_a_loop_of_one_s_own_over_anthropic_s_sdk_reads_its_requests_from_the_cache() -> None:
    async def ask(url: str) -> None:
        window = ContextWindow(model="claude-sonnet-4-6", instructions=RULES, tools=[read_file])
        async with claude.client(url) as over:
            for turn in range(4):
                window.add(Message(role="user", content=words(300, f"q{turn}")))
                arguments = (await window.request()).anthropic_arguments(max_tokens=500)
                window.add_reply(cast("Any", await over.messages.create(**arguments)))

    with serve(after=speak) as server:
        asyncio.run(ask(server.anthropic_url))
        usages = [exchange.usage for exchange in server.requests if exchange.usage]
        assert [exchange.problem for exchange in server.requests if exchange.problem] == []
    for before, usage in pairwise(usages):
        assert usage.cached_tokens == before.input_tokens


def test_an_hour_is_asked_for_with_an_option_of_the_model() -> None:
    async def ask(url: str) -> None:
        async with claude.client(url) as over:
            model = AnthropicModel("claude-sonnet-4-6", client=over, options={"cache_ttl": "1h"})
            async with AgentSession(model=model, instructions="Be brief.") as session:
                await session.run("Hello.")
            await model.complete([Message(role="user", content="Alone.")])

    with serve(after=speak) as server:
        asyncio.run(ask(server.anthropic_url))
        first, alone = (json.dumps(exchange.body) for exchange in server.requests)
    assert first.count('"cache_control": {"type": "ephemeral", "ttl": "1h"}') == 2
    # a single request has no successor that could read it
    assert "cache_control" not in alone
