"""The newest round never leaves a request: its results are shortened together until they fit, or the session says that its window is full."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hypothesis import given, settings, strategies as st

from promptkit.agent import AgentSession
from promptkit.compaction import ExtractiveSummarizer
from promptkit.errors import ContextWindowFullError
from promptkit.messages import ToolCall, ToolDefinition
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.tokens.budget import ContextBudget
from promptkit.tools import Tool
from tests.conversations import words
from tests.examples import examples

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptkit.testing.scripted_model import Request


class Agent:
    """A session whose model reads files in rounds, and what was sent."""

    def __init__(
        self, rounds: Sequence[Sequence[int]], window: int, preset: str = "vscode"
    ) -> None:
        self.requests: list[Request] = []
        self.runs: list[str] = []
        self.sizes = {
            f"r{at}f{number}": size
            for at, sizes in enumerate(rounds)
            for number, size in enumerate(sizes)
        }
        self.rounds = [
            [name for name in self.sizes if name.startswith(f"r{at}f")] for at in range(len(rounds))
        ]
        model = ScriptedModel([self.answer] * (len(rounds) + 1))
        tool = Tool(definition=ToolDefinition(name="read"), run=self.read)
        budget = ContextBudget(window=window, reserved_output_tokens=window // 10)
        self.session = AgentSession(
            model=model,
            tools=[tool],
            tokenizer=WordTokenizer(),
            budget=budget,
            preset=preset,
            summarizer=ExtractiveSummarizer(),
        )

    def read(self, arguments: Mapping[str, object]) -> str:
        path = str(arguments["path"])
        self.runs.append(path)
        return words(self.sizes[path], path)

    def answer(self, request: Request) -> str | list[ToolCall]:
        self.requests.append(request)
        at = len(self.requests) - 1
        if at >= len(self.rounds):
            return "done"
        return [
            ToolCall(id=name, name="read", arguments=f'{{"path": "{name}"}}')
            for name in self.rounds[at]
        ]


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 20_000), min_size=1, max_size=10), min_size=1, max_size=3),
    st.integers(2_000, 30_000),
)
def test_a_model_sees_every_call_that_it_has_just_made_with_a_part_of_each_result(
    rounds: list[list[int]], window: int
) -> None:
    agent = Agent(rounds, window)
    assert asyncio.run(agent.session.run("Compare the files.")).text == "done"
    assert sorted(agent.runs) == sorted(agent.sizes)  # nothing was run twice
    for names, request in zip(agent.rounds, agent.requests[1:], strict=True):
        calls = [call.id for message in request.messages for call in message.tool_calls]
        results = {
            message.tool_call_id: message.text
            for message in request.messages
            if message.role == "tool"
        }
        assert calls[-len(names) :] == names
        assert calls == list(results)
        assert all(name in results[name] for name in names)
        assert WordTokenizer().count(" ".join(results.values())) <= window


def test_ten_results_that_do_not_fit_together_are_shortened_to_the_same_length() -> None:
    agent = Agent([[8_000] * 9 + [40]], 16_000)
    asyncio.run(agent.session.run("Compare the files."))
    sizes = [
        WordTokenizer().count(message.text)
        for message in agent.requests[-1].messages
        if message.role == "tool"
    ]
    assert sizes[-1] == 40  # a short one stays whole
    assert max(sizes[:-1]) - min(sizes[:-1]) <= 2
    assert sum(sizes) > 10_000


def test_where_not_even_the_shortest_results_fit_the_window_says_so() -> None:
    agent = Agent([[500] * 40], 300)
    try:
        asyncio.run(agent.session.run("Compare the files."))
    except ContextWindowFullError as error:
        assert "larger than the budget" in str(error)  # noqa: PT017  # that it raises is not the promise, but that nothing is hidden
    calls = [
        call
        for request in agent.requests[1:]
        for message in request.messages
        for call in message.tool_calls
    ]
    assert len(calls) in {0, 40}
