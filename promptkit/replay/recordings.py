"""The conversations of a file: each branch that has something to say of its own.

A recorded conversation as a replay needs it: messages in which calls and results are whole, and when each was written.
The tools that a recording says were offered, where it says so: every request pays for their definitions.
Recordings out of files, whoever wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import attrs

from promptkit.messages import ToolDefinition
from promptkit.recordings.importing import read_recording
from promptkit.tool_pairing import pair_tool_calls
from promptkit.transcript.entries import Setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from promptkit.messages import Json, Message
    from promptkit.transcript.entries import Entry

__all__ = ["Recording", "conversations", "read_recordings", "recorded_messages", "tools_in"]


@attrs.frozen(kw_only=True)
class Recording:
    """One conversation, from its first message to its last. Each answer in it is a request that somebody sent."""

    system: tuple[Message, ...] = ()
    """The system messages that it begins with: every request does."""
    messages: tuple[Message, ...] = ()
    """What was said after that. Every call is answered right behind it, every result answers a call."""
    times: tuple[float | None, ...] = ()
    """For each message when it was written, in seconds since 1970; None where nobody noted it."""
    tools: tuple[ToolDefinition, ...] = ()

    @property
    def requests(self) -> int:
        """How many requests there were: an answer before which nothing was said answers none."""
        return sum(message.role == "assistant" for message in self.messages[1:])


def recorded_messages(said: Sequence[tuple[Message, float | None]], *, tools: Sequence[ToolDefinition] = ()) -> Recording:
    """The recording of messages with their times; messages without anything in them are left out."""
    kept = [(message, time) for message, time in said if message.content or message.tool_calls or message.role == "tool"]
    paired = pair_tool_calls([message for message, _ in kept])
    head = next((at for at, message in enumerate(paired.messages) if message.role != "system"), len(paired.messages))
    return Recording(
        system=paired.messages[:head],
        messages=paired.messages[head:],
        times=tuple(kept[source][1] for source in paired.sources[head:]),
        tools=tuple(tools),
    )


TOOLS = "tools"


def tools_in(entry: Entry) -> tuple[ToolDefinition, ...]:
    """The definitions in a setting: one called `tools`, or one that has a field of that name; OpenAI's form or Anthropic's."""
    payload = entry.payload
    if not isinstance(payload, Setting):
        return ()
    value = payload.value
    if isinstance(value, Mapping):
        value = value.get(TOOLS)
    elif payload.name.rpartition(".")[2] != TOOLS:
        return ()
    return tuple(_definitions(value)) if isinstance(value, list) else ()


def _definitions(tools: list[Json]) -> Iterator[ToolDefinition]:
    for tool in tools:
        if not isinstance(tool, Mapping):
            continue
        function = tool.get("function", tool)
        if not isinstance(function, Mapping):
            continue
        name, description = function.get("name"), function.get("description")
        parameters = function.get("parameters", function.get("input_schema"))
        if isinstance(name, str):
            yield ToolDefinition(
                name=name,
                description=description if isinstance(description, str) else None,
                parameters=parameters if isinstance(parameters, Mapping) else None,
            )


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


def read_recordings(file: Path) -> Iterator[Recording]:
    """The conversations of a file in any known format. Raises TranscriptError for what cannot be read."""
    return conversations(entry for _, batch in read_recording(file) for entry in batch.entries)
