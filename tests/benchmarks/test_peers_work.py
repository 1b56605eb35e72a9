"""The workload, and the verdict on what came back of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from benchmarks.peers.verdict import CUT, NOT_NEWEST, ORPHAN, OVER, UNANSWERED, judge
from benchmarks.peers.work import SHAPES, ShapeName, Work, count, make_workload

if TYPE_CHECKING:
    from collections.abc import Sequence


def message_of(items: Sequence[Any]) -> list[Any]:
    return [{"role": "user", "content": "\n".join(item["content"] for item in items)}]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_workload_is_the_same_every_time_and_half_of_it_may_stay(shape: ShapeName) -> None:
    work = make_workload(shape, 40)
    assert work == make_workload(shape, 40)
    assert len(work.items) == 40
    assert work.budget == work.tokens // 2
    told = json.loads(work.to_json())
    assert told == {"shape": shape, "budget": work.budget, "items": json.loads(json.dumps(work.items))}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [37, 38, 39, 40])
def test_the_whole_of_a_workload_is_a_sound_request_that_ends_with_a_user(shape: ShapeName, size: int) -> None:
    work = make_workload(shape, size)
    messages = message_of(work.items) if shape == "chunks" else work.items
    assert judge(work, messages).faults == (OVER,)
    assert judge(attrs.evolve(work, budget=work.tokens), messages).faults == ()
    assert messages[-1]["role"] == "user"


@pytest.mark.parametrize("shape", SHAPES)
def test_the_most_that_fits_fits_and_one_more_does_not(shape: ShapeName) -> None:
    work = make_workload(shape, 40)
    for budget in range(work.budget, work.budget * 3 // 2, work.budget // 20):
        narrow = attrs.evolve(work, budget=budget)
        most = narrow.most()
        kept = judge(narrow, newest(work, most))
        assert kept.faults == ()
        assert kept.kept == tuple(range(40 - most, 40))
        step = 2 if work.items[40 - most - 1]["role"] == "tool" else 1
        assert judge(narrow, newest(work, most + step)).faults == (OVER,)


def newest(work: Work, items: int) -> Sequence[Any]:
    kept = work.items[work.size - items :]
    return message_of(kept) if work.shape == "chunks" else kept


def test_nothing_fits_into_nothing() -> None:
    assert attrs.evolve(make_workload("messages", 10), budget=0).most() == 0


def test_a_result_is_counted_as_it_is_billed_whatever_the_peer_says() -> None:
    work = make_workload("messages", 10)
    assert judge(work, work.items[8:]).tokens == count(work.items[8:])


@pytest.mark.parametrize("kept", [[9, 8], [7, 9], [0, 1], []])
def test_what_is_not_the_newest_in_a_row_is_not_sound(kept: list[int]) -> None:
    work = make_workload("messages", 10)
    verdict = judge(work, [work.items[index] for index in kept])
    assert NOT_NEWEST in verdict.faults
    assert not verdict.sound
    assert verdict.fits


def test_a_message_that_was_shortened_is_seen() -> None:
    work = make_workload("messages", 10)
    short = {**work.items[7], "content": str(work.items[7]["content"])[:40] + ".."}
    verdict = judge(work, [short, *work.items[8:]])
    assert verdict.kept == (8, 9)
    assert verdict.faults == (CUT,)


def test_a_line_that_was_shortened_is_seen_and_an_empty_one_is_not() -> None:
    work = make_workload("chunks", 10)
    text = message_of(work.items[8:])[0]["content"]
    assert judge(work, [{"role": "user", "content": f"\n{text}\n"}]).faults == ()
    assert judge(work, [{"role": "user", "content": text[3:]}]).faults == (CUT,)


def test_a_result_without_its_call_and_a_call_without_its_result_are_seen() -> None:
    work = make_workload("tools", 8)
    assert [item["role"] for item in work.items] == ["assistant", "tool", "assistant", "user"] * 2
    orphan = judge(work, work.items[5:])
    assert orphan.faults == (ORPHAN,)
    assert not orphan.sound
    assert UNANSWERED in judge(work, [work.items[4], *work.items[6:]]).faults
    assert ORPHAN in judge(work, [work.items[5], work.items[4], *work.items[6:]]).faults


def test_that_it_does_not_fit_is_no_question_of_soundness() -> None:
    work = make_workload("messages", 10)
    verdict = judge(work, work.items[1:])
    assert verdict.faults == (OVER,)
    assert verdict.sound
    assert not verdict.fits
