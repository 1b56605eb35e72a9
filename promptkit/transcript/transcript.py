"""The transcript itself: a tree of entries that only grows, and the path that a conversation takes through it.

Which entry stands behind which. Holds ids only, so that a large file can be gone through without being kept.
"""

from __future__ import annotations

import threading
import time
import uuid
from typing import TYPE_CHECKING

import attrs

from promptkit.errors import TranscriptConflictError, TranscriptError
from promptkit.transcript.entries import BranchSummary, Checkpoint, Edit, Entry, Label, MessageEntry, Setting
from promptkit.transcript.store import InMemoryStore, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from promptkit.messages import Json, Message
    from promptkit.transcript.entries import Payload
    from promptkit.transcript.store import Loaded, Store

__all__ = ["LEAF", "EntryTree", "Transcript"]


class EntryTree:
    """The ids of a transcript's entries and their parents. Only what is there can be a parent, so nothing ever stands behind itself.

    `partial`: older entries are elsewhere, and an entry whose parent is not there begins a branch; else it stands behind the entry
    that was added before it.
    """

    def __init__(self, *, partial: bool = False) -> None:
        self.partial = partial
        self.parents: dict[str, str | None] = {}
        """In the order in which they were added."""
        self.last: str | None = None

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self.parents

    def __len__(self) -> int:
        return len(self.parents)

    def add(self, entry_id: str, parent: str | None) -> str | None:
        """Add an entry that is not there yet; what is wrong with its place, in words, or None."""
        problem = None
        if parent is not None and parent not in self.parents:
            if self.partial:
                parent = None
            else:
                where = f"it stands behind {self.last!r} instead" if self.last else "it stands at the beginning instead"
                problem = f"the entry {entry_id!r} belongs behind {parent!r}, which is not there before it; {where}."
                parent = self.last
        self.parents[entry_id] = parent
        self.last = entry_id
        return problem

    def up(self, leaf: str) -> Iterator[str]:
        """The ids from a leaf to its root."""
        at: str | None = leaf
        while at is not None:
            yield at
            at = self.parents[at]

    def leaves(self) -> list[str]:
        """The ids that nothing stands behind, oldest first."""
        parents = set(self.parents.values())
        return [entry_id for entry_id in self.parents if entry_id not in parents]

    def children(self, parent: str | None) -> list[str]:
        """The ids that stand right behind one, oldest first; behind None the roots."""
        return [entry_id for entry_id, its in self.parents.items() if its == parent]


LEAF = "leaf"
"""The name of the setting that is written where a conversation goes on from an earlier entry."""


def _new_id() -> str:
    return uuid.uuid4().hex


