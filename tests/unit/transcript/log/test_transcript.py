"""`Transcript`: the path, the branches, what can stand where, and what is refused."""

from __future__ import annotations

import sys
import threading
import time
from itertools import pairwise
from types import FrameType
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from promptkit import Message, ToolCall
from promptkit.errors import TranscriptConflictError, TranscriptError
from promptkit.transcript.log.entries import (
    BranchSummary,
    Checkpoint,
    Edit,
    Entry,
    Label,
    MessageEntry,
    Observation,
    Setting,
)
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.log.view import ViewBuilder, build_view
from promptkit.transcript.stores.store import InMemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit.transcript.log.entries import EntryPayload


def said(text: str) -> Message:
    return Message(role="user", content=(text,))


def talk(*texts: str, store: InMemoryStore | None = None) -> Transcript:
    """A transcript with entries a, b, c … and these texts."""
    names = iter("abcdefghijklmnopqrstuvwxyz")
    transcript = Transcript(store, clock=lambda: 5.0, new_id=lambda: next(names))
    for text in texts:
        transcript.append_messages(said(text))
    return transcript


def ids(entries: Sequence[Entry]) -> str:
    return "".join(entry.id for entry in entries)


class TestSeveralWriters:
    """Two transcripts over one store, as two processes have them."""

    def test_continue_from_what_the_other_appended(self) -> None:
        store = InMemoryStore()
        one, other = Transcript(store), Transcript(store)
        for number in range(6):
            (one if number % 3 else other).append_messages(said(str(number)))
        assert len(Transcript(store).leaves()) == 1
        assert [entry.message.text for entry in Transcript(store).path() if entry.message] == list(
            "012345"
        )
        one.refresh()
        assert one.path() == Transcript(store).path()

    def test_may_answer_a_call_behind_which_another_wrote(self) -> None:
        store = InMemoryStore()
        one, other = Transcript(store), Transcript(store)
        one.append_messages(
            said("one"), Message(role="assistant", tool_calls=(ToolCall(id="c1", name="read"),))
        )
        other.append_messages(said("two"))
        one.append_messages(Message(role="tool", tool_call_id="c1", content=("ok",)))
        assert len(one.leaves()) == 1
        assert [message.role for message in build_view(one.path()).messages] == [
            "user",
            "assistant",
            "tool",
            "user",
        ]

    def test_keep_their_branches_where_one_went_back(self) -> None:
        store = InMemoryStore()
        one = Transcript(store)
        first, _ = one.append_messages(said("one"), said("two"))
        other = Transcript(store)
        other.rewind(first.id)
        other.append_messages(said("three"))
        one.append_messages(said("four"))
        other.append_messages(said("five"))
        both = Transcript(store)
        texts = [
            [entry.message.text for entry in both.path(leaf.id) if entry.message]
            for leaf in both.leaves()
        ]
        assert texts == [["one", "two", "four"], ["one", "three", "five"]]

    def test_going_back_to_an_entry_does_not_end_up_behind_what_another_wrote_there(self) -> None:
        store = InMemoryStore()
        one = Transcript(store)
        first, _ = one.append_messages(said("one"), said("two"))
        other = Transcript(store)
        other.rewind(first.id)
        other.append_messages(said("three"))
        one.rewind(first.id)
        one.append_messages(said("four"))
        assert [entry.message.text for entry in one.path() if entry.message] == ["one", "four"]

    def test_follow_the_line_though_a_third_one_went_back(self) -> None:
        store = InMemoryStore()
        one = Transcript(store)
        one.append_messages(said("one"))
        other, third = Transcript(store), Transcript(store)
        other.append_messages(said("two"))
        third.rewind(None)
        third.append_messages(said("else"))
        one.append_messages(said("three"))
        assert [entry.message.text for entry in one.path() if entry.message] == [
            "one",
            "two",
            "three",
        ]

    def test_a_store_that_always_refuses_is_an_error_and_no_endless_loop(self) -> None:
        class Refusing(InMemoryStore):
            def append(self, entries: Sequence[Entry], *, expect: str | None = None) -> None:
                raise TranscriptConflictError(expect or "", ())

        with pytest.raises(TranscriptConflictError):
            Transcript(Refusing()).append_messages(said("one"))


