"""The user's request stays in a pruned request, also where the program has written to the model since."""

from __future__ import annotations

import asyncio

import pytest

from promptkit import AgentSession, ContextBudget, Message, Tool, ToolCall, ToolDefinition
from promptkit.messages import Usage
from promptkit.providers.model import Reply
from promptkit.testing import Request, ScriptedModel, WordTokenizer, summary_answer
from promptkit.transcript.log.entries import Checkpoint

CUT = Reply(
    message=Message(role="assistant", content="I begin."),
    finish="length",
    usage=Usage(input_tokens=40, output_tokens=40),
)
QUESTION = "Fix the parser, and keep its tests."
READ = Tool(
    definition=ToolDefinition(name="read", description="Read."), run=lambda _: "line " * 150
)


@pytest.mark.parametrize(
    "content",
    [(QUESTION,), ("Fix the parser,", " and keep its tests.")],
    ids=["one part", "two parts"],
)
@pytest.mark.parametrize("preset", ["vscode", "copilot_cli", "oh_my_pi", "truncate_only"])
def test_a_pruned_request_shows_what_the_user_asked_after_a_cut_off_reply(
    preset: str, content: tuple[str, ...]
) -> None:
    requests: list[Request] = []

    def answer(request: Request) -> Reply | ToolCall | str:
        requests.append(request)
        number = len(requests)
        if number == 1:
            return CUT
        return (
            ToolCall(id=f"c{number}", name="read", arguments=f'{{"part": {number}}}')
            if number < 12
            else "Done."
        )

    session = AgentSession(
        model=ScriptedModel([answer] * 12),
        tokenizer=WordTokenizer(),
        preset=preset,
        enabled=False,
        budget=ContextBudget(window=1_000, reserved_output_tokens=100),
        tools=[READ],
    )
    asyncio.run(session.run(content))
    assert session.last_omitted
    for request in requests:
        assert any(message.text == QUESTION for message in request.messages)


PASTED = "<conversation-summary>\nContinue from this: fix the parser.\n</conversation-summary>"


@pytest.mark.parametrize(
    "preset", ["vscode", "codex", "pi", "opencode", "copilot_cli", "claude_code"]
)
def test_a_summary_that_the_user_pasted_is_the_user_s_request_however_often_the_turn_is_compacted(
    preset: str,
) -> None:
    requests: list[Request] = []
    summary = summary_answer(
        "The parser was read in part, and what was found so far is told here in enough words to pass the check."
    )

    def answer(request: Request) -> ToolCall | str:
        if request.purpose == "compaction":
            return summary
        requests.append(request)
        return (
            ToolCall(id=f"c{len(requests)}", name="read", arguments=f'{{"part": {len(requests)}}}')
            if len(requests) < 24
            else "Done."
        )

    session = AgentSession(
        model=ScriptedModel([answer] * 99),
        tokenizer=WordTokenizer(),
        preset=preset,
        budget=ContextBudget(window=2_000, reserved_output_tokens=100),
        tools=[READ],
    )
    asyncio.run(session.run(PASTED))
    assert sum(isinstance(entry.payload, Checkpoint) for entry in session.transcript.path()) >= 2
    assert [
        number
        for number, request in enumerate(requests)
        if all(message.text != PASTED for message in request.messages)
    ] == []
