"""The transcript: an append-only tree of entries, and the path that the conversation takes through it."""

from __future__ import annotations

import threading
import time
import uuid
from typing import TYPE_CHECKING

import attrs

from promptkit.errors import TranscriptConflictError, TranscriptError
from promptkit.transcript.entries import BranchSummary, Checkpoint, Edit, Entry, Label, Setting
from promptkit.transcript.quotes import quote_sources
from promptkit.transcript.store import InMemoryStore, ReadProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from promptkit.messages import Json, Message
    from promptkit.transcript.entries import EntryPayload
    from promptkit.transcript.store import LoadedEntries, TranscriptStore

__all__ = ["LEAF_SETTING", "EntryTree", "Transcript"]

MAX_CONFLICTS = 1_000
"""Other writers that may append first before `append` gives up. Each of them means that the conversation has grown."""

LEAF_SETTING = "leaf"
"""The name of the setting that `Transcript.rewind` writes where the conversation continues from an earlier entry."""


def _new_id() -> str:
    return uuid.uuid4().hex


class Transcript:
    """The full record of a conversation. Entries are appended durably and never changed.

    The leaf is the entry that the next entry follows. After loading it is the entry that was written last. Several threads may append
    to one transcript.

    Args:
        store: Where the entries are kept. None: in memory.
        clock: Return the time in seconds since 1970.
        new_id: Return an id that was never used before.

    >>> transcript = Transcript()
    >>> _ = transcript.append_messages(Message(role="user", content=("What does the parser do?",)))
    """

    def __init__(
        self,
        store: TranscriptStore | None = None,
        *,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = _new_id,
    ) -> None:
        self.store: TranscriptStore = InMemoryStore() if store is None else store
        """Where the entries are kept."""
        self._clock = clock
        self._new_id = new_id
        self._lock = threading.RLock()
        self._entries: list[Entry] = []
        self._by_id: dict[str, Entry] = {}
        self._labels: dict[str, str] = {}
        self._path: list[Entry] = []
        self._path_ids: set[str] = set()
        self._call_ids: set[str] = set()  # ids of the tool calls on the path
        loaded = self.store.load()
        self._tree = EntryTree(partial=loaded.partial)
        self._last_stored_id = loaded.last_id
        self.problems: tuple[ReadProblem, ...] = loaded.problems
        """What could not be read, or has a place in the tree other than the one it names, as far as the store has been read."""
        self._add_loaded(loaded, is_first_load=True)
        self._set_leaf(self._entries[-1].id if self._entries else None)

    @property
    def entries(self) -> Sequence[Entry]:
        """Every entry of every branch, in the order in which they were written. The sequence grows; do not change it."""
        return self._entries

    @property
    def leaf(self) -> str | None:
        """The id of the entry that the next entry follows; None for an empty transcript."""
        return self._path[-1].id if self._path else None

    @property
    def labels(self) -> Mapping[str, str]:
        """The ids of labelled entries by label. If a label was used twice, the later entry has it."""
        return dict(self._labels)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._by_id

    def get(self, entry_id: str) -> Entry:
        """Return the entry with this id. Raises TranscriptError if there is none."""
        entry = self._by_id.get(entry_id)
        if entry is None:
            message = f"there is no entry {entry_id!r} in this transcript."
            raise TranscriptError(message)
        return entry

    def get_by_label(self, label: str) -> Entry:
        """Return the entry with this label. Raises TranscriptError if there is none."""
        if label not in self._labels:
            message = f"no entry of this transcript is labelled {label!r}."
            raise TranscriptError(message)
        return self.get(self._labels[label])

    def path(self, leaf: str | None = None) -> tuple[Entry, ...]:
        """Return the entries from the root to `leaf`, by default the present leaf. Raises TranscriptError for an unknown id."""
        if leaf is None or leaf == self.leaf:
            return tuple(self._path)
        return tuple(self._by_id[entry_id] for entry_id in self._tree.walk_to_root(self.get(leaf).id))[::-1]

    def settings(self, leaf: str | None = None) -> dict[str, Json]:
        """Return the settings that apply at `leaf`: for each name the latest value on the path."""
        return {entry.payload.name: entry.payload.value for entry in self.path(leaf) if isinstance(entry.payload, Setting)}

    def leaves(self) -> list[Entry]:
        """Return the entries without children, oldest first: one for each branch."""
        return [self._by_id[entry_id] for entry_id in self._tree.leaves()]

    def children(self, parent: str | None) -> list[Entry]:
        """Return the children of an entry, oldest first; for None the roots. Raises TranscriptError for an unknown id."""
        return [self._by_id[entry_id] for entry_id in self._tree.children(parent if parent is None else self.get(parent).id)]

    def parent(self, entry_id: str) -> Entry | None:
        """Return the parent of an entry; None for a root. Raises TranscriptError for an unknown id."""
        parent = self._tree.parents[self.get(entry_id).id]
        return None if parent is None else self._by_id[parent]

    def branch_entries(self, leaf: str, other: str | None = None) -> tuple[Entry, ...]:
        """Return the entries on the path to `leaf` that are not on the path to `other`, by default the present leaf."""
        shared = self._path_ids if other is None else {entry.id for entry in self.path(other)}
        return tuple(entry for entry in self.path(leaf) if entry.id not in shared)

    def append_messages(self, *messages: Message) -> list[Entry]:
        """Append messages as one batch of `MessageEntry`, after what other writers have appended. Raises what `append` raises.

        A tool result that repeats entries is stored with quotes of them.
        """
        return self.append(*(quote_sources(message, self._find_on_path) for message in messages))

    def append(self, *payloads: EntryPayload, expect: str | None = None) -> list[Entry]:
        """Append a batch after the leaf. When this returns, the batch survives a crash. If it raises, nothing was appended.

        Several processes that append to one conversation make one line: what another process appended after the leaf is read first, and
        the batch follows it. Where another process went on from an earlier entry, its branch and this one stay apart.

        Args:
            *payloads: What the new entries hold.
            expect: The id of the leaf for which the caller prepared the batch; an empty string for an empty transcript. None: append
                after whatever the leaf is, the entries of other processes included.

        Returns:
            The new entries.

        Raises:
            TranscriptConflictError: The conversation has continued since, in this transcript or in another process. The entries of
                the other process have been read.
            TranscriptError: A payload refers to an entry that does not exist: a tool result whose call is not on the path, an edit
                of an entry that is not on the path.
        """
        with self._lock:
            if expect not in {None, self.leaf or ""}:
                raise TranscriptConflictError(expect or "", self._path_after(expect or ""))
            return self._append(payloads, attempts=MAX_CONFLICTS if expect is None else 1)

    def _append(self, payloads: Sequence[EntryPayload], *, attempts: int, stay: bool = False) -> list[Entry]:
        """Append a batch after the leaf. After a conflict, read what was appended and try again, as often as `attempts` says.

        With `stay`, the leaf stays where it is, whatever others appended after it.
        """
        leaf, conflicts = self.leaf, 0
        while True:
            entries = self._build_entries(payloads)
            if not entries:
                return []
            try:
                self.store.append(entries, expect=self._last_stored_id)
            except TranscriptConflictError:
                self.refresh()
                if stay:
                    self._set_leaf(leaf)
                conflicts += 1
                if conflicts >= attempts:
                    raise
            else:
                break
        self._last_stored_id = entries[-1].id
        for entry in entries:
            self._add_entry(entry)
        self._extend_path(entries)
        return entries

    def refresh(self) -> tuple[Entry, ...]:
        """Read and return the entries that other processes appended. The leaf moves to the last of them that continues from it."""
        with self._lock:
            loaded = self.store.refresh()
            new_entries = self._add_loaded(loaded)
            continuation = self._find_continuation(new_entries)
            if continuation:
                self._extend_path(continuation)
            return new_entries

    def rewind(self, entry_id: str | None, *payloads: EntryPayload) -> Entry:
        """Continue from another entry, an earlier one or one on another branch. Later entries stay in the transcript as a branch.

        A setting records the new leaf, so the conversation also continues there after loading.

        Args:
            entry_id: The entry to continue from. None: start before the first entry.
            *payloads: Entries to append in the same batch.

        Returns:
            The last entry that was appended.

        Raises:
            TranscriptError: The entry is unknown, or `append` refuses a payload.
        """
        with self._lock:
            previous_leaf = self.leaf
            self._set_leaf(None if entry_id is None else self.get(entry_id).id)
            try:
                return self._append((Setting(name=LEAF_SETTING, value=entry_id), *payloads), attempts=MAX_CONFLICTS, stay=True)[-1]
            except BaseException:
                self._set_leaf(previous_leaf)
                raise

    def fork(self, store: TranscriptStore, *, at: str | None = None) -> Transcript:
        """Copy the path to an entry into a new transcript. The copies keep their ids.

        Args:
            store: The store of the new transcript. It must be empty.
            at: The id of the last entry to copy. None: the leaf.

        Returns:
            The new transcript.

        Raises:
            TranscriptConflictError: The store is not empty.
            TranscriptError: There is no entry `at`.
        """
        path = self.path(at)
        store.append([attrs.evolve(entry, parent_id=self._tree.parents[entry.id]) for entry in path], expect="")
        return Transcript(store, clock=self._clock, new_id=self._new_id)

    def _find_on_path(self, entry_id: str) -> Entry | None:
        return self._by_id[entry_id] if entry_id in self._path_ids else None

    def _build_entries(self, payloads: Iterable[EntryPayload]) -> list[Entry]:
        """Build entries of payloads, each the child of the one before it, and check what they refer to."""
        entries: list[Entry] = []
        ids: set[str] = set()
        call_ids: set[str] = set()
        parent = self.leaf
        for payload in payloads:
            entry = Entry(id=self._new_id(), parent_id=parent, time=self._clock(), payload=payload)
            if entry.id in self._by_id or entry.id in ids or not entry.id:
                message = f"the new id {entry.id!r} was used before: `new_id` must return a different id each time."
                raise TranscriptError(message)
            self._check_references(entry, call_ids)
            entries.append(entry)
            ids.add(entry.id)
            parent = entry.id
        return entries

    def _check_references(self, entry: Entry, call_ids: set[str]) -> None:
        """Raise TranscriptError if an entry refers to one that does not exist. `call_ids` are the tool calls of the same batch."""
        scope: str | None = None
        match entry.payload:
            case Edit(target=target) | Checkpoint(first_kept=str() as target) if target not in self._path_ids:
                scope = "on this path"
            case BranchSummary(leaf=target) | Label(target=target) if target not in self._by_id:
                scope = "in this transcript"
            case _:
                target = ""
        if scope:
            problem = f"the {entry.kind} refers to the entry {target!r}, which is not {scope}."
            raise TranscriptError(problem)
        message = entry.message
        if message is None:
            return
        call_ids.update(call.id for call in message.tool_calls)
        if message.role == "tool" and message.tool_call_id not in call_ids and message.tool_call_id not in self._call_ids:
            problem = f"a tool result answers the call {message.tool_call_id!r}, which is not on this path: append the call first."
            raise TranscriptError(problem)

    def _path_after(self, entry_id: str) -> Sequence[Entry]:
        index = next((index for index, entry in enumerate(self._path) if entry.id == entry_id), -1)
        return self._path[index + 1 :]

    def _add_loaded(self, loaded: LoadedEntries, *, is_first_load: bool = False) -> tuple[Entry, ...]:
        """Add the entries that a store returned, and record problems. Later loads may repeat entries that are known."""
        self._tree.partial = loaded.partial
        # Another writer's entry may precede the latest one of ours in the store although it was read after it.
        self._last_stored_id = loaded.last_id
        problems: list[ReadProblem] = []
        new_entries: list[Entry] = []
        for entry, line in zip(loaded.entries, loaded.line_numbers, strict=True):
            if entry.id in self._by_id:
                if is_first_load:
                    detail = f"the id {entry.id!r} was used by an earlier entry; this entry was ignored."
                    problems.append(ReadProblem(line=line, detail=detail))
                continue
            if problem := self._add_entry(entry):
                problems.append(ReadProblem(line=line, detail=problem))
            new_entries.append(entry)
        known = set(self.problems)
        self.problems += tuple(problem for problem in (*(() if is_first_load else loaded.problems), *problems) if problem not in known)
        return tuple(new_entries)

    def _add_entry(self, entry: Entry) -> str | None:
        """Add an entry to the tree. Returns what is wrong with its parent, or None."""
        self._entries.append(entry)
        self._by_id[entry.id] = entry
        if isinstance(entry.payload, Label):
            self._labels[entry.payload.label] = entry.payload.target
        return self._tree.add(entry.id, entry.parent_id)

    def _find_continuation(self, new_entries: Sequence[Entry]) -> list[Entry]:
        """Find the new entries that lead from the leaf to the last one that continues from it; an empty list if none does."""
        continuing: set[str | None] = {self.leaf}
        end = self.leaf
        for entry in new_entries:
            if self._tree.parents[entry.id] in continuing:
                continuing.add(entry.id)
                end = entry.id
        continuation: list[Entry] = []
        while end is not None and end != self.leaf:
            continuation.append(self._by_id[end])
            end = self._tree.parents[end]
        return continuation[::-1]

    def _set_leaf(self, leaf: str | None) -> None:
        path = () if leaf is None else self.path(leaf)
        self._path, self._path_ids, self._call_ids = [], set(), set()
        self._extend_path(path)

    def _extend_path(self, entries: Sequence[Entry]) -> None:
        self._path.extend(entries)
        self._path_ids.update(entry.id for entry in entries)
        self._call_ids.update(call.id for entry in entries if entry.message for call in entry.message.tool_calls)


