"""The prompt that CI benches: the shipped AgentPrompt with all of its parts, over the recorded conversation of the demo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit_components import AgentPrompt, Attachment, Workspace
from promptkit_components.demo import load_demo

from promptkit import ToolCall, ToolRound

if TYPE_CHECKING:
    from promptkit import PromptElement

__all__ = ["prompt"]

ROUNDS = 4
"""Tool rounds of the current turn."""


def prompt() -> PromptElement:
    """Return the same prompt every time.

    What it keeps at a budget changes only when a component or the renderer changes.
    """
    conversation = load_demo().conversation
    long = sorted((message.text for message in conversation if message.role == "tool"), key=len)[
        -ROUNDS - 1 :
    ]
    calls = [
        ToolCall(id=f"call_{number}", name="read", arguments=f'{{"path": "part_{number}.py"}}')
        for number in range(ROUNDS)
    ]
    return AgentPrompt(
        instructions="You are a coding agent. You read before you change, and you run the tests after every change.",
        workspace=Workspace(
            root="shop",
            paths=[
                f"shop/{folder}/{name}.py"
                for folder in ("cart", "orders", "stock")
                for name in ("model", "store", "views", "tests")
            ],
            diff="\n".join(
                f"-total_{number} = 0\n+total_{number}: int = 0" for number in range(40)
            ),
            terminal="\n".join(
                f"tests/test_orders.py::test_{number} PASSED" for number in range(60)
            ),
            command="pytest -v",
            notes="The branch is `typed-totals`.",
        ),
        history=conversation,
        query="Which of the totals are still untyped?",
        files=[
            Attachment(
                path="shop/orders/model.py",
                text=long[-1],
                language="python",
                outline="class Order: total, lines, paid",
            ),
            Attachment(
                path="shop/stock/model.py", text="class Stock:\n    count = 0\n", language="python"
            ),
        ],
        rounds=[
            ToolRound(text=f"I look at part {call.id[-1]}.", calls=[call], results={call.id: text})
            for call, text in zip(calls, long, strict=False)
        ],
        reminder="Answer in at most five sentences, with paths.",
    )
