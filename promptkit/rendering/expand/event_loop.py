"""Run a render with or without an event loop.

A render is a generator. It yields the awaitables that components returned, and is sent their
results. The same generator serves callers with and without an event loop.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Coroutine, Generator
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from promptkit.errors import RunningLoopError
from promptkit.rendering.paths import format_path

if TYPE_CHECKING:
    import asyncio

    from promptkit.rendering.tree import Node

T = TypeVar("T")

PendingAwaitables: TypeAlias = "list[tuple[Node, Awaitable[object]]]"
"""Awaitables that components returned, to be awaited concurrently."""

AwaitedResults: TypeAlias = "list[tuple[Node, object, BaseException | None]]"
"""Results of some of them: (node, value, error)."""


def drive(render: Generator[PendingAwaitables, AwaitedResults, T]) -> T:
    """Run a render to its end. If components await, it starts an event loop for them.

    Raises RunningLoopError if a component suspends while an event loop is already running.
    """
    try:
        return _run(render)
    except RuntimeError as error:
        stop = error.__cause__
        if not isinstance(stop, StopIteration) or str(error) != "generator raised StopIteration":
            raise
    # A component raised StopIteration. Python turns it into a RuntimeError where it leaves a
    # generator. It does the same for coroutines, so `drive_async` leaves it the cause of the
    # RuntimeError.
    raise stop


def _run(render: Generator[PendingAwaitables, AwaitedResults, T]) -> T:
    try:
        pending = next(render)
        if not _loop_is_running():
            import asyncio

            with asyncio.Runner() as runner:
                return runner.run(drive_async(render, pending))
        while True:
            pending = render.send(_run_without_loop(pending))
    except StopIteration as stop:
        return _read_return_value(stop)


async def drive_async(
    render: Generator[PendingAwaitables, AwaitedResults, T],
    pending: PendingAwaitables | None = None,
) -> T:
    """Run a render to its end. The components of a flex group are awaited concurrently.

    Args:
        render: The render.
        pending: The awaitables that it has yielded. None: it has not begun.
    """
    import asyncio

    running: dict[asyncio.Future[object], list[Node]] = {}  # components may share a future
    try:
        if pending is None:
            pending = next(render)
        while True:
            for node, awaitable in pending:
                running.setdefault(asyncio.ensure_future(awaitable), []).append(node)
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            results: AwaitedResults = []
            for future in [future for future in running if future in done]:
                error = asyncio.CancelledError() if future.cancelled() else future.exception()
                results.extend(
                    (node, None if error else future.result(), error)
                    for node in running.pop(future)
                )
            pending = render.send(results)
    except StopIteration as stop:
        return _read_return_value(stop)
    finally:
        for future in running:
            future.cancel()
        if running:
            await asyncio.gather(*running, return_exceptions=True)


def _run_without_loop(pending: PendingAwaitables) -> AwaitedResults:
    """Run coroutines that never suspend.

    An event loop is running, so coroutines that suspend cannot be awaited.
    """
    results: AwaitedResults = []
    try:
        for node, awaitable in pending:
            try:
                next(awaitable.__await__())
            except StopIteration as stop:
                results.append((node, stop.value, None))
            except Exception as error:  # noqa: BLE001  # sent to the render, which raises it with the element's path
                results.append((node, None, error))
            else:
                raise RunningLoopError(
                    f"{format_path(node)} awaits while an event loop is running: use `await render_async(...)` instead of `render(...)`."
                )
    except BaseException:
        close_coroutines(pending)
        raise
    return results


def close_coroutines(pending: PendingAwaitables) -> None:
    """Close coroutines that will not be awaited any more, so that Python does not warn about those that never ran."""
    for _, awaitable in pending:
        if isinstance(awaitable, Coroutine):
            awaitable.close()


def _loop_is_running() -> bool:
    # If asyncio has not been imported, no loop is running. Importing it takes time that most
    # renders can save.
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _read_return_value(stop: StopIteration) -> T:  # type: ignore[type-var]  # what the generator returned, which StopIteration does not type
    return stop.value  # type: ignore[no-any-return]  # as above
