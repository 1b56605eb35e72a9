"""`python -m benchmarks.stores`, reduced: several processes lose nothing, write nothing twice, and make no branch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from benchmarks.stores import Sizes, measure_store, open_places
from promptkit import JsonlStore

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.long
def test_two_processes_make_one_line(tmp_path: Path) -> None:
    def place(conversation: str) -> partial[JsonlStore]:
        return partial(JsonlStore, tmp_path / f"{conversation}.jsonl")

    figures = measure_store(place, Sizes(writers=2, appends=6, single=3, entries=40))
    assert (
        figures.appends,
        figures.writers,
        figures.lost,
        figures.duplicated,
        figures.unwanted_branches,
    ) == (12, 2, 0, 0, 0)
    assert figures.append_ms > 0
    assert figures.open_ms_10000 > 0


@pytest.mark.slow
def test_every_store_meets_its_zeros() -> None:
    with open_places() as places:
        for name, place in places.items():
            figures = measure_store(place, Sizes(appends=10, single=3, entries=200))
            assert (figures.lost, figures.duplicated, figures.unwanted_branches) == (0, 0, 0), name
