"""Read recorded conversations for a replay: a recording for each branch of a transcript, with times and tool definitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from promptkit.lab.recordings import read_recording
from promptkit.lab.recordings.reading.values import as_object, as_text
from promptkit.messages import Json, Message, OpaquePart, Part, ToolDefinition
from promptkit.pairing import pair_tool_calls
from promptkit.reprs import describe_fields
from promptkit.transcript import (
    CustomEntry,
    Entry,
    EntryPayload,
    MessageEntry,
    Observation,
    Setting,
)
from promptkit.transcript.log.statistics import read_usage

TOOLS = "tools"


@attrs.frozen(kw_only=True)
class Recording:
    """One conversation, from its first message to its last.

    Each assistant message is the reply to a request of the replay.
    """

    system: tuple[Message, ...] = ()
    """The system messages at the beginning of the conversation. Every request starts with them."""
    messages: tuple[Message, ...] = ()
    """The messages after them. Each tool call is followed by its result, and each result has a
    call."""
    times: tuple[float | None, ...] = ()
    """For each message the time at which it was written, in seconds since 1970; None if it was not
    recorded."""
    reported: tuple[int, ...] = ()
    """For each message the output tokens that its provider reported, if it has thinking whose text
    was not recorded; else 0."""
    entry_ids: tuple[str, ...] = ()
    """For each message the id of its entry. Empty: it was not read from entries."""
    path: tuple[Entry, ...] = ()
    """The entries of the branch, from which it is known what was sent and billed."""
    tools: tuple[ToolDefinition, ...] = ()
    """The recorded tool definitions. Their tokens count in every request."""
    conversation: int = 0
    """The number of the conversation in its file. The branches of a conversation have the same
    number."""
    shared: int = 0
    """The number of leading messages that an earlier branch of the conversation has, too. A replay
    plays them, and counts nothing for them."""

    __repr__ = describe_fields


def read_recordings(file: Path | str, *, address: str | None = None) -> Iterator[Recording]:
    """Read the conversations of a file in any format that promptkit can import, or of a transcript by its URL.

    `address` is how errors name the file, if it is a copy of another one.

    Raises:
        TranscriptError: The file cannot be read.
    """
    return recordings_from_entries(
        entry for _, batch in read_recording(file, address=address) for entry in batch.entries
    )


def recordings_from_entries(entries: Iterable[Entry]) -> Iterator[Recording]:
    """Yield a recording for each branch of a transcript, in the order in which the branches ended.

    A branch that is only the beginning of another one is not yielded. Messages that were compacted,
    edited or reset in the recording are part of it, as they were said. An entry's time of 0 counts
    as unknown. What an earlier branch has, too, is the `shared` part of a branch.
    """
    tree = Branches(map(_drop_data, entries))
    yielded: set[str] = set()
    for leaf in tree.leaves:
        path = tree.path_to(leaf)
        said = [(each, each.message) for each in path if each.message is not None]
        yield recording_from_path(
            said,
            path=path,
            tools=tree.tools_of(leaf),
            conversation=tree.number_of(leaf),
            shared=sum(entry.id in yielded for entry, _ in said),
        )
        yielded.update(entry.id for entry, _ in said)


def _drop_data(entry: Entry) -> Entry:
    """Return an entry without what a replay does not need, so that it need not be kept in memory."""
    return (
        attrs.evolve(entry, payload=CustomEntry(name="", data=None))
        if isinstance(entry.payload, CustomEntry | Observation)
        else entry
    )


class Branches:
    """The branches of a transcript, in the order in which they ended.

    One that is only the beginning of another does not count.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries: dict[str, Entry] = {}
        self._roots: dict[str, str] = {}
        self._tools: dict[str, tuple[ToolDefinition, ...]] = {}
        last: dict[str, str | None] = {}
        leaves: dict[str, None] = {}
        for entry in entries:
            parent = entry.parent_id if entry.parent_id in self._entries else None
            if entry.id in self._entries:
                continue
            self._entries[entry.id] = entry
            root = self._roots[entry.id] = entry.id if parent is None else self._roots[parent]
            if tools := _tools_from_entry(entry):
                self._tools[root] = tools
            last[entry.id] = before = None if parent is None else last[parent]
            if entry.message is not None:
                last[entry.id] = entry.id
                leaves[entry.id] = None
                if before is not None:
                    leaves.pop(before, None)
        self.leaves = list(leaves)
        """The ids of their last messages."""
        self._numbers = {
            root: number
            for number, root in enumerate(dict.fromkeys(self._roots[leaf] for leaf in leaves))
        }

    def number_of(self, leaf: str) -> int:
        """Return the number of a branch's conversation, as `Recording.conversation`."""
        return self._numbers[self._roots[leaf]]

    def path_to(self, leaf: str) -> list[Entry]:
        """Return the entries from the first one to a leaf."""
        path: list[Entry] = []
        at: str | None = leaf
        while at in self._entries:
            path.append(self._entries[at])
            at = self._entries[at].parent_id
        return path[::-1]

    def tools_of(self, leaf: str) -> tuple[ToolDefinition, ...]:
        """Return the tool definitions that were recorded for a branch's conversation."""
        return self._tools.get(self._roots[leaf], ())


