"""What renders cost in time: everything measured in turns, several times, beside the cost of tokenising alone."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

__all__ = ["Times", "take_times"]

Stages: TypeAlias = "Callable[[], Sequence[Callable[[], object]]]"
"""Prepares something, untimed, and returns what is timed, one after the other."""


@attrs.frozen(kw_only=True)
class Times:
    """Medians in processor seconds: waiting, for a busy machine or for what a component loads, is not counted."""

    floor: float
    """Every text tokenised once, by a tokenizer that remembers nothing."""
    cold: Mapping[int, float]
    """Budget → the first render of a new Renderer, with a tokenizer that remembers nothing."""
    warm: Mapping[int, float]
    """Budget → the same prompt once more, with the Renderer kept."""


def take_times(*, repeat: int, floor: Stages, renders: Mapping[int, Stages]) -> Times:
    """Time the floor (one stage) and the renders by their budget (two stages, cold and warm), each `repeat` times.

    Each round takes everything once, so that a machine that slows down slows all of it; every other round goes backwards.
    """
    floors: list[float] = []
    cold: dict[int, list[float]] = {budget: [] for budget in renders}
    warm: dict[int, list[float]] = {budget: [] for budget in renders}
    with _quiet():
        for number in range(repeat):
            floors += _seconds(floor)
            for budget in sorted(renders, reverse=bool(number % 2)):
                first, again = _seconds(renders[budget])
                cold[budget].append(first)
                warm[budget].append(again)
    return Times(floor=_median(floors), cold=_medians(cold), warm=_medians(warm))


@contextmanager
def _quiet() -> Generator[None]:
    """The garbage collector rests while something is timed, and does not look through what was there before."""
    was_on = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()


def _seconds(stages: Stages) -> list[float]:
    seconds: list[float] = []
    for stage in stages():
        start = time.process_time()
        result = stage()
        seconds.append(time.process_time() - start)
        del result  # freeing a large tree takes time of its own: here, and not in the next stage
    gc.collect()
    return seconds


def _medians(times: Mapping[int, Sequence[float]]) -> dict[int, float]:
    return {budget: _median(seconds) for budget, seconds in times.items()}


def _median(seconds: Sequence[float]) -> float:
    return round(median(seconds), 7)  # no clock knows more digits
