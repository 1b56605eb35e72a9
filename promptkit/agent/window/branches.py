"""Find the branch of a conversation that a list of messages continues."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import attrs

from promptkit.agent.window.wire import is_recorded
from promptkit.messages import Message
from promptkit.transcript import (
    Checkpoint,
    Edit,
    Entry,
    MessageEntry,
    Reset,
    Setting,
    Transcript,
)
from promptkit.transcript.log.quotes import restore_quotes
from promptkit.transcript.log.transcript import LEAF_SETTING


@attrs.frozen(kw_only=True)
class Branch:
    """The part of a list of messages with which one branch of a transcript begins."""

    leaf: str | None
    """The entry to continue from: the branch's last entry if all of its messages match, or the last
    message that matches."""
    entries: tuple[Entry, ...]
    """The branch's message entries."""
    matched: int
    """The number of messages that match, from the beginning on."""
    summaries: tuple[Checkpoint, ...] = ()
    """The last summary after `leaf`, if it is of messages that match. It is valid in another branch
    from `leaf` on, too."""

    @property
    def is_whole(self) -> bool:
        """True if all messages of the branch match."""
        return self.matched == len(self.entries)


def find_branch(transcript: Transcript, messages: Sequence[Message]) -> Branch:
    """Find the branch of a transcript that begins with the most of these messages.

    As a rule it is the current one.
    """
    path = transcript.path()
    best = _match_branch(path, messages)
    rewound = any(
        isinstance(entry.payload, Setting) and entry.payload.name == LEAF_SETTING
        for entry in takewhile(
            lambda entry: not isinstance(entry.payload, MessageEntry), reversed(path)
        )
    )
    if best.is_whole and not (rewound and best.matched < len(messages)):
        return best  # messages were appended, or none
    for leaf in transcript.leaves():
        branch = _match_branch(transcript.path(leaf.id), messages)
        if branch.matched > best.matched or (
            branch.matched == best.matched and branch.is_whole and not best.is_whole
        ):
            best = branch
    return best


def _match_branch(path: Sequence[Entry], messages: Sequence[Message]) -> Branch:
    """Compare a branch with a list of messages."""
    entries = tuple(entry for entry in path if isinstance(entry.payload, MessageEntry))
    by_id = {entry.id: entry for entry in path}
    recorded = (
        restore_quotes(entry.payload, by_id.get)
        for entry in path
        if isinstance(entry.payload, MessageEntry)
    )
    matched = sum(takewhile(bool, map(is_recorded, recorded, messages)))
    if matched == len(entries) or not matched:
        return Branch(
            leaf=path[-1].id if path and matched == len(entries) else None,
            entries=entries,
            matched=matched,
        )
    departure = path.index(entries[matched])
    return Branch(
        leaf=path[departure - 1].id,
        entries=entries,
        matched=matched,
        summaries=_find_valid_summary(path[:departure], path[departure:]),
    )


def _find_valid_summary(before: Sequence[Entry], after: Sequence[Entry]) -> tuple[Checkpoint, ...]:
    """Return the last checkpoint in `after` if it summarizes nothing of `after`: what it keeps begins in `before`, or with `after`."""
    hidden = {entry.payload.target for entry in after if isinstance(entry.payload, Edit)}
    known = {entry.id for entry in (*before, after[0])}
    last: tuple[Checkpoint, ...] = ()
    for entry in after:
        payload = entry.payload
        if isinstance(payload, Reset):
            last = ()
        elif isinstance(payload, Checkpoint) and entry.id not in hidden:
            kept = None if payload.first_kept == after[0].id else payload.first_kept
            last = (attrs.evolve(payload, first_kept=kept),) if payload.first_kept in known else ()
    return last
