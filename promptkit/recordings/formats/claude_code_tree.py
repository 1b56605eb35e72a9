"""The tree of a Claude Code recording: lines that name their parents, made into entries that stand behind each other.

One answer of the model is spread over several lines there, with results of its first calls in between, each a child of the line that
asked. Here it is one message with its results behind it. So an answer and what follows it is held back, as a round, until the next one
begins; what is remembered of the rest are ids.

Which conversation a line of a Claude Code recording belongs to: that of a session, or that of a subagent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import attrs

from promptkit.messages import Message, Part, ToolCall, Usage
from promptkit.recordings.reading.conversations import IdAllocator
from promptkit.recordings.reading.json_values import as_text
from promptkit.transcript.entries import Checkpoint, Entry, MessageEntry, Setting
from promptkit.transcript.transcript import LEAF_SETTING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.recordings.reading.json_values import JsonObject
    from promptkit.recordings.reading.messages import ContentBlocks
    from promptkit.transcript.entries import EntryPayload

__all__ = ["PendingCheckpoint", "HeldEntry", "HeldAnswer", "SessionTree", "LinePlace", "Conversation", "ConversationIndex"]


MOST_ITEMS = 2_000
MOST_BYTES = 1 << 25
"""What is held back at most of one round. Beyond, its entries are written, and a late piece of the answer becomes a message of its own."""


@attrs.frozen(kw_only=True)
class HeldEntry:
    """An entry that is to be."""

    payload: EntryPayload
    time: float
    entry_id: str


@attrs.define(eq=False)
class HeldAnswer:
    """An answer of the model, as far as it was read, and what came after it."""

    parent: str | None
    entry_id: str
    time: float
    message_id: str | None
    parts: list[Part] = attrs.field(factory=list[Part])
    calls: list[ToolCall] = attrs.field(factory=list[ToolCall])
    usage: Usage | None = None
    model: str | None = None
    finish: str | None = None
    items: list[HeldEntry] = attrs.field(factory=list[HeldEntry])
    answered: set[str] = attrs.field(factory=set[str])
    size: int = 0
    tail: str | None = None
    """The id of its last entry, once it was written."""

    @property
    def is_answered(self) -> bool:
        """Whether no call waits for its result."""
        return all(call.id in self.answered for call in self.calls)

    def add(self, blocks: ContentBlocks, *, usage: Usage | None, model: str | None, finish: str | None) -> None:
        """Add a piece of the answer."""
        self.parts.extend(blocks.parts)
        self.calls.extend(blocks.calls)
        self.usage = usage or self.usage
        self.model = model or self.model
        self.finish = finish or self.finish


@attrs.frozen(kw_only=True)
class PendingCheckpoint:
    """A compaction whose summary has not been read yet."""

    entry_id: str
    parent: str | None
    time: float
    made: Checkpoint


@attrs.define(eq=False)
class Conversation:
    """A conversation, or that of a subagent: lines of one follow each other, although those of others stand in between."""

    side: bool = False
    """Whether it is that of a subagent."""
    linked: bool = False
    """Whether its lines name the line before them."""
    tail: str | None = None
    """The id of its last entry. What is no message and hangs on an earlier line does not count."""
    first: str | None = None
    """The id of its first message."""
    uuid: str | None = None
    """Of the line that was read last."""
    round: HeldAnswer | None = None
    pending: PendingCheckpoint | None = None
    settings: object = None
    """What the last line said about its session."""


LinePlace: TypeAlias = tuple[Conversation, "str | HeldAnswer"]
"""Where a line went: the entry, or the round that it is part of."""


class SessionTree:
    """Entries in the making. `out` are those that are ready to be written."""

    def __init__(self) -> None:
        self.ids = IdAllocator()
        self.places: dict[str, LinePlace] = {}
        """Where the line with a uuid went."""
        self.out: list[Entry] = []
        self.main: Conversation | None = None
        """The conversation whose line was read last, not that of a subagent."""
        self._last: str | None = None
        self._time = 0.0

    def take(self) -> tuple[Entry, ...]:
        """What is ready; it is forgotten here."""
        made, self.out = tuple(self.out), []
        return made

    def after(self, spot: LinePlace) -> str | None:
        """The id of the entry behind which a child of a line stands; the round of that line is written first."""
        strand, place = spot
        if isinstance(place, HeldAnswer):
            if place.tail is None:
                self.close(strand)
            place = place.tail or place.entry_id
        if strand.pending and place == strand.pending.entry_id:
            self.settle(strand)
        return place

    def entry_of(self, uuid: str) -> str:
        """The id of the entry that a line became, or became part of."""
        _, place = self.places[uuid]
        return place.entry_id if isinstance(place, HeldAnswer) else uuid if uuid in self.ids else place

    def tail(self, strand: Conversation) -> str | None:
        """The id of the last entry of a strand, all that was held back written."""
        self.close(strand)
        if strand.pending:
            self.settle(strand)
        return strand.tail

    def put(self, strand: Conversation, payload: EntryPayload, *, parent: str | None, time: float, wanted: str) -> str:
        """Write an entry; its id is returned."""
        return self._write(strand, payload, parent, time, self.ids.allocate(wanted))

    def append(self, strand: Conversation, payload: EntryPayload, *, parent: str | None, time: float, wanted: str) -> None:
        """Put an entry into the round that is held back, or where there is none, behind its parent."""
        held = strand.round
        if held is None:
            self.put(strand, payload, parent=parent, time=time, wanted=wanted)
        else:
            held.items.append(HeldEntry(payload=payload, time=time, entry_id=self.ids.allocate(wanted)))

    def close(self, strand: Conversation) -> None:
        """Write the round that is held back."""
        held, strand.round = strand.round, None
        if held is None:
            return
        message = Message(role="assistant", content=tuple(held.parts), tool_calls=tuple(held.calls))
        said = MessageEntry(message=message, usage=held.usage, model=held.model, finish=held.finish)
        held.tail = self._write(strand, said, held.parent, held.time, held.entry_id)
        for item in held.items:
            held.tail = self._write(strand, item.payload, held.tail, item.time, item.entry_id)
        held.parts, held.calls, held.items, held.answered = [], [], [], set()

    def relieve(self, strand: Conversation) -> None:
        """Write the round if it has grown too large to be held back."""
        if strand.round and (len(strand.round.items) > MOST_ITEMS or strand.round.size > MOST_BYTES):
            self.close(strand)

    def settle(self, strand: Conversation, summary: str = "") -> str | None:
        """Write the checkpoint of a strand with the summary that was read for it; its id is returned."""
        pending, strand.pending = strand.pending, None
        if pending is None:
            return None
        return self._write(strand, attrs.evolve(pending.made, summary=summary), pending.parent, pending.time, pending.entry_id)

    def finish(self, strands: list[Conversation]) -> None:
        """Write all that was held back. The conversation goes on where the main one ended, wherever the last line stands."""
        for strand in strands:
            self.tail(strand)
        main = self.main
        if main is not None and main.tail is not None and self._last != main.tail:
            self.put(main, Setting(name=LEAF_SETTING, value=main.tail), parent=main.tail, time=self._time, wanted=f"{main.tail}-leaf")

    def _write(self, strand: Conversation, payload: EntryPayload, parent: str | None, time: float, entry_id: str) -> str:
        self.out.append(Entry(id=entry_id, parent_id=parent, time=time, payload=payload))
        self._last, self._time = entry_id, time
        is_shown = isinstance(payload, MessageEntry | Checkpoint)
        if is_shown or parent == strand.tail or strand.tail is None:
            strand.tail = entry_id
        if strand.first is None and is_shown:
            strand.first = entry_id
        return entry_id


class ConversationIndex:
    """The conversations of a file."""

    def __init__(self) -> None:
        self._sessions: dict[str, Conversation] = {}
        self._agents: dict[str, Conversation] = {}
        self._nameless: list[tuple[Conversation, str]] = []
        self.conversations = 0
        """How many have begun. A session that goes on where another one was is part of that one's."""

    def __iter__(self) -> Iterator[Conversation]:
        yield from self._sessions.values()
        yield from self._agents.values()

    def first(self) -> Conversation:
        """Where lines go that come before those of any session."""
        return self._sessions.setdefault("", Conversation())

    def agent(self, name: str) -> Conversation | None:
        """The conversation of a subagent, if it has begun."""
        return self._agents.get(f"agent {name}")

    def of(self, record: JsonObject, above: LinePlace | None, number: int) -> Conversation:
        """The conversation that a line belongs to, which may begin with it. `above` is where the line before it went."""
        side = record.get("isSidechain") is True
        session = as_text(record.get("sessionId")) or ""
        agent = as_text(record.get("agentId"))
        if side and agent:
            strand = self._agents.setdefault(f"agent {agent}", Conversation(side=True))
        elif above and above[0].side is side:
            strand = above[0]
        elif side:
            strand = self._agents.setdefault(f"side {record.get('parentUuid') or number}", Conversation(side=True))
        else:
            strand = self._sessions.get(session) or self._sessions.pop("", None) or Conversation()
        if session not in self._sessions:
            self.conversations += above is None
            self._sessions[session] = Conversation() if side else strand
        return strand

    def names(self, strand: Conversation, root: str) -> Iterator[tuple[Conversation, str, str]]:
        """Conversations that get a name now that one begins with the entry `root`: each with its first entry and its name.

        Several in one file have names; one alone needs none.
        """
        self._nameless.append((strand, root))
        if len(self._sessions) > 1:
            names = {id(its): session for session, its in self._sessions.items()}
            for its, target in self._nameless:
                yield its, target, f"session {names.get(id(its), target)}"
            self._nameless.clear()
