"""The transcript: an append-only tree of entries, and the path that the conversation takes through it."""

from __future__ import annotations

import threading
import time
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

import attrs

from promptkit.errors import TranscriptConflictError, TranscriptError
from promptkit.messages import Json, Message
from promptkit.reprs import describe
from promptkit.transcript.log.entries import (
    BranchSummary,
    Checkpoint,
    Edit,
    Entry,
    EntryKind,
    EntryPayload,
    Label,
    Setting,
)
from promptkit.transcript.log.entry_sequence import (
    EntryNumbers,
    EntrySequence,
    find_entry,
    find_kinds,
)
from promptkit.transcript.log.quotes import quote_sources
from promptkit.transcript.stores.store import (
    IndexedStore,
    InMemoryStore,
    LoadedEntries,
    ReadProblem,
    TranscriptStore,
)

MAX_CONFLICTS = 1_000
"""Other writers that may append first before `append` gives up. Each of them means that the
conversation has grown."""

RECENT_ENTRIES = 512
"""Entries in which the call of a tool result is looked for before the whole file is searched."""

LABELS: tuple[EntryKind, ...] = ("label",)

LEAF_SETTING = "leaf"
"""The name of the setting that `Transcript.rewind` writes where the conversation continues from an
earlier entry."""


def _new_id() -> str:
    return uuid.uuid4().hex


