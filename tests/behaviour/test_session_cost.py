"""What a turn of a conversation costs that only grows: its own, and not that of all turns before it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from promptkit import Message, ToolCall, ToolDefinition, Usage
from promptkit.agent.session.session import AgentSession
from promptkit.providers import Reply
from promptkit.tokens import tokenizer_for
from promptkit.tokens.budget import ContextBudget
from promptkit.tokens.openai_tokenizer import CountCache, OpenAITokenizer
from promptkit.tools import Tool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptkit.messages import Role
    from promptkit.tokens import Count


class Works:
    """A model that makes one call for each message of the person, and then answers.

    No two of its texts are the same.
    """

    name = "gpt-4.1"

    def __init__(self) -> None:
        self.asked = 0

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Reply:
        self.asked += 1
        calls = (
            (ToolCall(id=f"c{self.asked}", name="read", arguments=f'{{"n": {self.asked}}}'),)
            if self.asked % 2
            else ()
        )
        content = () if calls else (f"Answer number {self.asked}.",)
        message = Message(role="assistant", content=content, tool_calls=calls)
        return Reply(
            message=message, usage=Usage(input_tokens=0), finish="tool_calls" if calls else "stop"
        )


def tokenized(turns: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts were tokenized in the first half of so many turns, and in the second."""
    texts: list[str] = []
    put, put_all = CountCache.put, CountCache.put_all

    def put_counted(cache: CountCache, text: str, tokens: int) -> None:
        texts.append(text)
        put(cache, text, tokens)

    def put_all_counted(cache: CountCache, counts: Mapping[str, int]) -> None:
        texts.extend(counts)
        put_all(cache, counts)

    monkeypatch.setattr(CountCache, "put", put_counted)
    monkeypatch.setattr(CountCache, "put_all", put_all_counted)
    return talk(turns, texts)


def talk(turns: int, noted: Sequence[str]) -> list[int]:
    """How many texts were noted in the first half of so many turns, and in the second."""
    session = AgentSession(
        model=Works(),
        instructions="Be brief.",
        tools=[
            Tool(
                definition=ToolDefinition(name="read"),
                run=lambda arguments: f"text {arguments['n']}",
            )
        ],
        tokenizer=tokenizer_for("gpt-4.1"),
        budget=ContextBudget(),
    )

    async def run() -> list[int]:
        ends: list[int] = []
        for turn in range(turns):
            await session.run(f"Question number {turn}.")
            ends.append(len(noted))
        return [ends[turns // 2 - 1], ends[-1] - ends[turns // 2 - 1]]

    return asyncio.run(run())


@pytest.mark.parametrize("turns", [60, pytest.param(1_000, marks=pytest.mark.slow)])
def test_a_text_is_tokenized_once_however_long_the_conversation(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tokenized(turns, monkeypatch)
    assert 0 < second <= first


def test_a_call_is_framed_when_it_is_new_and_not_in_every_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    framed: list[str] = []
    count_framing = OpenAITokenizer.count_framing

    # Any stands for the keywords of count_framing
    def counted(tokenizer: OpenAITokenizer, role: Role, **message: Any) -> Count:
        framed.extend(call.id for call in message.get("tool_calls", ()))
        return count_framing(tokenizer, role, **message)

    monkeypatch.setattr(OpenAITokenizer, "count_framing", counted)
    first, second = talk(20, framed)
    assert 0 < second <= first
