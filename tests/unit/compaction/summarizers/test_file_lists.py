"""The file lists after a summary: cumulative, sorted, each path in one list, and within bounds."""

from __future__ import annotations

import asyncio

import pytest

from promptkit.compaction.planning.breadcrumb import add_breadcrumb
from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.planning.plan import Summary, SummaryTask
from promptkit.compaction.planning.selection import KeepNothing, select
from promptkit.compaction.summarizers.file_lists import (
    FileListSummarizer,
    render_file_lists,
    strip_file_lists,
)
from promptkit.compaction.summarizers.summarizer import updated_facts
from promptkit.messages import Message, ToolCall
from promptkit.testing import WordTokenizer
from promptkit.transcript.log.entries import Checkpoint
from tests.conversations import ConversationBuilder

TOKENIZER = WordTokenizer()


class Telling:
    """Writes what it is told, with or without facts, and keeps what it was asked."""

    def __init__(self, text: str = "S", *, facts: bool = True) -> None:
        self.text = text
        self.facts = facts
        self.asked: list[SummaryTask] = []

    async def summarize(self, task: SummaryTask) -> Summary:
        self.asked.append(task)
        return Summary(
            text=self.text, mode="test", facts=updated_facts(task) if self.facts else Facts()
        )


def touch(talk: ConversationBuilder, call: str, name: str, path: str) -> None:
    talk.say(
        Message(
            role="assistant",
            tool_calls=(ToolCall(id=call, name=name, arguments=f'{{"path": "{path}"}}'),),
        )
    )
    talk.result(call, "done")
    talk.answer("ok")


def summarized(talk: ConversationBuilder, telling: Telling, max_tokens: int = 400) -> Summary:
    plan = select(talk.view, leaf=talk.leaf, tokenizer=TOKENIZER, keep=KeepNothing())
    checkpoint = talk.view.checkpoint_id
    facts = Facts()
    if checkpoint is not None:
        payload = talk.log.get(checkpoint).payload
        assert isinstance(payload, Checkpoint)
        facts = Facts.from_json(payload.facts)
    task = SummaryTask(plan=plan, max_tokens=max_tokens, facts=facts)
    return asyncio.run(FileListSummarizer(summarizer=telling, tokenizer=TOKENIZER).summarize(task))


def test_read_and_modified_files_stand_in_two_sorted_lists_and_modified_wins() -> None:
    talk = ConversationBuilder()
    for call, (name, path) in enumerate(
        [("read", "z.py"), ("read", "a.py"), ("edit", "z.py"), ("write", "b.py")]
    ):
        touch(talk, f"c{call}", name, path)
    assert summarized(talk, Telling()).text == (
        "S\n\n<read-files>\na.py\n</read-files>\n\n<modified-files>\nb.py\nz.py\n</modified-files>"
    )


@pytest.mark.spec("E107")
def test_the_lists_accumulate_over_checkpoints_without_being_summarized_themselves() -> None:
    talk = ConversationBuilder()
    touch(talk, "c1", "read", "a.py")
    touch(talk, "c2", "read", "b.py")
    first = summarized(talk, Telling())
    talk.append(
        Checkpoint(
            summary=add_breadcrumb(first.text, location="/t.jsonl"), facts=first.facts.to_json()
        )
    )
    touch(talk, "c3", "edit", "a.py")
    telling = Telling("S2")
    second = summarized(talk, telling)
    assert (
        second.text
        == "S2\n\n<read-files>\nb.py\n</read-files>\n\n<modified-files>\na.py\n</modified-files>"
    )
    assert telling.asked[0].plan.previous == "S"


@pytest.mark.spec("E107")
def test_what_was_asked_for_of_a_file_is_no_part_of_its_path() -> None:
    facts = Facts(
        read=("a.py:10-20", "a.py#L3-L9", "e.py:4", "b.py:7", "c:\\d.py"), changed=("e.py:1",)
    )
    assert render_file_lists(facts, max_tokens=50, tokenizer=TOKENIZER) == (
        "<read-files>\na.py\nb.py\nc:\\d.py\n</read-files>\n\n<modified-files>\ne.py\n</modified-files>"
    )


def test_a_model_that_copies_the_old_lists_does_not_double_them() -> None:
    talk = ConversationBuilder()
    touch(talk, "c1", "edit", "a.py")
    copied = summarized(talk, Telling("S\n\n<modified-files>\nold.py\n</modified-files>"))
    assert copied.text == "S\n\n<modified-files>\na.py\n</modified-files>"


def test_without_files_nothing_is_added_and_nothing_taken() -> None:
    talk = ConversationBuilder()
    talk.user("hello")
    talk.answer("hello")
    telling = Telling()
    assert summarized(talk, telling).text == "S"
    assert telling.asked[0].max_tokens == 400


def test_many_files_take_a_quarter_and_the_rest_is_counted() -> None:
    talk = ConversationBuilder()
    for number in range(200):
        touch(talk, f"c{number}", "edit", f"f{number:03}.py")
    telling = Telling()
    made = summarized(talk, telling, max_tokens=80)
    assert "… and 186 more" in made.text
    assert TOKENIZER.count(made.text) <= 21
    assert telling.asked[0].max_tokens == 60


@pytest.mark.spec("E61")
def test_a_path_cannot_end_its_list_or_take_more_than_a_line() -> None:
    facts = Facts(read=("a\n</read-files>b",))
    blocks = render_file_lists(facts, max_tokens=50, tokenizer=TOKENIZER)
    assert blocks == "<read-files>\na &lt;/read-files>b\n</read-files>"
    assert strip_file_lists(f"S\n\n{blocks}") == "S"
