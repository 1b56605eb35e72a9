"""When a reset is due, and that it neither loses nor restores messages."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from promptkit.compaction.run.reset import (
    DailyReset,
    IdleReset,
    ManualReset,
    find_due_reset,
    reset,
)
from promptkit.compaction.storage import (
    MemoryDirectory,
    StatedMemoryExtractor,
    parse_memories,
)
from promptkit.errors import InvalidArgumentError, TranscriptConflictError
from promptkit.transcript.log.entries import Reset
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.log.view import build_view
from promptkit.transcript.stores.jsonl.store import JsonlStore
from tests.conversations import ConversationBuilder, assistant_message, user_message

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from promptkit.compaction.run.reset import ResetPolicy
    from promptkit.transcript.log.view import ViewItem

DAY = datetime(2026, 1, 2, tzinfo=UTC)


def at(hour: float, *, day: int = 2) -> datetime:
    return DAY + timedelta(days=day - 2, hours=hour)


@pytest.mark.parametrize(
    ("policy", "last", "now", "due"),
    [
        (ManualReset(), at(0), at(0, day=9), False),
        (DailyReset(), at(3.9), at(4), True),
        (DailyReset(), at(4), at(23), False),
        (DailyReset(), at(5), at(3.9, day=3), False),
        (DailyReset(), at(5), at(4, day=3), True),
        (DailyReset(), at(5), at(1, day=5), True),
        (DailyReset(hour=0), at(23.9), at(0, day=3), True),
        (DailyReset(), at(9), at(3), False),
        (IdleReset(minutes=30), at(0), at(0.4), False),
        (IdleReset(minutes=30), at(0), at(0.5), True),
        (IdleReset(minutes=30), at(9), at(1), False),
    ],
)
def test_a_reset_is_due_by_the_clock(
    policy: ResetPolicy, last: datetime, now: datetime, due: bool
) -> None:
    assert is_due(policy, last, now) is due


def is_due(policy: ResetPolicy, last: datetime, now: datetime) -> bool:
    log = Transcript(clock=last.timestamp)
    log.append_messages(user_message("Hello."))
    return find_due_reset(policy, log, now=now) is not None


def test_the_hour_is_that_of_the_present_zone() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    last = datetime(2026, 1, 2, 2, 30, tzinfo=UTC)  # 3:30 in Berlin
    assert is_due(DailyReset(), last, datetime(2026, 1, 2, 4, 0, tzinfo=berlin))
    earlier = datetime(2026, 1, 2, 3, 59, tzinfo=timezone(timedelta(hours=1)))
    assert not is_due(DailyReset(), last, earlier)


def test_times_without_a_zone_and_figures_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="zone"):
        is_due(DailyReset(), at(1), datetime(2026, 1, 2))  # noqa: DTZ001  # what is refused
    with pytest.raises(InvalidArgumentError):
        DailyReset(hour=24)
    with pytest.raises(InvalidArgumentError):
        IdleReset(minutes=0)


def test_a_conversation_tells_whether_its_reset_is_due() -> None:
    clock = iter([at(3).timestamp(), at(3).timestamp(), at(5).timestamp()]).__next__
    log = Transcript(clock=clock)
    assert find_due_reset(DailyReset(), log, now=at(4)) is None  # nothing was said yet
    log.append_messages(user_message("Hello."), assistant_message("Yes."))
    assert find_due_reset(DailyReset(), log, now=at(3.9)) is None
    assert find_due_reset(DailyReset(), log, now=at(4)) == "daily"
    assert find_due_reset(IdleReset(minutes=60), log, now=at(4)) == "idle"
    assert find_due_reset(ManualReset(), log, now=at(4, day=9)) is None
    log.append(Reset(reason="daily"))
    assert find_due_reset(DailyReset(), log, now=at(4, day=9)) is None


def spoken(path: Path | None = None) -> ConversationBuilder:
    talk = ConversationBuilder()
    if path is not None:
        talk.log = Transcript(JsonlStore(path))
    talk.user("Always run the tests.")
    talk.answer("Yes.")
    return talk


def test_the_last_memories_are_taken_before_anything_is_hidden(tmp_path: Path) -> None:
    talk, files = spoken(), MemoryDirectory(tmp_path)
    entry = asyncio.run(
        reset(talk.log, reason="daily", extractor=StatedMemoryExtractor(), memories=files)
    )
    assert entry is not None
    assert entry.kind == "reset"
    assert talk.view.items == ()
    assert parse_memories(
        files.load(datetime.now().astimezone().date(), include_curated=False)
    ) == ("Always run the tests.",)


@pytest.mark.spec("E111")
def test_an_empty_conversation_is_not_reset_again_and_again(tmp_path: Path) -> None:
    talk = spoken()
    assert asyncio.run(reset(talk.log, reason="idle")) is not None
    count = len(talk.log)
    assert (
        asyncio.run(
            reset(
                talk.log,
                reason="idle",
                extractor=StatedMemoryExtractor(),
                memories=MemoryDirectory(tmp_path),
            )
        )
        is None
    )
    assert len(talk.log) == count
    assert asyncio.run(reset(ConversationBuilder().log, reason="idle")) is None


def test_what_was_said_is_moved_into_an_archive_and_can_still_be_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    talk = spoken(path)
    entries = list(talk.log.entries)
    asyncio.run(reset(talk.log, reason="manual", move_to_archive=True))
    store = JsonlStore(path)
    again = Transcript(store)
    assert [segment.entries for segment in store.archives] == [2]
    assert list(again.entries)[:2] == entries
    assert build_view(again.path()).items == ()
    assert b"Always run" not in path.read_bytes()


class Failing:
    """Has no memories to give."""

    async def extract(
        self, items: Sequence[ViewItem], *, known: Sequence[str] = ()
    ) -> tuple[str, ...]:
        raise RuntimeError(items)


def test_memories_that_cannot_be_taken_do_not_keep_it_from_being_done(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    talk = spoken()
    assert (
        asyncio.run(
            reset(
                talk.log,
                reason="daily",
                extractor=Failing(),
                memories=MemoryDirectory(tmp_path),
            )
        )
        is not None
    )
    assert len(caplog.records) == 1


def test_what_is_said_meanwhile_is_not_hidden(tmp_path: Path) -> None:
    talk = spoken()

    class Slow:
        async def extract(
            self, items: Sequence[ViewItem], *, known: Sequence[str] = ()
        ) -> tuple[str, ...]:
            talk.user("wait")
            return tuple(item.message.text for item in items)

    with pytest.raises(TranscriptConflictError):
        asyncio.run(
            reset(
                talk.log,
                reason="daily",
                extractor=Slow(),
                memories=MemoryDirectory(tmp_path),
            )
        )
    assert talk.view.items[-1].message.text == "wait"
