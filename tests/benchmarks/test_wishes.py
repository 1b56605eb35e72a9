"""The benchmark of wishes, reduced: what it counts is counted where it happens."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

import attrs

from benchmarks import wishes
from benchmarks.wishes import Standing, count_unmarked_quotes, look_at, main, play_script
from promptkit import Message
from promptkit.compaction.run import compactor, replacement

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_nothing_of_the_script_is_lost_and_all_that_was_ruled_out_binds() -> None:
    standing, lost = asyncio.run(play_script())
    assert standing.constraints == standing.binding > 0
    assert (standing.reopened, lost) == (0, 0)


def test_constraints_that_are_not_repeated_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none(texts: object) -> tuple[str, ...]:
        _ = texts
        return ()

    monkeypatch.setattr(replacement, "find_constraints", find_none)
    standing, lost = asyncio.run(play_script())
    assert standing.binding == 0
    assert lost == standing.constraints


def test_quotations_that_are_not_marked_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asyncio.run(count_unmarked_quotes()) == 0

    def mark_none(text: str, said: object) -> str:
        _ = said
        return text

    monkeypatch.setattr(compactor, "mark_invented_quotes", mark_none)
    assert asyncio.run(count_unmarked_quotes()) == 5


def test_an_answered_request_that_is_shown_as_open_is_counted() -> None:
    window = wishes.open_window(20_000)
    window.add(Message(role="user", content="Fix it."))
    window.add(Message(role="assistant", content="Done. [open] Fix it."))
    standing = Standing()
    look_at(window, standing)
    assert attrs.astuple(standing) == (0, 0, 1)


def test_without_recordings_it_says_why_it_measures_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["wishes", "--json", str(tmp_path / "none")])
    main()
    assert "there is no folder" in json.loads(capsys.readouterr().out)["skipped"]
