"""Sessions with Anthropic's models in a small window, over real HTTP: compacted many times, and never refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from promptkit import AgentSession, ContextWindow, Message, OpaquePart, ToolCall
from promptkit.providers import AnthropicModel
from promptkit.testing.server import serve
from promptkit.tokens.budget import ContextBudget
from promptkit.transcript.log.entries import Checkpoint
from tests.conversations import summary_reply
from tests.unit.providers.anthropic.asking import client

if TYPE_CHECKING:
    from anthropic.types import Message as Reply

    from promptkit.providers.model import Effort
    from promptkit.testing.server import Exchange, Server

WINDOW = 6_000
BUDGET = ContextBudget(window=WINDOW, reserved_output_tokens=2_000, tools=400)
SUMMARY = f"<analysis>I think.</analysis>{summary_reply('It is about the parser.')}"
TURNS = 6


def read_file(path: str) -> str:
    """Read a file."""
    return f"{path}: " + "def parse(text): return text.split()\n" * 60


def think(exchange: Exchange) -> OpaquePart:
    return OpaquePart(
        value={"type": "thinking", "thinking": f"Thought {exchange.number}."},
        tokens=5,
        provider="anthropic",
    )


def answer(exchange: Exchange) -> Message | str:
    """Think, and read a file whenever the user asks for one.

    Thinking that the request switches off does not happen.
    """
    if exchange.purpose == "compaction":
        return SUMMARY
    body: Any = exchange.body
    thoughts = (
        (think(exchange),)
        if body.get("thinking", {}).get("type") in {"adaptive", "enabled"}
        else ()
    )
    last = body["messages"][-1]["content"][-1]
    if last["type"] == "tool_result":
        return Message(role="assistant", content=(*thoughts, f"Part {exchange.number} is sound."))
    call = ToolCall(id=f"toolu_{exchange.number}", name="read_file", arguments='{"path": "a.py"}')
    return Message(role="assistant", content=(*thoughts, "I read it."), tool_calls=(call,))


def talk(
    server: Server, name: str, preset: str, effort: Effort, budget: ContextBudget = BUDGET
) -> tuple[AgentSession, list[str]]:
    async def ask() -> tuple[AgentSession, list[str]]:
        async with client(server.anthropic_url) as over:
            model = AnthropicModel(
                name, client=over, options={"reasoning_effort": effort, "max_output_tokens": 2_000}
            )
            async with AgentSession(
                model=model,
                instructions="You review code.",
                tools=[read_file],
                budget=budget,
                preset=preset,
            ) as session:
                return session, [
                    (await session.run(f"Review part {part}.")).text for part in range(TURNS)
                ]

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("name", "preset", "effort", "drops"),
    [
        ("claude-opus-5-5", "vscode", "high", True),
        ("claude-opus-5-5", "claude_code", "none", True),  # it always thinks
        ("claude-sonnet-5-5", "pi", "none", False),
        ("claude-haiku-5-5", "codex", "low", True),
        ("claude-opus-4-6", "opencode", "xhigh", False),
        ("claude-haiku-4-5", "vscode", "high", False),
    ],
)
def test_a_session_in_a_small_window_goes_on_with_every_generation_of_models(
    name: str, preset: str, effort: Effort, drops: bool
) -> None:
    with serve(window=WINDOW, after=answer) as server:
        session, replies = talk(server, name, preset, effort)
        problems = [exchange.problem for exchange in server.requests if exchange.problem]
        assert (problems, server.stats.overflows) == ([], 0)
        dropped = dropped_thinking(server)
    assert len(replies) == TURNS
    assert all("is sound" in reply for reply in replies)
    assert any(isinstance(entry.payload, Checkpoint) for entry in session.transcript.path())
    # thinking of before a summary, which these models bind to what was before it
    assert bool(dropped) is drops


def test_nothing_that_the_model_thought_is_left_out_while_nothing_is_compacted() -> None:
    """A request repeats what was sent before it exactly, which the prompt cache needs, too."""
    with serve(after=answer) as server:
        session, _ = talk(
            server,
            "claude-opus-5-5",
            "vscode",
            "high",
            ContextBudget(window=200_000, reserved_output_tokens=2_000),
        )
        sent: Any = server.requests[-1].body["messages"]
        assert dropped_thinking(server) == []
    assert not any(isinstance(entry.payload, Checkpoint) for entry in session.transcript.path())
    assert (
        sum(block["type"] == "thinking" for message in sent for block in message["content"])
        == 2 * TURNS - 1
    )


@pytest.mark.long
def test_a_loop_of_one_s_own_over_the_sdk_goes_on_after_a_compaction() -> None:
    async def ask(url: str) -> None:
        window = ContextWindow(
            model="claude-opus-5-5",
            instructions="You review code.",
            budget=BUDGET,
            tools=[read_file],
        )
        async with client(url) as over:
            for part in range(TURNS):
                window.add(Message(role="user", content=f"Review part {part}."))
                while True:
                    request = await window.request()
                    # the arguments ask for no stream
                    reply = cast(
                        "Reply", await over.messages.create(**request.anthropic_arguments())
                    )
                    window.add_reply(reply)
                    calls = [block for block in reply.content if block.type == "tool_use"]
                    if not calls:
                        break
                    for call in calls:
                        window.add(
                            Message(role="tool", tool_call_id=call.id, content=read_file("a.py"))
                        )
                await window.end_turn()
        assert any(isinstance(entry.payload, Checkpoint) for entry in window.transcript.path())

    with serve(window=WINDOW, after=answer) as server:
        asyncio.run(ask(server.anthropic_url))
        assert (server.stats.invalid, server.stats.overflows) == (0, 0)
        assert dropped_thinking(server)


def dropped_thinking(server: Server) -> list[str]:
    return [
        path
        for exchange in server.requests
        if exchange.checked
        for path in exchange.checked.dropped
    ]


@pytest.mark.parametrize("preset", ["codex", "claude_code", "copilot_cli", "vscode"])
def test_a_conversation_that_begins_with_a_greeting_is_never_refused(preset: str) -> None:
    async def ask(url: str) -> None:
        async with client(url) as over:
            session = AgentSession(
                model=AnthropicModel("claude-opus-4-8", client=over), preset=preset, budget=BUDGET
            )
            session.window.add(Message(role="assistant", content=("Hello. What shall I read?",)))
            for _ in range(8):
                await session.run("Say something. " + "parse " * 400)
            await session.compact()
            await session.run("And now?")

    with serve(
        after=lambda exchange: SUMMARY if exchange.purpose == "compaction" else "Fine. " * 100,
        window=WINDOW,
    ) as server:
        asyncio.run(ask(server.anthropic_url))
        assert server.stats.invalid == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["claude-opus-4-8", "claude-3-unknown"])
def test_a_summary_asks_for_no_more_tokens_than_the_model_can_write(name: str) -> None:
    async def ask(url: str) -> None:
        async with client(url) as over:
            session = AgentSession(
                model=AnthropicModel(name, client=over), budget=ContextBudget(window=200_000)
            )
            for _ in range(6):
                await session.run("Say something. " + "parse " * 400)
            await session.compact()

    with serve(
        after=lambda exchange: SUMMARY if exchange.purpose == "compaction" else "Fine. " * 100
    ) as server:
        asyncio.run(ask(server.anthropic_url))
        summary, reply = server.requests[-1].body, server.requests[-2].body
        assert isinstance(summary["max_tokens"], int)
        assert isinstance(reply["max_tokens"], int)
        if name == "claude-3-unknown":
            assert summary["max_tokens"] <= reply["max_tokens"] == 8_192
        else:
            assert summary["max_tokens"] > 16_384
