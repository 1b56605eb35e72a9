"""`AgentPrompt`: the prompt of a coding agent, composed of the other components.

Use it as it is, or copy and change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from promptkit import (
    Child,
    Group,
    History,
    ImagePart,
    Message,
    PromptElement,
    Sizing,
    ToolRound,
    UserMessage,
    component,
)
from promptkit_components.attachments import Attachment, Attachments
from promptkit_components.instructions import Instructions
from promptkit_components.reminder import Reminder
from promptkit_components.tool_calls import ToolCalls

__all__ = ["AgentPrompt"]


@component
class AgentPrompt(PromptElement):
    """The prompt of a coding agent: instructions, workspace, history, request with attachments, tool calls of this turn, reminder.

    | part | priority | sized | never pruned |
    |---|---|---|---|
    | instructions | 1000 | first | yes |
    | reminder | 950 | first | |
    | request | 900 | first; its attachments share what is left then | its text |
    | tool calls | 899 | second | |
    | workspace | 800 | third | |
    | history | 700 | last | `keep_turns` |

    So the history is pruned first, and the model always sees the request. If instructions and
    request alone do not fit, the render raises BudgetExceededError.

    >>> from promptkit import render
    >>> prompt = AgentPrompt(
    ...     instructions="You are a coding agent.",
    ...     history=[
    ...         Message(role="user", content=("Is there a parser?",)),
    ...         Message(role="assistant", content=("Yes, in parser.py.",)),
    ...     ],
    ...     query="Fix it.",
    ...     reminder="Run the tests before you answer.",
    ... )
    >>> for message in render(prompt, budget=1_000).messages:
    ...     print(f"{message.role}: {message.text}")
    system: You are a coding agent.
    user: Is there a parser?
    assistant: Yes, in parser.py.
    user: Fix it.
    user: <reminder>
    Run the tests before you answer.
    </reminder>
    """

    query: Child
    """The request of the user. None while the model works on its own."""

    instructions: Child = None
    """The content of the system message: text or a Template."""

    instruction_files: Sequence[str | Path] = ()
    """Files with instructions, such as AGENTS.md, which are appended to the system message."""

    root: str | Path = "."
    """The folder of the instruction files."""

    workspace: Child = None
    """The content of a user message before the history, such as a Workspace."""

    history: Sequence[Message] = ()
    """The earlier messages, oldest first."""

    keep_turns: int = 0
    """The number of newest turns of the history that are never pruned."""

    files: Sequence[Attachment] = ()
    """The files that the user attached to the request, the most important first."""

    images: Sequence[ImagePart] = ()
    """The images that the user attached to the request."""

    rounds: Sequence[ToolRound] = ()
    """The tool calls of the model since the request, with their results, oldest first."""

    truncate_at: int | None = None
    """The maximum tokens of one tool result of this turn. None: half the budget, as in VS Code's
    agent."""

    reminder: Child = None
    """Rules that are repeated at the end."""

    def render(self, sizing: Sizing) -> Child:
        """Return the parts in the order in which the model reads them."""
        return (
            Instructions(
                files=self.instruction_files, root=self.root, priority=1000, required=True
            )[self.instructions],
            UserMessage(priority=800, flex_grow=2)[self.workspace],
            History(turns=self.history, keep_turns=self.keep_turns, priority=700, flex_grow=1),
            UserMessage(priority=900)[
                Attachments(files=self.files, images=self.images, flex_grow=1, priority=1),
                Group(required=True)[self.query],
            ],
            ToolCalls(
                rounds=self.rounds, truncate_at=self._truncate_at(sizing), priority=899, flex_grow=3
            ),
            Reminder(priority=950)[self.reminder],
        )

    def _truncate_at(self, sizing: Sizing) -> int | None:
        # Read the budget only if it matters: a component that has read it runs again when a request
        # is rendered again with another one.
        return (
            sizing.token_budget // 2
            if self.truncate_at is None and self.rounds
            else self.truncate_at
        )
