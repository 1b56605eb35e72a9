"""Summaries of a turn that is cut in two."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.planning.plan import LastRequest, Summary, SummaryTask
from promptkit.compaction.planning.selection import KeepRecentTokens, select
from promptkit.compaction.run.compactor import Compactor
from promptkit.compaction.summarizers.fallback import FallbackSummarizer
from promptkit.compaction.summarizers.model_summarizers import SplitTurnSummarizer
from promptkit.errors import SummaryError
from promptkit.messages import Usage
from promptkit.testing import WordTokenizer
from tests.conversations import ConversationBuilder, words

if TYPE_CHECKING:
    from promptkit.compaction.planning.plan import Plan
    from promptkit.compaction.planning.selection import Keep
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.log.view import TranscriptView, ViewItem

TOKENIZER = WordTokenizer()


@attrs.define
class Part:
    """Tells which messages it was given; waits until as many are asked as it should, so that it hangs if they come one by one."""

    together: int = 1
    error: Exception | None = None
    tasks: list[SummaryTask] = attrs.field(factory=list[SummaryTask])
    ended: list[str] = attrs.field(factory=list[str])
    _all: asyncio.Event = attrs.field(factory=asyncio.Event)

    async def summarize(self, task: SummaryTask) -> Summary:
        self.tasks.append(task)
        if len(self.tasks) == self.together:
            self._all.set()
        await self._all.wait()
        if self.error is not None:
            if first(task.plan.dropped) == "before":
                raise self.error
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.ended.append("cancelled")
                raise
        return Summary(
            text=f"about {first(task.plan.dropped)}",
            mode="test",
            usage=Usage(input_tokens=10, output_tokens=1),
        )


def first(items: tuple[ViewItem, ...]) -> str:
    return items[0].message.text.split()[0]


def long_turn(*, history: bool, previous: str | None = None) -> ConversationBuilder:
    talk = ConversationBuilder()
    if previous:
        talk.checkpoint(previous)
    if history:
        talk.user("before " + words(50))
        talk.answer("yes")
    talk.user("wish")
    talk.round("c1", words(50))
    talk.round("c2", words(50))
    return talk


def select_split(
    view: TranscriptView, *, leaf: str, keep: Keep, tokenizer: Tokenizer = TOKENIZER
) -> Plan:
    """Plan with the open request in the part of the turn that is summarized."""
    plan = select(view, leaf=leaf, tokenizer=tokenizer, keep=keep, split=True)
    return attrs.evolve(plan, prefix=(*plan.replayed, *plan.prefix), replayed=())


def task_of(talk: ConversationBuilder, *, max_tokens: int = 100) -> SummaryTask:
    plan = select_split(talk.view, leaf=talk.leaf, keep=KeepRecentTokens(tokens=60))
    return SummaryTask(
        plan=plan,
        max_tokens=max_tokens,
        instructions="Mind the tests.",
        last_request=LastRequest(messages=talk.view.messages),
        facts=Facts(changed=("old.py",)),
    )


def split(part: Part, task: SummaryTask) -> Summary:
    return asyncio.run(SplitTurnSummarizer(summarizer=part, tokenizer=TOKENIZER).summarize(task))


def test_both_parts_are_asked_for_side_by_side_and_put_together() -> None:
    part = Part(together=2)
    task = task_of(long_turn(history=True))
    made = split(part, task)
    history, turn = made.text.split("\n\n---\n\n")
    assert history == "about before"
    assert turn.startswith("**The turn that is cut in two")
    assert turn.endswith("about wish")
    assert made.usage == Usage(input_tokens=20, output_tokens=2)
    assert made.facts == Facts()  # the compactor adds the facts of everything that was dropped
    assert sum(each.max_tokens for each in part.tasks) <= 100
    assert [each.last_request for each in part.tasks] == [None, None]


def test_the_first_part_of_the_turn_is_asked_for_with_its_own_instructions_and_no_earlier_summary() -> (
    None
):
    part = Part(together=2)
    split(part, task_of(long_turn(history=True, previous="S1")))
    (turn,) = [each for each in part.tasks if first(each.plan.dropped) == "wish"]
    assert turn.plan.previous is None
    assert turn.instructions is not None
    assert turn.instructions.startswith("This is the beginning of a turn")
    assert turn.instructions.endswith("Mind the tests.")


@pytest.mark.spec("E20")
def test_without_history_no_model_is_asked_for_it() -> None:
    part = Part()
    made = split(part, task_of(long_turn(history=False)))
    assert made.text.startswith("No prior history.\n\n---\n\n")
    assert len(part.tasks) == 1


def test_an_earlier_summary_stays_word_for_word_where_nothing_new_is_before_the_turn() -> None:
    part = Part()
    made = split(part, task_of(long_turn(history=False, previous="The first summary.")))
    assert made.text.startswith("The first summary.\n\n---\n\n")
    assert len(part.tasks) == 1


@pytest.mark.spec("E21")
def test_where_no_turn_is_cut_it_is_the_summarizer_itself() -> None:
    talk = ConversationBuilder()
    talk.user("before " + words(100))
    talk.answer(words(100))
    talk.user("wish")
    part = Part()
    assert split(part, task_of(talk)).text == "about before"


def test_if_one_part_fails_the_other_is_called_off_and_the_error_is_a_summary_error() -> None:
    part = Part(together=2, error=SummaryError(reason="empty", detail="nothing came."))
    with pytest.raises(SummaryError, match="nothing came"):
        split(part, task_of(long_turn(history=True)))
    assert part.ended == ["cancelled"]


def test_too_little_room_for_two_parts_is_a_summary_error() -> None:
    with pytest.raises(SummaryError) as caught:
        split(Part(), task_of(long_turn(history=True), max_tokens=5))
    assert caught.value.reason == "does_not_fit"


def test_cancelling_ends_both_parts() -> None:
    async def run() -> None:
        part = Part(together=3)
        running = asyncio.ensure_future(
            SplitTurnSummarizer(summarizer=part, tokenizer=TOKENIZER).summarize(
                task_of(long_turn(history=True))
            )
        )
        for _ in range(4):
            await asyncio.sleep(0)
        assert len(part.tasks) == 2
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())


def test_a_compactor_that_splits_turns_keeps_the_end_of_a_long_turn() -> None:
    talk = long_turn(history=True)
    chain = FallbackSummarizer(
        [SplitTurnSummarizer(summarizer=Part(together=2), tokenizer=TOKENIZER)]
    )
    compactor = Compactor(
        talk.log,
        summarizer=chain,
        keep=KeepRecentTokens(tokens=60),
        choose=select_split,
        tokenizer=TOKENIZER,
        max_summary_tokens=100,
    )
    assert asyncio.run(compactor.compact(trigger="manual")) is not None
    summary, call, result = talk.view.messages
    assert "about before" in summary.text
    assert "about wish" in summary.text
    assert call.tool_calls[0].id == result.tool_call_id == "c2"


def test_the_first_part_of_a_turn_needs_no_headings_since_it_is_asked_for_three_things() -> None:
    part = Part(together=2)
    asyncio.run(
        SplitTurnSummarizer(summarizer=part, tokenizer=TOKENIZER).summarize(
            task_of(long_turn(history=True))
        )
    )

    assert {first(task.plan.dropped): task.headings for task in part.tasks} == {
        "before": True,
        "wish": False,
    }
