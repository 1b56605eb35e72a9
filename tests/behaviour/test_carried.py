"""What the work goes on with stands beside every summary: plan, todos, skills, rules and the agent, from the conversation or from the program's own values."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import attrs
import pytest

from promptkit import AgentSession, ContextBudget, ContextWindow, Message, ToolCall
from promptkit.agent import Handoff
from promptkit.compaction import PRESETS, CarriedContext, Summary, SummaryTask
from promptkit.compaction.summarizers.summarizer import HANDOFF_SECTIONS
from promptkit.errors import SummaryError
from promptkit.testing import ScriptedModel, WordTokenizer, summary_answer
from promptkit.tools import ERROR_MARK
from promptkit.transcript import InMemoryStore, Transcript
from tests.conversations import words

WORDS = WordTokenizer()
SUMMARIZING = [name for name in PRESETS if name not in {"off", "amp", "truncate_only"}]
BUDGET = ContextBudget(window=20_000, reserved_output_tokens=2_000)


class Forgetful:
    """Writes a summary that says nothing."""

    async def summarize(self, task: SummaryTask) -> Summary:
        _ = task
        return Summary(text=words(40, "nothing"), mode="test")


def open_window(preset: str = "vscode", **settings: object) -> ContextWindow:
    return ContextWindow(
        model="m",
        preset=preset,
        budget=BUDGET,
        tokenizer=WORDS,
        summarizer=Forgetful(),
        **settings,  # type: ignore[arg-type]  # as a test gives them
    )


def use(window: ContextWindow, name: str, result: str = "done", **arguments: object) -> None:
    call = ToolCall(id=f"c{len(window.transcript)}", name=name, arguments=arguments)
    window.add(Message(role="assistant", tool_calls=[call]))
    window.add(Message(role="tool", tool_call_id=call.id, content=result))


def load(window: ContextWindow, rng: random.Random) -> dict[str, str]:
    """A turn that plans, notes todos, loads a skill and reads rules; return a word of each."""
    facts = {name: f"{name}{rng.randrange(10**9)}" for name in ("plan", "todo", "skill", "rule")}
    window.add(Message(role="user", content="Begin."))
    use(window, "exit_plan_mode", plan=f"First {facts['plan']}.")
    use(window, "todo_write", todos=[{"content": f"do {facts['todo']}", "status": "pending"}])
    use(window, "Skill", f"Call {facts['skill']} with care.", command="pdf")
    use(window, "read_file", f"Always use {facts['rule']}.", path="/repo/docs/AGENTS.md")
    window.add(Message(role="assistant", content="ok"))
    return facts


def compact(window: ContextWindow, times: int = 1) -> str:
    for _ in range(times):
        for _ in range(5):
            window.add(Message(role="user", content="Go on."))
            use(window, "bash", words(2_200, "output"), command="make")
            window.add(Message(role="assistant", content=words(100, "reply")))
        assert asyncio.run(window.compact()) is not None
    return "\n\n".join(message.text for message in window.view.messages)


@pytest.mark.parametrize("preset", SUMMARIZING)
def test_ten_compactions_keep_plan_todos_skills_and_rules(preset: str) -> None:
    window = open_window(preset)
    facts = load(window, random.Random(preset))
    shown = compact(window, 10)
    assert f"<plan>\nFirst {facts['plan']}.\n</plan>" in shown
    assert f"- [ ] do {facts['todo']} (to be confirmed)" in shown
    assert f"- pdf\n  Call {facts['skill']} with care." in shown
    assert f"<rules>\n- /repo/docs/AGENTS.md\n  Always use {facts['rule']}.\n</rules>" in shown


def test_rules_that_could_not_be_read_are_not_carried() -> None:
    window = open_window()
    window.add(Message(role="user", content="Begin."))
    window.add(
        Message(
            role="assistant",
            tool_calls=[ToolCall(id="c", name="read_file", arguments={"path": "CLAUDE.md"})],
        )
    )
    window.add(Message(role="tool", tool_call_id="c", content=("no such file", ERROR_MARK)))
    window.add(Message(role="assistant", content="ok"))
    assert "<rules>" not in compact(window)


def test_what_the_program_gives_replaces_what_the_conversation_recorded() -> None:
    todos = ["ship it"]
    window = open_window(carry=lambda: CarriedContext(todos=tuple(todos), agent="I review."))
    facts = load(window, random.Random(1))
    shown = compact(window)
    assert "<todos>\n- [ ] ship it\n</todos>" in shown
    assert "<agent>\nI review.\n</agent>" in shown
    assert facts["plan"] in shown
    todos[:] = ["rest"]
    assert "<todos>\n- [ ] rest\n</todos>" in compact(window)


@pytest.mark.parametrize(
    "name", [each.name for each in attrs.fields(CarriedContext) if each.name != "extract"]
)
def test_each_value_that_the_program_gives_is_shown(name: str) -> None:
    values: dict[str, Any] = {name: "OURS" if name in {"plan", "agent"} else ("OURS",)}
    window = open_window(carry=lambda: CarriedContext(**values))
    load(window, random.Random(1))
    use(window, "edit_file", path="src/parser.py")
    use(window, "bash", "TypeError: no lexer", command="pytest")
    assert "OURS" in compact(window)


def test_an_error_of_the_program_is_logged_and_the_conversation_s_own_is_carried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> CarriedContext:
        raise OSError

    window = open_window(carry=fail)
    facts = load(window, random.Random(1))
    with caplog.at_level(logging.ERROR, logger="promptkit"):
        assert facts["todo"] in compact(window)
    assert "carry= raised" in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: None,
        lambda: {"plan": "P"},
        lambda: CarriedContext(plan=["a"]),  # type: ignore[arg-type]  # the fault
        lambda: CarriedContext(todos="abc"),
        lambda: CarriedContext(rules=[1]),  # type: ignore[list-item]  # the fault
    ],
)
def test_a_wrong_value_of_the_program_is_logged_and_the_conversation_s_own_is_carried(
    wrong: object, caplog: pytest.LogCaptureFixture
) -> None:
    window = open_window(carry=wrong)
    facts = load(window, random.Random(1))
    assert facts["todo"] in compact(window)
    assert "carry= " in caplog.text


def test_secrets_in_what_the_program_gives_are_not_shown() -> None:
    given = CarriedContext(plan="Use k-1.", todos=("rotate k-1",), agent="k-1", skills=("k-1",))

    def redact(text: str) -> str:
        return text.replace("k-1", "[key]")

    window = open_window(carry=lambda: given, redactor=redact)
    shown = compact(window)
    assert "<plan>\nUse [key].\n</plan>" in shown
    assert "k-1" not in shown


def test_an_isolated_conversation_is_not_shown_what_this_one_carries() -> None:
    window = open_window(carry=lambda: CarriedContext(plan="PARENT"))
    assert "PARENT" in compact(window)
    assert "PARENT" not in compact(window.isolate(InMemoryStore()))


@pytest.mark.parametrize("carries", [True, False])
def test_a_sub_agent_with_a_document_is_not_shown_what_its_parent_carries(*, carries: bool) -> None:
    document = summary_answer("The parser scatters.", sections=HANDOFF_SECTIONS)
    model = ScriptedModel(
        ["Yes.", document, "In tests/.", document, summary_answer("The tests wait.")]
    )
    session = AgentSession(
        model=model, budget=BUDGET, tokenizer=WORDS, carry=lambda: CarriedContext(plan="PARENT")
    )

    async def delegate() -> ContextWindow:
        await session.run("Go.")
        await session.delegate(Handoff(task="Find the tests."))
        return await session.window.handoff("Go on.", InMemoryStore(), carries=carries)

    child = asyncio.run(delegate())
    shown = "\n".join(message.text for message in model.requests[2].messages)
    assert "The parser scatters." in shown
    assert "PARENT" not in shown
    assert ("PARENT" in compact(child)) is carries


def test_a_summary_that_what_is_carried_makes_too_large_names_carry() -> None:
    given = CarriedContext(plan=words(9_000, "plan"), agent=words(9_000, "agent"))
    window = open_window(carry=lambda: given)
    for _ in range(3):
        window.add(Message(role="user", content="Go on."))
        window.add(Message(role="assistant", content=words(500, "reply")))
    with pytest.raises(SummaryError, match="carry= "):
        asyncio.run(window.compact())


def test_a_session_takes_carry_too() -> None:
    session = AgentSession(
        model=ScriptedModel([]),
        transcript=Transcript(),
        budget=BUDGET,
        tokenizer=WORDS,
        summarizer=Forgetful(),
        carry=lambda: CarriedContext(plan="P"),
    )
    assert "<plan>\nP\n</plan>" in compact(session.window)
    with pytest.raises(TypeError, match="carry must be a function"):
        open_window(carry="plan")
