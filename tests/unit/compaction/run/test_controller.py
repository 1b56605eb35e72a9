from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit.compaction.policy.rules import (
    Thresholds,
    compact_at,
    compact_on_demand,
    default_policy,
    first_match,
    on_overflow,
    prune_results,
)
from promptkit.compaction.policy.state import Attempts
from promptkit.compaction.pruning.tool_outputs import ReduceToolResults
from promptkit.compaction.run.compactor import Compactor
from promptkit.compaction.run.controller import CompactionController
from promptkit.compaction.run.state import ConversationState
from promptkit.compaction.summarizers.extractive import ExtractiveSummarizer
from promptkit.errors import CompactionInProgressError, ContextWindowFullError, SummaryError
from promptkit.messages import Message
from promptkit.testing import WordTokenizer
from promptkit.tokens.budget import ContextBudget
from promptkit.transcript.log.entries import Checkpoint, Edit
from promptkit.transcript.log.transcript import Transcript
from tests.conversations import words
from tests.unit.compaction.run.controllers import BUDGET, Kept, grown, kept, run, turns
from tests.unit.compaction.summarizers.writers import Recorder, Writer, state

# pyright: reportPrivateUsage=false


if TYPE_CHECKING:
    from promptkit.compaction.planning.plan import Summary, SummaryTask


