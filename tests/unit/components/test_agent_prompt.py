"""`AgentPrompt`: every part in its place, and the right part leaves first."""

from __future__ import annotations

import pytest
from promptkit_components import AgentPrompt, Attachment, Workspace

from promptkit import BudgetExceededError, Message, ToolCall, ToolRound, render


def history(turns: int) -> list[Message]:
    return [
        message
        for i in range(turns)
        for message in (
            Message(role="user", content=(f"Question {i}?",)),
            Message(role="assistant", content=(f"Answer {i}. " * 5,)),
        )
    ]


def prompt(turns: int = 10, rounds: int = 3) -> AgentPrompt:
    return AgentPrompt(
        instructions="You are a coding agent.",
        workspace=Workspace(paths=["parser.py"]),
        history=history(turns),
        files=[Attachment(path="parser.py", text="def parse(): ...")],
        query="Fix the parser.",
        rounds=[
            ToolRound(
                calls=[ToolCall(id=f"c{i}", name="read")], results={f"c{i}": f"Output {i}. " * 40}
            )
            for i in range(rounds)
        ],
        reminder="Run the tests.",
    )


def test_every_part_stands_in_its_place() -> None:
    said = [(m.role, m.text) for m in render(prompt(1, 1)).messages]
    assert [role for role, _ in said] == [
        "system",
        "user",
        "user",
        "assistant",
        "user",
        "assistant",
        "tool",
        "user",
    ]
    assert said[0][1] == "You are a coding agent."
    assert "parser.py" in said[1][1]
    assert said[2][1] == "Question 0?"
    assert said[4][1].endswith("Fix the parser.")
    assert "<attachment" in said[4][1]
    assert "Run the tests." in said[-1][1]


def test_the_history_leaves_before_anything_of_this_turn() -> None:
    rendered = render(prompt(40), budget=900)
    text = "\n".join(m.text for m in rendered.messages)
    assert "Question 0?" not in text
    assert "messages omitted" in text
    for part in ("You are a coding agent.", "Fix the parser.", "Output 2.", "Run the tests."):
        assert part in text


@pytest.mark.parametrize("budget", range(60, 2_000, 97))
def test_the_request_and_the_instructions_always_stay(budget: int) -> None:
    rendered = render(prompt(), budget=budget)
    assert rendered.tokens <= budget
    assert rendered.messages[0].text == "You are a coding agent."
    assert any("Fix the parser." in m.text for m in rendered.messages)


def test_a_reminder_gives_way_to_the_request() -> None:
    said = [
        m.text
        for m in render(
            AgentPrompt(query="Fix the parser.", reminder="word " * 50), budget=30
        ).messages
    ]
    assert said == ["Fix the parser."]


def test_says_so_where_they_do_not_fit() -> None:
    with pytest.raises(BudgetExceededError):
        render(prompt(), budget=5)


def test_cuts_a_result_to_half_the_budget() -> None:
    huge = ToolRound(calls=[ToolCall(id="c", name="read")], results={"c": "word " * 5_000})
    rendered = render(AgentPrompt(query="Go.", rounds=[huge]), budget=1_000)
    assert "[… output cut …]" in rendered.messages[-1].text
    assert rendered.tokens <= 1_000


def test_needs_nothing_but_a_request() -> None:
    assert [m.text for m in render(AgentPrompt(query="Go.")).messages] == ["Go."]


def test_the_request_may_be_missing() -> None:
    assert [m.text for m in render(AgentPrompt(query=None, instructions="Be brief.")).messages] == [
        "Be brief."
    ]
