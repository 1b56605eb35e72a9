"""The prompt of a coding agent, made of the other components: the place to start from, and to copy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from promptkit import Child, Group, ImagePart, Message, PromptElement, Sizing, ToolRound, UserMessage, component
from promptkit_components.attachments import Attachment, Attachments
from promptkit_components.history import History
from promptkit_components.instructions import Instructions
from promptkit_components.reminder import Reminder
from promptkit_components.tool_calls import ToolCalls

__all__ = ["AgentPrompt"]


@component
class AgentPrompt(PromptElement):
    """Instructions, workspace, history, the request with its attachments, this turn's tool calls, a reminder.

    | part | priority | sized | never pruned |
    |---|---|---|---|
    | instructions | 1000 | first | yes |
    | reminder | 950 | first | |
    | request | 900 | first; its attachments share what that leaves | its words |
    | tool calls | 899 | second | |
    | workspace | 800 | third | |
    | history | 700 | last | `keep_turns` |

    So the history leaves first, and the model always sees what it was asked. If instructions and request alone do not fit, the
    render raises BudgetExceededError.

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
    """What the person asks now; None while the model works on its own."""

    instructions: Child = None
    """Text or a Template, for the system message."""

    instruction_files: Sequence[str | Path] = ()
    """AGENTS.md and its like, appended to the system message."""

    root: str | Path = "."
    """The folder that instruction files are read from."""

    workspace: Child = None
    """A Workspace, or anything else that belongs in a user message before the history."""

    history: Sequence[Message] = ()
    """What was said before, oldest first."""

    keep_turns: int = 0
    """The newest turns of the history that are never pruned."""

    files: Sequence[Attachment] = ()
    """What the person attached to the request."""

    images: Sequence[ImagePart] = ()
    """Likewise."""

    rounds: Sequence[ToolRound] = ()
    """What the model did since the request."""

    truncate_at: int | None = None
    """Tokens of one tool result of this turn. None: half the budget, the rule of VS Code's agent."""

    reminder: Child = None
    """Rules to repeat at the end."""

    def render(self, sizing: Sizing) -> Child:
        """The parts in the order in which the model reads them."""
        return (
            Instructions(files=self.instruction_files, root=self.root, priority=1000, required=True)[self.instructions],
            UserMessage(priority=800, flex_grow=2)[self.workspace],
            History(turns=self.history, keep_turns=self.keep_turns, priority=700, flex_grow=1),
            UserMessage(priority=900)[
                Attachments(files=self.files, images=self.images, flex_grow=1, priority=1),
                Group(required=True)[self.query],
            ],
            ToolCalls(rounds=self.rounds, truncate_at=self._truncate_at(sizing), priority=899, flex_grow=3),
            Reminder(priority=950)[self.reminder],
        )

    def _truncate_at(self, sizing: Sizing) -> int | None:
        # The budget is only asked for where it matters: what does not read it is remembered for all budgets.
        return sizing.token_budget // 2 if self.truncate_at is None and self.rounds else self.truncate_at
