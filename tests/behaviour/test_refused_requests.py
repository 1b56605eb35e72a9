"""What one refusal of a provider does to a session: it costs that turn at most, and the window is what it was."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit import AgentSession, ContextBudget
from promptkit.compaction import (
    CompactionStarted,
    Event,
    Events,
    RequestFailed,
    RequestPruned,
    WindowLearned,
)
from promptkit.errors import ContextWindowFullError
from promptkit.messages import DocumentPart, ImagePart
from promptkit.providers import AnthropicModel
from promptkit.providers.openai.client import OpenAIModel
from promptkit.testing.server import api_error, serve
from tests.conversations import summary_reply, words
from tests.unit.providers.openai.asking import client

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit.messages import Part
    from promptkit.testing.server import Exchange
    from promptkit.testing.server.journal import Answer, Fault

TOO_LARGE = "Request Entity Too Large"
PICTURE = ImagePart(url=f"data:image/png;base64,{'A' * 400_000}")
DOCUMENT = DocumentPart(
    data=base64.b64encode(b"%PDF" + bytes(300_000)).decode(),
    media_type="application/pdf",
    name="plan.pdf",
    tokens=900,
)


@attrs.define
class Talked:
    """What came of a talk: the text of each turn, or its error; and the session."""

    session: AgentSession
    events: list[Event]
    requests: int = 0
    outcomes: list[str | Exception] = attrs.field(factory=list["str | Exception"])

    @property
    def errors(self) -> list[Exception]:
        return [each for each in self.outcomes if isinstance(each, Exception)]

    def told(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


def talk(
    questions: Sequence[str | Sequence[Part]],
    *,
    faults: dict[int, Fault] | None = None,
    answer: Callable[[Exchange], Answer] = lambda _: f"Fine. {words(150)}",
    budget: ContextBudget | None = None,
    model: str = "gpt-4o",
    preset: str = "vscode",
) -> Talked:
    def reply(exchange: Exchange) -> Answer:
        return summary_reply(words(60)) if exchange.purpose == "compaction" else answer(exchange)

    async def run(url: str, events: list[Event]) -> Talked:
        async with client(url) as provider:
            session = AgentSession(
                model=OpenAIModel(model, api="chat", client=provider),
                instructions="You review code.",
                budget=budget,
                preset=preset,
                events=Events(events.append),
            )
            talked = Talked(session, events)
            async with session:
                for question in questions:
                    try:
                        talked.outcomes.append((await session.run(question)).text)
                    except Exception as error:  # noqa: BLE001  # any is an outcome
                        talked.outcomes.append(error)
            return talked

    with serve(after=reply, faults=faults or {}) as server:
        talked = asyncio.run(run(server.url, []))
        talked.requests = len(server.requests)
    return talked


def ask(turns: int) -> list[str]:
    return [f"Question {turn}: {words(100)}" for turn in range(turns)]


@pytest.mark.parametrize("at", [1, 2, 7])
def test_a_413_costs_one_turn_and_neither_the_window_nor_the_history(at: int) -> None:
    talked = talk(ask(10), faults={at: api_error(413, TOO_LARGE)})
    (error,) = talked.errors
    assert isinstance(error, ContextWindowFullError)
    assert "which is not about the context window: gpt-4o: HTTP 413" in str(error)
    assert talked.session.window.budget == ContextBudget.for_model("gpt-4o")
    assert not talked.told(CompactionStarted)
    assert not talked.told(WindowLearned)
    assert talked.requests == 10


@pytest.mark.long
def test_one_413_in_twelve_requests_fails_no_other_turn() -> None:
    faults = {number: api_error(413, TOO_LARGE) for number in range(10, 100, 12)}
    talked = talk(ask(60), faults=dict(faults))
    assert len(talked.errors) == len(talked.told(RequestFailed)) <= 6
    assert not talked.told(WindowLearned)


def test_a_rate_limits_413_makes_one_request_smaller_and_teaches_nothing() -> None:
    limit = api_error(
        413,
        "Request too large for model on tokens per minute (TPM): Limit 6000, Requested 6121, please reduce your message size.",
        kind="tokens",
        code="rate_limit_exceeded",
    )
    talked = talk(ask(8), faults={4: limit})
    assert not talked.errors
    assert len(talked.told(CompactionStarted)) == 1
    assert talked.session.window.budget == ContextBudget.for_model("gpt-4o")
    assert not talked.told(WindowLearned)


@pytest.mark.parametrize("part", [PICTURE, DOCUMENT], ids=["picture", "document"])
@pytest.mark.parametrize("preset", ["vscode", "truncate_only", "pi"])
def test_a_picture_that_a_gateway_refuses_is_named_and_left_out_of_later_requests(
    part: Part, preset: str
) -> None:
    shown: list[str] = []

    def answer(exchange: Exchange) -> Answer:
        if len(exchange.raw) > 300_000:
            return api_error(413, TOO_LARGE)
        shown.append(str(exchange.body))
        return "Fine."

    questions = [*ask(6), ("What is this?", part), *ask(3)]
    talked = talk(questions, answer=answer, preset=preset)
    (error,) = talked.errors
    named = (
        "picture (image/png, 400,022 bytes)"
        if part is PICTURE
        else "document plan.pdf (application/pdf, 400,008 bytes)"
    )
    assert named in str(error)
    assert "later requests leave these out" in str(error)
    assert f"[{named} left out: the provider refused a request with it as too large]" in shown[-1]
    assert "What is this?" in shown[-1]
    assert not talked.told(CompactionStarted)
    # the transcript keeps it
    assert any(
        entry.message is not None and part in entry.message.content
        for entry in talked.session.transcript.entries
    )


def test_the_oldest_of_many_pictures_leave_without_a_compaction_or_an_error() -> None:
    def answer(exchange: Exchange) -> Answer:
        return api_error(413, TOO_LARGE) if len(exchange.raw) > 1_000_000 else "Fine."

    talked = talk([(f"Picture {turn}", PICTURE) for turn in range(6)], answer=answer)
    assert not talked.errors
    assert talked.told(RequestPruned)
    assert not talked.told(CompactionStarted)
    assert not talked.told(WindowLearned)


@pytest.mark.parametrize("status", [400, 413])
def test_a_figure_in_a_refusal_is_believed_and_reported(status: int) -> None:
    refusal = api_error(
        status,
        "This model's maximum context length is 4000 tokens. However, your messages resulted in 4500 tokens.",
    )
    talked = talk(ask(12), faults={8: refusal})
    assert not talked.errors
    assert talked.session.window.budget.window == 4_000
    (learned,) = talked.told(WindowLearned)
    assert learned == WindowLearned(
        before=111_616, after=3_000, why="the provider named a window of 4,000 tokens"
    )


@pytest.mark.long
def test_an_overflow_without_a_figure_makes_a_buffer_that_lapses() -> None:
    refusal = api_error(400, "Too long.", code="context_length_exceeded")
    budget = ContextBudget(window=4_000, reserved_output_tokens=500)
    talked = talk(ask(40), faults={9: refusal}, budget=budget)
    assert not talked.errors
    limits = [
        (event.before, event.after)
        for event in talked.told(WindowLearned)
        if isinstance(event, WindowLearned)
    ]
    assert limits[0][0] == limits[-1][1] == 3_500
    assert 2_000 <= (limits[0][1] or 0) < 2_800
    assert talked.session.window.budget == attrs.evolve(budget)


def test_an_overflow_far_below_a_known_window_is_about_that_message() -> None:
    refusal = api_error(400, "Too long.", code="context_length_exceeded")
    link = ImagePart(url="https://example.org/plan.png")
    talked = talk([*ask(5), ("What is this?", link), "And now?"], faults={6: refusal})
    (error,) = talked.errors
    assert "picture (https://example.org/plan.png)" in str(error)
    assert not talked.told(CompactionStarted)
    assert not talked.told(WindowLearned)


def test_a_fork_keeps_the_window_that_was_named_and_not_the_buffer() -> None:
    refusal = api_error(400, "Too long.", code="context_length_exceeded")
    budget = ContextBudget(window=4_000, reserved_output_tokens=500)
    window = talk(ask(10), faults={9: refusal}, budget=budget).session.window
    assert window.budget != budget
    assert window.fork(type(window.transcript.store)()).budget == budget


def test_claude_is_not_treated_otherwise() -> None:
    def answer(exchange: Exchange) -> Answer:
        return (
            api_error(413, "Request exceeds the maximum size", kind="request_too_large")
            if (len(exchange.raw) > 300_000)
            else "Fine."
        )

    async def run(url: str) -> list[str]:
        import anthropic

        async with anthropic.AsyncAnthropic(
            base_url=url, api_key="none", max_retries=0
        ) as provider:
            session = AgentSession(model=AnthropicModel("claude-opus-4-8", client=provider))
            before = session.window.budget
            await session.run("Hello.")
            with pytest.raises(ContextWindowFullError, match=r"picture \(image/png"):
                await session.run(("What is this?", PICTURE))
            assert session.window.budget == before
            return [(await session.run(question)).text for question in ("And now?", "And then?")]

    with serve(after=answer) as server:
        assert asyncio.run(run(server.anthropic_url)) == ["Fine.", "Fine."]
        assert server.stats.invalid == 0


def test_the_error_names_messages_where_there_are_no_pictures() -> None:
    (error,) = talk(["Hello."], faults={1: api_error(413, TOO_LARGE)}).errors
    assert "The largest messages: system" in str(error)
