"""Switching branches: the abandoned branch is summarized, and nothing is written before the summary is ready."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.run.branches import (
    PREFACE,
    SummaryWriter,
    build_branch_items,
    find_abandoned_entries,
    switch_branch,
)
from promptkit.compaction.summarizers.extractive import ExtractiveSummarizer
from promptkit.compaction.summarizers.file_lists import FileListSummarizer
from promptkit.errors import SummaryError, TranscriptConflictError, TranscriptError
from promptkit.messages import Message, ToolCall
from promptkit.testing import WordTokenizer
from promptkit.transcript.log.entries import BranchSummary, Entry
from promptkit.transcript.log.transcript import Transcript
from tests.conversations import ConversationBuilder
from tests.unit.compaction.summarizers.writers import Writer

if TYPE_CHECKING:
    from promptkit.compaction.summarizers.summarizer import Summarizer


def forked() -> tuple[ConversationBuilder, str]:
    """A conversation of two turns; the id of the answer to the first."""
    talk = ConversationBuilder()
    talk.user("shared wish")
    target = talk.answer("shared answer")
    talk.user("tried wish")
    talk.round("c1", "found it")
    talk.answer("tried answer")
    return talk, target


def told(writer: Writer) -> list[str]:
    return [item.message.text for item in writer.tasks[0].plan.dropped]


def go(talk: ConversationBuilder, to: str | None, writer: Summarizer) -> Entry:
    entry = asyncio.run(switch_branch(talk.log, to, writer=SummaryWriter(summarizer=writer)))
    assert entry is not None
    return entry


@pytest.mark.spec("E108")
def test_what_is_left_is_summarized_up_to_the_deepest_common_ancestor_and_stored_at_the_target() -> (
    None
):
    talk, target = forked()
    leaf = talk.leaf
    writer = Writer(text="It was found.")
    entry = go(talk, target, writer)
    assert told(writer) == ["tried wish", "", "found it", "tried answer"]
    assert isinstance(entry.payload, BranchSummary)
    assert attrs.evolve(entry.payload, facts={}) == BranchSummary(
        summary=f"{PREFACE}It was found.", leaf=leaf, author="model"
    )
    assert Facts.from_json(entry.payload.facts).requests == ("tried wish",)
    assert [item.message.text for item in talk.view.items] == [
        "shared wish",
        "shared answer",
        f"<branch-summary>\n{PREFACE}It was found.\n</branch-summary>",
    ]


def test_the_target_may_be_on_another_branch_or_before_the_beginning() -> None:
    talk, target = forked()
    leaf = talk.leaf
    talk.log.rewind(target)
    talk.user("other wish")
    talk.answer("other answer")
    writer = Writer()
    go(talk, leaf, writer)
    assert told(writer) == ["other wish", "other answer"]
    writer = Writer()
    go(talk, None, writer)
    assert told(writer)[:2] == ["shared wish", "shared answer"]
    assert len(talk.view.items) == 1


def test_after_loading_the_conversation_goes_on_behind_the_branch_s_summary() -> None:
    talk, target = forked()
    entry = go(talk, target, Writer())
    assert Transcript(talk.log.store).leaf == entry.id


@pytest.mark.spec("E108")
def test_an_aborted_navigation_leaves_leaf_and_transcript_as_they_were() -> None:
    talk, target = forked()
    before, leaf = len(talk.log), talk.leaf

    async def run() -> None:
        running = asyncio.ensure_future(
            switch_branch(
                talk.log, target, writer=SummaryWriter(summarizer=Writer(gate=asyncio.Event()))
            )
        )
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(run())
    assert (len(talk.log), talk.leaf) == (before, leaf)


@pytest.mark.parametrize(
    "writer", [Writer(error=SummaryError(reason="empty", detail="nothing.")), Writer(text=" ")]
)
def test_without_a_summary_the_conversation_stays_where_it_is(writer: Writer) -> None:
    talk, target = forked()
    before = len(talk.log), talk.leaf
    with pytest.raises(SummaryError):
        go(talk, target, writer)
    assert (len(talk.log), talk.leaf) == before


@pytest.mark.spec("E85")
def test_what_is_said_meanwhile_is_not_left_behind_unsummarized() -> None:
    talk, target = forked()

    async def run() -> None:
        gate = asyncio.Event()
        running = asyncio.ensure_future(
            switch_branch(talk.log, target, writer=SummaryWriter(summarizer=Writer(gate=gate)))
        )
        await asyncio.sleep(0)
        talk.user("wait")
        gate.set()
        with pytest.raises(TranscriptConflictError):
            await running

    asyncio.run(run())
    assert talk.view.items[-1].message.text == "wait"


@pytest.mark.spec("E108")
def test_checkpoints_on_the_branch_hide_nothing_and_nested_summaries_are_shown() -> None:
    talk, target = forked()
    talk.branch("an older branch")
    talk.checkpoint("the summary so far")
    talk.user("after it")
    items = build_branch_items(find_abandoned_entries(talk.log, target))
    assert [item.message.text.replace("\n", " ") for item in items if item.message.text] == [
        "tried wish",
        "found it",
        "tried answer",
        "<branch-summary> an older branch </branch-summary>",
        "<conversation-summary> the summary so far </conversation-summary>",
        "after it",
    ]


def test_edits_hold_and_a_reset_hides_what_was_before_it() -> None:
    talk, target = forked()
    talk.reset()
    secret = talk.user("the password is 1234")
    undone = talk.checkpoint("wrong")
    talk.edit(undone, reason="undone")
    talk.edit(secret, "redacted")
    items = build_branch_items(find_abandoned_entries(talk.log, target))
    assert [item.message.text for item in items] == ["redacted"]


@pytest.mark.spec("E10")
def test_a_result_whose_call_is_on_the_shared_path_is_no_orphan() -> None:
    talk = ConversationBuilder()
    talk.user("wish")
    target = talk.calls("c1")
    talk.result("c1", "late")
    talk.answer("seen")
    writer = Writer()
    go(talk, target, writer)
    assert told(writer) == ["seen"]


def test_the_files_of_a_branch_stand_in_its_summary() -> None:
    talk, target = forked()
    talk.say(
        Message(
            role="assistant",
            tool_calls=(ToolCall(id="c9", name="edit", arguments='{"path": "a.py"}'),),
        )
    )
    talk.result("c9", "done")
    tokenizer = WordTokenizer()
    summarizer = FileListSummarizer(
        summarizer=ExtractiveSummarizer(tokenizer=tokenizer), tokenizer=tokenizer
    )
    entry = go(talk, target, summarizer)
    assert isinstance(entry.payload, BranchSummary)
    assert "<modified-files>\na.py\n</modified-files>" in entry.payload.summary
    assert Facts.from_json(entry.payload.facts).changed == ("a.py",)


@pytest.mark.spec("E107")
def test_the_files_of_a_branch_s_own_branches_are_known() -> None:
    talk, target = forked()
    talk.append(
        BranchSummary(
            summary="an older branch", leaf=talk.leaf, facts=Facts(changed=("b.py",)).to_json()
        )
    )
    entry = go(talk, target, ExtractiveSummarizer(tokenizer=WordTokenizer()))
    assert isinstance(entry.payload, BranchSummary)
    assert Facts.from_json(entry.payload.facts).changed == ("b.py",)


def test_where_nothing_was_said_or_without_a_summarizer_nothing_is_summarized() -> None:
    talk, target = forked()
    entry = asyncio.run(switch_branch(talk.log, target, writer=None))
    assert entry is not None
    assert entry.kind == "setting"
    writer = Writer()
    assert go(talk, target, writer).kind == "setting"
    assert writer.tasks == []
    with pytest.raises(TranscriptError):
        go(talk, "nowhere", writer)


def test_secrets_are_taken_out_before_and_behind_the_summarizer() -> None:
    talk, target = forked()
    writer = Writer(text="found SECRET")

    def redactor(text: str) -> str:
        return text.replace("found it", "found -").replace("SECRET", "-")

    entry = asyncio.run(
        switch_branch(talk.log, target, writer=SummaryWriter(summarizer=writer, redactor=redactor))
    )
    assert told(writer)[2] == "found -"
    assert entry is not None
    assert isinstance(entry.payload, BranchSummary)
    assert entry.payload.summary.endswith("found -")
