"""Whether a transcript is as it should be, checked in one pass that keeps nothing but ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.transcript.entries import BranchSummary, Checkpoint, Edit, Label
from promptkit.transcript.store import Problem
from promptkit.transcript.transcript import EntryTree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.transcript.entries import Entry
    from promptkit.transcript.jsonl.reader import FilePass, Stored

__all__ = ["problems"]


def problems(going: FilePass) -> Iterator[Problem]:
    """What is wrong with a file: what cannot be read, ids that occur twice, and what refers to an entry that is not before it.

    References are not checked where archives are missing or were not read. Raises what the pass raises.
    """
    tree = EntryTree()
    asked: set[str] = set()
    for item in going:
        if isinstance(item, Problem):
            yield item
            continue
        tree.partial = going.partial
        where = f"in {item.archive}: " if item.archive else ""
        for detail in _of_entry(item, tree, asked):
            yield Problem(line=item.line, detail=f"{where}{detail}")


def _of_entry(item: Stored, tree: EntryTree, asked: set[str]) -> Iterator[str]:
    entry = item.entry
    if entry.id in tree:
        yield f"the id {entry.id!r} is that of an entry before; this one is left out."
        return
    target = _target(entry)
    if target is not None and target not in tree and not tree.partial:
        yield f"the {entry.kind} refers to the entry {target!r}, which is not before it."
    if problem := tree.add(entry.id, entry.parent_id):
        yield problem
    message = entry.message
    if message is None:
        return
    asked.update(call.id for call in message.tool_calls)
    if message.role == "tool" and message.tool_call_id not in asked and not tree.partial:
        yield f"a result answers the call {message.tool_call_id!r}, which is not before it."


def _target(entry: Entry) -> str | None:
    match entry.payload:
        case Edit(target=target) | Label(target=target) | BranchSummary(leaf=target) | Checkpoint(first_kept=target):
            return target
        case _:
            return None
