"""The model knows what is left of its window, without a cost to the prompt cache, and may ask for a compaction."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from promptkit import SystemMessage, ToolCall
from promptkit.agent import AgentSession, ContextStatus, Conversation, ConversationView
from promptkit.testing import ScriptedModel, WordTokenizer, summary_answer
from promptkit.testing.server import serve
from promptkit.tokens.budget import ContextBudget
from promptkit.transcript import Checkpoint, InMemoryStore
from tests.behaviour.test_cached_sessions import APIS, RULES, connect, speak
from tests.conversations import words

if TYPE_CHECKING:
    from promptkit import Child
    from promptkit.agent import Prompt
    from promptkit.testing import Request


def show_status(view: ConversationView) -> Child:
    return (
        SystemMessage(required=True)[RULES],
        Conversation(view=view),
        ContextStatus(view=view, priority=5),
    )


def brief(view: ConversationView) -> Child:
    return Conversation(view=view), ContextStatus(view=view, priority=5)


def open_session(
    model: ScriptedModel, window: int, *, enabled: bool = True, compact_tool: bool = False
) -> AgentSession:
    return AgentSession(
        model=model,
        prompt=brief,
        budget=ContextBudget(window=window, reserved_output_tokens=0),
        tokenizer=WordTokenizer(),
        rng=lambda: 0.5,
        enabled=enabled,
        compact_tool=compact_tool,
    )


def note(request: Request) -> str:
    return request.messages[-1].text


def test_the_note_says_what_is_left_and_when_a_compaction_is_due() -> None:
    model = ScriptedModel([words(300, "a"), words(520, "b"), words(10, "c")])
    session = open_session(model, 1_000)

    async def talk() -> None:
        for text in ("One", "Two", "Three"):
            await session.run(text)

    asyncio.run(talk())
    first, second, third = map(note, model.requests[:3])
    assert first.startswith("<context_status>\n1 tokens of the context window are used.")
    assert "until a summary replaces the older messages" in first
    assert "320 tokens of the context window are used" in second
    assert "a compaction is due" not in second
    assert "a compaction is due" in third


def test_the_note_is_last_and_in_no_transcript() -> None:
    model = ScriptedModel(["Yes.", "No."])
    session = open_session(model, 1_000)
    asyncio.run(session.run("One"))
    asyncio.run(session.run("Two"))
    shown = [
        [message.text.startswith("<context_status>") for message in request.messages]
        for request in model.requests
    ]
    assert shown == [[False, True], [False, False, False, True]]
    assert not any("context_status" in str(entry.payload) for entry in session.transcript.entries)


def test_the_note_leaves_first_where_there_is_no_room_for_it() -> None:
    model = ScriptedModel(["Yes."])
    session = open_session(model, 40, enabled=False)
    asyncio.run(session.run(words(38, "long")))
    assert [message.text for message in model.requests[0].messages] == [words(38, "long")]


@pytest.mark.parametrize("prompt", [brief, show_status])
def test_without_a_known_window_there_is_no_note(prompt: Prompt) -> None:
    model = ScriptedModel(["Yes."])
    session = AgentSession(model=model, prompt=prompt, tokenizer=WordTokenizer())
    asyncio.run(session.run("One"))
    assert model.requests[0].messages[-1].text == "One"


@pytest.mark.parametrize("api", APIS)
def test_the_note_costs_the_prompt_cache_nothing(api: str) -> None:
    """Each request reads all of the one before it but its note."""

    async def ask() -> None:
        over, model = connect(server, api)
        async with over, AgentSession(model=model, prompt=show_status) as session:
            for turn in range(4):
                await session.run(words(300, f"q{turn}"))

    with serve(after=speak) as server:
        asyncio.run(ask())
        usages = [exchange.usage for exchange in server.requests if exchange.usage]
        texts = [exchange.text for exchange in server.requests]
    assert all("<context_status>" in text for text in texts)
    for before, usage in pairwise(usages):
        assert usage.cached_tokens > before.input_tokens - 128 - 100


def compact(number: int, focus: str = "the parser") -> ToolCall:
    return ToolCall(id=f"c{number}", name="compact", arguments=f'{{"focus": "{focus}"}}')


def test_the_model_asks_for_a_compaction_and_names_what_to_keep() -> None:
    model = ScriptedModel(
        [
            words(300, "a"),
            [compact(1)],
            summary_answer("The parser is at fault."),
            "Done.",
        ]
    )
    session = open_session(model, 2_000, compact_tool=True)

    async def talk() -> str:
        await session.run(words(200, "old"))
        return (await session.run("Go on.")).text

    with model:
        assert asyncio.run(talk()) == "Done."
    asked, last = model.requests[2], model.requests[3]
    assert asked.purpose == "compaction"
    assert "the parser" in asked.messages[-1].text
    assert "The parser is at fault." in last.messages[0].text
    assert "Go on." in [message.text for message in last.messages], "the user's request stays"
    (checkpoint,) = [
        entry.payload
        for entry in session.transcript.path()
        if isinstance(entry.payload, Checkpoint)
    ]
    assert checkpoint.instructions == "the parser"


def test_a_model_that_asks_where_there_is_nothing_to_summarize_goes_on() -> None:
    model = ScriptedModel([[compact(1)], "Done."])
    session = open_session(model, 2_000, compact_tool=True)
    with model:
        assert asyncio.run(session.run("Go on.")).text == "Done."


def test_a_fork_compacts_itself_and_not_its_parent() -> None:
    model = ScriptedModel([words(300, "a"), [compact(1)], summary_answer("Short."), "Done."])
    session = open_session(model, 2_000, compact_tool=True)

    async def talk() -> AgentSession:
        await session.run(words(200, "old"))
        child = session.fork(InMemoryStore())
        await child.run("Go on.")
        return child

    with model:
        child = asyncio.run(talk())
    assert child.window.view.checkpoint_id is not None
    assert session.window.view.checkpoint_id is None


def test_the_tool_is_not_offered_unless_it_is_asked_for() -> None:
    assert "compact" not in open_session(ScriptedModel([]), 1_000).tools