class TestAppending:
    def test_puts_a_batch_behind_the_leaf(self) -> None:
        transcript = talk("one")
        made = transcript.append_messages(said("two"), said("three"))
        assert made == [
            Entry(id="b", parent_id="a", time=5.0, payload=MessageEntry(message=said("two"))),
            Entry(id="c", parent_id="b", time=5.0, payload=MessageEntry(message=said("three"))),
        ]
        assert transcript.leaf == "c"
        assert ids(transcript.path()) == "abc"

    def test_of_nothing_is_nothing(self) -> None:
        assert talk().append() == []
        assert talk().leaf is None

    def test_refuses_a_result_before_its_call(self) -> None:
        transcript = talk("one")
        result = MessageEntry(message=Message(role="tool", tool_call_id="c1", content=("ok",)))
        with pytest.raises(
            TranscriptError, match="the call 'c1', which is not on this path: append the call first"
        ):
            transcript.append(result)
        with pytest.raises(TranscriptError, match="the call None"):
            transcript.append_messages(Message(role="tool"))
        call = MessageEntry(
            message=Message(role="assistant", tool_calls=(ToolCall(id="c1", name="read"),))
        )
        with pytest.raises(TranscriptError, match="append the call first"):
            transcript.append(result, call)
        assert ids(transcript.entries) == "a", (
            "and nothing of a batch is appended of which a part is wrong"
        )
        transcript.append(call, result)

    def test_refuses_a_result_whose_call_is_on_another_branch(self) -> None:
        transcript = talk("one")
        transcript.append_messages(
            Message(role="assistant", tool_calls=(ToolCall(id="c1", name="read"),))
        )
        transcript.rewind("a")
        with pytest.raises(TranscriptError, match="append the call first"):
            transcript.append_messages(Message(role="tool", tool_call_id="c1"))

    @pytest.mark.parametrize(
        ("payload", "why"),
        [
            (
                Edit(target="x", content=None, reason="pruned"),
                "the edit refers to the entry 'x', which is not on this path",
            ),
            (Edit(target="b", content=None, reason="pruned"), "'b', which is not on this path"),
            (
                Checkpoint(summary="s", first_kept="b"),
                "the checkpoint refers to the entry 'b', which is not on this path",
            ),
            (
                Label(target="x", label="l"),
                "the label refers to the entry 'x', which is not in this transcript",
            ),
            (BranchSummary(leaf="x", summary="s"), "'x', which is not in this transcript"),
        ],
    )
    def test_refuses_what_refers_to_nothing(self, payload: EntryPayload, why: str) -> None:
        transcript = talk("one", "two")
        transcript.rewind("a")
        with pytest.raises(TranscriptError, match=why):
            transcript.append(payload)
        transcript.append(
            Label(target="b", label="l"),
            BranchSummary(leaf="b", summary="s"),
            Edit(target="a", content=None, reason="r"),
        )

    def test_refuses_an_id_that_was_used_before(self) -> None:
        transcript = Transcript(new_id=lambda: "same")
        with pytest.raises(TranscriptError, match="'same' was used before"):
            transcript.append_messages(said("one"), said("two"))
        transcript.append_messages(said("one"))
        with pytest.raises(TranscriptError, match="'same' was used before"):
            transcript.append_messages(said("two"))

    def test_expects_the_leaf_that_the_caller_saw(self) -> None:
        transcript = talk("one", "two")
        with pytest.raises(
            TranscriptConflictError, match="1 entry was appended behind 'a' meanwhile"
        ) as caught:
            transcript.append(MessageEntry(message=said("three")), expect="a")
        assert [entry.id for entry in caught.value.entries] == ["b"]
        transcript.append(MessageEntry(message=said("three")), expect="b")
        with pytest.raises(
            TranscriptConflictError, match="3 entries were appended to an empty transcript"
        ):
            transcript.append(MessageEntry(message=said("four")), expect="")

    def test_expects_a_leaf_after_others_wrote_on_another_branch(self) -> None:
        store = InMemoryStore()
        one = talk("one", store=store)
        other = Transcript(store)
        other.rewind(None)
        other.append_messages(said("elsewhere"))
        one.refresh()
        assert one.leaf == "a"
        one.append(MessageEntry(message=said("two")), expect="a")

    def test_from_several_threads_makes_one_path(self) -> None:
        class Slow(InMemoryStore):
            def append(self, entries: Sequence[Entry], *, expect: str | None = None) -> None:
                time.sleep(0)  # lets another thread run, as waiting for a disk does
                super().append(entries, expect=expect)

        transcript = Transcript(Slow())
        threads = [
            threading.Thread(
                target=lambda: [transcript.append_messages(said("x")) for _ in range(200)]
            )
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        path = transcript.path()
        assert len(path) == 800
        assert all(entry.parent_id == before.id for before, entry in pairwise(path))

    def test_and_looking_again_does_not_go_through_what_is_there(self) -> None:
        names = iter(range(10_000))
        transcript = Transcript(new_id=lambda: f"n{next(names)}")
        projector = ViewBuilder()

        def turn() -> None:
            call = ToolCall(id=f"c{len(transcript)}", name="read")
            transcript.append_messages(
                Message(role="assistant", tool_calls=(call,)),
                Message(role="tool", tool_call_id=call.id),
            )
            projector.build(transcript.path())

        turn()
        few = lines_run(turn)
        for _ in range(500):
            turn()
        assert lines_run(turn) <= few + 5


def lines_run(work: Callable[[], None]) -> int:
    """The lines of Python that run: a count, where a clock would measure the machine."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:  # Any: as sys.settrace declares it
        nonlocal count
        count += 1
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return count


class TestBranches:
    def test_begin_where_the_conversation_was_rewound_to(self) -> None:
        transcript = talk("one", "two", "three")
        marker = transcript.rewind("a")
        assert marker.payload == Setting(name="leaf", value="a")
        transcript.append_messages(said("another"))
        assert ids(transcript.path()) == "ade"
        assert ids(transcript.path("c")) == "abc"
        assert ids(transcript.leaves()) == "ce"
        assert ids(transcript.branch_entries("c")) == "bc"
        assert ids(transcript.branch_entries("e", "c")) == "de"
        assert transcript.parent("d") == transcript.get("a")
        assert transcript.parent("a") is None

    def test_can_begin_before_the_first_entry(self) -> None:
        transcript = talk("one")
        transcript.rewind(None)
        transcript.append_messages(said("instead"))
        assert ids(transcript.path()) == "bc"
        assert transcript.parent("b") is None

    def test_can_be_gone_back_to(self) -> None:
        transcript = talk("one", "two")
        transcript.rewind("a")
        transcript.rewind("b")
        assert ids(transcript.path()) == "abd"

    def test_survive_loading_with_the_choice_between_them(self) -> None:
        store = InMemoryStore()
        transcript = talk("one", "two", store=store)
        transcript.rewind("a")
        loaded = Transcript(store)
        assert loaded.leaf == transcript.leaf == "c"
        assert loaded.path() == transcript.path()

    def test_are_as_they_were_when_a_rewind_could_not_be_written(self) -> None:
        class Full(InMemoryStore):
            def append(self, entries: Sequence[Entry], *, expect: str | None = None) -> None:
                raise TranscriptError("full")

        transcript = talk("one", "two")
        transcript.store = Full()
        with pytest.raises(TranscriptError, match="full"):
            transcript.rewind("a")
        assert ids(transcript.path()) == "ab"

    def test_that_are_not_there_are_named(self) -> None:
        transcript = talk("one")
        for ask in (
            transcript.get,
            transcript.path,
            transcript.rewind,
            transcript.parent,
            transcript.branch_entries,
        ):
            with pytest.raises(TranscriptError, match="there is no entry 'x' in this transcript"):
                ask("x")


class TestLookingThingsUp:
    def test_by_label(self) -> None:
        transcript = talk("one", "two")
        transcript.append(Label(target="a", label="start"), Label(target="a", label="again"))
        assert transcript.get_by_label("start").id == "a"
        transcript.append(Label(target="b", label="start"))
        assert transcript.labels == {"start": "b", "again": "a"}
        with pytest.raises(TranscriptError, match="no entry of this transcript is labelled 'none'"):
            transcript.get_by_label("none")

    def test_by_setting(self) -> None:
        transcript = talk("one")
        transcript.append(Setting(name="model", value="big"), Setting(name="effort", value=3))
        at = transcript.leaf
        transcript.append(Setting(name="model", value="small"))
        assert transcript.settings() == {"model": "small", "effort": 3}
        assert transcript.settings(at) == {"model": "big", "effort": 3}

    def test_a_path_that_was_asked_for_does_not_grow(self) -> None:
        transcript = talk("one")
        path = transcript.path()
        transcript.append_messages(said("two"))
        assert ids(path) == "a"

    def test_membership(self) -> None:
        assert "a" in talk("one")
        assert "b" not in talk("one")


class TestFork:
    def test_copies_the_path_and_nothing_else(self) -> None:
        transcript = talk("one", "two")
        transcript.rewind("a")
        transcript.append_messages(said("three"))
        fork = transcript.fork(InMemoryStore())
        assert fork.entries == list(transcript.path())
        fork.append_messages(said("four"))
        assert len(fork) == len(transcript.path()) + 1
        assert ids(transcript.fork(InMemoryStore(), at="b").entries) == "ab"

    def test_refuses_a_store_that_holds_something(self) -> None:
        with pytest.raises(TranscriptConflictError):
            talk("one").fork(InMemoryStore(talk("other").entries))

    def test_of_an_empty_transcript_is_empty(self) -> None:
        assert talk().fork(InMemoryStore()).leaf is None


def entry(name: str, parent: str | None) -> Entry:
    return Entry(id=name, parent_id=parent, time=0, payload=MessageEntry(message=said(name)))


class TestLoading:
    def test_goes_on_from_the_last_entry_that_was_written(self) -> None:
        assert (
            Transcript(InMemoryStore([entry("a", None), entry("b", "a"), entry("c", "a")])).leaf
            == "c"
        )

    def test_puts_an_entry_without_a_parent_that_is_there_behind_the_one_before_and_says_so(
        self,
    ) -> None:
        transcript = Transcript(
            InMemoryStore([entry("a", None), entry("b", "gone"), entry("c", "b")])
        )
        assert ids(transcript.path()) == "abc"
        assert [(problem.line, problem.detail) for problem in transcript.problems] == [
            (
                2,
                "the entry 'b' follows 'gone', which is not before it in the file; it was placed after 'a' instead.",
            )
        ]
        assert transcript.entries[1].parent_id == "gone", "what was written is as it was"

    @pytest.mark.parametrize(
        "parents", [("a", None), ("b", "a"), ("x", "b")], ids=["itself", "each other", "forwards"]
    )
    def test_never_goes_in_circles(self, parents: tuple[str, str | None]) -> None:
        transcript = Transcript(InMemoryStore([entry("a", parents[0]), entry("b", parents[1])]))
        assert len(transcript.problems) >= 1
        assert "b" in ids(transcript.path())

    def test_leaves_out_an_id_that_was_there_before(self) -> None:
        transcript = Transcript(
            InMemoryStore([entry("a", None), entry("a", None), entry("b", "a")])
        )
        assert ids(transcript.entries) == "ab"
        assert [problem.line for problem in transcript.problems] == [2]

    def test_a_mended_place_is_kept_by_a_fork(self) -> None:
        transcript = Transcript(InMemoryStore([entry("a", None), entry("b", "gone")]))
        assert transcript.fork(InMemoryStore()).problems == ()


class TestRefreshing:
    def test_moves_the_leaf_only_along_its_own_branch(self) -> None:
        store = InMemoryStore()
        one = talk("one", store=store)
        other = Transcript(store)
        assert one.refresh() == ()
        other.append(Observation(name="seen"))
        one.refresh()
        assert one.leaf == other.leaf
        other.rewind("a")
        other.append_messages(said("elsewhere"))
        assert len(one.refresh()) == 2
        assert one.leaf != other.leaf
        assert one.path()[-1].payload == Observation(name="seen")

    def test_an_empty_transcript_goes_where_the_other_is(self) -> None:
        store = InMemoryStore()
        one = Transcript(store)
        talk("one", "two", store=store)
        assert ids(one.refresh()) == "ab"
        assert one.leaf == "b"

    def test_reads_labels_too(self) -> None:
        store = InMemoryStore()
        one = talk("one", store=store)
        Transcript(store).append(Label(target="a", label="start"))
        one.refresh()
        assert one.get_by_label("start").id == "a"


def test_an_entry_is_a_value() -> None:
    assert attrs.evolve(entry("a", None), id="b") == attrs.evolve(
        entry("b", None), payload=MessageEntry(message=said("a"))
    )


def test_a_path_is_no_store() -> None:
    given: Any = "talk.jsonl"
    with pytest.raises(TypeError, match=r"Transcript\(JsonlStore\('talk\.jsonl'\)\)"):
        Transcript(given)
