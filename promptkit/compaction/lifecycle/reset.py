"""When a conversation begins anew, and what is done then: the last memories are taken, and nothing before is shown any more."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

import attrs

from promptkit.errors import InvalidArgumentError, TranscriptError
from promptkit.transcript.entries import Reset
from promptkit.transcript.jsonl.archive import archive_entries
from promptkit.transcript.jsonl.store import JsonlStore
from promptkit.transcript.view import build_view

if TYPE_CHECKING:
    from promptkit.compaction.storage.memory_extraction import MemoryExtractor
    from promptkit.compaction.storage.memory_files import MemoryDirectory
    from promptkit.transcript.entries import Entry
    from promptkit.transcript.transcript import Transcript

__all__ = ["DailyReset", "IdleReset", "ManualReset", "ResetPolicy", "reset", "is_reset_due"]

_LOG = logging.getLogger("promptkit")

HOURS = range(24)


@attrs.frozen
class ManualReset:
    """Only when somebody asks for it."""


@attrs.frozen
class DailyReset:
    """Once a day, at an hour of the clock."""

    hour: int = 4

    def __attrs_post_init__(self) -> None:
        if self.hour not in HOURS:
            problem = f"hour={self.hour} must be 0 to 23."
            raise InvalidArgumentError(problem)


@attrs.frozen
class IdleReset:
    """When nothing was said for so many minutes."""

    minutes: float

    def __attrs_post_init__(self) -> None:
        if not self.minutes > 0:
            problem = f"minutes={self.minutes:g} must be above 0."
            raise InvalidArgumentError(problem)


ResetPolicy: TypeAlias = ManualReset | DailyReset | IdleReset


def is_reset_due(policy: ResetPolicy, *, last_message: datetime, now: datetime) -> bool:
    """Whether a conversation in which something was last said at `last` begins anew at `now`, before anything else is said.

    Both times have a zone; the hour of Daily is that of the zone of `now`. A clock that went back makes nothing due. Raises
    InvalidArgumentError for a time without a zone.
    """
    if last_message.tzinfo is None or now.tzinfo is None:
        problem = "both times need a zone, such as that of datetime.now().astimezone()."
        raise InvalidArgumentError(problem)
    match policy:
        case ManualReset():
            return False
        case DailyReset(hour=hour):
            turn = now.replace(hour=hour, minute=0, second=0, microsecond=0)
            if turn > now:
                turn -= timedelta(days=1)
            return last_message < turn
        case IdleReset(minutes=minutes):
            return now - last_message >= timedelta(minutes=minutes)


async def reset(  # noqa: PLR0913  # keywords
    transcript: Transcript,
    *,
    reason: str,
    now: datetime,
    extractor: MemoryExtractor | None = None,
    memories: MemoryDirectory | None = None,
    move_to_archive: bool = False,
) -> Entry | None:
    """Begin anew: take the last memories, hide what was said, and with `archived` move it out of the file. The reset's entry is returned.

    None where nothing is shown that could be hidden. Memories that cannot be taken, and files that cannot be moved, are logged and do not
    keep it from being done; asked again after a crash, it writes no memory twice. What is moved can still be read. Raises TranscriptConflictError if something is said
    meanwhile, and then nothing is hidden.
    """
    leaf = transcript.leaf
    view = build_view(transcript.path())
    if leaf is None or not view.items:
        return None
    if extractor is not None and memories is not None:
        try:
            if not memories.has(leaf):
                memories.append(await extractor.extract(view.items), key=leaf, now=now)
        except Exception:  # noqa: BLE001  # whatever a model's client raises: it is logged
            _LOG.exception("no memories were taken before the conversation begins anew")
    (entry,) = transcript.append(Reset(reason=reason), expect=leaf)
    if move_to_archive and isinstance(transcript.store, JsonlStore):
        try:
            archive_entries(transcript.store, through=leaf)
        except TranscriptError:
            _LOG.exception("the conversation begins anew, and what was said before stays in its file")
    return entry
