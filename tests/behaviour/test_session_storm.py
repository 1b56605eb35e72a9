"""Sessions in which everything goes wrong at once: what holds however the model, the person, the disk and other processes behave."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.behaviour.storm import Storm
from tests.examples import keep_first

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.long
@pytest.mark.parametrize("seed", keep_first(2, *range(10)))
def test_a_session_stands_a_storm(seed: int, tmp_path: Path) -> None:
    asyncio.run(Storm(seed, tmp_path).rage(25))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_300))
def test_a_session_stands_many_storms(seed: int, tmp_path: Path) -> None:
    asyncio.run(Storm(seed, tmp_path).rage(80))
