"""The tree of a Claude Code recording: lines that name their parents, turned into entries.

Claude Code writes one answer of the model on several lines, with the results of its first tool
calls in between, each as the child of the line that made the call. Here an answer is one message,
followed by its results. Therefore an answer and what follows it is held until the next answer
begins. Of everything else only ids are kept in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import attrs

from promptkit.lab.recordings.reading.conversations import IdAllocator
from promptkit.lab.recordings.reading.json_values import JsonObject, as_text
from promptkit.messages import Message, Part, ToolCall, Usage
from promptkit.transcript.log.entries import (
    Checkpoint,
    CustomMessage,
    Entry,
    EntryPayload,
    MessageEntry,
    Setting,
)
from promptkit.transcript.log.transcript import LEAF_SETTING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.lab.recordings.reading.messages import ContentBlocks

MAX_HELD_ENTRIES = 2_000
MAX_HELD_BYTES = 1 << 25
"""Limits of a held answer. A larger one is written, and a later line of it becomes a message of its
own."""


class SessionTree:
    """The entries of a file. Those that are complete wait in a queue until they are taken."""

    def __init__(self) -> None:
        self.ids = IdAllocator()
        """The ids that are taken."""
        self.places: dict[str, LinePlace] = {}
        """For each uuid of a line its conversation and its entry."""
        self.main: Conversation | None = None
        """The conversation of the last line that is not a subagent's."""
        self._queue: list[Entry] = []
        self._last_id: str | None = None
        self._last_time = 0.0

    def take(self) -> tuple[Entry, ...]:
        """Return the entries that are complete, and forget them."""
        entries, self._queue = tuple(self._queue), []
        return entries

    def parent_at(self, place: LinePlace) -> str | None:
        """Return the id of the entry that the child of a line follows.

        A held answer at that place is written first.
        """
        conversation, target = place
        if isinstance(target, HeldAnswer):
            if target.tail is None:
                self.write_answer(conversation)
            target = target.tail or target.entry_id
        if conversation.pending and target == conversation.pending.entry_id:
            self.write_checkpoint(conversation)
        return target

    def entry_of(self, uuid: str) -> str:
        """Return the id of the entry that a line became, or became a part of."""
        _, target = self.places[uuid]
        return (
            target.entry_id
            if isinstance(target, HeldAnswer)
            else uuid
            if uuid in self.ids
            else target
        )

    def flush(self, conversation: Conversation) -> str | None:
        """Write all that is held of a conversation. Returns the id of its last entry."""
        self.write_answer(conversation)
        if conversation.pending:
            self.write_checkpoint(conversation)
        return conversation.tail

    def write(
        self,
        conversation: Conversation,
        payload: EntryPayload,
        *,
        parent: str | None,
        time: float,
        preferred_id: str,
    ) -> str:
        """Write an entry. Returns its id."""
        return self._write(conversation, payload, parent, time, self.ids.allocate(preferred_id))

    def append(
        self, conversation: Conversation, payload: EntryPayload, *, time: float, preferred_id: str
    ) -> None:
        """Add an entry after the answer that is held; without one, write it after the last entry."""
        answer = conversation.answer
        if answer is None:
            self.write(
                conversation,
                payload,
                parent=conversation.tail,
                time=time,
                preferred_id=preferred_id,
            )
        else:
            answer.followers.append(
                _HeldEntry(payload=payload, time=time, entry_id=self.ids.allocate(preferred_id))
            )

    def write_answer(self, conversation: Conversation) -> None:
        """Write the answer that is held, and what follows it."""
        answer, conversation.answer = conversation.answer, None
        if answer is None:
            return
        message = Message(
            role="assistant", content=tuple(answer.parts), tool_calls=tuple(answer.calls)
        )
        payload = MessageEntry(
            message=message, usage=answer.usage, model=answer.model, finish=answer.finish
        )
        answer.tail = self._write(
            conversation, payload, answer.parent, answer.time, answer.entry_id
        )
        for entry in answer.followers:
            answer.tail = self._write(
                conversation, entry.payload, answer.tail, entry.time, entry.entry_id
            )
        answer.parts, answer.calls, answer.followers, answer.answered_calls = [], [], [], set()

    def limit_answer(self, conversation: Conversation) -> None:
        """Write the answer if it is too large to be held."""
        answer = conversation.answer
        if answer and (
            len(answer.followers) > MAX_HELD_ENTRIES or answer.bytes_read > MAX_HELD_BYTES
        ):
            self.write_answer(conversation)

    def write_checkpoint(self, conversation: Conversation, summary: str = "") -> str | None:
        """Write the checkpoint that is pending, with its summary.

        Returns its id; None if there is none.
        """
        pending, conversation.pending = conversation.pending, None
        if pending is None:
            return None
        return self._write(
            conversation,
            attrs.evolve(pending.checkpoint, summary=summary),
            pending.parent,
            pending.time,
            pending.entry_id,
        )

    def finish(self, conversations: list[Conversation]) -> None:
        """Write all that is held.

        The leaf becomes the end of the main conversation, whatever line was last.
        """
        for conversation in conversations:
            self.flush(conversation)
        main = self.main
        if main is not None and main.tail is not None and self._last_id != main.tail:
            leaf = Setting(name=LEAF_SETTING, value=main.tail)
            self.write(
                main, leaf, parent=main.tail, time=self._last_time, preferred_id=f"{main.tail}-leaf"
            )

    def _write(
        self,
        conversation: Conversation,
        payload: EntryPayload,
        parent: str | None,
        time: float,
        entry_id: str,
    ) -> str:
        self._queue.append(Entry(id=entry_id, parent_id=parent, time=time, payload=payload))
        self._last_id, self._last_time = entry_id, time
        is_visible = isinstance(payload, MessageEntry | CustomMessage | Checkpoint)
        if is_visible or parent == conversation.tail or conversation.tail is None:
            conversation.tail = entry_id
        if conversation.first is None and is_visible:
            conversation.first = entry_id
        return entry_id