class EntryTree:
    """The ids of entries and their parents, without the entries, so that a large file can be read without keeping it.

    Only an entry that was added can be a parent, so the tree has no cycles.

    Args:
        partial: Whether older entries are missing. If so, an entry whose parent is missing becomes a root; otherwise it becomes the
            child of the entry that was added before it.
    """

    def __init__(self, *, partial: bool = False) -> None:
        self.partial = partial
        self.parents: dict[str, str | None] = {}
        """The parents by id, in the order in which the entries were added."""
        self.last_id: str | None = None
        """The id that was added last."""

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self.parents

    def __len__(self) -> int:
        return len(self.parents)

    def add(self, entry_id: str, parent: str | None) -> str | None:
        """Add a new id. Returns what is wrong with its parent, in words, or None."""
        problem = None
        if parent is not None and parent not in self.parents:
            if self.partial:
                parent = None
            else:
                place = f"after {self.last_id!r}" if self.last_id else "at the beginning"
                problem = f"the entry {entry_id!r} follows {parent!r}, which is not before it in the file; it was placed {place} instead."
                parent = self.last_id
        self.parents[entry_id] = parent
        self.last_id = entry_id
        return problem

    def walk_to_root(self, leaf: str) -> Iterator[str]:
        """Yield the ids from a leaf to its root."""
        entry_id: str | None = leaf
        while entry_id is not None:
            yield entry_id
            entry_id = self.parents[entry_id]

    def leaves(self) -> list[str]:
        """Return the ids without children, oldest first."""
        parents = set(self.parents.values())
        return [entry_id for entry_id in self.parents if entry_id not in parents]

    def children(self, parent: str | None) -> list[str]:
        """Return the children of an id, oldest first; for None the roots."""
        return [entry_id for entry_id, its_parent in self.parents.items() if its_parent == parent]
