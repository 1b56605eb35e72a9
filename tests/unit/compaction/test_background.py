from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from promptkit.compaction.background import Background
from promptkit.compaction.plan import Plan
from tests.unit.compaction.writers import draft, state

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from promptkit.compaction.background import Work
    from promptkit.compaction.draft import Draft


PLAN = Plan(leaf="e1")


async def makes(number: int) -> Draft | None:
    return draft(number)


async def fails() -> Draft | None:
    raise ValueError("no provider")


async def called_off() -> Draft | None:
    return None


async def never() -> Draft | None:
    await asyncio.Event().wait()
    return None


async def settled(background: Background) -> None:
    await background.wait()
    await asyncio.sleep(0)


def in_loop(check: Callable[[Background, list[Draft]], Awaitable[None]]) -> None:
    """Run a check with a background of its own, and the drafts that nobody used."""

    async def checked() -> None:
        unused: list[Draft] = []
        background = Background(unused=unused.append)
        await check(background, unused)
        await background.close()

    asyncio.run(checked())


def test_a_result_is_taken_once() -> None:
    async def check(background: Background, _: list[Draft]) -> None:
        assert state(background) == "idle"
        assert background.take() is None
        assert background.start(lambda: makes(1), PLAN)
        assert state(background) == "running"
        assert background.plan == PLAN
        await settled(background)
        assert state(background) == "ready"
        taken = background.take()
        assert taken is not None
        assert taken.number == 1
        assert background.take() is None
        assert state(background) == "idle"
        assert background.plan is None

    in_loop(check)


@pytest.mark.parametrize(("work", "kind"), [(fails, ValueError), (called_off, None)])
def test_what_fails_is_failed_and_says_why_and_another_may_start(work: Work, kind: type[BaseException] | None) -> None:
    async def check(background: Background, _: list[Draft]) -> None:
        background.start(work, PLAN)
        await settled(background)
        assert state(background) == "failed"
        assert background.error is None if kind is None else isinstance(background.error, kind)
        assert background.start(lambda: makes(2), PLAN)
        assert background.error is None
        await settled(background)
        assert state(background) == "ready"

    in_loop(check)


def test_taking_after_a_failure_gives_nothing_and_clears_the_way() -> None:
    async def check(background: Background, _: list[Draft]) -> None:
        background.start(fails, PLAN)
        await settled(background)
        assert background.take() is None
        assert state(background) == "idle"

    in_loop(check)


def test_only_one_pass_runs_or_waits_at_a_time() -> None:
    async def check(background: Background, _: list[Draft]) -> None:
        background.start(lambda: makes(1), PLAN)
        assert not background.start(lambda: makes(2), PLAN)
        await settled(background)
        assert not background.start(lambda: makes(3), PLAN)
        taken = background.take()
        assert taken is not None
        assert taken.number == 1

    in_loop(check)


def test_a_running_pass_cannot_be_taken_and_goes_on() -> None:
    async def check(background: Background, _: list[Draft]) -> None:
        background.start(lambda: makes(1), PLAN)
        assert background.take() is None
        assert state(background) == "running"
        await settled(background)
        assert background.take() is not None

    in_loop(check)


def test_waiting_ends_when_its_time_is_over_and_cancels_nothing() -> None:
    async def check(background: Background, _: list[Draft]) -> None:
        background.start(never, PLAN)
        await background.wait(0.001)
        assert state(background) == "running"

    in_loop(check)


def test_waiting_raises_nothing_of_the_work() -> None:
    async def check(background: Background, _: list[Draft]) -> None:
        background.start(fails, PLAN)
        await background.wait(5)
        assert state(background) == "failed"

    in_loop(check)


def test_who_is_cancelled_while_waiting_does_not_cancel_the_work() -> None:
    async def check(background: Background, _: list[Draft]) -> None:
        gate = asyncio.Event()

        async def work() -> Draft | None:
            await gate.wait()
            return draft(1)

        background.start(work, PLAN)
        waiting = asyncio.ensure_future(background.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.set()
        await settled(background)
        assert state(background) == "ready"

    in_loop(check)


def test_a_cancelled_pass_gives_back_what_it_had_made() -> None:
    async def check(background: Background, unused: list[Draft]) -> None:
        background.start(lambda: makes(1), PLAN)
        await settled(background)
        given = background.cancel()
        assert given is not None
        assert state(background) == "idle"
        assert unused == []

    in_loop(check)


def test_E83_what_settles_after_it_was_cancelled_is_not_taken_for_the_pass_after_it() -> None:
    async def check(background: Background, unused: list[Draft]) -> None:
        gate = asyncio.Event()

        async def stubborn() -> Draft | None:
            try:
                await gate.wait()
            except asyncio.CancelledError:
                await gate.wait()
            return draft(1)

        background.start(stubborn, PLAN)
        await asyncio.sleep(0)
        assert background.cancel() is None
        background.start(never, PLAN)
        gate.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert state(background) == "running"
        assert [each.number for each in unused] == [1]

    in_loop(check)


def test_closing_waits_for_work_that_heeds_its_cancellation_slowly() -> None:
    ended: list[str] = []

    async def check(background: Background, _: list[Draft]) -> None:
        async def slow() -> Draft | None:
            try:
                return await never()
            finally:
                await asyncio.sleep(0.001)
                ended.append("ended")

        background.start(slow, PLAN)
        await asyncio.sleep(0)
        await background.close()
        assert ended == ["ended"]

    in_loop(check)


def test_closing_does_not_wait_for_ever() -> None:
    async def check(background: Background, _: list[Draft]) -> None:
        released = asyncio.Event()

        async def stubborn() -> Draft | None:
            while not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    continue
            return None

        background.start(stubborn, PLAN)
        await asyncio.sleep(0)
        await background.close(0.001)
        assert state(background) == "idle"
        released.set()

    in_loop(check)


def test_nothing_is_begun_once_it_is_closed() -> None:
    async def check(background: Background, _: list[Draft]) -> None:
        await background.close()
        begun: list[str] = []

        async def work() -> Draft | None:
            begun.append("begun")
            return None

        assert not background.start(work, PLAN)
        await asyncio.sleep(0)
        assert begun == []

    in_loop(check)
