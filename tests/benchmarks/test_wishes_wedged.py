"""The benchmark of oversized turns, reduced: no session is wedged, and one that is would be counted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from benchmarks import wishes_wedged
from benchmarks.wishes_wedged import KINDS, Kind, count_wedged, hold

if TYPE_CHECKING:
    from collections.abc import Mapping


def test_there_are_twenty_kinds() -> None:
    assert len(KINDS) == 20


@pytest.mark.long
@pytest.mark.parametrize("name", ["parallel_results", "smaller", "killed"])
def test_a_session_goes_on_after_an_oversized_turn(name: str) -> None:
    assert asyncio.run(hold(name, "anthropic")) == "fine"


def test_a_message_that_fits_no_window_is_refused_and_the_session_goes_on() -> None:
    assert asyncio.run(hold("document")).startswith("refused: no summary helps")


def test_a_session_that_cannot_go_on_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hold(name: str, api: str = "openai") -> str:
        return "wedged: the request is larger than the budget." if api == "openai" else "fine"

    monkeypatch.setattr(wishes_wedged, "hold", hold)
    assert count_wedged() == 20


def test_a_turn_that_is_never_answered_is_wedged(monkeypatch: pytest.MonkeyPatch) -> None:
    # what comes after the three ordinary turns is refused for ever
    kinds: Mapping[str, Kind] = {"refused": Kind(max_bytes=3_000, content=("Look." * 1_000,))}
    monkeypatch.setattr(wishes_wedged, "KINDS", kinds)
    outcome = asyncio.run(hold("refused"))
    assert outcome.startswith("wedged: the provider refused")


@pytest.mark.slow
def test_no_session_is_wedged() -> None:
    assert count_wedged() == 0
