"""What is known before a summary is made."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from typing import TYPE_CHECKING

import attrs
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from promptkit.compaction import (
    CompactionCommitted,
    CompactionFailed,
    CompactionStarted,
    Event,
    SummaryAttemptFailed,
    SummaryDiscarded,
)
from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.planning.plan import LastRequest
from promptkit.compaction.planning.selection import KeepLastRound, KeepNothing, select
from promptkit.compaction.planning.tool_calls import FILE_RULES, FileRule
from promptkit.compaction.run.compactor import Compactor, build_checkpoint, collect_facts
from promptkit.compaction.run.replacement import Replacement
from promptkit.compaction.summarizers.extractive import PlaceholderSummarizer
from promptkit.compaction.summarizers.fallback import FallbackSummarizer
from promptkit.compaction.summarizers.model_summarizers import SimpleSummarizer
from promptkit.compaction.summarizers.summarizer import SECTIONS
from promptkit.errors import CompactionInProgressError, SummaryError, TranscriptWriteError
from promptkit.messages import Message, ToolCall, Usage
from promptkit.rendering.expand.sizing import Sizer
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.transcript.log.entries import BranchSummary, Checkpoint, Edit, Reset
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.log.view import build_summary_message, build_view
from promptkit.transcript.stores.jsonl.store import JsonlStore
from promptkit.transcript.stores.store import InMemoryStore
from tests.behaviour.conversation_strategies import TOKENIZER, keeps, talks
from tests.calls import count_calls
from tests.conversations import ConversationBuilder, summary_reply, words
from tests.examples import examples
from tests.unit.compaction.run.compacting import checkpoint, compact, made
from tests.unit.compaction.summarizers.writers import WRITTEN, Writer, draft

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from promptkit.compaction.planning.plan import Summary, SummaryTask
    from promptkit.compaction.planning.selection import Keep
    from promptkit.transcript.log.entries import Entry, EntryPayload


def test_a_compaction_shows_the_summary_and_what_was_kept() -> None:
    each = made()
    payload = checkpoint(compact(each, instructions="mind the parser"))
    assert each.texts[0] == build_summary_message(WRITTEN).text
    assert each.texts[1:] == [words(100, "ask-two"), words(100, "answer-two")]
    assert (payload.trigger, payload.instructions) == ("manual", "mind the parser")
    assert each.writer.tasks[0].instructions == "mind the parser"
    assert each.told.ends == ["committed"]
    each.told.check()


def test_the_tokens_before_and_after_are_those_of_the_views() -> None:
    each = made()
    sizer = Sizer(WordTokenizer())
    before = sum(map(sizer.count_message, each.compactor.view.messages))
    payload = checkpoint(compact(each))
    assert payload.tokens_before == before
    assert payload.tokens_after == sum(map(sizer.count_message, each.compactor.view.messages))


@pytest.mark.spec("E25")
def test_nothing_to_drop_asks_no_model_and_starts_nothing() -> None:
    each = made()
    compact(each)
    entries = len(each.log)
    assert compact(each) is None
    assert len(each.log) == entries
    assert len(each.writer.tasks) == 1
    assert made(Transcript(InMemoryStore())).told.events == []


@pytest.mark.spec("E25")
def test_an_empty_transcript_is_nothing_to_compact() -> None:
    log = Transcript()
    compactor = Compactor(log, summarizer=Writer(), tokenizer=WordTokenizer(), max_summary_tokens=9)
    assert asyncio.run(compactor.compact(trigger="manual")) is None
    assert len(log) == 0


def test_the_breadcrumb_leads_to_the_file_with_the_entries_that_it_had(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    log = made(Transcript(JsonlStore(file))).log
    log.append_messages(Message(role="user", content=(words(9),)))  # so that something is gained
    entries = len(log)
    compactor = Compactor(
        log,
        summarizer=Writer(),
        keep=KeepNothing(),
        tokenizer=WordTokenizer(),
        max_summary_tokens=15,
        look_up=lambda _facts, _dropped: "look(1)",
    )
    payload = checkpoint(asyncio.run(compactor.compact(trigger="manual")))
    assert json.dumps(str(file)) in payload.summary
    assert f"had {entries} entries" in payload.summary
    assert payload.summary.endswith("look it up there: look(1)")


def test_facts_are_carried_whoever_writes_the_summary() -> None:
    # a summarizer of one's own, which knows nothing of facts
    each = made(writer=Writer(text="One turn."))
    each.log.append_messages(Message(role="user", content=(words(9),)))
    each.log.append_messages(
        Message(
            role="assistant",
            tool_calls=(ToolCall(id="1", name="edit_file", arguments='{"path": "a.py"}'),),
        )
    )
    each.log.append_messages(
        Message(role="tool", tool_call_id="1", content=("done",)),
        Message(role="user", content=(words(9),)),
    )
    each.compactor.keep = KeepNothing()
    first = Facts.from_json(checkpoint(compact(each)).facts)
    assert first.changed == ("a.py",)
    assert first.requests[0] == words(100, "ask-one")
    each.log.append_messages(
        Message(role="assistant", content=(words(99),)), Message(role="user", content=(words(9),))
    )
    assert Facts.from_json(checkpoint(compact(each)).facts).changed == ("a.py",)


def test_rules_of_a_program_s_own_tell_which_files_its_tools_change() -> None:
    each = made()
    rules = (FileRule(tools="^fmt$", use="change", arguments=("sources",)), *FILE_RULES)
    compactor = Compactor(
        each.log,
        summarizer=Writer(),
        tokenizer=WordTokenizer(),
        max_summary_tokens=15,
        file_rules=rules,
    )
    call = ToolCall(id="1", name="fmt", arguments='{"sources": ["b.py", "a.py"]}')
    each.log.append_messages(Message(role="assistant", tool_calls=(call,)))
    each.log.append_messages(
        Message(role="tool", tool_call_id="1", content=("done",)),
        Message(role="user", content=("next",)),
    )
    entry = asyncio.run(compactor.compact(compactor.plan(KeepNothing()), trigger="manual"))
    assert Facts.from_json(checkpoint(entry).facts).changed == ("b.py", "a.py")


@pytest.mark.spec("E107")
def test_facts_are_carried_from_checkpoint_to_checkpoint() -> None:
    each = made()
    each.log.append(
        Checkpoint(summary="S1", first_kept=each.log.path()[2].id, facts={"read": ["a.py"]})
    )
    each.log.append_messages(
        Message(role="user", content=("next",)), Message(role="assistant", content=(words(9),))
    )
    compact(each)
    assert each.writer.tasks[0].facts == Facts(read=("a.py",))
    assert each.writer.tasks[0].plan.previous == "S1"


def test_the_last_request_reaches_the_summarizer_with_its_tools() -> None:
    each = made()
    request = LastRequest(messages=(Message(role="user", content=("x",)),))
    compact(each, last_request=request)
    assert each.writer.tasks[0].last_request is request


@pytest.mark.spec("E112")
def test_an_undone_compaction_shows_what_was_and_the_next_one_summarizes_that() -> None:
    each = made()
    before = each.texts
    compact(each)
    assert each.compactor.undo() is not None
    assert each.texts == before
    assert each.compactor.undo() is None
    compact(each)
    assert [item.message.text for item in each.writer.tasks[1].plan.dropped] == before[:2]


def test_a_tool_result_is_shown_within_its_limit_and_kept_in_full() -> None:
    log = Transcript()
    log.append_messages(
        Message(role="user", content=("go",)),
        Message(role="assistant", tool_calls=(ToolCall(id="c", name="read"),)),
    )
    log.append_messages(Message(role="tool", content=(words(500),), tool_call_id="c"))
    each = made(log, cap=40)
    assert WordTokenizer().count(each.texts[-1]) <= 40
    shown = each.compactor.view.items[-1]
    log.append_messages(Message(role="assistant", content=("done",)))
    # the same object: what was shown before is neither counted nor cut again
    assert each.compactor.view.items[2] is shown
    whole = log.path()[2].message
    assert whole is not None
    assert whole.text == words(500)


@pytest.mark.spec("I34")
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(talk=talks(), keep=keeps(), late=st.integers(0, 2))
def test_a_checkpoint_shows_what_its_plan_says_and_all_that_came_since(
    talk: ConversationBuilder, keep: Keep, late: int
) -> None:
    if not talk.leaf:
        return
    plan = select(talk.view, leaf=talk.leaf, tokenizer=TOKENIZER, keep=keep)
    if plan.is_empty:
        return
    for number in range(late):
        talk.user(f"late {number}")
    compactor = Compactor(
        talk.log, summarizer=Writer(text="S"), tokenizer=TOKENIZER, max_summary_tokens=99
    )
    items = compactor.view.items
    planned = len(items) - late
    made = attrs.evolve(draft(1), plan=plan)
    replaced = Replacement().build(plan, made.summary, TOKENIZER)
    count = Sizer(TOKENIZER).count_message
    tokens = sum(count(item.message) for item in items)
    payload = build_checkpoint(made, items, tokens=tokens, replaced=replaced, count=count)
    talk.append(payload)
    wanted = (
        *(item.message for item in plan.pinned),
        build_summary_message("S"),
        *(item.message for item in plan.replayed),
        *(item.message for item in plan.kept),
        *(item.message for item in items[planned:]),
    )
    shown = compactor.view.messages
    assert shown == wanted
    assert payload.tokens_after == sum(map(Sizer(TOKENIZER).count_message, shown))


def test_a_switch_takes_the_new_figures() -> None:
    each = made()
    other = Writer(text="T")
    each.compactor.update_settings(
        summarizer=other,
        tokenizer=WordTokenizer(per_message=1),
        max_summary_tokens=3,
        max_result_tokens=None,
        replacement=Replacement(),
    )
    payload = checkpoint(compact(each))
    assert payload.summary == "T"
    assert payload.tokens_before == 404


def test_seconds_are_those_of_the_clock() -> None:
    each = made()
    compact(each)
    (event,) = (event for event in each.told.events if isinstance(event, CompactionCommitted))
    assert event.seconds == 1


def test_a_discarded_draft_says_why() -> None:
    each = made()

    async def discarded() -> None:
        drafted = await each.compactor.draft(
            each.compactor.plan(KeepLastRound(background=True)), trigger="background"
        )
        assert drafted is not None
        each.compactor.discard(drafted, "not needed")

    asyncio.run(discarded())
    (event,) = (event for event in each.told.events if isinstance(event, SummaryDiscarded))
    assert event.reason == "not needed"
    each.told.check()


@pytest.mark.spec("E83")
@pytest.mark.parametrize("when", ["summary", "hook"])
def test_a_cancel_before_the_commit_leaves_the_file_as_it_was(tmp_path: Path, when: str) -> None:
    file = tmp_path / "t.jsonl"
    each = made(Transcript(JsonlStore(file)), writer=Writer(gate=asyncio.Event()))
    before = file.read_bytes()

    async def cancelled() -> None:
        running = asyncio.ensure_future(each.compactor.compact(trigger="manual"))
        for _ in range(1 if when == "hook" else 3):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancelled())
    assert file.read_bytes() == before
    assert each.told.ends == ["cancelled"]
    each.told.check()
    assert not each.compactor.running
    each.writer.gate = None
    assert compact(each) is not None


def test_a_cancel_after_the_commit_is_too_late_to_lose_the_checkpoint() -> None:
    each = made()

    async def compact_and_cancel() -> Entry | None:
        running = asyncio.ensure_future(each.compactor.compact(trigger="manual"))

        def cancel(event: Event) -> None:
            if isinstance(event, CompactionCommitted):
                asyncio.get_running_loop().call_soon(running.cancel)

        each.compactor.events.subscribe(cancel)
        return await running

    entry = asyncio.run(compact_and_cancel())
    assert entry == each.log.path()[-1]
    assert checkpoint(entry).summary
    assert each.told.ends == ["committed"]


@pytest.mark.spec("E84")
def test_a_second_compaction_while_one_runs_is_refused_and_the_first_goes_on() -> None:
    each = made(writer=Writer(gate=asyncio.Event()))

    async def twice() -> Entry | None:
        first = asyncio.ensure_future(each.compactor.compact(trigger="manual"))
        await asyncio.sleep(0)
        with pytest.raises(CompactionInProgressError):
            await each.compactor.compact(trigger="foreground")
        assert each.writer.gate is not None
        each.writer.gate.set()
        await each.compactor.wait_idle()
        return await first

    assert asyncio.run(twice()) is not None
    assert each.told.ends == ["committed"]
    each.told.check()


@pytest.mark.spec("E89")
def test_what_is_said_while_a_summary_is_made_stays_behind_it() -> None:
    each = made()

    async def late() -> Entry | None:
        drafted = await each.compactor.draft(each.compactor.plan(), trigger="background")
        each.log.append_messages(Message(role="user", content=("late",)))
        assert drafted is not None
        return await each.compactor.commit(drafted)

    checkpoint(asyncio.run(late()))
    assert each.texts == [
        build_summary_message(WRITTEN).text,
        words(100, "ask-two"),
        words(100, "answer-two"),
        "late",
    ]


def test_what_is_said_meanwhile_stays_where_the_plan_kept_nothing() -> None:
    each = made(keep=KeepNothing())

    async def late() -> None:
        drafted = await each.compactor.draft(each.compactor.plan(), trigger="background")
        each.log.append_messages(Message(role="user", content=("late",)))
        assert drafted is not None
        await each.compactor.commit(drafted)

    asyncio.run(late())
    assert each.texts == [build_summary_message(WRITTEN).text, "late"]


@pytest.mark.spec("E85")
def test_what_another_process_wrote_meanwhile_stays_behind_the_summary(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    each = made(Transcript(JsonlStore(file)))

    async def race() -> None:
        drafted = await each.compactor.draft(each.compactor.plan(), trigger="background")
        Transcript(JsonlStore(file)).append_messages(
            Message(role="user", content=("from elsewhere",))
        )
        assert drafted is not None
        assert await each.compactor.commit(drafted) is not None

    asyncio.run(race())
    assert each.texts[-1] == "from elsewhere"
    assert [
        message.text for message in build_view(Transcript(JsonlStore(file)).path()).messages
    ] == each.texts
    each.told.check()


@pytest.mark.spec("E85")
@pytest.mark.parametrize("how", ["rewind", "edit", "reset", "checkpoint"])
def test_a_summary_of_what_is_no_more_is_not_put_in_place(how: str) -> None:
    each = made()

    async def changed() -> Entry | None:
        drafted = await each.compactor.draft(each.compactor.plan(), trigger="background")
        first = each.log.path()[0].id
        if how == "rewind":
            each.log.rewind(first)
        else:
            payloads: dict[str, EntryPayload] = {
                "edit": Edit(target=first, content=None, reason="redacted"),
                "reset": Reset(),
                "checkpoint": Checkpoint(summary="other"),
            }
            each.log.append(payloads[how])
        assert drafted is not None
        return await each.compactor.commit(drafted)

    before = len(each.log)
    assert asyncio.run(changed()) is None
    assert len(each.log) == before + 1
    assert each.told.ends == ["discarded"]
    each.told.check()


@pytest.mark.spec("E88")
@pytest.mark.parametrize(
    ("writer", "reason"),
    [
        (Writer(text=" \n"), "empty"),
        (Writer(text=words(31)), "too_large"),
        (Writer(error=ValueError("no provider")), "ValueError"),
        (Writer(error=SummaryError(reason="untagged", detail="no tags.")), "untagged"),
    ],
)
def test_a_summary_that_is_none_leaves_everything_as_it_was(writer: Writer, reason: str) -> None:
    each = made(writer=writer)
    texts, entries = each.texts, len(each.log)
    with pytest.raises((SummaryError, ValueError)):
        compact(each)
    (failed,) = (event for event in each.told.events if isinstance(event, CompactionFailed))
    assert failed.reason == reason
    assert (each.texts, len(each.log)) == (texts, entries)
    each.told.check()


@pytest.mark.spec("E60")
def test_a_summary_that_is_absurdly_short_for_what_it_stands_for_is_refused_whoever_wrote_it() -> (
    None
):
    each = made(writer=Writer(text="ok"), keep=KeepNothing())  # of 400 tokens
    with pytest.raises(
        SummaryError, match="a summary of 1 tokens cannot replace 400: 'ok'"
    ) as caught:
        compact(each)
    assert caught.value.reason == "too_short"

    assert compact(made(writer=Writer(text="All is well."), keep=KeepNothing())) is not None


@pytest.mark.spec("E60")
def test_a_summary_of_nothing_but_headings_is_refused() -> None:
    text = "\n".join(f"{number}. {heading}: N/A" for number, heading in enumerate(SECTIONS[:3], 1))
    with pytest.raises(
        SummaryError, match="a summary with nothing of its own cannot replace 400 tokens"
    ) as caught:
        compact(made(writer=Writer(text=text), keep=KeepNothing()))
    assert caught.value.reason == "too_short"
    assert (
        compact(made(writer=Writer(text=f"{text} a.py scatters."), keep=KeepNothing())) is not None
    )


def test_a_note_that_says_that_there_is_no_summary_may_be_short() -> None:
    each = made(keep=KeepNothing())
    each.log.append_messages(
        *(Message(role="assistant", content=(words(2_000),)) for _ in range(4))
    )
    each.compactor.summarizer = FallbackSummarizer(
        [PlaceholderSummarizer(tokenizer=WordTokenizer())]
    )

    assert (
        checkpoint(compact(each)).summary
        == "[8 earlier messages are left out here. They could not be summarized.]"
    )


def test_a_failed_attempt_is_an_event_with_its_reason_seconds_and_cost_under_the_number_of_its_compaction() -> (
    None
):
    error = SummaryError(
        reason="tool_call", detail="it called.", usage=Usage(input_tokens=10, output_tokens=2)
    )
    each = made()
    each.compactor.summarizer = FallbackSummarizer(
        [Writer(error=error), Writer()], clock=itertools.count(step=3).__next__
    )
    compact(each)

    started, failed, committed = each.told.events
    assert isinstance(started, CompactionStarted)
    assert isinstance(committed, CompactionCommitted)
    assert failed == SummaryAttemptFailed(
        number=started.number,
        trigger="manual",
        summarizer="Writer",
        reason="tool_call",
        detail=str(error),
        seconds=3,
        usage=Usage(input_tokens=10, output_tokens=2),
    )


def test_one_summarizer_alone_has_the_time_limit_too() -> None:
    each = made(writer=Writer(gate=asyncio.Event()))
    with pytest.raises(SummaryError, match=r"0\.01 seconds"):
        asyncio.run(each.compactor.compact(trigger="manual", seconds=0.01))
    assert each.told.ends == ["failed"]


def short_talk(count: int) -> Transcript:
    """A question and an answer of so many words together, and one more question."""
    log = Transcript()
    log.append_messages(
        Message(role="user", content=(words(count - 1),)),
        Message(role="assistant", content=("yes",)),
    )
    log.append_messages(Message(role="user", content=("go",)))
    return log


@pytest.mark.spec("E55")
def test_a_summary_that_saves_less_than_a_tenth_of_what_it_stands_for_is_refused() -> None:
    # The tags around a summary are two words.
    each = made(short_talk(20), writer=Writer(text=words(17)))
    entries = len(each.log)
    with pytest.raises(SummaryError, match="must save at least a tenth") as caught:
        compact(each)
    assert caught.value.reason == "not_smaller"
    assert len(each.log) == entries
    each.told.check()

    assert compact(made(short_talk(20), writer=Writer(text=words(15)))) is not None


@pytest.mark.spec("E55")
def test_where_no_summary_can_save_a_tenth_nobody_is_asked_for_one() -> None:
    each = made(short_talk(3))
    with pytest.raises(SummaryError, match="no summary can save a tenth of the 3 tokens"):
        compact(each)
    assert each.writer.tasks == []
    each.told.check()


@pytest.mark.spec("E55")
def test_a_writer_is_told_how_long_a_summary_may_be_to_save_a_tenth() -> None:
    each = made(short_talk(12))
    compact(each)
    assert each.writer.tasks[0].max_tokens == 8


@pytest.mark.spec("E55")
@pytest.mark.parametrize(("bad", "times"), [(" \n", 1), (words(9), 1), (words(31), 2)])
def test_of_a_chain_the_next_one_is_asked_where_a_summary_would_not_be_put_in_place(
    bad: str, times: int
) -> None:
    first, second = Writer(text=bad), Writer(text="good")
    each = made(short_talk(12))
    each.compactor.summarizer = FallbackSummarizer([first, second])

    assert checkpoint(compact(each)).summary == "good"
    # one that is too long is asked for once more
    assert (len(first.tasks), len(second.tasks)) == (times, 1)
    assert each.told.ends == ["committed"]


def test_what_a_summary_cost_that_was_not_put_in_place_is_counted() -> None:
    used = Usage(input_tokens=10, output_tokens=2)
    each = made(short_talk(50))
    with ScriptedModel([summary_reply()] * 2, usage=used) as model:
        one = SimpleSummarizer(model=model, window=4_000, tokenizer=WordTokenizer())
        each.compactor.summarizer = FallbackSummarizer([Spoiling(one), one])
        assert checkpoint(compact(each)).usage == Usage(input_tokens=20, output_tokens=4)


@attrs.frozen
class Spoiling:
    """A summarizer of one's own that holds itself to nothing."""

    inner: SimpleSummarizer

    async def summarize(self, task: SummaryTask) -> Summary:
        return attrs.evolve(await self.inner.summarize(task), text=" ")


