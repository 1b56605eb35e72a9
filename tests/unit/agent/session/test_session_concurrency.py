"""What is done to a session while its model thinks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from promptkit import AgentSession, Message, PromptElement, Usage, component
from promptkit.compaction import CompactionStarted
from promptkit.elements import element_from_message
from promptkit.errors import ToolsFillBudgetError, TranscriptError, TurnInProgressError
from promptkit.providers import Reply
from promptkit.testing import ScriptedModel
from promptkit.tokens.budget import ContextBudget
from promptkit.transcript.log.entries import Edit
from promptkit.transcript.log.view import build_summary_message
from promptkit.transcript.stores.store import InMemoryStore
from tests.conversations import words
from tests.unit.agent.holding import calls, checkpoints, held, said, turn_and_rest
from tests.unit.compaction.summarizers.writers import WRITTEN

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from promptkit import Child, Sizing
    from tests.unit.agent.holding import Held


class Thinking:
    """A step that answers when it is told to."""

    def __init__(self, answer: str | Reply) -> None:
        self.asked, self.go, self.answer = asyncio.Event(), asyncio.Event(), answer

    async def __call__(self, request: object) -> str | Reply:
        self.asked.set()
        await self.go.wait()
        return self.answer


def meanwhile(
    each: Held, thinking: Thinking, text: str, act: Callable[[], Coroutine[object, object, object]]
) -> Callable[[], object]:
    """A turn during which something is done while the model thinks."""

    async def turn() -> None:
        running = asyncio.ensure_future(each.session.run(text))
        await thinking.asked.wait()
        await act()
        thinking.go.set()
        await running

    return turn


def test_nobody_goes_on_from_elsewhere_while_the_model_thinks() -> None:
    thinking = Thinking("one")
    each = held(thinking, "two")

    async def talk() -> None:
        running = asyncio.ensure_future(each.session.run("first"))
        await thinking.asked.wait()
        with pytest.raises(TurnInProgressError):
            each.session.rewind(None)
        thinking.go.set()
        await running
        await each.session.wait_idle()
        each.session.rewind(None)
        await each.session.run("second")

    asyncio.run(talk())
    assert said(each.session) == ["user: second", "assistant: two"]


def test_a_rewind_to_nowhere_changes_nothing() -> None:
    each = held(words(800, "a"), calls(1), words(20, "b"))

    async def talk() -> None:
        await each.session.run("first")
        each.writer.gate = asyncio.Event()
        await turn_and_rest(each, "second")
        with pytest.raises(TranscriptError):
            each.session.rewind("nowhere")
        assert each.session.compaction.background.state == "running"
        await each.session.close()

    asyncio.run(talk())


async def turns(each: Held, count: int) -> None:
    for number in range(count):
        await each.session.run(f"turn {number}")


def test_a_count_of_what_is_not_shown_any_more_starts_no_summary() -> None:
    large = Reply(
        message=Message(role="assistant", content=("answer",)),
        usage=Usage(input_tokens=920, output_tokens=1),
        finish="stop",
    )
    thinking = Thinking(large)
    each = held(words(400, "a"), words(300, "b"), thinking, "c", "d")

    async def talk() -> None:
        await turns(each, 2)
        await meanwhile(each, thinking, "third", each.session.compact)()  # type: ignore[misc]  # a coroutine function
        assert each.session.compaction.usage().tokens < 400
        await turn_and_rest(each, "fourth")
        await turn_and_rest(each, "fifth")
        await each.session.close()

    asyncio.run(talk())
    assert each.told.triggers == ["manual"]
    assert len(checkpoints(each.session)) == 1


def test_no_summary_is_asked_for_behind_what_was_redacted_while_the_model_thought() -> None:
    thinking = Thinking("noted")
    each = held(words(80, "c"), thinking)

    async def redact() -> None:
        transcript = each.session.transcript
        transcript.append(
            Edit(target=transcript.path()[0].id, content=("[redacted]",), reason="redacted")
        )

    async def talk() -> None:
        await each.session.run("the key is heron-4711 " + words(50))
        await meanwhile(each, thinking, "second", redact)()  # type: ignore[misc]  # a coroutine function
        assert await each.session.compact() is not None

    asyncio.run(talk())
    (task,) = each.writer.tasks
    assert task.last_request is None or "heron" not in str(task.last_request)


def test_what_is_sent_is_what_is_shown_even_where_a_component_takes_its_time() -> None:
    rendering, go = asyncio.Event(), asyncio.Event()

    @component
    class Slow(PromptElement):
        messages: Sequence[Message]

        async def render(self, sizing: Sizing) -> Child:
            if len(self.messages) == 5:
                rendering.set()
                await go.wait()
            return [element_from_message(message) for message in self.messages]

    each = held(
        words(50, "a"), words(50, "b"), "c", prompt=lambda view: Slow(messages=view.messages)
    )

    async def talk() -> None:
        await turns(each, 2)
        running = asyncio.ensure_future(each.session.run("third"))
        await rendering.wait()
        assert await each.session.compact() is not None
        go.set()
        await running

    asyncio.run(talk())
    summary, request = each.sent(-1)
    assert summary.startswith(build_summary_message(WRITTEN).text)
    assert request == "third"


def test_a_switch_that_is_none_changes_nothing() -> None:
    each = held("one", "two")

    async def talk() -> None:
        await each.session.run("first")
        entries = len(each.session.transcript)
        with pytest.raises(ToolsFillBudgetError):
            each.session.set_model(ScriptedModel([], name="other"), budget=_too_small())
        assert len(each.session.transcript) == entries
        await each.session.run("second")

    def _too_small() -> ContextBudget:
        return ContextBudget(window=100, tools=100, reserved_output_tokens=0)

    asyncio.run(talk())
    assert each.session.model is each.model


def test_a_closed_session_begins_nothing_beside_itself() -> None:
    each = held(words(800, "a"), calls(1), words(20, "b"))

    async def talk() -> None:
        await each.session.close()
        await each.session.run("first")
        await turn_and_rest(each, "second")
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(talk())
    assert "StartBackground" in each.told.decisions
    assert each.told.triggers == []


def test_compactions_of_a_fork_have_numbers_of_their_own() -> None:
    each = held(words(50, "a"), words(50, "b"))

    async def talk() -> None:
        await turns(each, 2)
        other = each.session.fork(InMemoryStore())
        assert await each.session.compact() is not None
        assert await other.compact() is not None

    asyncio.run(talk())
    numbers = [event.number for event in each.told.events if isinstance(event, CompactionStarted)]
    assert len(set(numbers)) == 2
    each.told.check()


def test_a_message_is_in_the_transcript_before_its_turn_waits_for_anything() -> None:
    async def talk() -> None:
        sessions = [AgentSession(model=ScriptedModel(["Yes."])) for _ in range(3)]
        turns = [asyncio.ensure_future(each.run("Is it tested?")) for each in sessions]
        await asyncio.sleep(0)  # each runs until it waits, the second and the third for their turn
        for turn in turns:
            turn.cancel()
        await asyncio.wait(turns)
        for each in sessions:
            texts = [entry.message.text for entry in each.transcript.path() if entry.message]
            assert texts[0] == "Is it tested?"
        assert (await sessions[-1].resume()).text == "Yes."

    asyncio.run(talk())
