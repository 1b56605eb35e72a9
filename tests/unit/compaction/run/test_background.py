from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from promptkit.compaction.planning.plan import Plan
from promptkit.compaction.run.background import Background
from tests.unit.compaction.summarizers.writers import draft, state

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from promptkit.compaction.run.background import Work
    from promptkit.compaction.run.compactor import DraftSummary


PLAN = Plan(leaf="e1")


async def makes(number: int) -> DraftSummary | None:
    return draft(number)


async def fails() -> DraftSummary | None:
    raise ValueError("no provider")


async def called_off() -> DraftSummary | None:
    return None


async def never() -> DraftSummary | None:
    await asyncio.Event().wait()
    return None


async def settled(background: Background) -> None:
    await background.wait()
    await asyncio.sleep(0)


def in_loop(check: Callable[[Background, list[DraftSummary]], Awaitable[None]]) -> None:
    """Run a check with a background of its own, and the drafts that nobody used."""

    async def checked() -> None:
        unused: list[DraftSummary] = []
        background = Background(unused=unused.append)
        await check(background, unused)
        await background.close()

    asyncio.run(checked())


def test_a_result_is_taken_once() -> None:
    async def check(background: Background, _: list[DraftSummary]) -> None:
        assert state(background) == "idle"
        assert background.take() is None
        assert background.start(lambda: makes(1), PLAN)
        assert state(background) == "running"
        assert background.plan == PLAN
        await settled(background)
        assert state(background) == "ready"
        taken = background.take()
        assert taken is not None
        assert taken.progress.number == 1
        assert background.take() is None
        assert state(background) == "idle"
        assert background.plan is None

    in_loop(check)


@pytest.mark.parametrize("work", [fails, called_off])
def test_what_fails_is_failed_and_another_may_start(work: Work) -> None:
    async def check(background: Background, _: list[DraftSummary]) -> None:
        background.start(work, PLAN)
        await settled(background)
        assert state(background) == "failed"
        assert background.start(lambda: makes(2), PLAN)
        await settled(background)
        assert state(background) == "ready"

    in_loop(check)


def test_taking_after_a_failure_gives_nothing_and_clears_the_way() -> None:
    async def check(background: Background, _: list[DraftSummary]) -> None:
        background.start(fails, PLAN)
        await settled(background)
        assert background.take() is None
        assert state(background) == "idle"

    in_loop(check)


def test_only_one_pass_runs_or_waits_at_a_time() -> None:
    async def check(background: Background, _: list[DraftSummary]) -> None:
        background.start(lambda: makes(1), PLAN)
        assert not background.start(lambda: makes(2), PLAN)
        await settled(background)
        assert not background.start(lambda: makes(3), PLAN)
        taken = background.take()
        assert taken is not None
        assert taken.progress.number == 1

    in_loop(check)


def test_a_running_pass_cannot_be_taken_and_goes_on() -> None:
    async def check(background: Background, _: list[DraftSummary]) -> None:
        background.start(lambda: makes(1), PLAN)
        assert background.take() is None
        assert state(background) == "running"
        await settled(background)
        assert background.take() is not None

    in_loop(check)


def test_waiting_ends_when_its_time_is_over_and_cancels_nothing() -> None:
    async def check(background: Background, _: list[DraftSummary]) -> None:
        background.start(never, PLAN)
        await background.wait(0.001)
        assert state(background) == "running"

    in_loop(check)


def test_waiting_raises_nothing_of_the_work() -> None:
    async def check(background: Background, _: list[DraftSummary]) -> None:
        background.start(fails, PLAN)
        await background.wait(5)
        assert state(background) == "failed"

    in_loop(check)


def test_who_is_cancelled_while_waiting_does_not_cancel_the_work() -> None:
    async def check(background: Background, _: list[DraftSummary]) -> None:
        gate = asyncio.Event()

        async def work() -> DraftSummary | None:
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
    async def check(background: Background, unused: list[DraftSummary]) -> None:
        background.start(lambda: makes(1), PLAN)
        await settled(background)
        given = background.cancel()
        assert given is not None
        assert state(background) == "idle"
        assert unused == []

    in_loop(check)


@pytest.mark.spec("E83")
def test_what_settles_after_it_was_cancelled_is_not_taken_for_the_pass_after_it() -> None:
    async def check(background: Background, unused: list[DraftSummary]) -> None:
        gate = asyncio.Event()

        async def stubborn() -> DraftSummary | None:
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
        assert [each.progress.number for each in unused] == [1]

    in_loop(check)


