from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from promptkit.compaction.compactor import Compactor
from promptkit.compaction.draft import checkpoint_of
from promptkit.compaction.events import CompactionCommitted, SummaryDiscarded
from promptkit.compaction.plan import LastRequest
from promptkit.compaction.replacement import Replacement
from promptkit.compaction.selection import KeepNothing, Rounds, select
from promptkit.messages import Message, ToolCall
from promptkit.rendering.sizing import Sizer
from promptkit.testing import WordTokenizer
from promptkit.transcript.entries import Checkpoint
from promptkit.transcript.jsonl.store import JsonlStore
from promptkit.transcript.store import MemoryStore
from promptkit.transcript.transcript import Transcript
from promptkit.transcript.view import summary_message
from tests.behaviour.conversations import TOKENIZER, keeps, talks
from tests.unit.compaction.compacting import checkpoint, compact, made
from tests.unit.compaction.talk import Talk, words
from tests.unit.compaction.writers import Writer, draft

if TYPE_CHECKING:
    from pathlib import Path

    from promptkit.compaction.selection import Keep


def test_a_compaction_shows_the_summary_and_what_was_kept() -> None:
    each = made()
    payload = checkpoint(compact(each, instructions="mind the parser"))
    assert each.texts[0] == summary_message("S").text
    assert each.texts[1:] == [words(100, "ask-two"), words(100, "answer-two")]
    assert (payload.trigger, payload.instructions) == ("manual", "mind the parser")
    assert each.writer.tasks[0].instructions == "mind the parser"
    assert each.told.ends == ["committed"]
    each.told.check()


def test_the_tokens_before_and_after_are_those_of_the_views() -> None:
    each = made()
    sizer = Sizer(WordTokenizer())
    before = sum(map(sizer.message, each.compactor.view.messages))
    payload = checkpoint(compact(each))
    assert payload.tokens_before == before
    assert payload.tokens_after == sum(map(sizer.message, each.compactor.view.messages))


def test_E25_nothing_to_drop_asks_no_model_and_starts_nothing() -> None:
    each = made()
    compact(each)
    entries = len(each.log)
    assert compact(each) is None
    assert len(each.log) == entries
    assert len(each.writer.tasks) == 1
    assert made(Transcript(MemoryStore())).told.events == []


def test_E25_an_empty_transcript_is_nothing_to_compact() -> None:
    log = Transcript()
    compactor = Compactor(log, summarizer=Writer(), tokenizer=WordTokenizer(), max_summary_tokens=9)
    assert asyncio.run(compactor.compact(trigger="manual")) is None
    assert len(log) == 0


def test_the_breadcrumb_leads_to_the_file_with_the_lines_that_it_had(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    each = made(Transcript(JsonlStore(file)))
    each.log.say(Message(role="user", content=(words(9),)))  # so that something is gained
    each.compactor.keep = KeepNothing()
    lines = file.read_bytes().count(b"\n")
    payload = checkpoint(compact(each))
    assert json.dumps(str(file)) in payload.summary
    assert f"{lines} lines" in payload.summary
    assert f"read_file({json.dumps({'path': str(file)})})" in payload.summary


def test_E107_facts_are_carried_from_checkpoint_to_checkpoint() -> None:
    each = made()
    each.log.append(Checkpoint(summary="S1", first_kept=each.log.path()[2].id, facts={"read": ["a.py"]}))
    each.log.say(Message(role="user", content=("next",)), Message(role="assistant", content=(words(9),)))
    compact(each)
    assert each.writer.tasks[0].facts == {"read": ["a.py"]}
    assert each.writer.tasks[0].plan.previous == "S1"


def test_the_last_request_reaches_the_summarizer_with_its_tools() -> None:
    each = made()
    request = LastRequest(messages=(Message(role="user", content=("x",)),))
    compact(each, last_request=request)
    assert each.writer.tasks[0].last_request is request


def test_E112_an_undone_compaction_shows_what_was_and_the_next_one_summarizes_that() -> None:
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
    log.say(Message(role="user", content=("go",)), Message(role="assistant", tool_calls=(ToolCall(id="c", name="read"),)))
    log.say(Message(role="tool", content=(words(500),), tool_call_id="c"))
    each = made(log, cap=40)
    assert WordTokenizer().count(each.texts[-1]) <= 40
    shown = each.compactor.view.items[-1]
    log.say(Message(role="assistant", content=("done",)))
    assert each.compactor.view.items[2] is shown  # the same object: what was shown before is neither counted nor cut again
    whole = log.path()[2].message
    assert whole is not None
    assert whole.text == words(500)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(talk=talks(), keep=keeps(), late=st.integers(0, 2))
def test_I34_a_checkpoint_shows_what_its_plan_says_and_all_that_came_since(talk: Talk, keep: Keep, late: int) -> None:
    if not talk.leaf:
        return
    plan = select(talk.view, leaf=talk.leaf, tokenizer=TOKENIZER, keep=keep)
    if plan.is_empty:
        return
    for number in range(late):
        talk.user(f"late {number}")
    compactor = Compactor(talk.log, summarizer=Writer(text="S"), tokenizer=TOKENIZER, max_summary_tokens=99)
    items = compactor.view.items
    planned = len(items) - late
    made = attrs.evolve(draft(1), plan=plan)
    replaced = Replacement().build(plan, made.summary, TOKENIZER)
    payload = checkpoint_of(made, items, replaced=replaced, count=Sizer(TOKENIZER).message)
    talk.append(payload)
    wanted = (
        *(item.message for item in plan.pinned),
        summary_message("S"),
        *(item.message for item in plan.replayed),
        *(item.message for item in plan.kept),
        *(item.message for item in items[planned:]),
    )
    shown = compactor.view.messages
    assert shown == wanted
    assert payload.tokens_after == sum(map(Sizer(TOKENIZER).message, shown))


def test_a_switch_takes_the_new_figures() -> None:
    each = made()
    other = Writer(text="T")
    each.compactor.switch(summarizer=other, tokenizer=WordTokenizer(per_message=1), max_summary_tokens=3, max_result_tokens=None)
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
        drafted = await each.compactor.draft(each.compactor.plan(Rounds(background=True)), trigger="background")
        assert drafted is not None
        each.compactor.discard(drafted, "not needed")

    asyncio.run(discarded())
    (event,) = (event for event in each.told.events if isinstance(event, SummaryDiscarded))
    assert event.reason == "not needed"
    each.told.check()
