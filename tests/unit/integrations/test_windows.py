"""The parts that the adapters of frameworks share: what a window shows in a framework's own objects, and whose refusal an error is."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from promptkit import ContextBudget, Message, ToolCall
from promptkit.agent.settings import WindowSettings
from promptkit.errors import ContextLengthExceededError
from promptkit.integrations.windows import (
    IssuedRequest,
    ModelFacts,
    ThreadWindows,
    find_overflow,
)
from tests.conversations import words

CALL = ToolCall(id="c1", name="read", arguments="{}")
ROUND = [
    Message(role="user", content=("Review.",)),
    Message(role="assistant", tool_calls=(CALL,)),
    Message(role="tool", content=(words(3_000),), tool_call_id="c1"),
]


@attrs.frozen(eq=False)
class Own:
    """A message of a framework."""

    message: Message


class TooLargeError(Exception):
    """A framework's own error for a request that is too large."""


def refuse(original: Own, shortened: Message) -> Own:
    raise AssertionError(original, shortened)  # nothing is to be rebuilt


def issue(given: list[Own], instructions: str | None = None) -> IssuedRequest:
    """Return the request for a conversation that does not fit its window of 2,000 tokens."""
    budget = ContextBudget(window=2_000, reserved_output_tokens=200)
    facts = ModelFacts(model="gpt-4.1", budget=budget, instructions=instructions, tools=())
    windows = ThreadWindows(settings=WindowSettings(), max_threads=1)
    return asyncio.run(windows.request("talk", facts, [own.message for own in given], given))


@pytest.mark.parametrize("instructions", [None, "Be brief."])
def test_shown_messages_are_the_frameworks_own_or_copies_of_them_without_the_system_prompt(
    instructions: str | None,
) -> None:
    given = [Own(message) for message in ROUND]
    rebuilt: list[Own] = []

    def rebuild(original: Own, shortened: Message) -> Own:
        rebuilt.append(original)
        return attrs.evolve(original, message=shortened)

    shown = issue(given, instructions).show(rebuild)
    assert rebuilt == [given[2]]
    assert shown[:2] == given[:2]
    (copy,) = shown[2:]
    assert isinstance(copy, Own)
    assert copy.message.tool_call_id == "c1"
    assert len(copy.message.text) < len(ROUND[2].text)


def test_messages_that_the_framework_does_not_have_are_shown_as_they_are() -> None:
    # the call has no result
    given = [Own(ROUND[0]), Own(ROUND[1]), Own(Message(role="user", content=("And now?",)))]
    shown = issue(given).show(refuse)
    assert [each.role for each in shown if isinstance(each, Message)] == ["tool"]
    assert [each for each in shown if isinstance(each, Own)] == given


@pytest.mark.parametrize("window", [1_000, None], ids=["named", "not named"])
def test_each_of_several_conversations_in_one_window_is_asked_again_smaller_after_a_refusal(
    window: int | None,
) -> None:
    async def run() -> None:
        windows = ThreadWindows(settings=WindowSettings(), max_threads=1)
        budget = ContextBudget(window=3_000, reserved_output_tokens=200)
        facts = ModelFacts(model="gpt-4.1", budget=budget, instructions=None, tools=())
        task = words(600)
        talks = [
            [Message(role="user", content=(f"Review {n}: {task}",)), *ROUND[1:]] for n in range(3)
        ]
        refused = [await windows.request("", facts, talk, talk) for talk in talks]
        refusal = ContextLengthExceededError("too large", model="gpt-4.1")
        refusal.window = window
        assert [await windows.recover(issued, refusal) for issued in refused] == [True] * 3
        again = [await windows.request("", facts, talk, talk) for talk in talks]
        assert all(
            new.request.tokens < old.request.tokens for old, new in zip(refused, again, strict=True)
        )
        # the window is made smaller once, not by each of the refusals
        assert min(new.request.tokens for new in again) > 300
        assert not await windows.recover(again[0], ValueError("no refusal"))

    asyncio.run(run())


def test_a_frameworks_own_refusal_is_one_that_names_the_model() -> None:
    found = find_overflow(TooLargeError("no"), TooLargeError, model="gpt-4.1")
    assert isinstance(found, ContextLengthExceededError)
    assert "gpt-4.1" in str(found)
    assert find_overflow(RuntimeError("no"), TooLargeError) is None


def test_a_providers_refusal_behind_the_frameworks_is_returned_itself() -> None:
    cause = ContextLengthExceededError("no", model="gpt-4.1")
    error = TooLargeError("no")
    error.__cause__ = cause
    assert find_overflow(error, TooLargeError) is cause
