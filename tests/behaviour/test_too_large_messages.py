"""A message that can never fit costs its turn: nothing is summarized for it, and later requests show a part of it with a note."""

from __future__ import annotations

import asyncio

import pytest

from promptkit import AgentSession, ContextBudget
from promptkit.compaction import PRESETS, CompactionStarted, Event, Events
from promptkit.compaction.pruning.tool_outputs import MESSAGE_MARKER
from promptkit.errors import ContextWindowFullError
from promptkit.messages import DocumentPart, Part
from promptkit.testing import ScriptedModel, WordTokenizer
from tests.conversations import words

WINDOW = ContextBudget(window=8_000, reserved_output_tokens=500)
DOCUMENT = DocumentPart(
    data="JVBERg==", media_type="application/pdf", name="plan.pdf", tokens=9_000
)


def open_session(preset: str) -> tuple[AgentSession, ScriptedModel, list[Event]]:
    events: list[Event] = []
    model = ScriptedModel([words(200, "answer")] * 40)
    session = AgentSession(
        model=model,
        instructions="You help.",
        budget=WINDOW,
        preset=preset,
        tokenizer=WordTokenizer(),
        events=Events(events.append),
    )
    return session, model, events


@pytest.mark.parametrize("preset", list(PRESETS))
@pytest.mark.parametrize(
    ("content", "note"),
    [
        (words(9_000, "huge"), MESSAGE_MARKER.strip()),
        (
            ("Read this.", DOCUMENT),
            "[the document plan.pdf, which does not fit the context window]",
        ),
    ],
    ids=["text", "document"],
)
def test_nothing_is_summarized_for_it_and_later_requests_have_a_note(
    preset: str, content: str | tuple[Part, ...], note: str
) -> None:
    session, model, events = open_session(preset)

    async def work() -> None:
        for turn in range(8):
            await session.run(f"question {turn} {words(50)}")
        asked, before = len(model.requests), session.window.view
        events.clear()
        with pytest.raises(ContextWindowFullError, match="The largest messages: user 9,0"):
            await session.run(content)
        assert len(model.requests) == asked
        assert not any(isinstance(event, CompactionStarted) for event in events)
        assert session.window.view.items[:-1] == before.items
        await session.run("And now?")
        shown = model.requests[-1].messages
        assert any(note in message.text for message in shown)
        assert shown[-1].text == "And now?"
        assert any("question 0" in message.text for message in shown)

    asyncio.run(work())


def test_a_larger_window_shows_it_in_full() -> None:
    session, model, _ = open_session("vscode")

    async def work() -> None:
        with pytest.raises(ContextWindowFullError):
            await session.run(words(9_000, "huge"))
        await session.run("And now?")
        session.set_model(model, budget=ContextBudget(window=100_000, reserved_output_tokens=500))
        await session.run("And now?")
        assert model.requests[-1].messages[1].text == words(9_000, "huge")

    asyncio.run(work())


def test_a_rewind_to_it_makes_it_the_last_message_again() -> None:
    session, _, _ = open_session("vscode")

    async def work() -> None:
        with pytest.raises(ContextWindowFullError):
            await session.run(words(9_000, "huge"))
        entry = session.transcript.leaf
        await session.run("And now?")
        assert MESSAGE_MARKER in session.window.view.messages[0].text
        session.rewind(entry)
        assert session.window.view.messages[0].text == words(9_000, "huge")

    asyncio.run(work())