class Transcript:
    """All that was said, in full. Entries are appended, durably, and never changed.

    `leaf` is the entry that the next one stands behind; after loading it is the last that was written. `clock` gives seconds since
    1970, `new_id` ids that were never used before. Several threads may append to one transcript.
    """

    def __init__(self, store: Store | None = None, *, clock: Callable[[], float] = time.time, new_id: Callable[[], str] = _new_id) -> None:
        self.store: Store = InMemoryStore() if store is None else store
        self._clock = clock
        self._new_id = new_id
        self._lock = threading.RLock()
        self._entries: list[Entry] = []
        self._by_id: dict[str, Entry] = {}
        self._labels: dict[str, str] = {}
        self._path: list[Entry] = []
        self._on_path: set[str] = set()
        self._asked: set[str] = set()  # ids of the calls on the path
        loaded = self.store.load()
        self._tree = EntryTree(partial=loaded.partial)
        self._last = loaded.last
        self.problems: tuple[Problem, ...] = loaded.problems
        """What could not be read, or does not stand where it could be, as far as the store has been read."""
        self._admit(loaded, first=True)
        self._go_to(self._entries[-1].id if self._entries else None)

    @property
    def entries(self) -> Sequence[Entry]:
        """Every entry, of every branch, in the order in which they were written. It grows; do not change it."""
        return self._entries

    @property
    def leaf(self) -> str | None:
        """The id of the entry that the next one stands behind; None for an empty transcript."""
        return self._path[-1].id if self._path else None

    @property
    def labels(self) -> Mapping[str, str]:
        """The names that entries were given, with the entries' ids; a name that was given twice is that of the later one."""
        return dict(self._labels)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._by_id

    def get(self, entry_id: str) -> Entry:
        """The entry with this id. Raises TranscriptError where there is none."""
        entry = self._by_id.get(entry_id)
        if entry is None:
            message = f"there is no entry {entry_id!r} in this transcript."
            raise TranscriptError(message)
        return entry

    def labelled(self, label: str) -> Entry:
        """The entry that was given this name. Raises TranscriptError where none was."""
        if label not in self._labels:
            message = f"no entry of this transcript is labelled {label!r}."
            raise TranscriptError(message)
        return self.get(self._labels[label])

    def path(self, leaf: str | None = None) -> tuple[Entry, ...]:
        """The entries from the root to a leaf; to the present one if none is named. Raises TranscriptError for an unknown one."""
        if leaf is None or leaf == self.leaf:
            return tuple(self._path)
        return tuple(self._by_id[entry_id] for entry_id in self._tree.up(self.get(leaf).id))[::-1]

    def settings(self, leaf: str | None = None) -> dict[str, Json]:
        """The settings that hold at a leaf: of each name the latest value on the path."""
        return {entry.payload.name: entry.payload.value for entry in self.path(leaf) if isinstance(entry.payload, Setting)}

    def leaves(self) -> list[Entry]:
        """The entries that nothing stands behind, oldest first: one for each branch."""
        return [self._by_id[entry_id] for entry_id in self._tree.leaves()]

    def children(self, parent: str | None) -> list[Entry]:
        """The entries right behind one, oldest first: where there are several, the conversation forks. Behind None: the roots."""
        return [self._by_id[entry_id] for entry_id in self._tree.children(parent if parent is None else self.get(parent).id)]

    def parent(self, entry_id: str) -> Entry | None:
        """The entry that one stands behind; None for a root. Raises TranscriptError for an unknown one."""
        parent = self._tree.parents[self.get(entry_id).id]
        return None if parent is None else self._by_id[parent]

    def only_on(self, leaf: str, other: str | None = None) -> tuple[Entry, ...]:
        """The entries on the path to `leaf` that are not on the path to `other`, by default the present one: what a branch has of its own."""
        shared = self._on_path if other is None else {entry.id for entry in self.path(other)}
        return tuple(entry for entry in self.path(leaf) if entry.id not in shared)

    def say(self, *messages: Message) -> list[Entry]:
        """Append messages as one batch."""
        return self.append(*(MessageEntry(message=message) for message in messages))

    def append(self, *payloads: Payload, expect: str | None = None) -> list[Entry]:
        """Append a batch behind the leaf; when this returns, it survives a crash. If it raises, nothing was appended.

        `expect`: the leaf for which the caller worked the batch out, an empty text for an empty transcript. TranscriptConflictError if the
        transcript has gone on since, here or by another process; what the other wrote has been read then. Raises TranscriptError for
        what refers to no entry: a tool result whose call is not on the path, an edit of an entry that is not on it.
        """
        with self._lock:
            if expect not in {None, self.leaf or ""}:
                raise TranscriptConflictError(expect or "", self._behind(expect or ""))
            made = self._made(payloads)
            try:
                self.store.append(made, expect=None if expect is None else self._last)
            except TranscriptConflictError:
                self.refresh()
                raise
            if made:
                self._last = made[-1].id
            for entry in made:
                self._take(entry)
            self._walk(made)
            return made

    def refresh(self) -> tuple[Entry, ...]:
        """Read what other processes wrote since; these entries are returned. The leaf moves only if they go on from it."""
        with self._lock:
            loaded = self.store.refresh()
            new = self._admit(loaded)
            ahead = self._ahead(new)
            if ahead:
                self._walk(ahead)
            return new

    def rewind(self, to: str | None, *then: Payload) -> Entry:
        """Go on from another entry, earlier or on another branch; from before the first for None. What came after it stays, as a branch.

        An entry is written that says so, and `then` in the same batch; the last one is returned. After loading, too, the conversation
        goes on there. Raises TranscriptError for an unknown entry.
        """
        with self._lock:
            before = self.leaf
            self._go_to(None if to is None else self.get(to).id)
            try:
                return self.append(Setting(name=LEAF, value=to), *then)[-1]
            except BaseException:
                self._go_to(before)
                raise

    def fork(self, store: Store, *, at: str | None = None) -> Transcript:
        """A new transcript in another store, an empty one, that holds the path to an entry with the ids that its entries have here.

        Raises TranscriptConflictError for a store that holds something.
        """
        path = self.path(at)
        store.append([attrs.evolve(entry, parent_id=self._tree.parents[entry.id]) for entry in path], expect="")
        return Transcript(store, clock=self._clock, new_id=self._new_id)

    def _made(self, payloads: Iterable[Payload]) -> list[Entry]:
        """Entries of payloads, each behind the one before it, if they can stand there."""
        made: list[Entry] = []
        ids: set[str] = set()
        asked: set[str] = set()
        parent = self.leaf
        for payload in payloads:
            entry = Entry(id=self._new_id(), parent_id=parent, time=self._clock(), payload=payload)
            if entry.id in self._by_id or entry.id in ids or not entry.id:
                message = f"the new id {entry.id!r} was used before: `new_id` must give another one each time."
                raise TranscriptError(message)
            self._check(entry, asked)
            made.append(entry)
            ids.add(entry.id)
            parent = entry.id
        return made

    def _check(self, entry: Entry, asked: set[str]) -> None:
        """What an entry refers to must be there: a result is never written before its call. `asked` are the calls of its own batch."""
        known: str | None = None
        match entry.payload:
            case Edit(target=target) | Checkpoint(first_kept=str() as target) if target not in self._on_path:
                known = "on this path"
            case BranchSummary(leaf=target) | Label(target=target) if target not in self._by_id:
                known = "in this transcript"
            case _:
                target = ""
        if known:
            problem = f"the {entry.kind} refers to the entry {target!r}, which is not {known}."
            raise TranscriptError(problem)
        message = entry.message
        if message is None:
            return
        asked.update(call.id for call in message.tool_calls)
        if message.role == "tool" and message.tool_call_id not in asked and message.tool_call_id not in self._asked:
            problem = f"a result answers the call {message.tool_call_id!r}, which is not on this path: append the call first."
            raise TranscriptError(problem)

    def _behind(self, known: str) -> Sequence[Entry]:
        """The entries of the path behind one."""
        at = next((at for at, entry in enumerate(self._path) if entry.id == known), -1)
        return self._path[at + 1 :]

    def _admit(self, loaded: Loaded, *, first: bool = False) -> tuple[Entry, ...]:
        """Take what a store gave, and report what has no place. Entries that are known are no problem where a store gives them again."""
        self._tree.partial = loaded.partial
        self._last = loaded.last  # in the store; what another wrote before the latest entry of ours may have been read after it
        found: list[Problem] = []
        new: list[Entry] = []
        for entry, line in zip(loaded.entries, loaded.lines, strict=True):
            if entry.id in self._by_id:
                if first:
                    found.append(Problem(line=line, detail=f"the id {entry.id!r} is that of an entry before; this one was left out."))
                continue
            if problem := self._take(entry):
                found.append(Problem(line=line, detail=problem))
            new.append(entry)
        known = set(self.problems)
        self.problems += tuple(problem for problem in (*(() if first else loaded.problems), *found) if problem not in known)
        return tuple(new)

    def _ahead(self, new: Sequence[Entry]) -> list[Entry]:
        """Of new entries those that lead from the leaf to the last of them."""
        ahead: list[Entry] = []
        fresh = {entry.id for entry in new}
        for entry_id in self._tree.up(new[-1].id) if new else ():
            if entry_id == self.leaf:
                return ahead[::-1]
            if entry_id not in fresh:
                return []
            ahead.append(self._by_id[entry_id])
        return ahead[::-1] if self.leaf is None else []

    def _go_to(self, leaf: str | None) -> None:
        path = () if leaf is None else self.path(leaf)
        self._path, self._on_path, self._asked = [], set(), set()
        self._walk(path)

    def _walk(self, entries: Sequence[Entry]) -> None:
        self._path.extend(entries)
        self._on_path.update(entry.id for entry in entries)
        self._asked.update(call.id for entry in entries if entry.message for call in entry.message.tool_calls)

    def _take(self, entry: Entry) -> str | None:
        self._entries.append(entry)
        self._by_id[entry.id] = entry
        if isinstance(entry.payload, Label):
            self._labels[entry.payload.label] = entry.payload.target
        return self._tree.add(entry.id, entry.parent_id)
