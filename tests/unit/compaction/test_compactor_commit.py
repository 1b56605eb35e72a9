from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit.compaction.events import CompactionFailed
from promptkit.compaction.selection import KeepNothing
from promptkit.compaction.simple import SimpleSummarizer
from promptkit.compaction.summarizer import Chain
from promptkit.errors import CompactionRunningError, SummaryError, TranscriptWriteError
from promptkit.messages import Message, Usage
from promptkit.testing import ScriptedModel, WordTokenizer
from promptkit.transcript.entries import Checkpoint, Edit, Reset
from promptkit.transcript.jsonl.store import JsonlStore
from promptkit.transcript.store import MemoryStore
from promptkit.transcript.transcript import Transcript
from promptkit.transcript.view import project, summary_message
from tests.unit.compaction.compacting import checkpoint, compact, made
from tests.unit.compaction.talk import words
from tests.unit.compaction.writers import Writer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from promptkit.compaction.plan import Summary, SummaryTask
    from promptkit.transcript.entries import Entry, Payload


@pytest.mark.parametrize("when", ["summary", "hook"])
def test_E83_a_cancel_before_the_commit_leaves_the_file_as_it_was(tmp_path: Path, when: str) -> None:
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


def test_E84_a_second_compaction_while_one_runs_is_refused_and_the_first_goes_on() -> None:
    each = made(writer=Writer(gate=asyncio.Event()))

    async def twice() -> Entry | None:
        first = asyncio.ensure_future(each.compactor.compact(trigger="manual"))
        await asyncio.sleep(0)
        with pytest.raises(CompactionRunningError):
            await each.compactor.compact(trigger="foreground")
        assert each.writer.gate is not None
        each.writer.gate.set()
        await each.compactor.settled()
        return await first

    assert asyncio.run(twice()) is not None
    assert each.told.ends == ["committed"]
    each.told.check()


def test_E89_what_is_said_while_a_summary_is_made_stays_behind_it() -> None:
    each = made()

    async def late() -> Entry | None:
        drafted = await each.compactor.draft(each.compactor.plan(), trigger="background")
        each.log.say(Message(role="user", content=("late",)))
        assert drafted is not None
        return await each.compactor.commit(drafted)

    checkpoint(asyncio.run(late()))
    assert each.texts == [summary_message("S").text, words(100, "ask-two"), words(100, "answer-two"), "late"]


def test_what_is_said_meanwhile_stays_where_the_plan_kept_nothing() -> None:
    each = made(keep=KeepNothing())

    async def late() -> None:
        drafted = await each.compactor.draft(each.compactor.plan(), trigger="background")
        each.log.say(Message(role="user", content=("late",)))
        assert drafted is not None
        await each.compactor.commit(drafted)

    asyncio.run(late())
    assert each.texts == [summary_message("S").text, "late"]


def test_E85_what_another_process_wrote_meanwhile_stays_behind_the_summary(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    each = made(Transcript(JsonlStore(file)))

    async def race() -> None:
        drafted = await each.compactor.draft(each.compactor.plan(), trigger="background")
        Transcript(JsonlStore(file)).say(Message(role="user", content=("from elsewhere",)))
        assert drafted is not None
        assert await each.compactor.commit(drafted) is not None

    asyncio.run(race())
    assert each.texts[-1] == "from elsewhere"
    assert [message.text for message in project(Transcript(JsonlStore(file)).path()).messages] == each.texts
    each.told.check()


@pytest.mark.parametrize("how", ["rewind", "edit", "reset", "checkpoint"])
def test_E85_a_summary_of_what_is_no_more_is_not_put_in_place(how: str) -> None:
    each = made()

    async def changed() -> Entry | None:
        drafted = await each.compactor.draft(each.compactor.plan(), trigger="background")
        first = each.log.path()[0].id
        if how == "rewind":
            each.log.rewind(first)
        else:
            payloads: dict[str, Payload] = {
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


@pytest.mark.parametrize(
    ("writer", "reason"),
    [
        (Writer(text=" \n"), "empty"),
        (Writer(text=words(16)), "too_large"),
        (Writer(error=ValueError("no provider")), "ValueError"),
        (Writer(error=SummaryError(reason="untagged", detail="no tags.")), "untagged"),
    ],
)
def test_E88_a_summary_that_is_none_leaves_everything_as_it_was(writer: Writer, reason: str) -> None:
    each = made(writer=writer)
    texts, entries = each.texts, len(each.log)
    with pytest.raises((SummaryError, ValueError)):
        compact(each)
    (failed,) = (event for event in each.told.events if isinstance(event, CompactionFailed))
    assert failed.reason == reason
    assert (each.texts, len(each.log)) == (texts, entries)
    each.told.check()


def short_talk(count: int) -> Transcript:
    """A question and an answer of so many words together, and one more question."""
    log = Transcript()
    log.say(Message(role="user", content=(words(count - 1),)), Message(role="assistant", content=("yes",)))
    log.say(Message(role="user", content=("go",)))
    return log


def test_E55_a_summary_that_is_no_smaller_than_what_it_stands_for_is_refused() -> None:
    # The tags around a summary are two words.
    each = made(short_talk(12), writer=Writer(text=words(10)))
    entries = len(each.log)
    with pytest.raises(SummaryError, match="no smaller") as caught:
        compact(each)
    assert caught.value.reason == "not_smaller"
    assert len(each.log) == entries
    each.told.check()

    assert compact(made(short_talk(12), writer=Writer(text=words(9)))) is not None


def test_E55_where_no_summary_can_be_smaller_nobody_is_asked_for_one() -> None:
    each = made(short_talk(3))
    with pytest.raises(SummaryError, match="none is smaller than the 3 tokens"):
        compact(each)
    assert each.writer.tasks == []
    each.told.check()


def test_E55_a_writer_is_told_how_long_a_summary_may_be_to_be_smaller() -> None:
    each = made(short_talk(12))
    compact(each)
    assert each.writer.tasks[0].max_tokens == 9


@pytest.mark.parametrize("bad", [" \n", words(10), words(16)])
def test_E55_of_a_chain_the_next_one_is_asked_where_a_summary_would_not_be_put_in_place(bad: str) -> None:
    first, second = Writer(text=bad), Writer(text="good")
    each = made(short_talk(12))
    each.compactor.summarizer = Chain([first, second])

    assert checkpoint(compact(each)).summary == "good"
    assert (len(first.tasks), len(second.tasks)) == (1, 1)
    assert each.told.ends == ["committed"]


def test_what_a_summary_cost_that_was_not_put_in_place_is_counted() -> None:
    used = Usage(input_tokens=10, output_tokens=2)
    each = made(short_talk(12))
    with ScriptedModel([words(5), words(7)], usage=used) as model:
        one = SimpleSummarizer(model=model, window=4_000, tokenizer=WordTokenizer())
        each.compactor.summarizer = Chain([Spoiling(one), one])
        assert checkpoint(compact(each)).usage == Usage(input_tokens=20, output_tokens=4)


@attrs.frozen
class Spoiling:
    """A summarizer of one's own that holds itself to nothing."""

    inner: SimpleSummarizer

    async def summarize(self, task: SummaryTask) -> Summary:
        return attrs.evolve(await self.inner.summarize(task), text=words(100))


class Full(MemoryStore):
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
