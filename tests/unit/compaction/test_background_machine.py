from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from promptkit.compaction.background import Background
from promptkit.compaction.plan import Plan
from tests.unit.compaction.writers import draft, state

if TYPE_CHECKING:
    from promptkit.compaction.draft import Draft


PLAN = Plan(leaf="e1")


@attrs.define(eq=False)
class Piece:
    """One pass's work, which ends as the machine says."""

    number: int
    stubborn: bool
    outcome: asyncio.Future[str]
    made: Draft | None = None

    async def work(self) -> Draft | None:
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
        self.unused: list[Draft] = []
        self.used: list[Draft] = []
        self.background = Background(unused=self.unused.append)
        self.pieces: list[Piece] = []
        self.current: Piece | None = None

    def turn(self) -> None:
        for _ in range(6):
            self.loop.run_until_complete(asyncio.sleep(0))

    @rule(stubborn=st.booleans())
    def start(self, *, stubborn: bool) -> None:
        piece = Piece(number=len(self.pieces) + 1, stubborn=stubborn, outcome=self.loop.create_future())

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
            assert given.number == self.current.number
            self.used.append(given)
        assert state(self.background) == "idle"
        self.current = None

    @rule()
    def take(self) -> None:
        running = self.background.state == "running"
        taken = self.background.take()
        if taken is not None:
            assert self.current is not None
            assert taken.number == self.current.number
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
        made = [piece.made.number for piece in self.pieces if piece.made is not None]
        told = [each.number for each in (*self.used, *self.unused, *([last] if last else []))]
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        assert sorted(told) == sorted(made)  # whatever was made was used, given back or reported: exactly once


Passes.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)


test_no_order_of_events_loses_a_result_or_uses_a_late_one = Passes.TestCase
