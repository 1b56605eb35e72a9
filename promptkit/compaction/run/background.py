"""The background summary: started before it is needed, taken when it is needed, cancelled when it is stale.

Only one pass runs at a time. Each has a number, so that a pass that finishes after it was cancelled
changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, TypeAlias

import attrs

if TYPE_CHECKING:
    from promptkit.compaction.planning.plan import Plan
    from promptkit.compaction.policy.state import BackgroundState
    from promptkit.compaction.run.compactor import DraftSummary

Work: TypeAlias = "Callable[[], Coroutine[object, object, DraftSummary | None]]"
"""Makes the summary of one pass. A result of None counts as a failure: a hook cancelled it."""

CLOSE_SECONDS = 5.0
"""How long `close` waits for cancelled work, in seconds."""


@attrs.frozen(kw_only=True)
class BackgroundPass:
    """One running or finished pass, and the plan it is made for."""

    number: int
    plan: Plan
    task: asyncio.Task[DraftSummary | None]


class Background:
    """The background summary of one conversation: idle → running → ready or failed → idle.

    For use in one event loop.

    | | idle | running | ready | failed |
    |---|---|---|---|---|
    | `start` | running | nothing | nothing | running |
    | the work succeeds | | ready | | |
    | the work fails | | failed | | |
    | `wait` | returns | waits, raises nothing | returns | returns |
    | `take` | None | None, still running | the result, idle | None, idle |
    | `cancel` | idle | idle, the work is cancelled | idle, the result is returned | idle |

    `unused` is called with a result that arrives after its pass was cancelled: work may react to a
    cancellation late, or not at all.

    Source: VS Code's background summarizer, with a number for each pass.
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
        """Why the last pass failed; None after another one has started, and if a hook cancelled
        it."""

    @property
    def state(self) -> BackgroundState:
        """The state of the pass."""
        return self._state

    @property
    def plan(self) -> Plan | None:
        """The plan of the current pass."""
        return self._pass.plan if self._pass else None

    def start(self, work: Work, plan: Plan) -> bool:
        """Start a pass as a task of the running loop.

        Returns False if one is running or ready, or after `close`.
        """
        if self._closed or self._state in ("running", "ready"):
            return False
        task = asyncio.get_running_loop().create_task(work(), name="promptkit background summary")
        self._count += 1
        number = self._count
        self._state = "running"
        self._draft = self.error = None
        self._pass = BackgroundPass(number=number, plan=plan, task=task)
        task.add_done_callback(lambda done: self._on_done(number, done))
        return True

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until the pass has ended, at most `seconds`.

        Its exception is not raised, and it is not cancelled.
        """
        running = self._pass
        if self._state == "running" and running is not None:
            await asyncio.wait([running.task], timeout=seconds)

    def take(self) -> DraftSummary | None:
        """Take the result.

        Returns None while the pass is running, and after a failure; then another pass can be
        started.
        """
        return None if self._state == "running" else self._reset()

    def cancel(self) -> DraftSummary | None:
        """Cancel the pass. An unused result is returned, so that the caller can report it."""
        ended = self._pass
        self._count += 1  # a pass that ends from now on is late
        draft = self._reset()
        if ended is not None and not ended.task.done():
            self._ending.add(ended.task)  # the loop itself keeps no task alive
            ended.task.cancel()
        return draft

    async def close(self, seconds: float = CLOSE_SECONDS) -> DraftSummary | None:
        """Cancel the pass and wait until all cancelled work has ended, at most `seconds`.

        Returns the unused result, as `cancel` does.

        No pass can be started afterwards.
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

    def _on_done(self, number: int, task: asyncio.Task[DraftSummary | None]) -> None:
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