class Full(InMemoryStore):
    """A store on a disk that is full from some moment on."""

    full = False

    def append(self, entries: Sequence[Entry], *, expect: str | None = None) -> None:
        if self.full:
            raise TranscriptWriteError("no space left on the device", file="t.jsonl")
        super().append(entries, expect=expect)


def test_a_checkpoint_that_cannot_be_written_is_a_failure_and_is_said() -> None:
    store = Full()
    each = made(Transcript(store))
    store.full = True
    texts = each.texts
    with pytest.raises(TranscriptWriteError):
        compact(each)
    assert each.told.ends == ["failed"]
    each.told.check()
    assert each.texts == texts


def known(talk: ConversationBuilder) -> Facts:
    """Before all but the last request is summarized."""
    plan = select(talk.view, leaf=talk.leaf, tokenizer=WordTokenizer())
    return collect_facts(talk.log, plan)


def test_without_a_checkpoint_and_a_branch_nothing_is() -> None:
    talk = ConversationBuilder()
    talk.user(words(9))
    talk.answer("ok")
    talk.user("more")

    assert known(talk) == Facts()


@pytest.mark.spec("E107")
def test_the_files_of_a_branch_that_was_left_are_known_at_the_next_checkpoint() -> None:
    talk = ConversationBuilder()
    before = Facts(read=("a.py",), changed=("b.py",), requests=("Build it.",)).to_json()
    talk.append(Checkpoint(summary="S1", facts={**before, "odd": 1}))
    talk.user(words(9))
    there = Facts(
        read=("c.py", "a.py"),
        changed=("d.py",),
        requests=("Try the first way.",),
        todos=("the second way",),
    ).to_json()
    talk.append(BranchSummary(summary="The first way fails.", leaf=talk.leaf, facts=there))
    talk.answer("ok")
    talk.user("more")

    facts = known(talk)
    assert (facts.read, facts.changed) == (("a.py", "c.py"), ("b.py", "d.py"))
    assert facts.requests == ("Build it.",)
    assert facts.todos == ()


