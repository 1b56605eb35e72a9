"""Every component at three budgets, as Markdown: what it shows, and what it loses where there is less room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import promptkit_components
import pytest
from promptkit_components import (
    AgentPrompt,
    Attachment,
    Attachments,
    Diff,
    FileTree,
    Instructions,
    Reminder,
    Terminal,
    ToolCalls,
    Workspace,
)

from promptkit import (
    Child,
    Group,
    History,
    ImagePart,
    Message,
    PromptElement,
    SystemMessage,
    ToolCall,
    ToolRound,
    UserMessage,
)

if TYPE_CHECKING:
    from promptkit.testing import PromptSnapshot

ASK = UserMessage(required=True)["The discount must start at exactly 100."]

CODE = """\
def total(prices):
    whole = sum(prices)
    if whole > 100:
        return whole * 0.9
    return whole


def receipt(prices):
    lines = [f"{price:8.2f}" for price in prices]
    return "\\n".join([*lines, "-" * 8, f"{total(prices):8.2f}"])
"""

TESTS = """\
def test_small():
    assert total([10, 20]) == 30


def test_large():
    assert total([100, 100]) == 180
"""

DIFF = """\
--- a/cart.py
+++ b/cart.py
@@ -1,5 +1,5 @@
 def total(prices):
     whole = sum(prices)
-    if whole > 100:
+    if whole >= 100:
         return whole * 0.9
     return whole
"""

OUTPUT = """\
collected 2 items
tests/test_cart.py::test_small PASSED
tests/test_cart.py::test_large FAILED
E   assert 190.0 == 180
1 failed, 1 passed
"""

PATHS = [
    "README.md",
    "shop/cart.py",
    "shop/money.py",
    "shop/orders/late.py",
    "shop/orders/new.py",
    "tests/test_cart.py",
]

PIXEL = ImagePart(
    url="data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    detail="low",
)


def said(question: str, answer: str) -> list[Message]:
    return [Message(role="user", content=(question,)), Message(role="assistant", content=(answer,))]


CONVERSATION = [
    *said("Which files are there?", "README.md, four modules under shop and one file of tests."),
    Message(role="user", content=("Where is the discount worked out?",)),
    Message(
        role="assistant",
        tool_calls=(ToolCall(id="call_1", name="search", arguments='{"text": "0.9"}'),),
    ),
    Message(
        role="tool", tool_call_id="call_1", content=("shop/cart.py:4:        return whole * 0.9",)
    ),
    Message(role="assistant", content=("In total(), in shop/cart.py: ten percent off above 100.",)),
    *said("Is it tested?", "Yes, with 200. There is no test at 100 itself."),
]

ROUNDS = [
    ToolRound(
        calls=[ToolCall(id="call_2", name="read_file", arguments='{"path": "shop/cart.py"}')],
        results={"call_2": CODE},
        text="I read the file.",
    ),
    ToolRound(
        calls=[
            ToolCall(id="call_3", name="run_tests", arguments='{"path": "tests", "verbose": true}')
        ],
        results={"call_3": OUTPUT},
    ),
]

WORKSPACE = Workspace(
    root="shop",
    paths=PATHS,
    diff=DIFF,
    terminal=OUTPUT,
    command="pytest -v",
    notes="Branch: discount",
)


def agent(folder: Path) -> Child:
    (folder / "AGENTS.md").write_text("Run the tests after every change.\n", encoding="utf-8")
    return AgentPrompt(
        instructions=f"You are a coding agent at work in {folder}.",
        instruction_files=["AGENTS.md"],
        root=folder,
        workspace=WORKSPACE,
        history=CONVERSATION,
        query="The discount must start at exactly 100.",
        files=[Attachment(path="shop/cart.py", text=CODE, language="python")],
        images=[PIXEL],
        rounds=ROUNDS,
        reminder="Answer in a sentence or two.",
    )


def attachments(_: Path) -> Child:
    files = [
        Attachment(
            path="shop/cart.py",
            text=CODE,
            language="python",
            outline="def total(prices)\ndef receipt(prices)",
        ),
        Attachment(path="tests/test_cart.py", text=TESTS, start_line=12, language="python"),
    ]
    return UserMessage()[
        Attachments(files=files, images=[PIXEL]),
        Group(required=True)["\nWhy does it start above 100?"],
    ]


def instructions(folder: Path) -> Child:
    (folder / "AGENTS.md").write_text(
        "Run the tests after every change.\nNever edit generated files.\nKeep functions short.\nWrite tests first.\n",
        encoding="utf-8",
    )
    files = [str(folder / "AGENTS.md"), "missing.md"]
    return Instructions(files=files, root=folder, truncate_at=18, priority=1)[
        "You are a coding agent."
    ], ASK


Case: TypeAlias = tuple[Callable[[Path], Child], list[int]]

CASES: dict[type[PromptElement], Case] = {
    AgentPrompt: (agent, [1_000, 660, 240]),
    Attachments: (attachments, [600, 260, 130]),
    Diff: (lambda _: (UserMessage(priority=1)[Diff(text=DIFF)], ASK), [200, 70, 30]),
    FileTree: (lambda _: (UserMessage(priority=1)[FileTree(paths=PATHS)], ASK), [200, 45, 25]),
    History: (lambda _: (History(turns=CONVERSATION, priority=1), ASK), [400, 120, 60]),
    Instructions: (instructions, [200, 53, 15]),
    Reminder: (
        lambda _: (SystemMessage()["Be brief."], ASK, Reminder(priority=1)["Run the tests first."]),
        [100, 35, 10],
    ),
    Terminal: (
        lambda _: (UserMessage(priority=1)[Terminal(command="pytest -v", output=OUTPUT)], ASK),
        [200, 60, 20],
    ),
    ToolCalls: (
        lambda _: (ASK, ToolCalls(rounds=ROUNDS, truncate_at=60, priority=1)),
        [400, 110, 40],
    ),
    Workspace: (lambda _: (UserMessage(priority=1)[WORKSPACE], ASK), [400, 170, 80]),
}


@pytest.mark.parametrize("component", CASES, ids=lambda component: component.__name__)
def test_at_three_budgets(
    component: type[PromptElement], prompt_snapshot: PromptSnapshot, tmp_path: Path
) -> None:
    make, budgets = CASES[component]
    assert (make(tmp_path),) == prompt_snapshot.at(budgets=budgets).stabilize(paths=True)


def test_every_component_has_a_snapshot_at_three_budgets() -> None:
    shipped = {getattr(promptkit_components, name) for name in promptkit_components.__all__}
    components = {
        each for each in shipped if isinstance(each, type) and issubclass(each, PromptElement)
    }
    assert components | {History} == set(CASES)
    assert {len(set(budgets)) for _, budgets in CASES.values()} == {3}
