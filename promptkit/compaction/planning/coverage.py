"""What a checkpoint stands for: found again from the transcript, whoever wrote it and whenever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.compaction.planning.blocks import is_opening
from promptkit.transcript.entries import Checkpoint
from promptkit.transcript.view import build_view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.transcript.entries import Entry
    from promptkit.transcript.view import ViewItem

__all__ = ["covered_entries", "covered_items"]


def covered_items(path: Sequence[Entry], checkpoint: str) -> tuple[ViewItem, ...]:
    """The messages that a checkpoint on a path dropped from the view, without what an earlier checkpoint had dropped already.

    None for an entry that is no checkpoint, or not on the path. Linear in the length of the path.
    """
    at = _place(path, checkpoint)
    if at is None:
        return ()
    known = {entry.id for entry in covered_entries(path[:at], path[at].payload)}
    return tuple(item for item in build_view(path[:at]).items if not is_opening(item) and item.entry in known)


def covered_entries(path: Sequence[Entry], checkpoint: object) -> Sequence[Entry]:
    """The entries of a path that a checkpoint put behind it takes out of the view: from where the one before it, or a reset, left off.

    What that one kept is covered now and only now: no entry is covered twice.
    """
    if not isinstance(checkpoint, Checkpoint):
        return ()
    places = {entry.id: at for at, entry in enumerate(path)}
    end = len(path) if checkpoint.first_kept is None else places.get(checkpoint.first_kept, len(path))
    return path[_start(path, places) : end]


def _place(path: Sequence[Entry], checkpoint: str) -> int | None:
    for at in range(len(path) - 1, -1, -1):
        if path[at].id == checkpoint:
            return at if isinstance(path[at].payload, Checkpoint) else None
    return None


def _start(path: Sequence[Entry], places: dict[str, int]) -> int:
    """Where the view begins that the path ends with."""
    view = build_view(path)
    if view.checkpoint is None:
        return min((places[item.entry] for item in view.items), default=len(path))
    at = places[view.checkpoint]
    before = path[at].payload
    kept = before.first_kept if isinstance(before, Checkpoint) else None
    return at if kept is None else places.get(kept, at)
