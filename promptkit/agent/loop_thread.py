"""An event loop in a thread of its own, for sessions and windows in programs without one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, TimeoutError as FutureTimeoutError, wait as wait_for
from contextlib import suppress
from typing import Generic, TypeVar

import anyio
from anyio.from_thread import BlockingPortal

T = TypeVar("T")

CANCEL_SECONDS = 5.0
"""How long an interrupted call waits for the end of what it cancelled, in seconds."""

SIGNAL_SECONDS = 1.0
"""The longest time between a keyboard interrupt and its effect, in seconds."""


class LoopThread:
    """An event loop in a thread of its own, for sessions or windows.

    The thread does not hold the object that owns this one.
    """

    def __init__(self, end: Callable[[], Awaitable[None]]) -> None:
        """Start the thread. `end` is awaited in it before the loop stops."""
        self._end = end
        started: Future[BlockingPortal] = Future()
        self._thread = threading.Thread(
            target=anyio.run, args=(_serve, started), name="promptkit session", daemon=True
        )
        self._thread.start()
        self._portal = started.result()

    def call(self, work: Callable[[], T]) -> T:
        """Run a plain function in the thread and return its result."""

        async def run() -> T:
            return work()

        return self.wait(run)

    def wait(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run an asynchronous function in the thread and return its result.

        A keyboard interrupt cancels it and then waits until it has ended, at most CANCEL_SECONDS.
        """
        # it exists before anything is started, since an interrupt may come at any moment
        call = _Call(work)
        try:
            result = self._start(call.run)
            # A signal that comes just before a thread begins to wait is seen only when the wait ends.
            while not result.done():
                wait_for([result], timeout=SIGNAL_SECONDS)
            return result.result()
        except KeyboardInterrupt:
            with suppress(RuntimeError, FutureTimeoutError):
                self._start(call.cancel).result(CANCEL_SECONDS)
            raise

    async def wait_async(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run an asynchronous function in the thread and await its result in the loop of the caller.

        Cancelling the caller cancels it.
        """
        return await asyncio.wrap_future(self._start(work))

    def stop(self) -> None:
        """End the loop soon. Also called by the garbage collector, in any thread."""
        with suppress(RuntimeError):  # it has ended
            if threading.current_thread() is self._thread:
                self._stopping = asyncio.ensure_future(self._shut_down())
            else:
                self._portal.start_task_soon(self._shut_down)

    def close(self, stop: Callable[[], object]) -> None:
        """End the loop with `stop`, which works once, and wait for the end of the thread."""
        self._refuse_own_thread()
        stop()
        self._thread.join()

    def _start(self, work: Callable[[], Awaitable[T]]) -> Future[T]:
        self._refuse_own_thread()
        try:
            return self._portal.start_task_soon(work)
        except RuntimeError as error:
            raise RuntimeError(
                "this session or window is closed: open another one over the same transcript."
            ) from error

    async def _shut_down(self) -> None:
        await self._end()
        await self._portal.stop(cancel_remaining=True)

    def _refuse_own_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "a session or window was called from its own thread, for example from on_text or a hook, and would wait for itself: use another thread."
            )


class _Call(Generic[T]):
    """One call into the loop's thread, as a task that can be cancelled once: anyio's own cancellation would also cancel its clean-up."""

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work
        self._task: asyncio.Future[T] | None = None
        self._cancelled = False

    async def run(self) -> T:
        """Run the work, unless it was cancelled before."""
        self._task = asyncio.ensure_future(self._work())
        if self._cancelled:
            self._task.cancel()
        return await self._task

    async def cancel(self) -> None:
        """Cancel the work, and wait for its end."""
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


async def _serve(started: Future[BlockingPortal]) -> None:
    async with BlockingPortal() as portal:
        started.set_result(portal)
        await portal.sleep_until_stopped()
