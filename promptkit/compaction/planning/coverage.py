"""The messages that a checkpoint replaces, reconstructed from the transcript."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.compaction.planning.blocks import is_checkpoint_item
from promptkit.transcript.log.entries import Checkpoint
from promptkit.transcript.log.entry_sequence import find_entry
from promptkit.transcript.log.view import build_view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.transcript.log.entries import Entry
    from promptkit.transcript.log.view import ViewItem


def find_covered_items(path: Sequence[Entry], checkpoint: str) -> tuple[ViewItem, ...]:
    """Return the messages that a checkpoint on a path removed from the view, without those that an earlier one had removed.

    Empty for an entry that is not a checkpoint or not on the path. Linear in the length of the
    path.
    """
    at = find_entry(path, checkpoint)
    if at is None:
        return ()
    known = {entry.id for entry in find_covered_entries(path[:at], path[at].payload)}
    return tuple(
        item
        for item in build_view(path[:at]).items
        if not is_checkpoint_item(item) and item.entry_id in known
    )


def find_covered_entries(path: Sequence[Entry], checkpoint: object) -> Sequence[Entry]:
    """Return the entries of a path that a checkpoint after it removes from the view.

    They start where the earlier checkpoint or reset ended. What the earlier checkpoint kept is
    covered by this one, so that no entry is covered twice.
    """
    if not isinstance(checkpoint, Checkpoint):
        return ()
    kept = None if checkpoint.first_kept is None else find_entry(path, checkpoint.first_kept)
    return path[_find_view_start(path) : len(path) if kept is None else kept]


def _find_view_start(path: Sequence[Entry]) -> int:
    """Return the index at which the view of the path begins."""
    view = build_view(path)
    if view.checkpoint_id is None:
        shown = {item.entry_id for item in view.items}
        return next((at for at, entry in enumerate(path) if entry.id in shown), len(path))
    at = find_entry(path, view.checkpoint_id) or 0
    before = path[at].payload
    kept = before.first_kept if isinstance(before, Checkpoint) else None
    found = None if kept is None else find_entry(path, kept)
    return at if found is None else found
