"""Sessions and context windows for programs without an event loop.

Their methods are made from those of the asynchronous classes; `sync.pyi` has their types.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Generic, Self, TypeVar

from promptkit.agent.loop_thread import LoopThread
from promptkit.agent.session.session import AgentSession
from promptkit.agent.window.window import ContextWindow
from promptkit.reprs import describe

T = TypeVar("T")
InnerT = TypeVar("InnerT", AgentSession, ContextWindow)
SyncT = TypeVar("SyncT", bound="_Sync[AgentSession] | _Sync[ContextWindow]")

_STREAMS = frozenset({"stream"})
"""Methods that return an asynchronous iterator."""


class _Sync(Generic[InnerT]):
    """What `SyncSession` and `SyncContextWindow` have in common: an object that is used in a thread of its own."""

    def __init__(self, inner: object, kind: type[InnerT]) -> None:
        # callers without a type checker pass anything
        if not isinstance(inner, kind):
            raise TypeError(f"write {type(self).__name__}({kind.__name__}(…)), not {inner!r:.80}.")
        self.inner: InnerT = inner
        self.loop = LoopThread(inner.close)
        self._stop = weakref.finalize(self, self.loop.stop)

    def __repr__(self) -> str:
        return describe(self, inner=self.inner)

    def call(self, work: Callable[[InnerT], T]) -> T:
        """Run a function with the session or window in its thread, for example to read its transcript, and return the result."""
        return self.loop.call(lambda: work(self.inner))

    def close(self) -> None:
        """Cancel what is running and end the thread. The session or window cannot be used afterwards.

        A thread that waits for a turn gets a CancelledError. A plain tool that is running is waited
        for, since it cannot be cancelled.
        """
        self.loop.close(self._stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _add_methods(inner: type[InnerT], *attributes: str) -> Callable[[type[SyncT]], type[SyncT]]:
    """Return a decorator that gives a class the public methods and properties of another one, and these attributes, to be used in the thread."""

    def add(outer: type[SyncT]) -> type[SyncT]:
        for name in attributes:
            setattr(outer, name, _make_property(name, f"The `{name}` of the {inner.__name__}."))
        for name in dir(inner):
            if not name.startswith("_") and not hasattr(_Sync, name):
                member: object = inspect.getattr_static(inner, name)
                if isinstance(member, property):
                    setattr(outer, name, _make_property(name, member.__doc__))
                elif inspect.isfunction(member):
                    setattr(outer, name, _make_method(member, outer, inner))
        return outer

    return add


def _make_property(name: str, doc: str | None) -> property:
    def get(self: _Sync[AgentSession]) -> object:
        return self.loop.call(lambda: getattr(self.inner, name))

    return property(get, doc=doc)


def _make_method(
    member: Callable[..., object], outer: Callable[..., object], inner: type
) -> Callable[..., object]:
    name = member.__name__
    is_async = inspect.iscoroutinefunction(member)
    if name in _STREAMS:
        return _make_stream(member)

    @functools.wraps(member)
    def call(self: _Sync[AgentSession], *args: object, **keywords: object) -> object:
        work = partial(getattr(self.inner, name), *args, **keywords)
        result = self.loop.wait(work) if is_async else self.loop.call(work)
        # A fork and a handoff are objects of their own, each in a thread.
        return outer(result) if isinstance(result, inner) else result

    return call


def _make_stream(member: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(member)
    def stream(self: _Sync[AgentSession], *args: object, **keywords: object) -> Iterator[object]:
        items: AsyncGenerator[object] = self.loop.call(
            lambda: getattr(self.inner, member.__name__)(*args, **keywords)
        )
        try:
            while (item := self.loop.wait(lambda: anext(items, _END))) is not _END:
                yield item
        finally:
            self.loop.wait(items.aclose)

    return stream


_END = object()


@_add_methods(AgentSession, "max_steps", "tools", "window")
class SyncSession(_Sync[AgentSession]):
    """An `AgentSession` for programs without an event loop.

    It runs in a thread of its own, where summaries are made between two calls. It has the methods
    and properties of `AgentSession`; functions that are passed to them, such as `on_text`, are
    called in that thread.

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
        super().__init__(session, AgentSession)
        self.session = session


@_add_methods(ContextWindow, "compaction", "last_request", "transcript")
class SyncContextWindow(_Sync[ContextWindow]):
    """A `ContextWindow` for programs without an event loop.

    Background summaries are made in a thread of its own. It has the methods and properties of
    `ContextWindow`.

    The rules of `SyncSession` hold: several threads may call it, a keyboard interrupt cancels the
    call, and a window that is garbage-collected ends its thread.

    >>> with SyncContextWindow(ContextWindow(model="gpt-5", instructions="Be brief.")) as window:
    ...     window.add(Message(role="user", content="Fix the parser."))
    ...     response = client.chat.completions.create(**window.request().chat_arguments())

    Attributes:
        window: The window that is used in the thread.
    """

    def __init__(self, window: ContextWindow) -> None:
        super().__init__(window, ContextWindow)
        self.window = window
