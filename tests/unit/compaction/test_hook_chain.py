"""Several hooks as one: all are heard, and none keeps the others from being."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from promptkit.compaction.hook_chain import HookChain
from promptkit.compaction.hooks import Before, Hooks
from promptkit.compaction.plan import Plan, Summary
from promptkit.transcript.entries import Custom, Entry

if TYPE_CHECKING:
    import pytest

ENTRY = Entry(id="e1", parent_id=None, time=0.0, payload=Custom(name="n"))


class Saying(Hooks):
    """Wants what it is made with, and keeps what it was told; or raises."""

    def __init__(self, wants: Before | None) -> None:
        self.wants = wants
        self.told: list[str] = []

    async def before(self, plan: Plan, *, trigger: str, instructions: str | None) -> Before:
        _ = plan, instructions
        self.told.append(trigger)
        if self.wants is None:
            raise RuntimeError(trigger)
        return self.wants

    async def after(self, checkpoint: Entry) -> None:
        if self.wants is None:
            raise RuntimeError(checkpoint.id)
        self.told.append(checkpoint.id)


def asked(*hooks: Hooks) -> Before:
    return asyncio.run(HookChain(*hooks, logger=logging.getLogger("test")).before(Plan(leaf=""), trigger="manual", instructions=None))


def test_instructions_are_added_up_and_the_first_summary_counts() -> None:
    first, second = Summary(text="A", mode="hook"), Summary(text="B", mode="hook")
    wanted = asked(
        Saying(Before(instructions=("one",))), Saying(Before(summary=first, instructions=("two",))), Saying(Before(summary=second))
    )
    assert wanted == Before(summary=first, instructions=("one", "two"))


def test_the_first_that_calls_it_off_ends_the_questions() -> None:
    last = Saying(Before())
    assert asked(Saying(Before(cancel=True)), last).cancel
    assert last.told == []


def test_e105_a_hook_that_raises_is_logged_and_the_others_are_heard(caplog: pytest.LogCaptureFixture) -> None:
    good = Saying(Before(instructions=("heed",)))
    assert asked(Saying(None), good).instructions == ("heed",)
    asyncio.run(HookChain(Saying(None), good).after(ENTRY))
    assert good.told == ["manual", "e1"]
    assert len(caplog.records) == 2