@pytest.fixture
def no_extract(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the summary without a model fail, too."""

    async def fail(_: ExtractiveSummarizer, task: SummaryTask) -> Summary:
        raise SummaryError(reason="not_smaller", detail=f"{task.max_tokens} are too few.")

    monkeypatch.setattr(ExtractiveSummarizer, "summarize", fail)


def test_a_summary_is_begun_after_a_render_and_put_in_place_before_another() -> None:
    each = kept()

    async def work() -> None:
        grown(each)
        assert state(each.controller.background) == "running"
        await turns()
        assert state(each.controller.background) == "ready"
        assert not each.compacted
        each.user(10, "next")
        await each.prepare()
        assert each.compacted
        assert each.texts == ["<conversation-summary>", "answer", "next"]

    run(work, each)
    assert each.told.triggers == ["background"]
    assert each.told.ends == ["committed"]


@pytest.mark.spec("E91")
def test_a_summary_that_is_not_needed_any_more_is_dropped() -> None:
    each = kept()

    async def work() -> None:
        grown(each)
        await turns()
        first = each.log.path()[2]
        each.controller.set_budget(ContextBudget(window=10_000, reserved_output_tokens=0))
        assert first.message is not None
        await each.prepare()
        assert not each.compacted

    run(work, each)
    assert each.told.ends == ["discarded"]


@pytest.mark.spec("E91")
def test_a_summary_of_what_was_edited_since_is_dropped() -> None:
    each = kept()

    async def work() -> None:
        grown(each)
        await turns()
        each.log.append(
            Edit(target=each.log.path()[0].id, content=("redacted",), reason="redacted")
        )
        await each.prepare()
        assert not each.compacted

    run(work, each)
    assert "DiscardSummary" in each.told.decisions
    assert each.told.ends == ["discarded"]


@pytest.mark.parametrize("ready", [True, False])
def test_what_goes_on_beside_it_gives_way_to_one_that_is_asked_for(ready: bool) -> None:
    each = kept(writer=Writer(gate=None if ready else asyncio.Event()))

    async def work() -> None:
        grown(each)
        await turns()
        each.writer.gate = None
        assert await each.controller.compact() is not None
        assert state(each.controller.background) == "idle"

    run(work, each)
    assert sorted(each.told.ends) == sorted(["discarded" if ready else "cancelled", "committed"])


def test_a_switch_drops_what_is_under_way_and_what_was_tried() -> None:
    each = kept(writer=Writer(gate=asyncio.Event()))

    async def work() -> None:
        grown(each)
        await turns()
        each.controller.state = attrs.evolve(
            each.controller.state,
            attempts=Attempts(unsuccessful=1, consecutive_unsuccessful=3),
        )
        each.controller.set_model("other", BUDGET, tokenizer=WordTokenizer())
        assert state(each.controller.background) == "idle"
        assert each.controller.state.attempts == Attempts()

    run(work, each)
    assert each.told.ends == ["cancelled"]


@pytest.mark.spec("E83")
def test_a_summary_that_comes_after_it_was_dropped_is_discarded_and_said() -> None:
    each = kept(writer=Writer(gate=asyncio.Event(), stubborn=True))

    async def work() -> None:
        grown(each)
        await turns()
        each.controller.undo()
        await turns()
        assert state(each.controller.background) == "idle"
        assert not each.compacted

    run(work, each)
    assert each.told.ends == ["discarded"]


def test_the_live_request_is_given_only_where_it_shows_all_that_is_dropped() -> None:
    each = kept()

    async def work() -> None:
        grown(each)
        await turns()
        (task,) = each.writer.tasks
        assert task.last_request is not None
        shown = [message.text for message in task.last_request.messages]
        for item in (*task.plan.dropped, *task.plan.prefix):
            assert item.message.text in shown
        each.user(1)
        each.log.append_messages(
            Message(role="assistant", content=("said elsewhere",)),
            Message(role="user", content=("and on",)),
        )
        await each.controller.compact()
        assert each.writer.tasks[1].last_request is None

    run(work, each)


def test_the_last_answer_stands_behind_the_live_request_where_the_summary_covers_it() -> None:
    each = kept()

    async def work() -> None:
        each.user(900)
        each.answer(40)
        await turns()
        (task,) = each.writer.tasks
        assert [item.message.role for item in task.plan.dropped] == ["user", "assistant"]
        assert task.last_request is not None
        assert task.last_request.messages[-1].text == words(40, "answer")

    run(work, each)


def test_what_was_redacted_is_not_asked_about_behind_the_live_request() -> None:
    each = kept()

    async def work() -> None:
        each.user(100, "secret")
        each.answer(60)
        each.user(100)
        each.answer(60)
        each.log.append(
            Edit(target=each.log.path()[0].id, content=("redacted",), reason="redacted")
        )
        await each.controller.compact()
        assert each.writer.tasks[0].last_request is None

    run(work, each)


def test_with_tools_a_conversation_that_is_never_warm_starts_its_summary_at_nine_tenths_of_what_overflows() -> (
    None
):
    each = kept()
    each.controller.set_budget(ContextBudget(window=1_000, reserved_output_tokens=0, tools=100))
    full = each.controller.budget.render_budget
    assert full == 910

    async def work() -> None:
        while each.told.decisions[-1:] != ["StartBackground"]:
            each.user(5)
            await each.prepare()
            each.answer(5)
            assert each.controller.usage().tokens < full, (
                "the request overflows before the summary is started"
            )
        assert 0.9 <= each.controller.usage().tokens / full < 0.92

    run(work, each)


def test_old_outputs_are_pruned_where_the_policy_says_so() -> None:
    policy = first_match((prune_results(least_saving=1), on_overflow()))
    each = kept(policy=policy, reduce=ReduceToolResults(superseded=False))
    each.controller.set_budget(ContextBudget(window=100_000, reserved_output_tokens=0))

    async def work() -> None:
        each.user(10)
        each.round("c1", 30_000)
        each.round("c2", 30_000)
        each.round("c3", 30_000)
        each.answer(10)
        each.user(10)
        await each.prepare()
        edits = [entry.payload for entry in each.log.path() if isinstance(entry.payload, Edit)]
        assert len(edits) == 2
        assert each.controller.usage().tokens < 50_000

    run(work, each)
    assert each.told.decisions[-2:] == ["Prune", "NoAction"]


class Counting(WordTokenizer):
    """Keeps what it counted."""

    def count(self, text: str) -> int:
        COUNTED.append(text)
        return super().count(text)


COUNTED: list[str] = []


def test_a_decision_counts_only_what_is_new() -> None:
    tokenizer = Counting()
    compactor = Compactor(
        Transcript(),
        summarizer=Writer(),
        tokenizer=tokenizer,
        max_summary_tokens=9,
        max_result_tokens=500,
    )
    controller = CompactionController(
        compactor,
        ConversationState(
            model="m",
            budget=ContextBudget(window=10**9, reserved_output_tokens=0),
            tokenizer=tokenizer,
        ),
        policy=default_policy(rng=lambda: 0.5),
    )
    each = Kept(controller, Writer(), Recorder())

    async def work() -> None:
        for number in range(50):
            each.user(5, f"ask{number}")
            await each.prepare()
            each.answer(5)
        COUNTED.clear()
        each.user(5, "new")
        await each.prepare()
        each.answer(5)
        assert set(COUNTED) == {words(5, "new"), words(5, "answer")}

    asyncio.run(work())


def test_who_is_cancelled_while_closing_has_said_what_became_of_a_ready_summary() -> None:
    each = kept()

    async def talk() -> None:
        released = asyncio.Event()

        async def slow() -> None:
            await released.wait()

        grown(each)
        await turns()
        assert each.controller.background.state == "ready"
        ending = asyncio.ensure_future(slow())
        # work of an earlier pass, which heeds its cancellation late
        each.controller.background._ending.add(ending)
        closing = asyncio.ensure_future(each.controller.close())
        await turns()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        released.set()
        await ending

    run(talk, each)
    assert each.told.ends == ["discarded"]


def test_a_cold_conversation_waits_for_the_higher_threshold() -> None:
    each = kept()

    async def work() -> None:
        each.user(840)
        each.answer(10)
        assert state(each.controller.background) == "idle"
        each.user(50)
        each.answer(20)
        assert state(each.controller.background) == "running"

    run(work, each)


def test_an_overflow_takes_what_is_ready() -> None:
    each = kept()

    async def work() -> None:
        grown(each)
        await turns()
        await each.make_room(1_200)
        assert each.compacted

    run(work, each)
    assert each.told.triggers == ["background"]


def test_an_overflow_waits_for_what_is_under_way() -> None:
    each = kept(writer=Writer(gate=asyncio.Event()))

    async def work() -> None:
        grown(each)
        waiting = asyncio.ensure_future(each.make_room(1_200))
        await turns()
        assert not waiting.done()
        assert each.writer.gate is not None
        each.writer.gate.set()
        await waiting
        assert each.compacted

    run(work, each)
    assert each.told.triggers == ["background"]
    assert "Wait" in each.told.decisions


def test_the_wait_for_what_is_under_way_is_bounded() -> None:
    policy = default_policy(rng=lambda: 0.5, thresholds=Thresholds(wait_seconds=0.001))
    each = kept(writer=Writer(gate=asyncio.Event()), policy=policy)

    async def work() -> None:
        grown(each)
        await turns()
        each.writer.gate = None  # the next one answers
        await each.make_room(1_200)
        assert each.compacted

    run(work, each)
    assert each.told.triggers == ["background", "foreground"]
    assert sorted(each.told.ends) == ["cancelled", "committed"]


def test_who_is_cancelled_while_waiting_is_cancelled_and_the_summary_goes_on() -> None:
    each = kept(writer=Writer(gate=asyncio.Event()))

    async def work() -> None:
        grown(each)
        waiting = asyncio.ensure_future(each.make_room(1_200))
        await turns()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert each.writer.gate is not None
        each.writer.gate.set()
        await turns()
        assert state(each.controller.background) == "ready"

    run(work, each)


@pytest.mark.spec("E33")
def test_a_background_that_failed_leaves_the_foreground_its_attempt() -> None:
    each = kept(writer=Writer(error=ValueError("no provider")))

    async def work() -> None:
        grown(each)
        await turns()
        assert state(each.controller.background) == "failed"
        each.writer.error = None
        await each.make_room(1_200)
        assert each.compacted

    run(work, each)
    assert each.told.ends == ["failed", "committed"]


@pytest.mark.usefixtures("no_extract")
@pytest.mark.spec("E30")
def test_one_failed_attempt_for_each_message_of_the_person() -> None:
    each = kept(writer=Writer(error=ValueError("no provider")))

    async def work() -> None:
        grown(each)
        await turns()
        await each.make_room(1_200)
        assert each.state.pruned
        await each.prepare()
        await each.make_room(1_200)
        assert len(each.writer.tasks) == 2  # one in the background, one in the foreground
        each.user(1)
        await each.prepare()
        await each.make_room(1_200)
        assert len(each.writer.tasks) == 3

    run(work, each)


@pytest.mark.usefixtures("no_extract")
@pytest.mark.spec("E33")
def test_the_breaker_opens_after_three_failures_in_a_row_and_lets_one_through_after_as_many_messages() -> (
    None
):
    each = kept(writer=Writer(error=ValueError("no provider")))

    async def work() -> None:
        grown(each)
        tried: list[int] = []
        for _ in range(9):
            await turns()
            each.user(1)
            await each.prepare()
            await each.make_room(1_200)
            tried.append(len(each.writer.tasks))
        assert tried == [2, 3, 3, 3, 4, 4, 4, 5, 5]  # the first in the background, too

    run(work, each)


@pytest.mark.spec("E31")
def test_a_compaction_that_did_not_reduce_enough_is_not_repeated() -> None:
    each = kept(writer=Writer(text=words(199)))

    async def work() -> None:
        each.user(100)
        each.round("c1", 300)
        each.round("c2", 600)  # this one stays, and is too large already
        await each.make_room(1_200)
        assert each.compacted
        assert each.controller.state.attempts.last == "not enough"
        await each.make_room(1_200)
        assert each.state.pruned
        assert len(each.writer.tasks) == 1

    run(work, each)


@pytest.mark.spec("E41")
def test_switched_off_an_overflow_is_pruned_and_nothing_is_summarized() -> None:
    each = kept(enabled=False)

    async def work() -> None:
        grown(each)
        await each.make_room(1_200)
        assert each.state.pruned
        assert each.writer.tasks == []
        assert await each.controller.compact() is not None  # asked for, it is done

    run(work, each)


@pytest.mark.usefixtures("no_extract")
def test_a_model_must_write_the_summary_while_there_is_room_and_where_it_is_asked_for() -> None:
    policy = first_match((compact_on_demand, compact_at(0.5), on_overflow()))
    each = kept(writer=Writer(error=ValueError("no provider")), policy=policy)

    async def work() -> None:
        each.user(300)
        each.answer(300)
        each.user(10)
        await each.prepare()  # at a threshold
        each.user(10)
        await each.make_room(1_200)  # it does not fit
        for allowed in (False, True):
            with pytest.raises(ValueError, match="no provider"):
                await each.controller.compact(allow_extractive=allowed)

    run(work, each)
    assert [task.require_model for task in each.writer.tasks] == [True, False, True, False]


def test_a_background_summary_is_a_model_s_and_takes_its_time() -> None:
    each = kept()

    async def work() -> None:
        grown(each)
        await turns()

    run(work, each)
    (task,) = each.writer.tasks
    assert (task.require_model, task.seconds) == (True, None)


def test_each_summarizer_may_take_as_long_as_the_policy_waits() -> None:
    each = kept(policy=default_policy(rng=lambda: 0.5, thresholds=Thresholds(wait_seconds=7)))

    async def work() -> None:
        each.user(300)
        each.answer(300)
        each.user(300)
        await each.make_room(1_200)
        each.answer(300)
        each.user(10)
        await each.controller.compact()

    run(work, each)
    assert [task.seconds for task in each.writer.tasks] == [7, 7]


def test_a_failure_while_there_is_room_leaves_an_overflow_its_attempt() -> None:
    policy = first_match((compact_at(0.5), on_overflow()))
    each = kept(writer=Writer(error=ValueError("no provider")), policy=policy)

    async def work() -> None:
        each.user(300)
        each.answer(300)
        each.user(10)
        await each.prepare()
        assert each.told.ends == ["failed"]
        each.writer.error = None
        await each.make_room(1_200)
        assert each.compacted

    run(work, each)


def test_what_is_too_large_even_pruned_is_said() -> None:
    each = kept()

    async def work() -> None:
        each.user(900)
        await each.make_room(2_000)
        assert each.state.pruned
        with pytest.raises(ContextWindowFullError, match="pruned"):
            await each.make_room(2_000)

    run(work, each)


@pytest.mark.spec("E32")
def test_what_every_request_has_is_learnt_and_may_be_hopeless() -> None:
    each = kept()

    async def work() -> None:
        each.user(10)
        each.render(1_010)  # a thousand tokens beside the conversation
        assert each.controller.usage().local == 1_010
        with pytest.raises(ContextWindowFullError, match="no summary helps"):
            await each.make_room(1_010)

    run(work, each)


@pytest.mark.spec("E34")
def test_a_refusal_of_a_model_that_was_switched_from_is_let_pass() -> None:
    each = kept()

    async def work() -> None:
        grown(each)
        each.controller.set_model("other", BUDGET, tokenizer=WordTokenizer())
        await each.make_room(1_200, refused_by="m")
        assert not each.compacted
        assert not each.state.pruned

    run(work, each)


@pytest.mark.parametrize("iterations", [1, 2, 3, 4, 5])
def test_what_is_appended_while_one_begins_does_not_cost_the_live_request(iterations: int) -> None:
    each = kept(writer=Writer(gate=asyncio.Event()))

    async def work() -> None:
        grown(each, 120)
        overflowing = asyncio.ensure_future(each.make_room(1_200))
        await turns(iterations)
        each.user(1, "meanwhile")
        assert each.writer.gate is not None
        each.writer.gate.set()
        await overflowing
        assert each.compacted
        assert each.writer.tasks[-1].last_request is not None
        assert each.texts[-1] == "meanwhile"

    run(work, each)


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_another_one_is_refused_while_the_first_begins(iterations: int) -> None:
    each = kept()

    async def work() -> None:
        grown(each, 120)
        overflowing = asyncio.ensure_future(each.make_room(1_200))
        await turns(iterations)
        with pytest.raises(CompactionInProgressError):
            await each.controller.compact()
        await overflowing
        assert each.compacted

    run(work, each)


@pytest.mark.spec("E86")
def test_one_that_is_asked_for_serves_an_overflow_that_comes_meanwhile() -> None:
    each = kept(writer=Writer(gate=asyncio.Event()))

    async def work() -> None:
        each.user(300)
        each.answer(300)
        each.user(300)
        asked = asyncio.ensure_future(each.controller.compact())
        await turns()
        with pytest.raises(CompactionInProgressError):
            await each.controller.compact()
        overflowing = asyncio.ensure_future(each.make_room(1_200))
        await turns()
        assert each.writer.gate is not None
        each.writer.gate.set()
        await overflowing
        assert not each.state.pruned
        assert await asked is not None
        assert sum(isinstance(entry.payload, Checkpoint) for entry in each.log.path()) == 1

    run(work, each)
    assert each.told.triggers == ["manual"]