class ConversationIndex:
    """The conversations of a file: those of sessions and those of subagents."""

    def __init__(self) -> None:
        self._sessions: dict[str, Conversation] = {}
        self._subagents: dict[str, Conversation] = {}
        self._unlabelled: list[tuple[Conversation, str]] = []
        self.count = 0
        """Sessions that have begun. A session that continues another one is a part of that one."""

    def __iter__(self) -> Iterator[Conversation]:
        yield from self._sessions.values()
        yield from self._subagents.values()

    def first(self) -> Conversation:
        """Return the conversation for lines before those of any session."""
        return self._sessions.setdefault("", Conversation())

    def find_subagent(self, name: str) -> Conversation | None:
        """Return the conversation of a subagent; None if it has not begun."""
        return self._subagents.get(f"agent {name}")

    def find(self, record: JsonObject, parent: LinePlace | None, number: int) -> Conversation:
        """Return the conversation of a line, which may begin with it.

        Args:
            record: The line.
            parent: Where the line's parent is.
            number: The number of the line.
        """
        is_subagent = record.get("isSidechain") is True
        session = as_text(record.get("sessionId")) or ""
        subagent = as_text(record.get("agentId"))
        if is_subagent and subagent:
            conversation = self._subagents.setdefault(
                f"agent {subagent}", Conversation(is_subagent=True)
            )
        elif parent and parent[0].is_subagent is is_subagent:
            conversation = parent[0]
        elif is_subagent:
            conversation = self._subagents.setdefault(
                f"side {record.get('parentUuid') or number}", Conversation(is_subagent=True)
            )
        else:
            conversation = (
                self._sessions.get(session) or self._sessions.pop("", None) or Conversation()
            )
        if session not in self._sessions:
            self.count += parent is None
            self._sessions[session] = Conversation() if is_subagent else conversation
        return conversation

    def label(
        self, conversation: Conversation, root: str
    ) -> Iterator[tuple[Conversation, str, str]]:
        """Yield the conversations to label now that one begins with the entry `root`: each with its first entry and its label.

        A session that is alone in its file has no label.
        """
        self._unlabelled.append((conversation, root))
        if len(self._sessions) > 1:
            names = {
                id(session_conversation): session
                for session, session_conversation in self._sessions.items()
            }
            for unlabelled, target in self._unlabelled:
                yield unlabelled, target, f"session {names.get(id(unlabelled), target)}"
            self._unlabelled.clear()


@attrs.define(eq=False)
class Conversation:
    """The conversation of a session or of a subagent.

    Lines of other conversations may be between its lines.
    """

    is_subagent: bool = False
    """Whether it is a subagent's."""
    has_parents: bool = False
    """Whether its lines name their parents."""
    tail: str | None = None
    """The id of its last entry. Entries without a message that follow an earlier line do not
    count."""
    first: str | None = None
    """The id of its first message."""
    last_uuid: str | None = None
    """The uuid of the line that was read last."""
    answer: HeldAnswer | None = None
    """The answer that is held."""
    pending: PendingCheckpoint | None = None
    """The compaction whose summary has not been read yet."""
    session_fields: object = None
    """The session fields of the last line that had any."""


@attrs.define(eq=False)
class HeldAnswer:
    """An answer of the model, as far as it was read, and the entries after it."""

    parent: str | None
    entry_id: str
    time: float
    message_id: str | None
    parts: list[Part] = attrs.field(factory=list[Part])
    calls: list[ToolCall] = attrs.field(factory=list[ToolCall])
    usage: Usage | None = None
    model: str | None = None
    finish: str | None = None
    followers: list[_HeldEntry] = attrs.field(factory=list["_HeldEntry"])
    answered_calls: set[str] = attrs.field(factory=set[str])
    bytes_read: int = 0
    tail: str | None = None
    """The id of the last entry, after the answer was written."""

    @property
    def is_answered(self) -> bool:
        """Whether every tool call has a result."""
        return all(call.id in self.answered_calls for call in self.calls)

    def add(
        self, blocks: ContentBlocks, *, usage: Usage | None, model: str | None, finish: str | None
    ) -> None:
        """Add a line of the answer."""
        self.parts.extend(blocks.parts)
        self.calls.extend(blocks.calls)
        self.usage = usage or self.usage
        self.model = model or self.model
        self.finish = finish or self.finish


@attrs.frozen(kw_only=True)
class _HeldEntry:
    payload: EntryPayload
    time: float
    entry_id: str


@attrs.frozen(kw_only=True)
class PendingCheckpoint:
    """A compaction whose summary has not been read yet."""

    entry_id: str
    parent: str | None
    time: float
    checkpoint: Checkpoint


LinePlace: TypeAlias = tuple[Conversation, "str | HeldAnswer"]
"""Where a line went: its conversation, and the entry, or the answer that it is a part of."""
