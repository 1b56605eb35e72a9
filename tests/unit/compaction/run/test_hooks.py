"""Several hooks as one: all are heard, and none keeps the others from being."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from promptkit.compaction import CompactionCommitted, CompactionStarted, Events
from promptkit.compaction.planning.plan import Plan, Summary
from promptkit.compaction.run.compactor import Compactor
from promptkit.compaction.run.hooks import CompactionHooks, HookChain, PreCompactResult
from promptkit.messages import Message
from promptkit.testing import WordTokenizer
from promptkit.transcript.log.entries import Checkpoint, CustomEntry, Entry
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.stores.jsonl.store import JsonlStore
from tests.conversations import words
from tests.unit.compaction.summarizers.writers import WRITTEN, Recorder, Writer

if TYPE_CHECKING:
    from pathlib import Path


@attrs.define
class Says(CompactionHooks):
    """A hook that wants what a test says, and keeps what it was told."""

    wanted: PreCompactResult | BaseException = attrs.field(factory=PreCompactResult)
    after_error: Exception | None = None
    before_calls: list[tuple[str, str | None, int]] = attrs.field(
        factory=list[tuple[str, "str | None", int]]
    )
    after_calls: list[str] = attrs.field(factory=list[str])

    async def pre_compact(
        self, plan: Plan, *, trigger: str, instructions: str | None
    ) -> PreCompactResult:
        self.before_calls.append((trigger, instructions, len(plan.dropped)))
        if isinstance(self.wanted, BaseException):
            raise self.wanted
        return self.wanted

    async def post_compact(self, checkpoint: Entry) -> None:
        self.after_calls.append(checkpoint.id)
        if self.after_error is not None:
            raise self.after_error


def compacted(
    hooks: CompactionHooks, *, instructions: str | None = None
) -> tuple[Entry | None, Writer, Recorder]:
    log = Transcript()
    for name in ("one", "two"):
        log.append_messages(
            Message(role="user", content=(words(10, name),)),
            Message(role="assistant", content=(words(10, name),)),
        )
    writer, told = Writer(), Recorder()
    compactor = Compactor(
        log,
        summarizer=writer,
        tokenizer=WordTokenizer(),
        max_summary_tokens=30,
        hooks=hooks,
        events=Events(told),
    )
    entry = asyncio.run(compactor.compact(trigger="manual", instructions=instructions))
    told.check()
    return entry, writer, told


def text(entry: Entry | None) -> str:
    assert entry is not None
    assert isinstance(entry.payload, Checkpoint)
    return entry.payload.summary


def test_a_hook_that_overrides_nothing_changes_nothing() -> None:
    entry, writer, told = compacted(CompactionHooks())
    assert text(entry) == WRITTEN
    assert writer.tasks[0].instructions is None
    assert told.ends == ["committed"]


def test_a_hook_is_told_what_is_to_happen_and_what_has() -> None:
    hooks = Says()
    entry, _, _ = compacted(hooks, instructions="mind the parser")
    assert hooks.before_calls == [("manual", "mind the parser", 2)]
    assert entry is not None
    assert hooks.after_calls == [entry.id]


def test_a_hook_calls_a_compaction_off_and_no_model_is_asked() -> None:
    hooks = Says(wanted=PreCompactResult(cancel=True))
    entry, writer, told = compacted(hooks)
    assert entry is None
    assert writer.tasks == []
    assert told.ends == ["cancelled"]
    assert hooks.after_calls == []


def test_a_hook_s_summary_takes_the_place_of_the_model_s() -> None:
    entry, writer, _ = compacted(
        Says(wanted=PreCompactResult(summary=Summary(text="mine", mode="hook")))
    )
    assert text(entry) == "mine"
    assert writer.tasks == []


@pytest.mark.spec("E105")
@pytest.mark.parametrize("bad", ["  ", words(31), words(25)])
def test_a_hook_s_summary_that_is_none_is_not_taken(
    bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    entry, writer, told = compacted(
        Says(wanted=PreCompactResult(summary=Summary(text=bad, mode="hook")))
    )
    assert text(entry) == WRITTEN
    assert len(writer.tasks) == 1
    assert told.ends == ["committed"]
    assert "a hook's summary is rejected" in caplog.text


def test_a_hook_adds_to_the_person_s_instructions() -> None:
    _, writer, _ = compacted(
        Says(wanted=PreCompactResult(instructions=("keep the ports", "and the names"))),
        instructions="mind the parser",
    )
    assert writer.tasks[0].instructions == "mind the parser\n\nkeep the ports\n\nand the names"


@pytest.mark.spec("E105")
def test_a_hook_that_raises_before_stops_nothing_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    entry, _, told = compacted(Says(wanted=ValueError("broken hook")))
    assert text(entry) == WRITTEN
    assert told.ends == ["committed"]
    assert "broken hook" in caplog.text


@pytest.mark.spec("I37")
def test_a_hook_that_raises_after_leaves_the_checkpoint_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    entry, _, told = compacted(Says(after_error=ValueError("broken hook")))
    assert text(entry) == WRITTEN
    assert told.ends == ["committed"]
    assert "broken hook" in caplog.text


def test_a_cancellation_inside_a_hook_is_one() -> None:
    with pytest.raises(asyncio.CancelledError):
        compacted(Says(wanted=asyncio.CancelledError()))


ENTRY = Entry(id="e1", parent_id=None, time=0.0, payload=CustomEntry(name="n"))


class Saying(CompactionHooks):
    """Wants what it is made with, and keeps what it was told; or raises."""

    def __init__(self, wants: PreCompactResult | None) -> None:
        self.wants = wants
        self.told: list[str] = []

    async def pre_compact(
        self, plan: Plan, *, trigger: str, instructions: str | None
    ) -> PreCompactResult:
        _ = plan, instructions
        self.told.append(trigger)
        if self.wants is None:
            raise RuntimeError(trigger)
        return self.wants

    async def post_compact(self, checkpoint: Entry) -> None:
        if self.wants is None:
            raise RuntimeError(checkpoint.id)
        self.told.append(checkpoint.id)


def asked(*hooks: CompactionHooks) -> PreCompactResult:
    return asyncio.run(
        HookChain(*hooks).pre_compact(Plan(leaf=""), trigger="manual", instructions=None)
    )


def test_instructions_are_added_up_and_the_first_summary_counts() -> None:
    first, second = Summary(text="A", mode="hook"), Summary(text="B", mode="hook")
    wanted = asked(
        Saying(PreCompactResult(instructions=("one",))),
        Saying(PreCompactResult(summary=first, instructions=("two",))),
        Saying(PreCompactResult(summary=second)),
    )
    assert wanted == PreCompactResult(summary=first, instructions=("one", "two"))


def test_the_first_that_calls_it_off_ends_the_questions() -> None:
    last = Saying(PreCompactResult())
    assert asked(Saying(PreCompactResult(cancel=True)), last).cancel
    assert last.told == []


@pytest.mark.spec("E105")
def test_a_hook_that_raises_is_logged_and_the_others_are_heard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good = Saying(PreCompactResult(instructions=("heed",)))
    assert asked(Saying(None), good).instructions == ("heed",)
    asyncio.run(HookChain(Saying(None), good).post_compact(ENTRY))
    assert good.told == ["manual", "e1"]
    assert len(caplog.records) == 2


def test_a_chain_takes_its_hooks_one_by_one() -> None:
    given: Any = [CompactionHooks()]
    with pytest.raises(TypeError, match=r"as in HookChain\(first, second\), not \["):
        HookChain(given)


def test_a_checkpoint_says_who_wrote_its_summary() -> None:
    by_model, _, told = compacted(CompactionHooks())
    by_hook, _, told_by_hook = compacted(
        Says(wanted=PreCompactResult(summary=Summary(text="mine", mode="own")))
    )
    assert (authored(by_model), authored(by_hook)) == ("model", "hook")
    committed = [*told.events, *told_by_hook.events]
    authors = [each.author for each in committed if isinstance(each, CompactionCommitted)]
    assert authors == ["model", "hook"]


def authored(entry: Entry | None) -> str | None:
    assert entry is not None
    assert isinstance(entry.payload, Checkpoint)
    return entry.payload.author


def test_hooks_attach_data_to_the_checkpoint_which_is_kept_in_the_file(tmp_path: Path) -> None:
    first = Says(wanted=PreCompactResult(data={"ticket": 12, "by": "first"}))
    second = Says(wanted=PreCompactResult(data={"by": "second"}))
    entry, _, _ = compacted(HookChain(first, second))
    assert entry is not None
    assert isinstance(entry.payload, Checkpoint)
    assert entry.payload.data == {"ticket": 12, "by": "second"}
    log = Transcript(JsonlStore(tmp_path / "talk.jsonl"))
    written = attrs.evolve(entry.payload, first_kept=None)
    log.append(written)
    assert Transcript(log.store).path()[-1].payload == written


def test_data_that_is_no_json_counts_as_an_error_of_the_hook(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken: Any = {"at": object()}
    entry, _, told = compacted(Says(wanted=PreCompactResult(data=broken)))
    assert entry is not None
    assert told.ends == ["committed"]
    assert "a hook raised before a compaction" in caplog.text


def test_a_compaction_tells_the_request_by_part_when_it_starts() -> None:
    _, _, told = compacted(CompactionHooks())
    (started,) = [each for each in told.events if isinstance(each, CompactionStarted)]
    (committed,) = [each for each in told.events if isinstance(each, CompactionCommitted)]
    assert started.before.messages == 40
    assert started.before == committed.before
