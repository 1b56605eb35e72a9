"""Runs the engine with and without an event loop: one engine, two ways to wait for what components await."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Coroutine, Generator
from typing import TYPE_CHECKING, TypeVar

from promptkit.errors import RunningLoopError
from promptkit.rendering.tree import format_path

if TYPE_CHECKING:
    import asyncio

    from promptkit.rendering.expand import AwaitedResults, PendingAwaitables
    from promptkit.rendering.tree import Node

__all__ = ["close_coroutines", "drive", "drive_async"]

T = TypeVar("T")


def drive(engine: Generator[PendingAwaitables, AwaitedResults, T]) -> T:
    """Run the engine to its end. What components await runs in an event loop of its own.

    Raises RunningLoopError if a component really awaits while a loop is running.
    """
    try:
        return _run(engine)
    except RuntimeError as error:
        stop = error.__cause__
        if not isinstance(stop, StopIteration) or str(error) != "generator raised StopIteration":
            raise
    # A component's own StopIteration, which Python lets out of no generator. It lets none out of a coroutine either: `drive_async`
    # leaves it the cause of the RuntimeError.
    raise stop


def _run(engine: Generator[PendingAwaitables, AwaitedResults, T]) -> T:
    try:
        started = next(engine)
    except StopIteration as stop:
        return _value(stop)
    if not _loop_is_running():
        import asyncio

        with asyncio.Runner() as runner:
            return runner.run(_drive(engine, started))
    while True:
        outcome: AwaitedResults = _step_through(started)
        try:
            started = engine.send(outcome)
        except StopIteration as stop:
            return _value(stop)


async def drive_async(engine: Generator[PendingAwaitables, AwaitedResults, T]) -> T:
    """Run the engine to its end; what the components of a flex group await runs concurrently."""
    try:
        started = next(engine)
    except StopIteration as stop:
        return _value(stop)
    return await _drive(engine, started)


async def _drive(engine: Generator[PendingAwaitables, AwaitedResults, T], started: PendingAwaitables) -> T:
    import asyncio

    running: dict[asyncio.Future[object], list[Node]] = {}  # components may share one
    try:
        while True:
            for node, awaitable in started:
                running.setdefault(asyncio.ensure_future(awaitable), []).append(node)
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            outcome: AwaitedResults = []
            for future in [future for future in running if future in done]:
                error = asyncio.CancelledError() if future.cancelled() else future.exception()
                value = None if error else future.result()
                outcome.extend((node, value, error) for node in running.pop(future))
            try:
                started = engine.send(outcome)
            except StopIteration as stop:
                return _value(stop)
    finally:
        for future in running:
            future.cancel()
        if running:
            await asyncio.gather(*running, return_exceptions=True)


def _step_through(started: PendingAwaitables) -> AwaitedResults:
    """Finish coroutines that never really await; a loop is running here, so others cannot be waited for."""
    outcome: AwaitedResults = []
    try:
        for node, awaitable in started:
            try:
                next(_steps(awaitable))
            except StopIteration as stop:
                outcome.append((node, stop.value, None))
            except Exception as error:  # noqa: BLE001  # handed to the engine, which raises it with the element's path
                outcome.append((node, None, error))
            else:
                message = f"{format_path(node)} awaits, and an event loop is running: use `await render_async(...)`."
                raise RunningLoopError(message)
    except BaseException:
        close_coroutines(started)
        raise
    return outcome


def _steps(awaitable: Awaitable[object]) -> Generator[object, None, object]:
    return (yield from awaitable.__await__())


def close_coroutines(started: PendingAwaitables) -> None:
    """Close the coroutines that nobody will wait for, finished ones included, before Python warns of those that never ran."""
    for _, awaitable in started:
        if isinstance(awaitable, Coroutine):
            awaitable.close()


def _loop_is_running() -> bool:
    # Without the module no loop can be running, and importing it here would cost what most renders do not need.
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _value(stop: StopIteration) -> T:  # type: ignore[type-var]  # what the generator returned, which StopIteration does not type
    return stop.value  # type: ignore[no-any-return]  # as above
