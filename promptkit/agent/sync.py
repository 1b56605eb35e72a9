"""The same session for programs without an event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from types import TracebackType

    from promptkit.agent.session import AgentSession, Turn
    from promptkit.compaction.budget import Budget
    from promptkit.messages import Part
    from promptkit.providers.model import Model
    from promptkit.transcript.entries import Entry

__all__ = ["SyncSession"]

T = TypeVar("T")


class SyncSession:
    """An AgentSession on an event loop of its own, in a thread of its own: summaries go on there between two calls.

    Change the session by these methods, and not by its own: they run in its thread. May be used from several threads.

    >>> with SyncSession(AgentSession(model=model)) as session:
    ...     print(session.run("What is in the parser?").text)
    """

    def __init__(self, session: AgentSession) -> None:
        self.session = session
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="promptkit session", daemon=True)
        self._thread.start()

    def run(self, content: str | Sequence[Part], *, on_text: Callable[[str], object] | None = None) -> Turn:
        """Say something to the model, and wait until it is done. `on_text` is called in the session's thread."""
        return self._wait(self.session.run(content, on_text=on_text))

    def resume(self, *, on_text: Callable[[str], object] | None = None) -> Turn:
        """Go on with a turn that was cut short."""
        return self._wait(self.session.resume(on_text=on_text))

    def compact(self, instructions: str | None = None) -> Entry | None:
        """Summarize now. None if there is nothing to summarize. Raises SummaryError."""
        return self._wait(self.session.compact(instructions))

    def undo_compaction(self) -> Entry | None:
        """Show again what the latest compaction summarized. None if there is none."""
        return self._call(self.session.undo_compaction)

    def rewind(self, to: str | None) -> Entry:
        """Go on from an earlier entry."""
        return self._call(lambda: self.session.rewind(to))

    def switch(self, model: Model, *, budget: Budget | None = None) -> None:
        """Go on with another model."""
        self._call(lambda: self.session.switch(model, budget=budget))

    def close(self) -> None:
        """End what runs in the background, and the thread. The session cannot be used after that."""
        if self._loop.is_closed():
            return
        self._wait(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def _end(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.session.close()
        await asyncio.get_running_loop().shutdown_asyncgens()
        await asyncio.get_running_loop().shutdown_default_executor()

    def _call(self, work: Callable[[], T]) -> T:
        async def called() -> T:
            return work()

        return self._wait(called())

    def _wait(self, work: Coroutine[object, object, T]) -> T:
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # the loop is closed: say so, and not that nobody awaited
            work.close()
            raise
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise
