"""Engines run a function on many items in other processes, of this machine or of a cluster: local processes, Dask or Ray.

`run_each` works with any executor of `concurrent.futures`. An engine is an executor that also says
how many tasks it runs at a time, and by which errors it tells that a worker died.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection, wait as wait_for_end
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

import attrs

from promptkit.errors import InvalidArgumentError, PromptKitError

__all__ = ["Engine", "EngineError", "LostItem", "open_engine", "run_each"]

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

ATTEMPTS = 3
"""How often a task is started, if the worker that runs it dies. Dask has a setting of its own for
it, `allowed-failures`."""

QUEUED_PER_WORKER = 2
"""Tasks that wait for each worker besides the one that it runs, so that it need not wait for
them."""

UNKNOWN_WORKERS = 32
"""The number of workers that is assumed of a caller's executor."""

_NAMES = "local, dask, ray, dask://HOST:PORT or ray://HOST:PORT"


class EngineError(PromptKitError):
    """An engine cannot be started, or one of its workers cannot run a task at all."""


class Engine(Executor):
    """An executor, and what `run_each` should know about it.

    Args:
        executor: Runs the tasks.
        workers: The number of tasks that it runs at the same time.
        lost: The errors of a task whose worker died each time that the task was started.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        workers: int = UNKNOWN_WORKERS,
        lost: tuple[type[BaseException], ...] = (),
    ) -> None:
        self._executor = executor
        self.workers = workers
        self.lost = lost

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run a function in a worker."""
        return self._executor.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  # as the base class has it
        """End the executor, as `concurrent.futures` says."""
        self._executor.shutdown(wait=wait, cancel_futures=cancel_futures)


@attrs.frozen
class LostItem(Generic[T]):
    """An item without a result, because the process that worked on it died each time that it was tried."""

    item: T


@contextmanager
def open_engine(name: str = "local", *, workers: int | None = None) -> Generator[Engine]:
    """Start the workers of an engine, or connect to a cluster.

    The workers that were started end with the block.

    Args:
        name: `local`, processes of this machine; `dask` or `ray`, a cluster of this machine;
            `dask://HOST:PORT` or `ray://HOST:PORT`, a cluster that is running. Its workers need
            promptkit and the same versions of Python and of the engine.
        workers: The number of processes. By default one for each processor. With 1, `local` runs
            all in this process. A running cluster has its own.

    Yields:
        The engine.

    Raises:
        InvalidArgumentError: There is no engine of this name.
        EngineError: The library is not installed, or the cluster cannot be reached.

    >>> with open_engine("dask://scheduler:8786") as engine:
    ...     results = replay(files, options, executor=engine)
    """
    kind, mark, place = name.partition("://")
    engines = {"local": _open_local, "dask": _open_dask, "ray": _open_ray}
    if kind not in engines or (mark and (kind == "local" or not place)):
        raise InvalidArgumentError(f"there is no engine {name!r}: write {_NAMES}.")
    if mark and workers is not None:
        raise InvalidArgumentError(
            f"the cluster {name} has its own number of workers: leave out --workers."
        )
    with engines[kind](place, workers or os.cpu_count() or 1) as engine:
        yield engine


def run_each(
    executor: Executor,
    task: Callable[[tuple[T, ...]], Sequence[R]],
    items: Iterable[T],
    *,
    chunk: int = 1,
) -> Iterator[tuple[int, R | LostItem[T]]]:
    """Run a function on many items and yield each result with the index of its item, in the order in which they finish.

    Only as many items are read from the iterable as are worked on, so it may be longer than the
    memory. If a worker dies with several items, each of them is run again on its own, so that the
    one item that ends its worker costs no other its result.

    Args:
        executor: Runs the function. An Engine is also told when a worker dies.
        task: Returns one result for each of the items that it is given. It and the items are
            pickled.
        items: The items.
        chunk: The number of items that are given to one call.

    Yields:
        The index of an item, and its result, or a LostItem.

    Raises:
        Exception: What the function raises.
    """
    engine = executor if isinstance(executor, Engine) else Engine(executor)
    numbered = enumerate(items)
    apart: deque[tuple[tuple[int, T], ...]] = deque()
    alone: deque[tuple[tuple[int, T], ...]] = deque()
    suspects: set[int] = set()
    running: dict[Future[Sequence[R]], tuple[tuple[int, T], ...]] = {}
    most = engine.workers * (1 + QUEUED_PER_WORKER)
    try:
        while True:
            # Dask also counts the death of a worker against the tasks that waited there. The last
            # attempt is with nothing beside it.
            while len(running) < most and (
                part := apart.popleft()
                if apart
                else tuple(islice(numbered, chunk))
                or (alone.popleft() if alone and not running else ())
            ):
                running[engine.submit(task, tuple(item for _, item in part))] = part
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                part = running.pop(future)
                try:
                    results = future.result()
                except engine.lost:
                    if len(part) > 1:
                        apart += ((each,) for each in part)
                    elif suspects.issuperset(index for index, _ in part):
                        yield from ((index, LostItem(item)) for index, item in part)
                    else:
                        suspects.update(index for index, _ in part)
                        alone.append(part)
                    continue
                yield from zip((index for index, _ in part), results, strict=True)
    finally:
        for future in running:
            future.cancel()


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def _open_local(_place: str, workers: int) -> Generator[Engine]:
    with _LocalExecutor(workers) if workers > 1 else _InlineExecutor() as executor:
        yield Engine(executor, workers=workers, lost=(BrokenProcessPool,))


