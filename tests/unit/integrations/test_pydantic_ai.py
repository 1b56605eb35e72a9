"""pydantic-ai's capabilities: what is sent, what stays the history's own, and what happens after a refusal."""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip(
    "pydantic_ai", reason="the framework is not installed: pip install '.[pydantic-ai]'"
)

from pydantic_ai import Agent, Tool
from pydantic_ai.exceptions import ModelContextWindowExceededError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from promptkit import ContextBudget, Transcript
from promptkit.integrations.pydantic_ai import Compaction, Fit
from tests.conversations import words

if TYPE_CHECKING:
    from collections.abc import Callable

Capability = Fit | Compaction
BUDGET = ContextBudget(window=2_000, reserved_output_tokens=200)
MAKE = pytest.mark.parametrize(
    "make",
    [
        lambda: Fit(budget=1_500, model="gpt-4.1"),
        lambda: Compaction(budget=BUDGET, model="gpt-4.1"),
    ],
    ids=["fit", "compaction"],
)


def read_text(path: str) -> str:
    """Read a file."""
    return path


def talk(rounds: int, *, long: int = 400) -> list[ModelMessage]:
    """Rounds of a question, thinking with two calls, their results in one request, and an answer."""
    messages: list[ModelMessage] = []
    for n in range(rounds):
        calls = [
            ToolCallPart(
                tool_name="read_text", args={"path": f"{each}{n}"}, tool_call_id=f"{each}{n}"
            )
            for each in "ab"
        ]
        results = [
            ToolReturnPart(
                tool_name="read_text", content=words(long // 2), tool_call_id=call.tool_call_id
            )
            for call in calls
        ]
        messages += [
            ModelRequest(parts=[UserPromptPart(content=f"Review {n}.")]),
            ModelResponse(parts=[ThinkingPart(content="I read both.", signature="secret"), *calls]),
            ModelRequest(parts=results),
            ModelResponse(parts=[TextPart(content=f"{n} is sound.")]),
        ]
    return messages


class Provider:
    """Answers, or raises the next of its errors, and keeps what it was sent."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.sent: list[list[ModelMessage]] = []

    async def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.sent.append(messages)
        if self.errors:
            raise self.errors.pop(0)
        return ModelResponse(parts=[TextPart(content="Done.")])


def call(
    capability: Capability, history: list[ModelMessage], provider: Provider
) -> list[ModelMessage]:
    """Ask once more, and return the history afterwards."""
    agent = Agent(
        FunctionModel(provider),
        instructions="You review code.",
        tools=[Tool(read_text)],
        capabilities=[capability],
    )
    return asyncio.run(agent.run("And now?", message_history=history)).all_messages()


def size(messages: list[ModelMessage]) -> int:
    return sum(
        len(str(getattr(part, "content", ""))) for message in messages for part in message.parts
    )


@MAKE
def test_a_conversation_that_fits_is_sent_as_it_is(make: Callable[[], Capability]) -> None:
    history, provider = talk(2), Provider()
    call(make(), history, provider)
    assert all(one is other for one, other in zip(provider.sent[0], history, strict=False))
    assert len(provider.sent[0]) == len(history) + 1


@MAKE
@pytest.mark.parametrize("rounds", [3, 12])
def test_ids_of_calls_that_a_server_uses_again_stay_those_of_their_results(
    make: Callable[[], Capability], rounds: int
) -> None:
    history, provider = talk(rounds, long=50 if rounds == 3 else 400), Provider()
    for message in history:
        for part in message.parts:
            if isinstance(part, ToolCallPart | ToolReturnPart):
                if isinstance(part, ToolReturnPart):
                    part.metadata = part.tool_call_id
                part.tool_call_id = f"call_{part.tool_call_id[0]}"
    call(make(), history, provider)
    parts = [part for message in provider.sent[0] for part in message.parts]
    called = [
        (part.tool_call_id, part.args_as_dict()["path"])
        for part in parts
        if isinstance(part, ToolCallPart)
    ]
    assert len(dict(called)) == len(called)
    assert called or rounds > 3  # they may be summarized
    assert called == [
        (part.tool_call_id, part.metadata) for part in parts if isinstance(part, ToolReturnPart)
    ]


@MAKE
def test_a_request_is_smaller_with_calls_and_results_together_and_the_history_is_whole(
    make: Callable[[], Capability],
) -> None:
    history, provider = talk(8), Provider()
    kept = call(make(), history, provider)
    assert kept[: len(history)] == history
    assert len(kept) == len(history) + 2
    (sent,) = provider.sent
    assert size(sent) < size(history) / 1.5
    parts = [part for message in sent for part in message.parts]
    called = [part.tool_call_id for part in parts if isinstance(part, ToolCallPart)]
    assert called == [part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)]
    assert sum(isinstance(part, ThinkingPart) for part in parts) == len(called) / 2


@MAKE
def test_a_refusal_is_answered_with_one_smaller_request(make: Callable[[], Capability]) -> None:
    refused = ModelContextWindowExceededError("gpt-4.1", "the input is too large")
    provider = Provider(refused)
    call(make(), talk(8), provider)
    assert size(provider.sent[1]) < size(provider.sent[0])
    provider = Provider(*[refused] * 3)
    with pytest.raises(ModelContextWindowExceededError):
        call(make(), talk(8), provider)
    assert len(provider.sent) == 2


@MAKE
def test_any_other_error_is_raised(make: Callable[[], Capability]) -> None:
    provider = Provider(RuntimeError("no"))
    with pytest.raises(RuntimeError, match="no"):
        call(make(), talk(2), provider)
    assert len(provider.sent) == 1


def test_a_conversation_is_one_branch_of_its_transcript_with_the_usage() -> None:
    transcripts: dict[str, Transcript] = {}
    capability = Compaction(
        budget=BUDGET,
        model="gpt-4.1",
        transcripts=lambda name: transcripts.setdefault(name, Transcript()),
    )
    history: list[ModelMessage] = []
    for _ in range(3):
        history = call(capability, history, Provider())
    (transcript,) = transcripts.values()
    assert len(transcript.leaves()) == 1
    # Any stands for messages
    said: list[Any] = [entry.payload for entry in transcript.path() if entry.kind == "message"]
    assert len(said) == 6
    assert all(
        payload.usage.input_tokens > 0 for payload in said if payload.message.role == "assistant"
    )


def test_without_the_framework_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "promptkit.integrations.pydantic_ai")
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(ImportError, match=r"\.\[pydantic-ai\]"):
        importlib.import_module("promptkit.integrations.pydantic_ai")
