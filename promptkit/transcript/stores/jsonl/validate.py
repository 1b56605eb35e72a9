"""Validate a transcript in one pass. Only ids are kept in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from promptkit.transcript.log.entries import BranchSummary, Checkpoint, Edit, Entry, Label
from promptkit.transcript.log.transcript import EntryTree
from promptkit.transcript.stores.store import ReadProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.transcript.stores.jsonl.reader import StoredEntry


class EntryReader(Protocol):
    """A `TranscriptReader`, or a reader of another store."""

    partial: bool
    """Whether older entries are missing."""

    def __iter__(self) -> Iterator[StoredEntry | ReadProblem]:
        """Yield the entries and the problems in their order."""
        ...


def find_problems(reader: EntryReader) -> Iterator[ReadProblem]:
    """Find the problems of a transcript: unreadable lines, repeated ids, and references to entries that are not before them.

    References are not checked if archives are missing or were not read. Raises what iterating over
    the reader raises.

    >>> problems = list(find_problems(TranscriptReader(Path("talk.jsonl"))))
    """
    tree = EntryTree()
    call_ids: set[str] = set()
    for item in reader:
        if isinstance(item, ReadProblem):
            yield item
            continue
        tree.partial = reader.partial
        prefix = f"in {item.archive}: " if item.archive else ""
        for detail in _check_entry(item, tree, call_ids):
            yield ReadProblem(line=item.line, detail=f"{prefix}{detail}")


def _check_entry(item: StoredEntry, tree: EntryTree, call_ids: set[str]) -> Iterator[str]:
    entry = item.entry
    if entry.id in tree:
        yield f"the id {entry.id!r} was used by an earlier entry; this entry is ignored."
        return
    target = _referenced_id(entry)
    if target is not None and target not in tree and not tree.partial:
        yield f"the {entry.kind} refers to the entry {target!r}, which is not before it."
    if problem := tree.add(entry.id, entry.parent_id):
        yield problem
    message = entry.message
    if message is None:
        return
    call_ids.update(call.id for call in message.tool_calls)
    if message.role == "tool" and message.tool_call_id not in call_ids and not tree.partial:
        yield f"a tool result answers the call {message.tool_call_id!r}, which is not before it."


def _referenced_id(entry: Entry) -> str | None:
    match entry.payload:
        case (
            Edit(target=target)
            | Label(target=target)
            | BranchSummary(leaf=target)
            | Checkpoint(first_kept=target)
        ):
            return target
        case _:
            return None
