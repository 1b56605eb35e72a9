"""Measure times that can be compared because they are taken in turns, and the peak of memory."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TypeAlias

__all__ = ["Case", "medians", "peak"]

Case: TypeAlias = Callable[[], Callable[[], object]]
"""Prepares something, untimed, and returns the call that is timed."""


def medians(
    cases: Mapping[str, Case],
    rounds: int,
    *,
    collector: bool = False,
    choose: Callable[[Sequence[float]], float] = median,
) -> dict[str, float]:
    """Return the median seconds of processor time of each case, or those that `choose` returns.

    Waiting for a busy machine is not counted.

    Each round runs every case once, so that a machine that slows down affects all of them alike;
    every other round runs backwards. The garbage collector is off while a case runs, as in
    `timeit`, unless `collector` is set. The first round is a warm-up and is not counted.
    """
    times: dict[str, list[float]] = {name: [] for name in cases}
    order = list(cases)
    for number in range(rounds + 1):
        for name in reversed(order) if number % 2 else order:
            seconds = _seconds(cases[name], collector=collector)
            if number:
                times[name].append(seconds)
    return {name: choose(measured) for name, measured in times.items()}


def _seconds(case: Case, *, collector: bool) -> float:
    run = case()
    gc.collect()
    if not collector:
        gc.disable()
    try:
        start = time.process_time()
        run()
        return time.process_time() - start
    finally:
        gc.enable()


def peak(case: Case) -> int:
    """Return the peak of the memory that Python allocated for a case, in bytes, without that of its preparation."""
    run = case()
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