def test_closing_waits_for_work_that_heeds_its_cancellation_slowly() -> None:
    ended: list[str] = []

    async def check(background: Background, _: list[DraftSummary]) -> None:
        async def slow() -> DraftSummary | None:
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
    async def check(background: Background, _: list[DraftSummary]) -> None:
        released = asyncio.Event()

        async def stubborn() -> DraftSummary | None:
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
    async def check(background: Background, _: list[DraftSummary]) -> None:
        await background.close()
        begun: list[str] = []

        async def work() -> DraftSummary | None:
            begun.append("begun")
            return None

        assert not background.start(work, PLAN)
        await asyncio.sleep(0)
        assert begun == []

    in_loop(check)


@attrs.define(eq=False)
class Piece:
    """One pass's work, which ends as the machine says."""

    number: int
    stubborn: bool
    outcome: asyncio.Future[str]
    made: DraftSummary | None = None

    async def work(self) -> DraftSummary | None:
        try:
            come = await asyncio.shield(self.outcome)
        except asyncio.CancelledError:
            if not self.stubborn:
                raise
            come = await asyncio.shield(self.outcome)
        if come == "fails":
            raise ValueError("no provider")
        self.made = draft(self.number) if come == "makes" else None
        return self.made


class Passes(RuleBasedStateMachine):
    """Passes that are begun, cancelled, taken and settled in any order, with the loop turning in between or not."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.unused: list[DraftSummary] = []
        self.used: list[DraftSummary] = []
        self.background = Background(unused=self.unused.append)
        self.pieces: list[Piece] = []
        self.current: Piece | None = None

    def turn(self) -> None:
        for _ in range(6):
            self.loop.run_until_complete(asyncio.sleep(0))

    @rule(stubborn=st.booleans())
    def start(self, *, stubborn: bool) -> None:
        piece = Piece(
            number=len(self.pieces) + 1, stubborn=stubborn, outcome=self.loop.create_future()
        )

        async def started() -> bool:
            free = self.background.state in {"idle", "failed"}
            begun = self.background.start(piece.work, PLAN)
            assert begun == free
            return begun

        begun = self.loop.run_until_complete(started())
        if begun:
            self.pieces.append(piece)
            self.current = piece

    @precondition(lambda self: any(not piece.outcome.done() for piece in self.pieces))
    @rule(data=st.data(), come=st.sampled_from(["makes", "fails", "called off"]))
    def settle(self, data: st.DataObject, come: str) -> None:
        open_ones = [piece for piece in self.pieces if not piece.outcome.done()]
        data.draw(st.sampled_from(open_ones)).outcome.set_result(come)

    @rule()
    def cancel(self) -> None:
        given = self.background.cancel()
        if given is not None:
            assert self.current is not None
            assert given.progress.number == self.current.number
            self.used.append(given)
        assert state(self.background) == "idle"
        self.current = None

    @rule()
    def take(self) -> None:
        running = self.background.state == "running"
        taken = self.background.take()
        if taken is not None:
            assert self.current is not None
            assert taken.progress.number == self.current.number
            self.used.append(taken)
        if not running:
            self.current = None

    @rule()
    def wait(self) -> None:
        self.loop.run_until_complete(self.background.wait(0))

    @rule()
    def turn_the_loop(self) -> None:
        self.turn()
        assert self.background.state == self.expected()

    def expected(self) -> str:
        if self.current is None:
            return "idle"
        if not self.current.outcome.done():
            return "running"
        return "ready" if self.current.outcome.result() == "makes" else "failed"

    @invariant()
    def a_plan_is_known_exactly_while_there_is_a_pass(self) -> None:
        assert (self.background.plan is None) == (self.background.state == "idle")

    def teardown(self) -> None:
        for piece in self.pieces:
            if not piece.outcome.done():
                piece.outcome.set_result("makes")
        self.turn()
        last = self.background.take()
        made = [piece.made.progress.number for piece in self.pieces if piece.made is not None]
        told = [
            each.progress.number for each in (*self.used, *self.unused, *([last] if last else []))
        ]
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        # whatever was made was used, given back or reported: exactly once
        assert sorted(told) == sorted(made)


Passes.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)


test_no_order_of_events_loses_a_result_or_uses_a_late_one = Passes.TestCase
