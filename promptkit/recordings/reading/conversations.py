"""Files that are one JSON text, or several: the conversations in them, and what stands beside the messages.

Where entries of a recording stand: ids that are used once, and conversations that go on from entry to entry.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, TypeAlias

import attrs

from promptkit.recordings.reading.codec import Batch
from promptkit.recordings.reading.json_stream import split_members
from promptkit.transcript.entries import CustomEntry, Entry, Label
from promptkit.transcript.store import ReadProblem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from promptkit.messages import Json
    from promptkit.recordings.reading.json_stream import JsonPath
    from promptkit.recordings.reading.source import RecordingSource
    from promptkit.transcript.entries import EntryPayload

__all__ = ["ConversationWriter", "EntryChain", "IdAllocator", "JsonMember", "PathPattern", "walk_members"]


class IdAllocator:
    """Ids of entries, each given out once."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._repeats: dict[str, int] = {}

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._used

    def allocate(self, wanted: str) -> str:
        """The wanted id, or where that is taken the next one like it."""
        entry_id = wanted
        while not entry_id or entry_id in self._used:
            self._repeats[wanted] = self._repeats.get(wanted, 1) + 1
            entry_id = f"{wanted or 'entry'}#{self._repeats[wanted]}"
        self._used.add(entry_id)
        return entry_id


class EntryChain:
    """A conversation without branches: each entry stands behind the one before.

    Entries without an id get one of their place and content, so that the same recording always gives the same ids. An entry without a
    time has that of the one before, the first 0.
    """

    def __init__(self, ids: IdAllocator, *, name: str = "", tail: str | None = None, time: float = 0.0) -> None:
        self._ids = ids
        self._prefix = f"{name}-" if name else ""
        self._count = 0
        self._time = time
        self.tail = tail
        """The id of the last entry; the next one stands behind it."""

    def __len__(self) -> int:
        return self._count

    def add(self, *payloads: EntryPayload, time: float | None = None, entry_id: str | None = None) -> tuple[Entry, ...]:
        """Entries of payloads; the first has the id that is given."""
        return tuple(self._one(payload, time, None if at else entry_id) for at, payload in enumerate(payloads))

    def _one(self, payload: EntryPayload, time: float | None, entry_id: str | None) -> Entry:
        self._count += 1
        self._time = self._time if time is None else time
        entry = Entry(
            id=self._ids.allocate(entry_id or f"{self._prefix}{self._count}-{_digest(payload)}"),
            parent_id=self.tail,
            time=self._time,
            payload=payload,
        )
        self.tail = entry.id
        return entry


def _digest(payload: EntryPayload) -> str:
    return hashlib.blake2s(repr(payload).encode("utf-8", errors="backslashreplace"), digest_size=4).hexdigest()


PathPattern: TypeAlias = tuple[str | None, ...]
"""Where the messages of a conversation stand in a JSON text: keys, and None for any place in a list."""


@attrs.frozen(kw_only=True)
class JsonMember:
    """A value of a file."""

    path: JsonPath
    value: Json
    pattern: PathPattern | None
    """The pattern that it stands at; None for what stands beside the messages."""
    conversation: JsonPath
    """Names the conversation that it belongs to."""

    @property
    def key(self) -> str:
        """What it is called there."""
        return next((str(part) for part in reversed(self.path) if isinstance(part, str)), "value")


def walk_members(source: RecordingSource, patterns: Sequence[PathPattern], *, depth: int = 0) -> Iterator[JsonMember]:
    """The values of a file, messages one by one. `depth`: how many steps below the JSON text conversations begin.

    Raises TranscriptFormatError, after all before it was given, where the text is no JSON.
    """
    prefixes = {pattern[:end] for pattern in patterns for end in range(len(pattern))}

    def split(path: JsonPath) -> bool:
        return _shape(path) in prefixes

    whole = set(patterns)
    for path, value in split_members(source, split):
        shape = _shape(path)
        yield JsonMember(path=path, value=value, pattern=shape if shape in whole else None, conversation=path[: 1 + depth])


def _shape(path: JsonPath) -> PathPattern:
    return tuple(part if isinstance(part, str) else None for part in path[1:])


class ConversationWriter:
    """The conversations of a file, one after the other; each is a root of the tree, and has a name if there are several."""

    def __init__(self, codec: str) -> None:
        self._codec = codec
        self._ids = IdAllocator()
        self._number = 0
        self._talk: JsonPath | None = None
        self._chain = EntryChain(self._ids)
        self._first: tuple[str, str] | None = None  # the first conversation's first message and name, until it has it
        self._begun = False
        self.title: str | None = None
        """What the present conversation is called."""

    def switch(self, talk: JsonPath) -> None:
        """What comes now is of this conversation."""
        if talk != self._talk:
            self._talk = talk
            self._number += 1
            self._begun = False
            self.title = None
            self._chain = EntryChain(self._ids, name=f"c{self._number}" if self._number > 1 else "")

    def add(self, payloads: Sequence[EntryPayload], *, messages: int = 0, time: float | None = None, entry_id: str | None = None) -> Batch:
        """Entries of the present conversation; `messages` of the recording are among them."""
        entries = self._chain.add(*payloads, time=time, entry_id=entry_id)
        begins = bool(messages) and not self._begun
        if begins:
            self._begun = True
            title = self.title or f"conversation {self._number}"
            if self._number == 1:
                self._first = (entries[0].id, title)
            else:
                if self._first:
                    entries += self._chain.add(Label(target=self._first[0], label=self._first[1]))
                    self._first = None
                entries += self._chain.add(Label(target=entries[0].id, label=title))
        return Batch(entries=entries, messages=messages, conversations=int(begins), call_id_scope=f"{self._number}")

    def keep(self, member: JsonMember) -> Batch:
        """What stands beside the messages, kept as it is."""
        return self.add([CustomEntry(name=f"{self._codec}.{member.key}", data=member.value)])

    def keep_unreadable(self, member: JsonMember, problem: str) -> Batch:
        """A member that should be a message and is none, kept as it is and counted."""
        kept = self.add([CustomEntry(name=f"{self._codec}.bad_record", data=member.value)])
        place = ".".join(map(str, member.path[1:]))
        return attrs.evolve(kept, skipped=(ReadProblem(line=1, detail=f"{place or 'the text'}: {problem}"),))
