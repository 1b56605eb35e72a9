"""Keep the event loop responsive while conversations are counted, searched and rendered: one thread for what takes long, and turns for what does not."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary

from promptkit.messages import Message

P = ParamSpec("P")
T = TypeVar("T")


class HasMessage(Protocol):
    """An item of a view, or an entry of a transcript."""

    @property
    def message(self) -> Message | None:
        """The message, if it has one."""
        ...


MUCH = 100_000
"""Characters that are read in the event loop at most, some 10 ms: more are read in the thread."""

MESSAGE = 500
"""Characters that a message counts for besides its own."""

FEW = 48
"""The most messages that are read between two looks at the clock."""

LONG = 25_000
"""Characters of a few messages that are read in the event loop at most, some 3 ms."""

TURN = 0.002
"""Seconds after which the event loop goes on. A task that sleeps is woken up in the third turn."""

_workers: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = WeakKeyDictionary()


def is_much(items: Iterable[HasMessage], characters: int = MUCH) -> bool:
    """Return whether reading these items takes so long that the event loop should go on meanwhile: they have more than so many characters."""
    left = characters
    for item in items:
        left -= MESSAGE + (len(item.message.text) if item.message else 0)
        if left < 0:
            return True
    return False


async def run_beside(
    items: Iterable[HasMessage], function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call a function that reads these items: in the worker if they are much, or else at once."""
    if is_much(items):
        return await run_in_worker(function, *args, **kwargs)
    return function(*args, **kwargs)


async def run_in_worker(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in the worker of the running event loop, with the context variables of the caller.

    A loop has one worker: several would wait for each other's interpreter lock, and the loop for
    all of them. The function must change nothing that its caller goes on with after a cancellation,
    since it runs to its end.
    """
    loop = asyncio.get_running_loop()
    worker = _workers.get(loop)
    if worker is None:
        worker = _workers[loop] = ThreadPoolExecutor(1, thread_name_prefix="promptkit worker")
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)
    return await loop.run_in_executor(worker, call)


_waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, deque[asyncio.Future[None]]] = (
    WeakKeyDictionary()
)
"""The callers of `take_turn` that wait, for each event loop in which the turn is taken."""


def _pass_turn(loop: asyncio.AbstractEventLoop) -> None:
    """Give the turn to the next one that waits."""
    waiting = _waiting[loop]
    while waiting:
        future = waiting.popleft()
        if not future.done():
            future.set_result(None)
            loop.call_soon(_pass_turn, loop)
            return
    del _waiting[loop]


async def take_turn() -> None:
    """Wait until no other caller has taken a turn in this iteration of the event loop.

    So many conversations that are ready at once do not hold the loop for all of their requests
    together. A single one does not wait.
    """
    loop = asyncio.get_running_loop()
    waiting = _waiting.get(loop)
    if waiting is None:
        _waiting[loop] = deque()
        loop.call_soon(_pass_turn, loop)
    else:
        future: asyncio.Future[None] = loop.create_future()
        waiting.append(future)
        await future


async def let_others_run() -> None:
    """Let the event loop go on between two pieces of work of some milliseconds each.

    A task that sleeps is woken up in the third iteration, so that in one it would wait for both.
    """
    for _ in range(3):
        await asyncio.sleep(0)


async def run_in_turns(
    function: Callable[[Sequence[Message]], object], messages: Sequence[Message]
) -> None:
    """Call a function with a few messages at a time: with much text in the worker, or else in the event loop, which goes on in between."""
    turn_ends = 0.0
    for few, size in _divide(messages):
        if size > LONG:
            await run_in_worker(function, few)
        else:
            if time.perf_counter() > turn_ends:
                await take_turn()
                turn_ends = time.perf_counter() + TURN
            function(few)


def _divide(messages: Sequence[Message]) -> Iterator[tuple[Sequence[Message], int]]:
    """Yield the messages a few at a time, and their characters: no more than `LONG` but for a longer message, which is alone."""
    rest = [messages[at : at + FEW] for at in range(0, len(messages), FEW)][::-1]
    while rest:
        few = rest.pop()
        size = sum([len(part) for each in few for part in each.content if isinstance(part, str)])
        size += sum([len(call.arguments) for each in few for call in each.tool_calls])
        if size > LONG and len(few) > 1:
            half = len(few) // 2
            rest += few[half:], few[:half]
        else:
            yield few, size
