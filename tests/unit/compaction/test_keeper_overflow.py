from __future__ import annotations

import asyncio

import pytest

from promptkit.compaction.policy import Thresholds, default_policy
from promptkit.errors import CompactionRunningError, WindowFullError
from promptkit.testing import WordTokenizer
from promptkit.transcript.entries import Checkpoint
from tests.unit.compaction.keeping import BUDGET, grown, kept, run, turns
from tests.unit.compaction.talk import words
from tests.unit.compaction.writers import Writer, state


def test_a_cold_conversation_waits_for_the_higher_threshold() -> None:
    each = kept()

    async def work() -> None:
        each.user(840)
        each.answer(10)
        assert state(each.keeper.background) == "idle"
        each.user(50)
        each.answer(20)
        assert state(each.keeper.background) == "running"

    run(work, each)


def test_an_overflow_takes_what_is_ready() -> None:
    each = kept()

    async def work() -> None:
        grown(each)
        await turns()
        await each.keeper.overflow(1_200)
        assert each.compacted

    run(work, each)
    assert each.told.triggers == ["background"]


def test_an_overflow_waits_for_what_is_under_way() -> None:
    each = kept(writer=Writer(gate=asyncio.Event()))

    async def work() -> None:
        grown(each)
        waiting = asyncio.ensure_future(each.keeper.overflow(1_200))
        await turns()
        assert not waiting.done()
        assert each.writer.gate is not None
        each.writer.gate.set()
        await waiting
        assert each.compacted

    run(work, each)
    assert each.told.triggers == ["background"]
    assert "Wait" in each.told.decisions


def test_the_wait_for_what_is_under_way_is_bounded() -> None:
    policy = default_policy(draw=lambda: 0.5, thresholds=Thresholds(wait_seconds=0.001))
    each = kept(writer=Writer(gate=asyncio.Event()), policy=policy)

    async def work() -> None:
        grown(each)
        await turns()
        each.writer.gate = None  # the next one answers
        await each.keeper.overflow(1_200)
        assert each.compacted

    run(work, each)
    assert each.told.triggers == ["background", "foreground"]
    assert sorted(each.told.ends) == ["cancelled", "committed"]


def test_who_is_cancelled_while_waiting_is_cancelled_and_the_summary_goes_on() -> None:
    each = kept(writer=Writer(gate=asyncio.Event()))

    async def work() -> None:
        grown(each)
        waiting = asyncio.ensure_future(each.keeper.overflow(1_200))
        await turns()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert each.writer.gate is not None
        each.writer.gate.set()
        await turns()
        assert state(each.keeper.background) == "ready"

    run(work, each)


def test_E33_a_background_that_failed_leaves_the_foreground_its_attempt() -> None:
    each = kept(writer=Writer(error=ValueError("no provider")))

    async def work() -> None:
        grown(each)
        await turns()
        assert state(each.keeper.background) == "failed"
        each.writer.error = None
        await each.keeper.overflow(1_200)
        assert each.compacted

    run(work, each)
    assert each.told.ends == ["failed", "committed"]


def test_E30_one_failed_attempt_for_each_message_of_the_person() -> None:
    each = kept(writer=Writer(error=ValueError("no provider")))

    async def work() -> None:
        grown(each)
        await turns()
        await each.keeper.overflow(1_200)
        assert each.keeper.pruned
        await each.keeper.prepare()
        await each.keeper.overflow(1_200)
        assert len(each.writer.tasks) == 2  # one in the background, one in the foreground
        each.user(1)
        await each.keeper.prepare()
        await each.keeper.overflow(1_200)
        assert len(each.writer.tasks) == 3

    run(work, each)


def test_E33_the_breaker_opens_after_three_failures_in_a_row_and_lets_one_through_after_as_many_messages() -> None:
    each = kept(writer=Writer(error=ValueError("no provider")))

    async def work() -> None:
        grown(each)
        tried: list[int] = []
        for _ in range(9):
            await turns()
            each.user(1)
            await each.keeper.prepare()
            await each.keeper.overflow(1_200)
            tried.append(len(each.writer.tasks))
        assert tried == [2, 3, 3, 3, 4, 4, 4, 5, 5]  # the first in the background, too

    run(work, each)


def test_E31_a_compaction_that_did_not_reduce_enough_is_not_repeated() -> None:
    each = kept(writer=Writer(text=words(199)))

    async def work() -> None:
        each.user(100)
        each.round("c1", 300)
        each.round("c2", 600)  # this one stays, and is too large already
        await each.keeper.overflow(1_200)
        assert each.compacted
        assert each.keeper.attempts.last == "not enough"
        await each.keeper.overflow(1_200)
        assert each.keeper.pruned
        assert len(each.writer.tasks) == 1

    run(work, each)


def test_E41_switched_off_an_overflow_is_pruned_and_nothing_is_summarized() -> None:
    each = kept(enabled=False)

    async def work() -> None:
        grown(each)
        await each.keeper.overflow(1_200)
        assert each.keeper.pruned
        assert each.writer.tasks == []
        assert await each.keeper.compact() is not None  # asked for, it is done

    run(work, each)


def test_what_is_too_large_even_pruned_is_said() -> None:
    each = kept()

    async def work() -> None:
        each.user(2_000)
        await each.keeper.overflow(2_000)
        assert each.keeper.pruned
        with pytest.raises(WindowFullError, match="pruned"):
            await each.keeper.overflow(2_000)

    run(work, each)


def test_E32_what_every_request_has_is_learnt_and_may_be_hopeless() -> None:
    each = kept()

    async def work() -> None:
        each.user(10)
        each.keeper.rendered(1_010)  # a thousand tokens beside the conversation
        assert each.keeper.reading().local == 1_010
        with pytest.raises(WindowFullError, match="no summary helps"):
            await each.keeper.overflow(1_010)

    run(work, each)


def test_E34_a_refusal_of_a_model_that_was_switched_from_is_let_pass() -> None:
    each = kept()

    async def work() -> None:
        grown(each)
        each.keeper.switch("other", BUDGET, tokenizer=WordTokenizer())
        await each.keeper.overflow(1_200, refused_by="m")
        assert not each.compacted
        assert not each.keeper.pruned

    run(work, each)


def test_E86_one_that_is_asked_for_serves_an_overflow_that_comes_meanwhile() -> None:
    each = kept(writer=Writer(gate=asyncio.Event()))

    async def work() -> None:
        each.user(300)
        each.answer(300)
        each.user(300)
        asked = asyncio.ensure_future(each.keeper.compact())
        await turns()
        with pytest.raises(CompactionRunningError):
            await each.keeper.compact()
        overflowing = asyncio.ensure_future(each.keeper.overflow(1_200))
        await turns()
        assert each.writer.gate is not None
        each.writer.gate.set()
        await overflowing
        assert not each.keeper.pruned
        assert await asked is not None
        assert sum(isinstance(entry.payload, Checkpoint) for entry in each.log.path()) == 1

    run(work, each)
    assert each.told.triggers == ["manual"]