def recording_from_path(
    said: Sequence[tuple[Entry, Message]],
    *,
    path: Sequence[Entry],
    tools: Sequence[ToolDefinition],
    conversation: int = 0,
    shared: int = 0,
) -> Recording:
    """Build a recording from the entries of a branch that have a message, each with it.

    `path` is all entries of the branch. The other arguments are those of
    `recording_from_messages`.
    """
    return attrs.evolve(
        recording_from_messages(
            [(message, entry.time if entry.time > 0 else None) for entry, message in said],
            entries=[entry for entry, _ in said],
            tools=tools,
            conversation=conversation,
            shared=shared,
        ),
        path=tuple(path),
    )


def _read_reported_tokens(payload: EntryPayload) -> int:
    """Return the output tokens that were reported for a reply with thinking whose text is missing; 0 for any other entry.

    Such thinking is encrypted, or redacted, or there is only a digest of it. Of any other reply the
    text is counted: the figure of another model's tokenizer says nothing about the tokens of the
    model that is simulated.
    """
    if not isinstance(payload, MessageEntry) or payload.usage is None:
        return 0
    usage = read_usage(payload) if any(map(_is_hidden_thinking, payload.message.content)) else None
    return 0 if usage is None else usage.output_tokens


def _is_hidden_thinking(part: Part) -> bool:
    value: Mapping[str, Json] = as_object(part.value) if isinstance(part, OpaquePart) else {}
    match value.get("type"):
        case "redacted_thinking" | "thought":
            # Gemini CLI records a subject and a digest of a thought
            return True
        case "thinking":
            # pi keeps OpenAI's reasoning, of which there is only a digest, in the signature
            return not value.get("thinking") or "encrypted_content" in str(
                value.get("thinkingSignature")
            )
        case "reasoning":
            return not (value.get("text") or value.get("content"))
        case _:
            return False


def _tools_from_entry(entry: Entry) -> tuple[ToolDefinition, ...]:
    """Return the tool definitions of a setting named `tools`, or with a field of that name, in OpenAI's format or Anthropic's."""
    if not isinstance(payload := entry.payload, Setting):
        return ()
    value = payload.value
    if isinstance(value, Mapping):
        value = value.get(TOOLS)
    elif payload.name.rpartition(".")[2] != TOOLS:
        return ()
    return tuple(_iter_definitions(value)) if isinstance(value, list) else ()


def _iter_definitions(tools: list[Json]) -> Iterator[ToolDefinition]:
    for tool in map(as_object, tools):
        function = as_object(tool.get("function", tool))
        parameters = function.get("parameters", function.get("input_schema"))
        if (name := as_text(function.get("name"))) is not None:
            yield ToolDefinition(
                name=name,
                description=as_text(function.get("description")),
                parameters=parameters if isinstance(parameters, Mapping) else None,
            )


def recording_from_messages(
    messages: Sequence[tuple[Message, float | None]],
    *,
    entries: Sequence[Entry] = (),
    tools: Sequence[ToolDefinition] = (),
    conversation: int = 0,
    shared: int = 0,
) -> Recording:
    """Build a recording from messages with their times. Messages without content are left out.

    Args:
        messages: The messages of a conversation with their times.
        entries: For each message its entry, which may have its provider's figures.
        tools: The tool definitions of the conversation.
        conversation: The number of the conversation in its file.
        shared: How many of the first messages an earlier recording of the conversation has, too.
    """
    kept = [
        place
        for place, (message, _) in enumerate(messages)
        if message.content or message.tool_calls or message.role == "tool"
    ]
    paired = pair_tool_calls([messages[place][0] for place in kept])
    places = [kept[source] for source in paired.sources]
    head = next(
        (at for at, message in enumerate(paired.messages) if message.role != "system"),
        len(paired.messages),
    )
    return Recording(
        system=paired.messages[:head],
        messages=paired.messages[head:],
        times=tuple(messages[place][1] for place in places[head:]),
        reported=tuple(
            _read_reported_tokens(entries[place].payload) for place in places[head:] if entries
        ),
        entry_ids=tuple(entries[place].id for place in places[head:] if entries),
        tools=tuple(tools),
        conversation=conversation,
        shared=next(
            (at for at, place in enumerate(places[head:]) if place >= shared), len(places) - head
        ),
    )
