"""Sessions and context windows for programs without an event loop."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future, TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, Self, TypeVar, cast

import anyio
from anyio.from_thread import BlockingPortal

from promptkit.agent.session.session import AgentSession
from promptkit.agent.window.window import ContextWindow

if TYPE_CHECKING:
    from types import TracebackType

    from promptkit.agent.session.attachments import Attachment
    from promptkit.agent.session.turns import TurnResult
    from promptkit.agent.window.requests import WindowRequest
    from promptkit.agent.window.usage import ContextUsage
    from promptkit.agent.window.wire import AnyMessage, AnyReply
    from promptkit.compaction.policy.least import LeastSize
    from promptkit.compaction.storage.memory_extraction import MemoryExtractor
    from promptkit.compaction.storage.memory_files import MemoryDirectory
    from promptkit.messages import Part, ToolCall, Usage
    from promptkit.providers.model import Model
    from promptkit.rendering.result.rendered import Rendered
    from promptkit.tokens.budget import ContextBudget
    from promptkit.transcript.log.entries import Entry
    from promptkit.transcript.log.view import TranscriptView
    from promptkit.transcript.stores.store import TranscriptStore

T = TypeVar("T")

CANCEL_SECONDS = 5.0
"""How long an interrupted call waits for the end of what it cancelled, in seconds."""


class SyncSession:
    """An `AgentSession` for programs without an event loop.

    It runs in a thread of its own, where summaries are made between two calls.

    Use these methods, and not those of the session itself. They may be called from several threads:
    a message that is sent during another turn waits for the end of that turn. A keyboard interrupt
    cancels the turn, which `resume` continues. A session that is garbage-collected without `close`
    ends its thread.

    >>> with SyncSession(AgentSession(model="gpt-5")) as session:
    ...     print(session.run("What is in the parser?").text)

    Attributes:
        session: The session that runs in the thread.
    """

    def __init__(self, session: AgentSession) -> None:
        # callers without a type checker pass anything
        if not isinstance(cast("object", session), AgentSession):
            problem = f"write SyncSession(AgentSession(…)), not {session!r:.80}."
            raise TypeError(problem)
        self.session = session
        self._loop = LoopThread(session.close)
        self._stop = weakref.finalize(self, self._loop.stop)

    def call(self, work: Callable[[AgentSession], T]) -> T:
        """Run a function with the session in the session's thread, for example to read its view, and return the result."""
        return self._loop.call(lambda: work(self.session))

    def run(
        self,
        content: str | Sequence[Part],
        *,
        attachments: Iterable[Attachment] = (),
        on_text: Callable[[str], object] | None = None,
    ) -> TurnResult:
        """Send a user message and wait for the result, as `AgentSession.run` does.

        `on_text` is called in the session's thread.
        """
        return self._loop.wait(
            lambda: self.session.run(content, attachments=attachments, on_text=on_text),
            idle=self.session.wait_idle,
        )

    def resume(self, *, on_text: Callable[[str], object] | None = None) -> TurnResult:
        """Continue a turn that was cut short, as `AgentSession.resume` does."""
        return self._loop.wait(
            lambda: self.session.resume(on_text=on_text), idle=self.session.wait_idle
        )

    def compact(
        self, instructions: str | None = None, *, allow_extractive: bool = False
    ) -> Entry | None:
        """Compact now. Returns None if there is nothing to summarize. Raises SummaryError."""
        return self._loop.wait(
            lambda: self.session.compact(instructions, allow_extractive=allow_extractive)
        )

    def undo_compaction(self) -> Entry | None:
        """Show again what the latest compaction summarized. Returns None if there is none."""
        return self._loop.call(self.session.undo_compaction)

    def rewind(self, to: str | None) -> Entry:
        """Continue from an earlier entry. Raises TurnInProgressError while a turn is running."""
        return self._loop.call(lambda: self.session.rewind(to))

    def switch_branch(
        self, to: str | None, *, instructions: str | None = None, summarize: bool = True
    ) -> Entry:
        """Continue from another entry, with a summary of the branch that is left, as `AgentSession.switch_branch` does."""
        return self._loop.wait(
            lambda: self.session.switch_branch(to, instructions=instructions, summarize=summarize)
        )

    def reset(
        self,
        reason: str = "manual",
        *,
        extractor: MemoryExtractor | None = None,
        memories: MemoryDirectory | None = None,
        move_to_archive: bool = False,
    ) -> Entry | None:
        """Start over, as `AgentSession.reset` does.

        Returns the entry of the reset, or None if there are no messages.
        """
        return self._loop.wait(
            lambda: self.session.reset(
                reason, extractor=extractor, memories=memories, move_to_archive=move_to_archive
            )
        )

    def handoff(self, goal: str, store: TranscriptStore) -> SyncSession:
        """Continue with a goal in a new conversation, as `AgentSession.handoff` does, in a thread of its own."""
        return SyncSession(self._loop.wait(lambda: self.session.handoff(goal, store)))

    def fork(self, store: TranscriptStore, *, at: str | None = None) -> SyncSession:
        """Open a session with the same settings, in a thread of its own, over a copy of the conversation in an empty store."""
        return SyncSession(self._loop.call(lambda: self.session.fork(store, at=at)))

    def set_model(
        self, model: str | Model, *, budget: int | str | ContextBudget | None = None
    ) -> None:
        """Continue with another model."""
        self._loop.call(lambda: self.session.set_model(model, budget=budget))

    def usage(self) -> ContextUsage:
        """Measure how much of the context window the next request takes, in all and by part."""
        return self._loop.call(self.session.usage)

    def least_size(self) -> LeastSize:
        """Return the least that requests can be compacted to, by part."""
        return self._loop.call(self.session.least_size)

    def run_maintenance(self, *, idle_seconds: float = 0.0, memory_pressure: bool = False) -> bool:
        """Run the policy's maintenance phase. Returns True if a compaction or pruning ran."""
        return self._loop.wait(
            lambda: self.session.run_maintenance(
                idle_seconds=idle_seconds, memory_pressure=memory_pressure
            )
        )

    def wait_idle(self) -> None:
        """Wait until no turn is running."""
        self._loop.wait(self.session.wait_idle)

    def close(self) -> None:
        """Cancel what is running and end the thread. The session cannot be used afterwards.

        A thread that waits for a turn gets a CancelledError. A plain tool that is running is waited
        for, since it cannot be cancelled.
        """
        self._loop.close(self._stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class SyncContextWindow:
    """A `ContextWindow` for programs without an event loop.

    Background summaries are made in a thread of its own.

    The rules of `SyncSession` hold: several threads may call it, a keyboard interrupt cancels the
    call, and a window that is garbage-collected ends its thread.

    >>> with SyncContextWindow(ContextWindow(model="gpt-5", instructions="Be brief.")) as window:
    ...     window.add(Message(role="user", content="Fix the parser."))
    ...     response = client.chat.completions.create(**window.request().openai_arguments())

    Attributes:
        window: The window that is used in the thread.
    """

    def __init__(self, window: ContextWindow) -> None:
        if not isinstance(cast("object", window), ContextWindow):  # as above
            problem = f"write SyncContextWindow(ContextWindow(…)), not {window!r:.80}."
            raise TypeError(problem)
        self.window = window
        self._loop = LoopThread(window.close)
        self._stop = weakref.finalize(self, self._loop.stop)

    def call(self, work: Callable[[ContextWindow], T]) -> T:
        """Run a function with the window in the window's thread, for example to read its transcript, and return the result."""
        return self._loop.call(lambda: work(self.window))

    @property
    def view(self) -> TranscriptView:
        """The messages of the transcript that the next request shows."""
        return self._loop.call(lambda: self.window.view)

    @property
    def budget(self) -> ContextBudget:
        """The token budget of requests, the preset's thresholds included."""
        return self._loop.call(lambda: self.window.budget)

    @property
    def last_rendered(self) -> Rendered | None:
        """The render behind the last request, with its receipt."""
        return self._loop.call(lambda: self.window.last_rendered)

    def usage(self) -> ContextUsage:
        """Measure how much of the context window the next request takes, in all and by part."""
        return self._loop.call(self.window.usage)

    def least_size(self) -> LeastSize:
        """Return the least that requests can be compacted to, by part."""
        return self._loop.call(self.window.least_size)

    def add(self, *messages: AnyMessage, origins: Sequence[object] | None = None) -> list[Entry]:
        """Append messages to the transcript, as `ContextWindow.add` does."""
        return self._loop.call(lambda: self.window.add(*messages, origins=origins))

    def sync(
        self, messages: Sequence[AnyMessage], origins: Sequence[object] | None = None
    ) -> list[Entry]:
        """Make the conversation equal to a list of messages, as `ContextWindow.sync` does."""
        return self._loop.call(lambda: self.window.sync(messages, origins))

    def request(self) -> WindowRequest:
        """Build the next request. Raises ContextWindowFullError."""
        return self._loop.wait(self.window.request)

    def add_reply(self, reply: AnyReply, *, usage: Usage | None = None) -> Entry:
        """Append the model's reply to the last request, as `ContextWindow.add_reply` does."""
        return self._loop.call(lambda: self.window.add_reply(reply, usage=usage))

    @property
    def pending_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the newest reply that wait for results; none of a reply that was cut off."""
        return self._loop.call(lambda: self.window.pending_calls)

    @property
    def last_text(self) -> str:
        """The text of the newest reply. If it continues one that was cut off, both texts."""
        return self._loop.call(lambda: self.window.last_text)

    def retry_cut_reply(self) -> bool:
        """Prepare another request if the last reply was cut off, as `ContextWindow.retry_cut_reply` does."""
        return self._loop.wait(self.window.retry_cut_reply)

    def recover(self, error: BaseException, request: WindowRequest | None = None) -> bool:
        """Handle a provider's refusal.

        Returns True if a smaller request should be made. Raises ContextWindowFullError.
        """
        return self._loop.wait(lambda: self.window.recover(error, request))

    def compact(
        self, instructions: str | None = None, *, allow_extractive: bool = False
    ) -> Entry | None:
        """Compact now. Returns None if there is nothing to summarize. Raises SummaryError."""
        return self._loop.wait(
            lambda: self.window.compact(instructions, allow_extractive=allow_extractive)
        )

    def undo_compaction(self) -> Entry | None:
        """Show again what the latest compaction summarized. Returns None if there is none."""
        return self._loop.call(self.window.undo_compaction)

    def rewind(self, to: str | None, *, abandon_calls: bool = False) -> Entry:
        """Continue from an earlier entry, as `ContextWindow.rewind` does."""
        return self._loop.call(lambda: self.window.rewind(to, abandon_calls=abandon_calls))

    def switch_branch(
        self,
        to: str | None,
        *,
        instructions: str | None = None,
        summarize: bool = True,
        abandon_calls: bool = False,
    ) -> Entry:
        """Continue from another entry, with a summary of the branch that is left, as `ContextWindow.switch_branch` does."""
        return self._loop.wait(
            lambda: self.window.switch_branch(
                to, instructions=instructions, summarize=summarize, abandon_calls=abandon_calls
            )
        )

    def reset(
        self,
        reason: str = "manual",
        *,
        extractor: MemoryExtractor | None = None,
        memories: MemoryDirectory | None = None,
        move_to_archive: bool = False,
        abandon_calls: bool = False,
    ) -> Entry | None:
        """Start over, as `ContextWindow.reset` does.

        Returns the entry of the reset, or None if there are no messages.
        """
        return self._loop.wait(
            lambda: self.window.reset(
                reason,
                extractor=extractor,
                memories=memories,
                move_to_archive=move_to_archive,
                abandon_calls=abandon_calls,
            )
        )

    def handoff(self, goal: str, store: TranscriptStore) -> SyncContextWindow:
        """Continue with a goal in a new conversation, as `ContextWindow.handoff` does, in a thread of its own."""
        return SyncContextWindow(self._loop.wait(lambda: self.window.handoff(goal, store)))

    def fork(self, store: TranscriptStore, *, at: str | None = None) -> SyncContextWindow:
        """Open a window with the same settings, in a thread of its own, over a copy of the conversation in an empty store."""
        return SyncContextWindow(self._loop.call(lambda: self.window.fork(store, at=at)))

    def set_model(
        self, model: str | Model, *, budget: int | str | ContextBudget | None = None
    ) -> None:
        """Continue with another model."""
        self._loop.call(lambda: self.window.set_model(model, budget=budget))

    def end_turn(self) -> bool:
        """Run the policy's phase for the end of a turn.

        Returns True if a compaction or pruning ran.
        """
        return self._loop.wait(self.window.end_turn)

    def run_maintenance(self, *, idle_seconds: float = 0.0, memory_pressure: bool = False) -> bool:
        """Run the policy's maintenance phase. Returns True if a compaction or pruning ran."""
        return self._loop.wait(
            lambda: self.window.run_maintenance(
                idle_seconds=idle_seconds, memory_pressure=memory_pressure
            )
        )

    def wait_idle(self) -> None:
        """Wait until no background summary is running."""
        self._loop.wait(self.window.wait_idle)

    def close(self) -> None:
        """Cancel what is running and end the thread. The window cannot be used afterwards."""
        self._loop.close(self._stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


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

    def wait(
        self, work: Callable[[], Awaitable[T]], *, idle: Callable[[], Awaitable[None]] | None = None
    ) -> T:
        """Run an asynchronous function in the thread and return its result.

        A keyboard interrupt cancels it and then waits until it has ended, or `idle` has, at most
        CANCEL_SECONDS.
        """
        # it exists before anything is started, since an interrupt may come at any moment
        call = _Call(work)
        try:
            return self._start(call.run).result()
        except KeyboardInterrupt:
            with suppress(RuntimeError, FutureTimeoutError):
                self._start(call.cancel).result(CANCEL_SECONDS)
                if idle is not None:
                    self._start(idle).result(CANCEL_SECONDS)
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
            closed = "this session or window is closed: open another one over the same transcript."
            raise RuntimeError(closed) from error

    async def _shut_down(self) -> None:
        await self._end()
        await self._portal.stop(cancel_remaining=True)

    def _refuse_own_thread(self) -> None:
        if threading.current_thread() is self._thread:
            problem = "a session or window was called from its own thread, for example from on_text or a hook, and would wait for itself: use another thread."
            raise RuntimeError(problem)


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