class Transcript:
    """The full record of a conversation. Entries are appended durably and never changed.

    The leaf is the entry that the next entry follows. After loading it is the entry that was
    written last. Several threads may append to one transcript.

    From a store with an index, such as `JsonlStore` for a long file, only the newest entries are
    read. Others are read when they are needed, and not all of them are kept in memory.

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
        if store is not None and not callable(getattr(store, "load", None)):
            raise TypeError(
                f"a Transcript takes a store, such as Transcript(JsonlStore('talk.jsonl')) or Transcript(open_store(address)), not {store!r:.80}."
            )
        self.store: TranscriptStore = InMemoryStore() if store is None else store
        """Where the entries are kept."""
        self._clock = clock
        self._new_id = new_id
        self._lock = threading.RLock()
        loaded = (
            self.store.load_latest() if isinstance(self.store, IndexedStore) else self.store.load()
        )
        self._earlier = loaded.earlier or None
        self._entries: list[Entry] = []  # after those of `_earlier`, as in all that follow
        self._by_id: dict[str, Entry] = {}
        self._labels: dict[str, str] = {}
        self._stem: EntryNumbers | None = None  # the part of the path that is in `_earlier`
        self._path: list[Entry] = []
        self._asked_path: tuple[Entry, ...] | None = None  # the same, since it was asked for
        self._path_ids: set[str] = set()
        self._call_ids: set[str] = set()  # ids of the tool calls on the path
        self._tree = EntryTree(
            partial=loaded.partial,
            last_id="" if self._earlier is None else self._read_earlier(-1).id,
            has=self._is_earlier,
        )
        self._last_stored_id = loaded.last_id
        self.problems: tuple[ReadProblem, ...] = (
            *loaded.problems,
            *(self._earlier.misplaced if self._earlier else ()),
        )
        """What could not be read, or has a place in the tree other than the one it names, as far as
        the store has been read."""
        self._add_loaded(loaded, is_first_load=True)
        self._set_leaf(self._entries[-1].id if self._entries else self._tree.last_id or None)

    def __repr__(self) -> str:
        return describe(self, address=self.store.address, entries=len(self))

    @property
    def entries(self) -> Sequence[Entry]:
        """Every entry of every branch, in the order in which they were written.

        The sequence grows; do not change it.
        """
        return (
            self._entries
            if self._earlier is None
            else EntrySequence(EntryNumbers(self._earlier), self._entries)
        )

    @property
    def leaf(self) -> str | None:
        """The id of the entry that the next entry follows; None for an empty transcript."""
        return (
            self._path[-1].id
            if self._path
            else None
            if self._stem is None
            else self._read_earlier(self._stem.newest).id
        )

    @property
    def labels(self) -> Mapping[str, str]:
        """The ids of labelled entries by label.

        If a label was used twice, the later entry has it.
        """
        earlier = () if self._earlier is None else self._earlier.find_kinds(LABELS)
        return {
            payload.label: payload.target
            for payload in (self._read_earlier(number).payload for number in earlier)
            if isinstance(payload, Label)
        } | self._labels

    def __len__(self) -> int:
        return len(self._entries) + (0 if self._earlier is None else len(self._earlier))

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._by_id or (isinstance(entry_id, str) and self._is_earlier(entry_id))

    def get(self, entry_id: str) -> Entry:
        """Return the entry with this id. Raises TranscriptError if there is none."""
        if (entry := self._by_id.get(entry_id)) is not None:
            return entry
        if (number := self._find_earlier(entry_id)) is None:
            raise TranscriptError(f"there is no entry {entry_id!r} in this transcript.")
        return self._read_earlier(number)

    def get_by_label(self, label: str) -> Entry:
        """Return the entry with this label. Raises TranscriptError if there is none."""
        if (target := self._labels.get(label) or self.labels.get(label)) is None:
            raise TranscriptError(f"no entry of this transcript is labelled {label!r}.")
        return self.get(target)

    def path(self, leaf: str | None = None) -> Sequence[Entry]:
        """Return the entries from the root to `leaf`, by default the present leaf.

        Raises TranscriptError for an unknown id.

        The result does not change. In a long conversation it reads older entries when they are
        asked for; otherwise it is a tuple.
        """
        if self._asked_path is None:
            self._asked_path = tuple(self._path)
        stem, tail = (
            (self._stem, self._asked_path)
            if leaf is None or leaf == self.leaf
            else self._walk(self.get(leaf).id)
        )
        return tail if stem is None else EntrySequence(stem, tail)

    def settings(self, leaf: str | None = None) -> dict[str, Json]:
        """Return the settings that apply at `leaf`: for each name the latest value on the path."""
        return dict(
            [
                (entry.payload.name, entry.payload.value)
                for entry in find_kinds(self.path(leaf), "setting")
                if isinstance(entry.payload, Setting)
            ][::-1]  # oldest first
        )

    def leaves(self) -> list[Entry]:
        """Return the entries without children, oldest first: one for each branch."""
        return [
            *self._find_earlier_leaves(),
            *(self._by_id[entry_id] for entry_id in self._tree.leaves()),
        ]

    def parent(self, entry_id: str) -> Entry | None:
        """Return the parent of an entry; None for a root.

        Raises TranscriptError for an unknown id.
        """
        entry_id = self.get(entry_id).id
        number = None if entry_id in self._by_id else self._find_earlier(entry_id)
        if number is not None and self._earlier is not None:
            place = EntrySequence(EntryNumbers(self._earlier, number), ())
            return place[-2] if len(place) > 1 else None
        parent = self._tree.parents[entry_id]
        return None if parent is None else self.get(parent)

    def branch_entries(self, leaf: str, other: str | None = None) -> tuple[Entry, ...]:
        """Return the entries on the path to `leaf` that are not on the path to `other`, by default the present leaf."""
        path, others = self.path(leaf), self.path(other)
        if isinstance(path, EntrySequence) and isinstance(others, EntrySequence):
            path.numbers.verify()
            others.numbers.verify()
            start = bisect_left(
                range(min(len(path), len(others))), 1, key=lambda at: path[at].id != others[at].id
            )
        else:
            start = sum(entry.id == other.id for entry, other in zip(path, others, strict=False))
        return tuple(path[start:])

    def append_messages(self, *messages: Message) -> list[Entry]:
        """Append messages as one batch of `MessageEntry`, after what other writers have appended.

        Raises what `append` raises.

        A tool result that repeats entries is stored with quotes of them.
        """
        return self.append(*(quote_sources(message, self._find_on_path) for message in messages))

    def append(self, *payloads: EntryPayload, expect: str | None = None) -> list[Entry]:
        """Append a batch after the leaf.

        When this returns, the batch survives a crash. If it raises, nothing was appended.

        Several processes that append to one conversation make one line: what another process
        appended after the leaf is read first, and the batch follows it. Where another process went
        on from an earlier entry, its branch and this one stay apart.

        Args:
            *payloads: What the new entries hold.
            expect: The id of the leaf for which the caller prepared the batch; an empty string for
                an empty transcript. None: append after whatever the leaf is, the entries of other
                processes included.

        Returns:
            The new entries.

        Raises:
            TranscriptConflictError: The conversation has continued since, in this transcript or in
                another process. The entries of the other process have been read.
            TranscriptError: A payload refers to an entry that does not exist: a tool result whose
                call is not on the path, an edit of an entry that is not on the path.
        """
        with self._lock:
            if expect not in {None, self.leaf or ""}:
                path = self.path()
                known = find_entry(path, expect or "")
                raise TranscriptConflictError(
                    expect or "", path[0 if known is None else known + 1 :]
                )
            return self._append(payloads, attempts=MAX_CONFLICTS if expect is None else 1)

    def _append(
        self, payloads: Sequence[EntryPayload], *, attempts: int, stay: bool = False
    ) -> list[Entry]:
        """Append a batch after the leaf.

        After a conflict, read what was appended and try again, as often as `attempts` says.

        With `stay`, the leaf stays where it is, whatever others appended after it.
        """
        if not payloads:
            return []
        leaf = self.leaf
        while True:
            entries = self._build_entries(payloads)
            try:
                self.store.append(entries, expect=self._last_stored_id)
                break
            except TranscriptConflictError:
                attempts -= 1
                self.refresh()
                if stay:
                    self._set_leaf(leaf)
                if attempts <= 0:
                    raise
        self._last_stored_id = entries[-1].id
        for entry in entries:
            self._add_entry(entry)
        self._extend_path(entries)
        return entries

    def refresh(self) -> tuple[Entry, ...]:
        """Read and return the entries that other processes appended.

        The leaf moves to the last of them that continues from it.
        """
        with self._lock:
            new_entries = self._add_loaded(self.store.refresh())
            self._extend_path(self._find_continuation(new_entries))
            return new_entries

    def rewind(self, entry_id: str | None, *payloads: EntryPayload) -> Entry:
        """Continue from another entry, an earlier one or one on another branch.

        Later entries stay in the transcript as a branch.

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
                return self._append(
                    (Setting(name=LEAF_SETTING, value=entry_id), *payloads),
                    attempts=MAX_CONFLICTS,
                    stay=True,
                )[-1]
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
        store.append(
            [
                attrs.evolve(entry, parent_id=parent)
                for entry, parent in zip(path, [None, *(entry.id for entry in path)], strict=False)
            ],
            expect="",
        )
        return Transcript(store, clock=self._clock, new_id=self._new_id)

    def _find_on_path(self, entry_id: str) -> Entry | None:
        if entry_id in self._path_ids:
            return self._by_id[entry_id]
        number = self._find_earlier(entry_id)
        return (
            None
            if number is None or self._stem is None or self._stem.index(number) is None
            else self._read_earlier(number)
        )

    def _build_entries(self, payloads: Iterable[EntryPayload]) -> list[Entry]:
        """Build entries of payloads, each the child of the one before it, and check what they refer to."""
        entries: dict[str, Entry] = {}
        call_ids: set[str] = set()
        parent = self.leaf
        for payload in payloads:
            entry = Entry(id=self._new_id(), parent_id=parent, time=self._clock(), payload=payload)
            # A random id need not be looked up in a long file.
            if (
                not entry.id
                or entry.id in self._by_id
                or entry.id in entries
                or (self._new_id is not _new_id and entry.id in self)
            ):
                raise TranscriptError(
                    f"the new id {entry.id!r} was used before: `new_id` must return a different id each time."
                )
            self._check_references(entry, call_ids)
            entries[entry.id] = entry
            parent = entry.id
        return [*entries.values()]

    def _check_references(self, entry: Entry, call_ids: set[str]) -> None:
        """Raise TranscriptError if an entry refers to one that does not exist.

        `call_ids` are the tool calls of the same batch.
        """
        match entry.payload:
            case Edit(target=target) | Checkpoint(first_kept=str() as target) if (
                self._find_on_path(target) is None
            ):
                scope = "on this path"
            case BranchSummary(leaf=target) | Label(target=target) if target not in self:
                scope = "in this transcript"
            case _:
                target = scope = ""
        if scope:
            raise TranscriptError(
                f"the {entry.kind} refers to the entry {target!r}, which is not {scope}."
            )
        if (message := entry.message) is None:
            return
        call_ids.update(call.id for call in message.tool_calls)
        call_id = message.tool_call_id
        if (
            message.role == "tool"
            and call_id not in call_ids
            and call_id not in self._call_ids
            and not self._is_earlier_call(call_id)
        ):
            raise TranscriptError(
                f"a tool result answers the call {message.tool_call_id!r}, which is not on this path: append the call first."
            )

    def _add_loaded(
        self, loaded: LoadedEntries, *, is_first_load: bool = False
    ) -> tuple[Entry, ...]:
        """Add the entries that a store returned, and record problems.

        Later loads may repeat entries that are known.
        """
        self._tree.partial = loaded.partial
        # Another writer's entry may precede the latest one of ours in the store although it was
        # read after it.
        self._last_stored_id = loaded.last_id
        problems: list[ReadProblem] = []
        new_entries: list[Entry] = []
        for entry, line in zip(loaded.entries, loaded.line_numbers, strict=True):
            if entry.id in self:
                if is_first_load:
                    problems.append(
                        ReadProblem(
                            line=line,
                            detail=f"the id {entry.id!r} was used by an earlier entry; this entry was ignored.",
                        )
                    )
                continue
            if problem := self._add_entry(entry):
                problems.append(ReadProblem(line=line, detail=problem))
            new_entries.append(entry)
        known = set(self.problems)
        self.problems += tuple(
            problem
            for problem in (*(() if is_first_load else loaded.problems), *problems)
            if problem not in known
        )
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
        leaf = end = self.leaf
        continuing = {leaf}
        for entry in new_entries:
            if self._tree.parents[entry.id] in continuing:
                continuing.add(entry.id)
                end = entry.id
        return [
            self._by_id[entry_id]
            for entry_id in takewhile(lambda each: each != leaf, self._tree.walk_to_root(end))
        ][::-1]

    def _set_leaf(self, leaf: str | None) -> None:
        self._stem, path = (None, ()) if leaf is None else self._walk(leaf)
        self._path, self._path_ids, self._call_ids = [], set(), set()
        self._extend_path(path)

    def _walk(self, leaf: str) -> tuple[EntryNumbers | None, tuple[Entry, ...]]:
        """Return the path to an entry: the part in the earlier entries, and the entries after it."""
        path: list[Entry] = []
        entry_id: str | None = leaf
        while entry_id is not None and entry_id in self._by_id:
            path.append(self._by_id[entry_id])
            entry_id = self._tree.parents[entry_id]
        number = None if entry_id is None else self._find_earlier(entry_id)
        return None if number is None or self._earlier is None else EntryNumbers(
            self._earlier, number
        ), tuple(path[::-1])

    def _read_earlier(self, number: int) -> Entry:
        """Read one of the earlier entries, counted from the end if the number is below 0."""
        if self._earlier is None:
            raise IndexError(number)
        number = range(len(self._earlier))[number]
        return self._earlier.read(number, number + 1)[0]

    def _find_earlier(self, entry_id: str) -> int | None:
        return None if self._earlier is None else self._earlier.find(entry_id)

    def _is_earlier(self, entry_id: str) -> bool:
        return self._find_earlier(entry_id) is not None

    def _is_earlier_call(self, call_id: str | None) -> bool:
        """Return whether an earlier entry of the path has this tool call.

        The newest ones are looked at first, and then all.
        """
        stem = self._stem
        return (
            stem is not None
            and call_id is not None
            and (
                any(
                    call.id == call_id
                    for entry in reversed(
                        EntrySequence(stem, (), start=max(0, len(stem) - RECENT_ENTRIES))
                    )
                    if entry.message
                    for call in entry.message.tool_calls
                )
                or any(
                    call.id == call_id
                    for number in stem.earlier.find_text([call_id])
                    if stem.index(number) is not None
                    and (message := self._read_earlier(number).message)
                    for call in message.tool_calls
                )
            )
        )

    def _find_earlier_leaves(self) -> Iterator[Entry]:
        if (earlier := self._earlier) is None:
            return
        earlier.verify(0)
        outside = set(self._tree.parents.values()) - self._by_id.keys()
        parents = {parent for _, parent in earlier.runs}
        parents |= {earlier.find(parent_id) for parent_id in outside if parent_id}
        yield from (
            self._read_earlier(end - 1)
            for end in (*(first for first, _ in earlier.runs[1:]), len(earlier))
            if end - 1 not in parents
        )

    def _extend_path(self, entries: Sequence[Entry]) -> None:
        self._path.extend(entries)
        self._asked_path = None
        self._path_ids.update(entry.id for entry in entries)
        self._call_ids.update(
            call.id for entry in entries if entry.message for call in entry.message.tool_calls
        )


def describe_misplaced(entry_id: str, parent: str | None, last_id: str | None) -> str:
    """Describe an entry that follows an unknown one, and therefore the last one."""
    place = f"after {last_id!r}" if last_id else "at the beginning"
    return f"the entry {entry_id!r} follows {parent!r}, which is not before it in the file; it was placed {place} instead."


class EntryTree:
    """The ids of entries and their parents, without the entries, so that a large file can be read without keeping it.

    Only an entry that was added can be a parent, so the tree has no cycles.

    Args:
        partial: Whether older entries are missing. If so, an entry whose parent is missing becomes
            a root; otherwise it becomes the child of the entry that was added before it.
        last_id: The id of the last of the entries that come before the first one to be added; empty
            if there is none.
        has: Returns whether an id is one of those. None: there are none.
    """

    def __init__(
        self, *, partial: bool = False, last_id: str = "", has: Callable[[str], bool] | None = None
    ) -> None:
        self.partial = partial
        self._has = has
        self.parents: dict[str, str | None] = {}
        """The parents by id, in the order in which the entries were added."""
        self.last_id: str | None = last_id or None
        """The id that was added last."""

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self.parents

    def __len__(self) -> int:
        return len(self.parents)

    def add(self, entry_id: str, parent: str | None) -> str | None:
        """Add a new id. Returns what is wrong with its parent, in words, or None."""
        problem = None
        is_known = (
            parent is None
            or parent == self.last_id
            or parent in self.parents
            or (self._has is not None and self._has(parent))
        )
        if not is_known and not self.partial:
            problem = describe_misplaced(entry_id, parent, self.last_id)
        if not is_known:
            parent = None if self.partial else self.last_id
        self.parents[entry_id] = parent
        self.last_id = entry_id
        return problem

    def walk_to_root(self, leaf: str | None) -> Iterator[str]:
        """Yield the ids from a leaf to its root; none if there is no leaf."""
        while leaf is not None:
            yield leaf
            leaf = self.parents[leaf]

    def leaves(self) -> list[str]:
        """Return the ids without children, oldest first."""
        parents = set(self.parents.values())
        return [entry_id for entry_id in self.parents if entry_id not in parents]
