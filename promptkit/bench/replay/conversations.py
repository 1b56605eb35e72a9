"""The conversations of a file: each branch that has something to say of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.bench.replay.offered import tools_in
from promptkit.bench.replay.recording import recorded_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from promptkit.bench.replay.recording import Recording
    from promptkit.messages import Message, ToolDefinition
    from promptkit.transcript.entries import Entry

__all__ = ["conversations"]


def conversations(entries: Iterable[Entry]) -> Iterator[Recording]:
    """A recording for each branch of a transcript, in the order in which the branches ended; none that only begins another.

    What an agent's own compactions, edits and resets left out is there: all of it was said. Times of 0 are unknown.
    """
    messages: list[tuple[Message, float | None, int | None]] = []
    """Each with its time, and the place of the message before it on its branch."""
    last: dict[str, int | None] = {}
    """For each entry the place of the last message on its branch."""
    roots: dict[str, str] = {}
    """For each entry the first one of its conversation, and the tools of each."""
    tools: dict[str, tuple[ToolDefinition, ...]] = {}
    begun: list[str] = []
    """The root of each message."""
    for entry in entries:
        before = None if entry.parent_id is None else last.get(entry.parent_id)
        root = roots[entry.id] = entry.id if entry.parent_id is None else roots.get(entry.parent_id, entry.id)
        if offered := tools_in(entry):
            tools[root] = offered
        message = entry.message
        if message is None:
            last[entry.id] = before
            continue
        last[entry.id] = len(messages)
        begun.append(root)
        messages.append((message, entry.time if entry.time > 0 else None, before))
    inner = {before for _, _, before in messages}
    for leaf in range(len(messages)):
        if leaf not in inner:
            yield recorded_messages(_branch(messages, leaf), tools=tools.get(begun[leaf], ()))


def _branch(messages: list[tuple[Message, float | None, int | None]], leaf: int) -> list[tuple[Message, float | None]]:
    branch: list[tuple[Message, float | None]] = []
    at: int | None = leaf
    while at is not None:
        message, time, at = messages[at]
        branch.append((message, time))
    return branch[::-1]
