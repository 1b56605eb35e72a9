"""Carries out what was decided about summaries, in the background and in the foreground, and remembers what each came to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.attempts import Attempts, judge
from promptkit.compaction.background import Background
from promptkit.compaction.selection import Rounds
from promptkit.errors import CompactionRunningError

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit.compaction.budget import Budget
    from promptkit.compaction.compactor import Compactor
    from promptkit.compaction.plan import LastRequest, Plan

__all__ = ["Passes"]


class Passes:
    """The compactions of one conversation that nobody asked for. None of them raises: the events say why one came to nothing.

    `live` gives the last request where it shows all that a plan drops, `tokens` what the next request takes.
    """

    def __init__(self, compactor: Compactor, *, live: Callable[[Plan], LastRequest | None], tokens: Callable[[], int]) -> None:
        self.background = Background(unused=lambda draft: compactor.discard(draft, "it was made after it had been cancelled"))
        self.attempts = Attempts()
        self.compacted = False
        """A summary was put in place for the request at hand."""
        self._compactor = compactor
        self._live = live
        self._tokens = tokens
        self._failure_told = False

    def start(self) -> None:
        """Begin one in the background, if there is something to drop."""
        compactor = self._compactor
        keep = compactor.keep
        plan = compactor.plan(attrs.evolve(keep, background=True) if isinstance(keep, Rounds) else keep)
        if plan.is_empty or compactor.running:
            return
        self._failure_told = False
        request = self._live(plan)
        self.background.start(lambda: compactor.draft(plan, trigger="background", last_request=request), plan)

    async def apply(self, budget: Budget) -> bool:
        """Put the background's result in place. Whether that was done."""
        draft = self.background.take()
        if draft is None:
            return False
        before = self._tokens()
        try:
            entry = await self._compactor.commit(draft)
        except Exception:  # noqa: BLE001  # the event has said why: the disk may be full, and the person may still be answered
            self.attempts = self.attempts.settled("failed")
            return False
        if entry is None:
            return False
        self.compacted = True
        self.settle(before, budget, background=True)
        return True

    async def compact(self, trigger: str, budget: Budget, *, live: bool = True) -> bool:
        """Summarize in the foreground. Whether a summary is in place. `live`: the last request may be asked behind."""
        before = self._tokens()
        compactor = self._compactor
        plan = compactor.plan()
        try:
            entry = await compactor.compact(plan, trigger=trigger, last_request=self._live(plan) if live else None)
        except CompactionRunningError:  # somebody asked for one meanwhile: it serves this request, too
            await compactor.settled()
            if compactor.changed(plan.leaf):
                self.compacted = True
                return True
            entry = None
        except Exception:  # noqa: BLE001  # the event has said why; the policy decides what to do without a summary
            entry = None
        if entry is None:
            self.attempts = self.attempts.settled("failed")
            return False
        self.compacted = True
        self.settle(before, budget)
        return True

    def drop(self, why: str) -> None:
        """End the background's pass, whatever has become of it."""
        draft = self.background.cancel()
        if draft is not None:
            self._compactor.discard(draft, why)

    def settle(self, before: int, budget: Budget, *, background: bool = False) -> None:
        """A compaction is done that began with so many tokens."""
        self.attempts = self.attempts.settled(judge(before, self._tokens(), budget=budget), background=background)

    def heed_failure(self) -> None:
        """Count a pass of the background that has failed, once."""
        if self.background.state == "failed" and not self._failure_told:
            self._failure_told = True
            self.attempts = self.attempts.settled("failed", background=True)
