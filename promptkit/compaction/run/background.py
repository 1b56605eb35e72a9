"""The background summary: started before it is needed, taken when it is needed, cancelled when it is stale.

Only one pass runs at a time. One that finishes after it was cancelled changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeAlias

from promptkit.compaction.planning.plan import Plan
from promptkit.compaction.policy.state import BackgroundState
from promptkit.compaction.run.compactor import DraftSummary

Work: TypeAlias = "Callable[[], Coroutine[object, object, DraftSummary | None]]"
"""Makes the summary of one pass. A result of None counts as a failure: a hook cancelled it."""

DraftTask: TypeAlias = "asyncio.Task[DraftSummary | None]"

CLOSE_SECONDS = 5.0
"""How long `close` waits for cancelled work, in seconds."""


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

    Source: VS Code's background summarizer.
    """

    def __init__(self, *, unused: Callable[[DraftSummary], object] | None = None) -> None:
        self.plan: Plan | None = None
        """The plan of the current pass."""
        self._task: DraftTask | None = None
        self._ended = False
        self._ending: set[DraftTask] = set()
        self._unused = unused
        self._closed = False

    @property
    def state(self) -> BackgroundState:
        """The state of the pass."""
        if self._task is None:
            return "idle"
        if not self._ended:
            return "running"
        return "failed" if _get_draft(self._task) is None else "ready"

    def start(self, work: Work, plan: Plan) -> bool:
        """Start a pass as a task of the running loop.

        Returns False if one is running or ready, or after `close`.
        """
        if self._closed or self.state in ("running", "ready"):
            return False
        task = asyncio.get_running_loop().create_task(work(), name="promptkit background summary")
        task.add_done_callback(self._on_end)
        self._task, self._ended, self.plan = task, False, plan
        return True

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until the pass has ended, at most `seconds`.

        Its exception is not raised, and it is not cancelled.
        """
        if self._task is not None and not self._ended:
            await asyncio.wait([self._task], timeout=seconds)

    def take(self) -> DraftSummary | None:
        """Take the result.

        Returns None while the pass is running, and after a failure; then another pass can be
        started.
        """
        return None if self.state == "running" else self.cancel()

    def cancel(self) -> DraftSummary | None:
        """Cancel the pass. An unused result is returned, so that the caller can report it."""
        task, self._task, self.plan = self._task, None, None
        if task is None or self._ended:
            return None if task is None else _get_draft(task)
        if not task.done():
            self._ending.add(task)  # the loop itself keeps no task alive
            task.cancel()
        return None

    async def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Cancel the pass and wait until all cancelled work has ended, at most `seconds`.

        No pass can be started afterwards.
        """
        self._closed = True
        self.cancel()
        if self._ending:
            await asyncio.wait(set(self._ending), timeout=seconds)

    def _on_end(self, task: DraftTask) -> None:
        self._ending.discard(task)
        draft = _get_draft(task)
        if task is self._task:
            self._ended = True
        elif draft is not None and self._unused is not None:
            self._unused(draft)


def _get_draft(task: DraftTask) -> DraftSummary | None:
    """Return the summary of a task that has ended; None if it failed."""
    return None if task.cancelled() or task.exception() is not None else task.result()
