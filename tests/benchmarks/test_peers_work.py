"""The workload, and the verdict on what came back of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from benchmarks.peers.verdict import CUT, FOREIGN, LOST, NOT_NEWEST, ORPHAN, OVER, UNANSWERED, judge
from benchmarks.peers.work import SHAPES, ShapeName, budget_names, count, make_workload
from benchmarks.recorded import record
from promptkit.wire.chat import to_chat

if TYPE_CHECKING:
    from collections.abc import Sequence


def message_of(items: Sequence[Any]) -> list[Any]:
    return [{"role": "user", "content": "\n".join(item["content"] for item in items)}]


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
def test_a_workload_is_the_same_every_time_and_half_of_it_may_stay(shape: ShapeName) -> None:
    work = make_workload(shape, 40)
    assert work == make_workload(shape, 40)
    assert len(work.items) == 40 + (3 if shape == "history" else 0)
    assert work.budget == work.tokens // 2
    told = json.loads(work.to_json())
    assert told == {
        "shape": shape,
        "budget": work.budget,
        "items": json.loads(json.dumps(work.items)),
    }


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [37, 38, 39, 40])
def test_the_whole_of_a_workload_is_a_sound_request_that_ends_with_a_user(
    shape: ShapeName, size: int
) -> None:
    work = make_workload(shape, size - size % 4 if shape == "history" else size)
    messages = message_of(work.items) if shape == "chunks" else work.items
    assert judge(work, messages).faults == (OVER,)
    assert judge(attrs.evolve(work, budget=work.tokens), messages).faults == ()
    assert messages[-1]["role"] == "user"


@pytest.mark.parametrize("shape", SHAPES)
def test_the_most_that_fits_fits_and_one_more_does_not(shape: ShapeName) -> None:
    work = make_workload(shape, 40)
    items = work.items[1:-2] if shape == "history" else work.items
    for budget in range(work.budget, work.budget * 3 // 2, work.budget // 20):
        narrow = attrs.evolve(work, budget=budget)
        most = narrow.most()
        kept = judge(narrow, narrow.newest(most))
        assert kept.faults == ()
        assert kept.kept == tuple(range(40 - most, 40))
        step = 2 if items[40 - most - 1]["role"] == "tool" else 1
        assert judge(narrow, narrow.newest(most + step)).faults == (OVER,)


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


class TestHistory:
    """The README's prompt: instructions, 40 recorded messages in turns of four, a log, the request."""

    WORK = attrs.evolve(make_workload("history", 40), budget=100_000)

    @pytest.mark.long
    def test_is_that_of_the_renderers_benchmark_at_three_budgets(self) -> None:
        recorded = record(40)
        assert [item["content"] or None for item in self.WORK.items] == [
            message["content"] for message in to_chat(recorded.request())
        ]
        assert budget_names("history") == ("8k", "30k", "half")
        works = [make_workload("history", 40, at) for at in budget_names("history")]
        assert [(work.at, work.budget) for work in works] == [
            ("8k", 8_000),
            ("30k", 30_000),
            ("half", self.WORK.tokens // 2),
        ]
        assert self.WORK.tokens == count(to_chat(recorded.request()))

    def test_has_whole_turns(self) -> None:
        with pytest.raises(ValueError, match="write a multiple of 4 in place of 38"):
            make_workload("history", 38)

    def test_the_log_gets_the_lines_at_its_end_that_a_quarter_of_the_budget_has_room_for(
        self,
    ) -> None:
        work = attrs.evolve(self.WORK, budget=1_000)
        log, shortened = work.items[-2]["content"], work.newest(4)[-2]["content"]
        assert str(log).endswith(f"\n{shortened}")
        assert 200 < count([{"role": "user", "content": shortened}]) <= 250

    def shown(self, first: int, **changed: str) -> list[Any]:
        """Return the request from a recorded message on, with changed contents by role."""
        items = [*self.WORK.items[:1], *self.WORK.items[first + 1 :]]
        roles = {str(item["role"]): at for at, item in enumerate(items[:-2])}
        return [
            {**item, "content": changed[str(item["role"])]}
            if at in (roles[role] for role in changed)
            else item
            for at, item in enumerate(items)
        ]

    def test_a_shortened_message_a_marker_and_a_turn_shown_in_part_are_sound(self) -> None:
        result = str(self.WORK.items[-5]["content"])
        messages = self.shown(24, tool=f"{result[:50]}\n[… cut …]\n{result[-30:]}")
        marker = {"role": "user", "content": "[23 messages omitted]"}
        log = {**messages[-2], "content": f"[…]\n{str(messages[-2]['content'])[-300:]}"}
        verdict = judge(
            self.WORK,
            [messages[0], self.WORK.items[21], marker, *messages[1:-2], log, messages[-1]],
        )
        assert verdict.faults == ()
        assert verdict.kept == (20, *range(24, 38), 39)

    def test_the_verdict_is_on_size_too(self) -> None:
        assert judge(
            attrs.evolve(self.WORK, budget=self.WORK.tokens - 1), self.WORK.items
        ).faults == (OVER,)

    @pytest.mark.parametrize("gone", [0, -1])
    def test_instructions_and_request_have_to_stay(self, gone: int) -> None:
        messages = list(self.WORK.items)
        del messages[gone]
        assert judge(self.WORK, messages).faults == (LOST,)

    def test_a_gap_between_newer_turns_is_seen_and_so_is_another_order(self) -> None:
        messages = self.shown(20)
        assert judge(self.WORK, [*messages[:5], *messages[9:]]).faults == (NOT_NEWEST,)
        assert judge(
            self.WORK, [messages[0], *messages[5:9], *messages[1:5], *messages[9:]]
        ).faults == (NOT_NEWEST,)
        assert judge(self.WORK, messages).faults == ()

    def test_without_the_newest_message_it_is_not_sound(self) -> None:
        assert judge(self.WORK, [*self.WORK.items[:1], *self.WORK.items[-2:]]).faults == (
            NOT_NEWEST,
        )

    def test_a_text_of_its_own_is_seen(self) -> None:
        assert judge(self.WORK, self.shown(0, tool="something else")).faults == (FOREIGN,)

    def test_a_result_without_its_call_and_a_call_without_its_result_are_seen(self) -> None:
        messages = self.shown(20)
        assert ORPHAN in judge(self.WORK, [messages[0], *messages[3:]]).faults
        assert UNANSWERED in judge(self.WORK, [*messages[:3], *messages[4:]]).faults
