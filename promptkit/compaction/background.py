"""A summary in the making beside the conversation: started early, taken when it is needed, dropped when it is stale.

One pass at a time, each with a number of its own: what settles late, after it was cancelled or another was begun, changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, TypeAlias

import attrs

if TYPE_CHECKING:
    from promptkit.compaction.compactor import DraftSummary
    from promptkit.compaction.planning.plan import Plan
    from promptkit.compaction.policy.state import BackgroundState

__all__ = ["Background", "Work"]

Work: TypeAlias = "Callable[[], Coroutine[object, object, DraftSummary | None]]"
"""Makes the summary of one pass; None is a failure: somebody called it off."""

PATIENCE = 5.0
"""Seconds that `close` waits for work that was cancelled."""


@attrs.frozen(kw_only=True)
class BackgroundPass:
    """One summary in the making, and what it is made for."""

    number: int
    plan: Plan
    task: asyncio.Task[DraftSummary | None]


class Background:
    """The background pass of one conversation: idle → running → ready or failed → idle. For use within one event loop.

    | | idle | running | ready | failed |
    |---|---|---|---|---|
    | `start` | running | nothing | nothing | running |
    | the work is done | | ready | | |
    | the work fails | | failed | | |
    | `wait` | returns | waits, raises nothing | returns | returns |
    | `take` | None | None, goes on running | the result, idle | None, idle |
    | `cancel` | idle | idle, the work is cancelled | idle, the result is given back | idle |

    `unused` is told of a result that came after its pass was cancelled: work may heed that late, or not at all.

    Source: VS Code's background summarizer, with a number for each pass, so that work that settles late settles nothing.
    """

    def __init__(self, *, unused: Callable[[DraftSummary], object] | None = None) -> None:
        self._count = 0
        self._state: BackgroundState = "idle"
        self._pass: BackgroundPass | None = None
        self._draft: DraftSummary | None = None
        self._unused = unused
        self._closed = False
        self._ending: set[asyncio.Task[DraftSummary | None]] = set()
        self.error: BaseException | None = None
        """Why the last pass failed; None once another has begun, and where it was called off."""

    @property
    def state(self) -> BackgroundState:
        """Where it stands."""
        return self._state

    @property
    def plan(self) -> Plan | None:
        """What the pass at hand is made for."""
        return self._pass.plan if self._pass else None

    def start(self, work: Work, plan: Plan) -> bool:
        """Begin a pass as a task of the running loop, unless one is running or ready, or it is closed. Whether it was begun."""
        if self._closed or self._state in ("running", "ready"):
            return False
        task = asyncio.get_running_loop().create_task(work(), name="promptkit background summary")
        self._count += 1
        number = self._count
        self._state = "running"
        self._draft = self.error = None
        self._pass = BackgroundPass(number=number, plan=plan, task=task)
        task.add_done_callback(lambda done: self._settled(number, done))
        return True

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until the pass is settled, at most so many seconds. Raises nothing of the pass's own, and does not cancel it."""
        running = self._pass
        if self._state == "running" and running is not None:
            await asyncio.wait([running.task], timeout=seconds)

    def take(self) -> DraftSummary | None:
        """The result, once; None while there is none. After a failure the way is free for another pass."""
        return None if self._state == "running" else self._reset()

    def cancel(self) -> DraftSummary | None:
        """End the pass. What it had made is not used: it is returned so that the caller can say so."""
        ended = self._pass
        self._count += 1  # whatever settles from now on is late
        draft = self._reset()
        if ended is not None and not ended.task.done():
            self._ending.add(ended.task)  # the loop itself keeps no task alive
            ended.task.cancel()
        return draft

    async def close(self, seconds: float = PATIENCE) -> DraftSummary | None:
        """Cancel, and wait until all work has ended that was cancelled, at most so many seconds. Returns what `cancel` does.

        After that nothing can be started any more.
        """
        self._closed = True
        draft = self.cancel()
        if self._ending:
            await asyncio.wait(set(self._ending), timeout=seconds)
        return draft

    def _reset(self) -> DraftSummary | None:
        draft = self._draft
        self._state = "idle"
        self._pass = self._draft = None
        return draft

    def _settled(self, number: int, task: asyncio.Task[DraftSummary | None]) -> None:
        self._ending.discard(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        draft = None if error is not None else task.result()
        if number != self._count:
            if draft is not None and self._unused is not None:
                self._unused(draft)
            return
        self._state = "failed" if draft is None else "ready"
        self._draft = draft
        self.error = error
