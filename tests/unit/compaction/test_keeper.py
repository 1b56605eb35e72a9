# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio

import pytest

from promptkit.compaction.attempts import Attempts
from promptkit.compaction.budget import Budget
from promptkit.compaction.compactor import Compactor
from promptkit.compaction.keeper import Keeper
from promptkit.compaction.policy import default_policy, first_match, on_overflow, prune_at
from promptkit.messages import Message
from promptkit.testing import WordTokenizer
from promptkit.transcript.entries import Edit
from promptkit.transcript.transcript import Transcript
from tests.unit.compaction.keeping import BUDGET, Kept, grown, kept, run, turns
from tests.unit.compaction.talk import words
from tests.unit.compaction.writers import Recorder, Writer, state


def test_a_summary_is_begun_after_a_render_and_put_in_place_before_another() -> None:
    each = kept()

    async def work() -> None:
        grown(each)
        assert state(each.keeper.background) == "running"
        await turns()
        assert state(each.keeper.background) == "ready"
        assert not each.compacted
        each.user(10, "next")
        await each.keeper.prepare()
        assert each.compacted
        assert each.texts == ["<conversation-summary>", "answer", "next"]

    run(work, each)
    assert each.told.triggers == ["background"]
    assert each.told.ends == ["committed"]


def test_E91_a_summary_that_is_not_needed_any_more_is_dropped() -> None:
    each = kept()

    async def work() -> None:
        grown(each)
        await turns()
        first = each.log.path()[2]
        each.keeper.budget = Budget(window=10_000, reply_tokens=0)
        assert first.message is not None
        await each.keeper.prepare()
        assert not each.compacted

    run(work, each)
    assert each.told.ends == ["discarded"]


def test_E91_a_summary_of_what_was_edited_since_is_dropped() -> None:
    each = kept()

    async def work() -> None:
        grown(each)
        await turns()
        each.log.append(Edit(target=each.log.path()[0].id, content=("redacted",), reason="redacted"))
        await each.keeper.prepare()
        assert not each.compacted

    run(work, each)
    assert "Discard" in each.told.decisions
    assert each.told.ends == ["discarded"]


@pytest.mark.parametrize("ready", [True, False])
def test_what_goes_on_beside_it_gives_way_to_one_that_is_asked_for(ready: bool) -> None:
    each = kept(writer=Writer(gate=None if ready else asyncio.Event()))

    async def work() -> None:
        grown(each)
        await turns()
        each.writer.gate = None
        assert await each.keeper.compact() is not None
        assert state(each.keeper.background) == "idle"

    run(work, each)
    assert sorted(each.told.ends) == sorted(["discarded" if ready else "cancelled", "committed"])


def test_a_switch_drops_what_is_under_way_and_what_was_tried() -> None:
    each = kept(writer=Writer(gate=asyncio.Event()))

    async def work() -> None:
        grown(each)
        await turns()
        each.keeper.attempts = Attempts(failed=1, in_a_row=3)
        each.keeper.switch("other", BUDGET, tokenizer=WordTokenizer())
        assert state(each.keeper.background) == "idle"
        assert each.keeper.attempts == Attempts()

    run(work, each)
    assert each.told.ends == ["cancelled"]


def test_E83_a_summary_that_comes_after_it_was_dropped_is_discarded_and_said() -> None:
    each = kept(writer=Writer(gate=asyncio.Event(), stubborn=True))

    async def work() -> None:
        grown(each)
        await turns()
        each.keeper.turned("not needed")
        await turns()
        assert state(each.keeper.background) == "idle"
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
        each.log.say(Message(role="assistant", content=("said elsewhere",)), Message(role="user", content=("and on",)))
        await each.keeper.compact()
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
        each.answer(10)
        each.user(100)
        each.answer(10)
        each.log.append(Edit(target=each.log.path()[0].id, content=("redacted",), reason="redacted"))
        await each.keeper.compact()
        assert each.writer.tasks[0].last_request is None

    run(work, each)


def test_old_outputs_are_pruned_where_the_policy_says_so() -> None:
    policy = first_match((prune_at(0.5, least=1), on_overflow()))
    each = kept(policy=policy, prunes=True)
    each.keeper.budget = Budget(window=100_000, reply_tokens=0)

    async def work() -> None:
        each.user(10)
        each.round("c1", 30_000)
        each.round("c2", 30_000)
        each.round("c3", 30_000)
        each.answer(10)
        each.user(10)
        await each.keeper.prepare()
        edits = [entry.payload for entry in each.log.path() if isinstance(entry.payload, Edit)]
        assert len(edits) == 2
        assert each.keeper.reading().tokens < 50_000

    run(work, each)
    assert each.told.decisions[-2:] == ["Prune", "Nothing"]


class Counting(WordTokenizer):
    """Keeps what it counted."""

    def count(self, text: str) -> int:
        COUNTED.append(text)
        return super().count(text)


COUNTED: list[str] = []


def test_a_decision_counts_only_what_is_new() -> None:
    tokenizer = Counting()
    compactor = Compactor(Transcript(), summarizer=Writer(), tokenizer=tokenizer, max_summary_tokens=9, max_result_tokens=500)
    keeper = Keeper(
        compactor, budget=Budget(window=10**9, reply_tokens=0), policy=default_policy(draw=lambda: 0.5), tokenizer=tokenizer, model="m"
    )
    each = Kept(keeper, Writer(), Recorder())

    async def work() -> None:
        for number in range(50):
            each.user(5, f"ask{number}")
            await keeper.prepare()
            each.answer(5)
        COUNTED.clear()
        each.user(5, "new")
        await keeper.prepare()
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
        assert each.keeper.background.state == "ready"
        ending = asyncio.ensure_future(slow())
        each.keeper.background._ending.add(ending)  # work of an earlier pass, which heeds its cancellation late
        closing = asyncio.ensure_future(each.keeper.close())
        await turns()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        released.set()
        await ending

    run(talk, each)
    assert each.told.ends == ["discarded"]