class _InlineExecutor(Executor):
    """Run each task at once, in this process."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        future: Future[R] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class _LocalExecutor(Executor):
    """Processes of this machine, each in a pool of its own: so one that dies takes only its own task with it, and is replaced."""

    def __init__(self, workers: int) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="engine")
        self._idle: SimpleQueue[ProcessPoolExecutor | None] = SimpleQueue()
        for _ in range(workers):
            self._idle.put(None)
        self._pools: set[ProcessPoolExecutor] = set()
        self._stop_reader, self._stop_writer = multiprocessing.get_context("spawn").Pipe(
            duplex=False
        )
        self._stopped = threading.Event()

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        return self._threads.submit(self._run, fn, *args, **kwargs)

    def _run(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        pool = self._idle.get()
        attempt = 0
        try:
            while True:
                pool = pool or self._start()
                attempt += 1
                try:
                    return pool.submit(fn, *args, **kwargs).result()
                except BrokenProcessPool:
                    self._pools.discard(pool)
                    pool.shutdown()
                    pool = None
                    if attempt == ATTEMPTS or self._stopped.is_set():
                        raise
        finally:
            self._idle.put(pool)

    def _start(self) -> ProcessPoolExecutor:
        # Processes are spawned, not forked: this works the same on every system, and they share no
        # state with this process.
        pool = ProcessPoolExecutor(
            1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_prepare_process,
            initargs=(self._stop_reader,),
        )
        self._pools.add(pool)
        return pool

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  # as the base class has it
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)
        for pool in tuple(self._pools):
            pool.shutdown(wait=wait, cancel_futures=cancel_futures)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the processes: after an error at once, with what they work on."""
        if kind is not None:
            self._stopped.set()
            self._stop_writer.close()
        self.shutdown(cancel_futures=True)


def _prepare_process(stop: Connection) -> None:
    """Let this process end with the one that started it, or when that closes its end of `stop`, and not by an interrupt of the terminal."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_exit_after, args=(parent.sentinel, stop), daemon=True).start()


def _exit_after(parent: int, stop: Connection) -> None:
    wait_for_end([parent, stop])
    os._exit(1)


@contextmanager
def _open_dask(place: str, workers: int) -> Generator[Engine]:
    try:
        from distributed import Client, LocalCluster
        from distributed.scheduler import KilledWorker
    except ImportError as error:
        raise EngineError(
            f"the engine dask needs the library distributed: {_describe_install('distributed>=2024.8', 'dask')}."
        ) from error
    # A task that is done is cancelled if its worker dies before the result was fetched.
    if place:
        try:
            # Without a scheme, Dask's own settings decide between tcp and tls.
            client = Client(place, set_as_default=False)
        except (OSError, ValueError) as error:
            raise EngineError(
                f"there is no Dask scheduler at {place}: {_first_line(error)}"
            ) from error
        with client:
            yield Engine(
                client.get_executor(pure=False),
                workers=max(1, sum(client.nthreads().values())),
                lost=(KilledWorker, CancelledError),
            )
        return
    cluster = LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        dashboard_address=None,
        silence_logs=logging.CRITICAL,
    )
    with cluster, Client(cluster, set_as_default=False) as client:
        yield Engine(
            client.get_executor(pure=False), workers=workers, lost=(KilledWorker, CancelledError)
        )


@contextmanager
def _open_ray(place: str, workers: int) -> Generator[Engine]:
    try:
        import ray
    except ImportError as error:
        raise EngineError(
            f"the engine ray needs the library ray: {_describe_install('ray[client]>=2.40', 'ray')}."
        ) from error
    # Ray would tell its makers about the cluster that it starts.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        if place:
            with warnings.catch_warnings():
                # that it cannot be reached, which the error also says
                warnings.simplefilter("ignore")
                ray.init(f"ray://{place}", log_to_driver=False, logging_level=logging.ERROR)
        else:
            ray.init(
                "local",
                num_cpus=workers,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    except (ConnectionError, RuntimeError, ImportError) as error:
        raise EngineError(
            f"there is no Ray cluster at ray://{place}, or it refuses this process: {_first_line(error)}. "
            "If it asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN."
            if place
            else f"Ray cannot be started: {_first_line(error)}"
        ) from error
    try:
        yield Engine(
            _RayExecutor(),
            workers=max(1, int(ray.cluster_resources().get("CPU", workers))),
            lost=(
                ray.exceptions.WorkerCrashedError,
                ray.exceptions.NodeDiedError,
                ray.exceptions.OutOfMemoryError,
            ),
        )
    finally:
        ray.shutdown()


class _RayExecutor(Executor):
    """Tasks of Ray, in the session that is open."""

    def __init__(self) -> None:
        import ray

        self._call = ray.remote(_call).options(max_retries=ATTEMPTS - 1)

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        return self._call.remote(partial(fn, *args, **kwargs)).future()


def _call(task: Callable[[], Any]) -> Any:  # noqa: ANN401  # Any: Ray knows one remote function, and each task returns what it returns
    return task()


def _describe_install(requirement: str, extra: str) -> str:
    return f"run `pip install '{requirement}'`, or `pip install '.[{extra}]'` in a checkout of promptkit"
