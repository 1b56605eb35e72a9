"""The same session for programs without an event loop."""

from __future__ import annotations

import asyncio
import threading
import weakref
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTimeError
from contextlib import suppress
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from types import TracebackType

    from promptkit.agent.session import AgentSession, TurnResult
    from promptkit.compaction.budget import Budget
    from promptkit.messages import Part
    from promptkit.providers.model import Model
    from promptkit.transcript.entries import Entry
    from promptkit.transcript.store import Store

__all__ = ["SyncSession"]

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds that are waited for what was cancelled."""


class SyncSession:
    """An AgentSession on an event loop of its own, in a thread of its own: summaries go on there between two calls.

    Change the session by these methods, and not by its own: they run in its thread. May be used from several threads; what one says
    while the model answers another is said after that. An interrupt from the keyboard cancels the turn, and `resume` goes on with it.
    One that is forgotten without `close` ends its thread when it is collected.

    >>> with SyncSession(AgentSession(model=model)) as session:
    ...     print(session.run("What is in the parser?").text)
    """

    def __init__(self, session: AgentSession) -> None:
        self.session = session
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._closed = False
        # The thread holds the session and the loop, but not this object: it can be collected while the thread waits.
        self._thread = threading.Thread(target=_serve, args=(self._loop, session), name="promptkit session", daemon=True)
        self._thread.start()
        self._stop = weakref.finalize(self, self._loop.call_soon_threadsafe, self._loop.stop)

    def run(self, content: str | Sequence[Part], *, on_text: Callable[[str], object] | None = None) -> TurnResult:
        """Say something to the model, and wait until it is done. `on_text` is called in the session's thread."""
        return self._wait(self.session.run(content, on_text=on_text))

    def resume(self, *, on_text: Callable[[str], object] | None = None) -> TurnResult:
        """Go on with a turn that was cut short."""
        return self._wait(self.session.resume(on_text=on_text))

    def compact(self, instructions: str | None = None) -> Entry | None:
        """Summarize now. None if there is nothing to summarize. Raises SummaryError."""
        return self._wait(self.session.compact(instructions))

    def undo_compaction(self) -> Entry | None:
        """Show again what the latest compaction summarized. None if there is none."""
        return self._call(self.session.undo_compaction)

    def rewind(self, to: str | None) -> Entry:
        """Go on from an earlier entry. Raises TurnInProgressError while the model works on a turn."""
        return self._call(lambda: self.session.rewind(to))

    def fork(self, store: Store, *, at: str | None = None) -> SyncSession:
        """A session like this one, with a thread of its own, that goes on from an entry in an empty store."""
        return SyncSession(self._call(lambda: self.session.fork(store, at=at)))

    def set_model(self, model: Model, *, budget: Budget | None = None) -> None:
        """Go on with another model."""
        self._call(lambda: self.session.set_model(model, budget=budget))

    def close(self) -> None:
        """End what is going on, and the thread. The session cannot be used after that.

        Who waits for a turn in another thread gets a CancelledError. A plain tool that is running is waited for: nothing can stop it.
        """
        self._refuse_own_thread()
        with self._lock:
            self._closed = True
            self._stop()  # once: a second call does nothing
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _call(self, work: Callable[[], T]) -> T:
        async def called() -> T:
            return work()

        return self._wait(called())

    def _wait(self, work: Coroutine[object, object, T]) -> T:
        future: Future[T] = Future()  # made before anything is begun: an interrupt may come at any moment
        try:
            self._begin(work, future)
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            ended: Future[None] = Future()
            with suppress(NotInTimeError, RuntimeError):  # what is done next finds the turn ended
                self._begin(self.session.wait_idle(), ended)
                ended.result(PATIENCE)
            raise

    def _begin(self, work: Coroutine[object, object, T], future: Future[T]) -> None:
        try:
            self._refuse_own_thread()
            with self._lock:  # what is begun before the loop is stopped is ended, and nothing is begun behind that
                if not self._closed:
                    self._loop.call_soon_threadsafe(_follow, self._loop, work, future)
                    return
        except RuntimeError:
            work.close()  # nobody will await it, and that is as it should be
            raise
        work.close()
        closed = "this session is closed: make another one over the same transcript."
        raise RuntimeError(closed)

    def _refuse_own_thread(self) -> None:
        if threading.current_thread() is self._thread:
            problem = (
                "a session was called from its own thread, as from on_text or a hook, and would wait for itself: call it from another."
            )
            raise RuntimeError(problem)


def _follow(loop: asyncio.AbstractEventLoop, work: Coroutine[object, object, T], future: Future[T]) -> None:
    """Do work as a task whose end is that of the future; who cancels the future cancels the task."""
    task = loop.create_task(work)

    def ended(task: asyncio.Task[T]) -> None:
        if task.cancelled():
            future.cancel()
            future.set_running_or_notify_cancel()
        elif not future.set_running_or_notify_cancel():
            task.exception()  # nobody waits for it any more
        elif error := task.exception():
            future.set_exception(error)
        else:
            future.set_result(task.result())

    def given_up(future: Future[T]) -> None:
        if future.cancelled() and not task.done():
            loop.call_soon_threadsafe(task.cancel)

    task.add_done_callback(ended)
    future.add_done_callback(given_up)


def _serve(loop: asyncio.AbstractEventLoop, session: AgentSession) -> None:
    """Run a loop until somebody stops it; then end what goes on in it."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_end(session))
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _end(session: AgentSession) -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=PATIENCE)
    await session.close()
    await asyncio.get_running_loop().shutdown_asyncgens()
    await asyncio.get_running_loop().shutdown_default_executor()