def test_a_branch_that_stays_is_not_yet_carried_over() -> None:
    talk = ConversationBuilder()
    talk.user(words(9))
    talk.answer("ok")
    talk.user("more")
    talk.append(
        BranchSummary(summary="T", leaf=talk.leaf, facts=Facts(changed=("d.py",)).to_json())
    )

    assert known(talk) == Facts()


def test_a_long_result_of_a_few_messages_is_cut_beside_the_event_loop() -> None:
    in_loop: list[int] = []

    @attrs.frozen
    class Watched(WordTokenizer):
        """Keeps the sizes of texts that it counts in the main thread."""

        def count(self, text: str) -> int:
            if threading.current_thread() is threading.main_thread():
                in_loop.append(len(text))
            return super().count(text)

    talk = ConversationBuilder()
    talk.user("Read it.")
    talk.round("read_file", words(100_000))
    compactor = Compactor(
        talk.log,
        summarizer=Writer(),
        keep=KeepLastRound(),
        tokenizer=Watched(),
        max_summary_tokens=30,
        max_result_tokens=100,
        replacement=Replacement(originals=None, carry=None),
    )
    asyncio.run(compactor.read_ahead())
    assert sum(in_loop) < 25_000


def test_what_was_counted_for_an_earlier_request_is_not_looked_up_for_each_long_result() -> None:
    talk = ConversationBuilder()
    for _ in range(1_000):
        talk.user("ask")
        talk.answer("reply")
    compactor = made(talk.log).compactor

    def read_ahead() -> None:
        asyncio.run(compactor.read_ahead())

    read_ahead()
    talk.round("read_file", words(15_000))

    assert count_calls(read_ahead) < 2 * len(compactor.view.items)
