"""Requests that providers refuse."""

from __future__ import annotations

import pytest

from promptkit import Message, ToolCall, tokenizer_for
from promptkit.bench.replay.check import fault
from promptkit.bench.replay.pieces import Pieces
from tests.unit.bench.replay.talks import asked, call, result, said

SYSTEM = Message(role="system", content=("Rules.",))
BOTH = Message(role="assistant", tool_calls=(ToolCall(id="a", name="run"), ToolCall(id="b", name="run")))


@pytest.mark.parametrize(
    "messages",
    [
        [asked("Hello")],
        [SYSTEM, asked("Hello"), said("Yes."), asked("Go on.")],
        [asked("Hello"), call("a"), result("a", "out"), asked("And?")],
        [asked("Hello"), BOTH, result("b", "out"), result("a", "out")],
    ],
)
def test_proper_requests_have_no_fault(messages: list[Message]) -> None:
    assert fault(Pieces(tokenizer_for(None)).of(messages)) is None


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "no message but"),
        ([SYSTEM], "no message but"),
        ([SYSTEM, said("Yes."), asked("Hello")], "begins with a message of the role 'assistant'"),
        ([result("a", "out"), asked("Hello")], "begins with a message of the role 'tool'"),
        ([asked("Hello"), result("a", "out")], "'a' answers no call"),
        ([asked("Hello"), call("a"), result("a", "out"), result("a", "out")], "'a' answers no call"),
        ([asked("Hello"), call("a"), asked("And?"), result("a", "out")], "'a' is not answered"),
        ([asked("Hello"), BOTH, result("b", "out")], "'a' is not answered"),
        ([asked("Hello"), BOTH, result("b", "out"), said("Well"), result("a", "out")], "'a' is not answered"),
    ],
)
def test_faults_are_found_and_named(messages: list[Message], why: str) -> None:
    assert why in (fault(Pieces(tokenizer_for(None)).of(messages)) or "")


def test_a_recording_that_begins_with_a_greeting_may_go_on_so() -> None:
    greeted = Pieces(tokenizer_for(None)).of([said("Hello, what can I do?"), asked("Mend it.")])
    assert fault(greeted, opening=greeted[0].number) is None
    assert fault(greeted) is not None
