"""Sub-agents: what one is given of its parent's conversation, and what comes back."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Literal, TypeAlias
from uuid import uuid4

import attrs

from promptkit.agent.session.tools import TurnResult
from promptkit.agent.window.continuation import find_pending_calls
from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.run.branches import PARENT_SETTING, build_branch_items
from promptkit.compaction.summarizers.facts import extend_facts
from promptkit.compaction.summarizers.summarizer import sum_usage
from promptkit.elements.element import Child
from promptkit.errors import ToolError
from promptkit.messages import Usage
from promptkit.providers import Model
from promptkit.tools import AnyTool
from promptkit.transcript import (
    InMemoryStore,
    Observation,
    Setting,
    Transcript,
    TranscriptStore,
    open_store,
)
from promptkit.transcript.stores.addresses import is_url

SUBAGENT = "subagent"
"""The name of the observation that says which transcript a sub-agent has."""

FORK_NOTE = (
    "A message of the program that runs this conversation: you are now a sub-agent, with a copy of the conversation of the agent that "
    "needs you. Do the following task and nothing else. That agent is shown your last reply alone: say in it what you found, what you "
    "changed, and what is left open. The task:\n\n"
)


@attrs.frozen(kw_only=True)
class Isolated:
    """A task for a sub-agent that sees nothing of its parent's conversation."""

    task: str
    """The message that it is sent."""
    instructions: Child = None
    """The sub-agent's system message. None: the parent's instructions or prompt."""
    tools: Sequence[AnyTool] | None = None
    """The sub-agent's tools. None: the parent's."""
    model: str | Model | None = None
    """The sub-agent's model. None: the parent's."""


@attrs.frozen(kw_only=True)
class Forked:
    """A task for a sub-agent that continues a copy of its parent's conversation.

    Its requests begin with the bytes of the parent's, which the provider's prompt cache holds. So it
    has the parent's model, instructions and tools. A tool call that is running is not in the copy.
    """

    task: str
    """The task, which its last message ends with."""


@attrs.frozen(kw_only=True)
class Handoff:
    """A task for a sub-agent whose conversation begins with a document, in which the parent's model writes what serves the task."""

    task: str
    """The goal of the document, and the message that the sub-agent is sent."""


SubagentTask: TypeAlias = Isolated | Forked | Handoff
"""A task for a sub-agent, by what it is shown of its parent's conversation."""


@attrs.frozen(kw_only=True)
class SubagentResult:
    """The result of a sub-agent. `str()` of it is the text that the parent's model is shown."""

    text: str
    """The text of the sub-agent's last reply."""
    changed: tuple[str, ...]
    """The files that it changed, as its tool calls name them."""
    open_points: tuple[str, ...]
    """What it has left open: the open items of its last list of todos, and a reply that was cut
    off."""
    transcript: str | None
    """The address of its transcript. None: it is in memory alone."""
    usage: Usage | None
    """The usage of all its requests together."""
    finish: Literal["stop", "tool_calls", "length", "content_filter"]
    """Why its last reply ended."""

    def __str__(self) -> str:
        changed = f"Files changed: {', '.join(self.changed)}" if self.changed else ""
        points = "\n".join(("Left open:", *(f"- {each}" for each in self.open_points)))
        where = f"The sub-agent's conversation: {self.transcript}" if self.transcript else ""
        return "\n\n".join(
            filter(None, (self.text, changed, points if self.open_points else "", where))
        )


_RUNNING: ContextVar[bool] = ContextVar("promptkit_subagent", default=False)


def in_subagent() -> bool:
    """Return whether this runs in a sub-agent, or in what one has started."""
    return _RUNNING.get()


@contextmanager
def entering_subagent() -> Generator[None]:
    """Mark what runs inside as a sub-agent. Raises ToolError in a sub-agent, which would otherwise start others without an end."""
    if in_subagent():
        raise ToolError("a sub-agent cannot start another one: do the task yourself.")
    token = _RUNNING.set(True)
    try:
        yield
    finally:
        _RUNNING.reset(token)


def find_fork_point(transcript: Transcript) -> str | None:
    """Return the id of the last entry before the reply whose tool calls are running, or of the last entry."""
    path = transcript.path()
    if not find_pending_calls(path):
        return transcript.leaf
    reply = max(at for at, entry in enumerate(path) if entry.message and entry.message.tool_calls)
    return path[reply - 1].id if reply else None


def open_beside(store: TranscriptStore) -> TranscriptStore:
    """Open a store for the transcript of a sub-agent beside that of its parent: a file, a conversation of the same database, or memory."""
    if store.address is None:
        return InMemoryStore()
    name = uuid4().hex[:8]
    return open_store(
        f"{store.address}.{name}"
        if is_url(store.address)
        else Path(store.address).with_suffix(f".{name}.jsonl")
    )


def link(parent: Transcript, child: Transcript, task: SubagentTask, leaf: str | None) -> None:
    """Write into both transcripts which one belongs to the other, and why."""
    about = {"mode": type(task).__name__.lower(), "task": task.task}
    parent.append(Observation(name=SUBAGENT, data={**about, "transcript": child.store.address}))
    child.append(
        Setting(
            name=PARENT_SETTING,
            value={**about, "transcript": parent.store.address, "leaf": leaf},
        )
    )


def build_result(transcript: Transcript, start: str | None, turn: TurnResult) -> SubagentResult:
    """Build the result of a turn from what the transcript has since an entry."""
    path = transcript.path()
    since = next(at for at, entry in enumerate(path) if entry.id == start)
    facts = extend_facts(Facts(), build_branch_items(path[since + 1 :]))
    cut = () if turn.finish == "stop" else (f"its last reply ended early ({turn.finish})",)
    return SubagentResult(
        text=turn.text,
        changed=facts.changed,
        open_points=(*facts.todos, *cut),
        transcript=transcript.store.address,
        usage=sum_usage(turn.usages),
        finish=turn.finish,
    )
