"""Resets: when a conversation starts over, and saving its memories before its messages are hidden."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

import attrs

from promptkit.errors import InvalidArgumentError, TranscriptError
from promptkit.transcript import ArchivingStore, Entry, MessageEntry, Reset, Transcript, build_view

if TYPE_CHECKING:
    from promptkit.compaction.storage import MemoryDirectory, MemoryExtractor

_LOGGER = logging.getLogger("promptkit")
HOURS = range(24)


@attrs.frozen
class ManualReset:
    """Reset only on request."""


@attrs.frozen
class DailyReset:
    """Reset once a day."""

    hour: int = 4
    """Hour of the day, 0 to 23. Default: 4."""

    def __attrs_post_init__(self) -> None:
        if self.hour not in HOURS:
            raise InvalidArgumentError(f"hour={self.hour} must be 0 to 23.")


@attrs.frozen
class IdleReset:
    """Reset after a pause."""

    minutes: float
    """Minutes since the last message."""

    def __attrs_post_init__(self) -> None:
        if not self.minutes > 0:
            raise InvalidArgumentError(f"minutes={self.minutes:g} must be above 0.")


ResetPolicy: TypeAlias = ManualReset | DailyReset | IdleReset


def find_due_reset(policy: ResetPolicy, transcript: Transcript, *, now: datetime) -> str | None:
    """Return why a conversation should be reset before its next message, or None if it should not.

    >>> if reason := find_due_reset(IdleReset(minutes=60), session.transcript, now=datetime.now().astimezone()):
    ...     await session.reset(reason)

    Args:
        policy: The reset policy.
        transcript: The conversation. The time of its last message counts.
        now: The current time, with a time zone. `DailyReset.hour` is in this zone. If the clock was
            set back, no reset is due.

    Returns:
        `daily` or `idle`, for `reset`. None if no reset is due, or if there is no message since the
        last reset.

    Raises:
        InvalidArgumentError: The time has no zone.
    """
    newest = next(
        (
            entry
            for entry in reversed(transcript.path())
            if isinstance(entry.payload, MessageEntry | Reset)
        ),
        None,
    )
    if newest is None or isinstance(newest.payload, Reset):
        return None
    if now.tzinfo is None:
        raise InvalidArgumentError("now needs a time zone: write datetime.now().astimezone().")
    last_message = datetime.fromtimestamp(newest.time, UTC)
    match policy:
        case ManualReset():
            return None
        case DailyReset(hour=hour):
            reset_time = now.replace(hour=hour, minute=0, second=0, microsecond=0)
            if reset_time > now:
                reset_time -= timedelta(days=1)
            return "daily" if last_message < reset_time else None
        case IdleReset(minutes=minutes):
            return "idle" if now - last_message >= timedelta(minutes=minutes) else None


async def reset(
    transcript: Transcript,
    *,
    reason: str,
    extractor: MemoryExtractor | None = None,
    memories: MemoryDirectory | None = None,
    move_to_archive: bool = False,
) -> Entry | None:
    """Start over: save the last memories, hide all messages, and optionally move them out of the transcript's file.

    Errors of the extractor, and of moving the entries, are logged and do not prevent the reset. If
    it is repeated after a crash, no memory is written twice. Archived entries can still be read.

    Args:
        transcript: The conversation.
        reason: Recorded in the reset's entry.
        extractor: Extracts the memories. None: no memories are saved.
        memories: Where the memories are written. None: no memories are saved.
        move_to_archive: Move the hidden entries into an archive, if the store has archives.

    Returns:
        The reset's entry, or None if the view has no messages.

    Raises:
        TranscriptConflictError: The conversation continued in the meantime. Nothing is hidden.
    """
    leaf = transcript.leaf
    view = build_view(transcript.path())
    if leaf is None or not view.items:
        return None
    if extractor is not None and memories is not None:
        try:
            if not memories.has(leaf):
                now = datetime.now().astimezone()
                known = memories.list_recent(now.date())
                memories.append(await extractor.extract(view.items, known=known), key=leaf, now=now)
        except Exception:
            _LOGGER.exception("could not save memories before the reset of the conversation")
    (entry,) = transcript.append(Reset(reason=reason), expect=leaf)
    if move_to_archive and isinstance(transcript.store, ArchivingStore):
        try:
            transcript.store.archive(through=leaf)
        except TranscriptError:
            _LOGGER.exception(
                "the conversation was reset, but its entries could not be moved to an archive"
            )
    return entry
