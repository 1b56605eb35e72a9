"""The soak finds what is lost and what is there twice, cancels where it says, and a short one finds nothing."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from promptkit import Message
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.store import JsonlStore
from tests.soak.conversation import CancelAt
from tests.soak.soak import Account, soak

if TYPE_CHECKING:
    from pathlib import Path


async def _three_awaits(done: list[int]) -> str:
    for number in range(3):
        await asyncio.sleep(0)
        done.append(number)
    return "done"


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_call_is_cancelled_at_the_await_that_was_chosen(number: int) -> None:
    done: list[int] = []

    async def main() -> None:
        work = CancelAt(_three_awaits(done), number)
        try:
            assert await work == "done"
        except asyncio.CancelledError:
            assert work.cancelled
        else:
            assert not work.cancelled

    asyncio.run(main())
    assert done == list(range(min(number, 3)))


def test_what_is_lost_and_what_is_there_twice_is_counted(tmp_path: Path) -> None:
    said = [Message(role="user", content=(f"[said 1.{number}] Hello.",)) for number in (1, 2, 2)]
    Transcript(JsonlStore(tmp_path / "1.jsonl")).append_messages(*said)
    notes = [{"said": "said 1.1", "answer": None}, {"said": "said 1.3", "answer": "[answer 9] So."}]
    (tmp_path / "1.notes").write_text("".join(json.dumps(note) + "\n" for note in notes))
    account = Account()
    account.check(tmp_path, "1", {"said 1.4"})
    # what was only tried, and failed, need not be there: 1.1 is
    assert (account.lost, account.duplicated) == (3, 1)
    assert len(account.errors) == 4


@pytest.mark.slow
def test_twenty_sessions_stand_some_seconds() -> None:
    figures = soak(seconds=12, sessions=20)
    assert figures.errors == ()
    assert (figures.lost, figures.duplicated, figures.invalid_requests, figures.open_files) == (
        0,
        0,
        0,
        0,
    )
    assert figures.kills
    assert figures.cancellations
