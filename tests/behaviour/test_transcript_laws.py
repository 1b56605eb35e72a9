"""The laws of transcripts, I1 to I12, on conversations of every shape."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given, strategies as st

from promptkit import DocumentPart, ImagePart, Message, OpaquePart, ToolCall
from promptkit.compaction.policy.usage import ProviderCount, iter_provider_counts
from promptkit.errors import InvalidArgumentError, TranscriptError
from promptkit.messages import CacheBreakpointPart
from promptkit.pairing import MISSING_TOOL_RESULT
from promptkit.transcript.log.entries import (
    BranchSummary,
    Checkpoint,
    CustomEntry,
    CustomMessage,
    Edit,
    MessageEntry,
    Reset,
)
from promptkit.transcript.log.transcript import Transcript
from promptkit.transcript.log.view import (
    UNREPLAYABLE_FINISHES,
    ViewBuilder,
    build_summary_message,
    build_view,
)
from promptkit.transcript.stores.jsonl.format import message_to_json
from promptkit.transcript.stores.jsonl.store import JsonlStore
from promptkit.transcript.stores.store import InMemoryStore
from tests.behaviour.transcript_strategies import (
    FileInMemory,
    grow,
    new_file,
    new_transcript,
    steps,
    transcripts,
)
from tests.conversations import user_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.transcript.log.entries import Entry
    from promptkit.transcript.log.view import TranscriptView
    from tests.behaviour.transcript_strategies import Step


def as_bytes(projection: TranscriptView) -> bytes:
    """All that a projection says, as bytes."""
    items = [[item.entry_id, item.kind, message_to_json(item.message)] for item in projection.items]
    return json.dumps(
        [items, projection.checkpoint_id, [attrs.asdict(repair) for repair in projection.repairs]]
    ).encode()


@pytest.mark.spec("I1")
@given(steps())
def test_lines_that_were_written_never_change(steps: list[Step]) -> None:
    with new_file() as path:
        transcript = new_transcript(JsonlStore(path))
        before = b""
        for step in steps:
            grow(transcript, step)
            now = path.read_bytes()
            assert now.startswith(before)
            assert now.endswith(b"\n")
            before = now


@pytest.mark.spec("I2")
@given(transcripts())
def test_ids_are_unique_and_parents_were_there_before(transcript: Transcript) -> None:
    seen: set[str | None] = {None}
    for entry in transcript.entries:
        assert entry.id not in seen
        assert entry.parent_id in seen
        seen.add(entry.id)


@pytest.mark.spec("I3")
@given(steps(), st.data())
def test_a_reader_skips_what_it_cannot_read_and_keeps_all_else(
    steps: list[Step], data: st.DataObject
) -> None:
    with new_file() as path:
        transcript = new_transcript(file := FileInMemory())
        for step in steps:
            grow(transcript, step)
        if not transcript.entries:
            return
        lines = file.content.split(b"\n")[:-1]
        bad = data.draw(st.integers(1, len(lines) - 1))
        lines[bad] = data.draw(
            st.sampled_from([b"{", b'{"id": 1}', b"\xff", b"[]", lines[bad] + b"x"])
        )
        path.write_bytes(b"\n".join([*lines, b'{"id": "torn']))
        loaded = JsonlStore(path).load()
        assert [entry.id for entry in loaded.entries] == [
            entry.id for at, entry in enumerate(transcript.entries, 1) if at != bad
        ]
        assert {problem.line for problem in loaded.problems} == {bad + 1}
        assert loaded.torn_bytes == len(b'{"id": "torn')


@pytest.mark.spec("I4")
@given(transcripts(unique=False))
def test_a_result_stands_behind_its_call(transcript: Transcript) -> None:
    for leaf in transcript.leaves():
        asked: set[str] = set()
        for entry in transcript.path(leaf.id):
            if entry.message and entry.message.role == "tool":
                assert entry.message.tool_call_id in asked
            if entry.message:
                asked |= {call.id for call in entry.message.tool_calls}


@pytest.mark.spec("I5")
@given(transcripts(unique=False))
def test_every_call_is_answered_once_before_anything_else_is_said(transcript: Transcript) -> None:
    for leaf in transcript.leaves():
        require_paired(build_view(transcript.path(leaf.id)).messages)


def require_paired(messages: Sequence[Message]) -> None:
    asked = [call.id for message in messages for call in message.tool_calls]
    assert len(asked) == len(set(asked))
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            assert message.tool_call_id in waiting
            waiting.remove(message.tool_call_id)
        else:
            assert not waiting
            waiting = [call.id for call in message.tool_calls]
    assert not waiting


@pytest.mark.spec("I6")
@given(transcripts())
def test_opaque_parts_are_shown_as_they_were_written_or_not_at_all(transcript: Transcript) -> None:
    written = {
        id(part)
        for entry in transcript.entries
        if entry.message
        for part in entry.message.content
        if isinstance(part, OpaquePart)
    }
    for message in build_view(transcript.path()).messages:
        assert {id(part) for part in message.content if isinstance(part, OpaquePart)} <= written, (
            "the very parts"
        )


@pytest.mark.spec("I7")
@given(steps(), st.data())
def test_a_crash_at_any_byte_leaves_whole_batches_and_the_next_one_follows_them(
    steps: list[Step], data: st.DataObject
) -> None:
    with new_file() as path:
        transcript = new_transcript(file := FileInMemory())
        for step in steps:
            grow(transcript, step)
        cut = data.draw(st.integers(0, len(file.content)))
        path.write_bytes(file.content[:cut])
        left = new_transcript(JsonlStore(path))
        written = [entry.id for entry in left.entries]
        assert left.problems == ()
        # A last line that lacks nothing but its line break is all there.
        assert written in [
            file.ends[max(end for end in file.ends if end <= cut + more)] for more in (0, 1)
        ]
        left.append_messages(user_message("afterwards"))
        after = new_transcript(JsonlStore(path))
        assert [entry.id for entry in after.entries] == [entry.id for entry in left.entries]
        assert after.problems == ()


@pytest.mark.spec("I8")
@given(transcripts(unique=False))
def test_the_same_path_gives_the_same_bytes_here_and_after_loading(transcript: Transcript) -> None:
    with new_file() as path:
        loaded = transcript.fork(JsonlStore(path))
        once = as_bytes(build_view(transcript.path()))
        assert as_bytes(build_view(transcript.path())) == once
        assert as_bytes(build_view(loaded.path())) == once


@pytest.mark.spec("I8")
@given(transcripts(unique=False))
def test_what_is_shown_would_be_shown_of_itself(transcript: Transcript) -> None:
    shown = build_view(transcript.path()).messages
    again = new_transcript()
    again.append_messages(*shown)
    assert build_view(again.path()).messages == shown
    assert build_view(again.path()).repairs == ()


@pytest.mark.spec("I8")
@given(steps(), st.booleans())
def test_a_view_that_grows_is_the_view_from_scratch(steps: list[Step], unique: bool) -> None:
    transcript = new_transcript()
    projector = ViewBuilder()
    for step in steps:
        grow(transcript, step, unique=unique)
        if step[1] % 3:
            assert as_bytes(projector.build(transcript.path())) == as_bytes(
                build_view(transcript.path())
            )


@pytest.mark.spec("I9")
@given(transcripts(), steps())
def test_only_the_latest_checkpoint_on_the_path_matters(
    transcript: Transcript, more: list[Step]
) -> None:
    path = transcript.path()
    shown = build_view(path)
    if shown.checkpoint_id is None:
        return
    mark = next(at for at, entry in enumerate(path) if entry.id == shown.checkpoint_id)
    others = [
        attrs.evolve(entry, payload=CustomEntry(name="nothing"))
        if isinstance(entry.payload, Checkpoint) and at != mark
        else entry
        for at, entry in enumerate(path)
    ]
    assert as_bytes(build_view(others)) == as_bytes(shown), "without the other checkpoints"
    leaf = transcript.leaf
    transcript.rewind(path[0].id)
    for step in more:
        grow(transcript, step)
    assert as_bytes(build_view(transcript.path(leaf))) == as_bytes(shown), "with another branch"


@pytest.mark.spec("I10")
@given(transcripts())
def test_what_is_shown_is_what_the_path_says(transcript: Transcript) -> None:
    for leaf in transcript.leaves():
        path = transcript.path(leaf.id)
        assert list(build_view(path).messages) == shown_by_the_book(path)


@pytest.mark.spec("I10")
@given(transcripts(unique=False))
def test_repairs_are_reported(transcript: Transcript) -> None:
    path = transcript.path()
    shown = build_view(path)
    kinds = Counter(repair.kind for repair in shown.repairs)
    assert kinds["missing result"] == sum(
        message.role == "tool" and message.text == MISSING_TOOL_RESULT for message in shown.messages
    )
    ids = {entry.id for entry in path}
    for repair in shown.repairs:
        assert repair.detail.split(":")[0].split()[1] in ids, (
            "a repair names the entry that it is about"
        )


@pytest.mark.spec("I11")
@given(transcripts())
def test_a_summary_is_shown_as_it_was_baked(transcript: Transcript) -> None:
    edited = {
        entry.payload.target for entry in transcript.path() if isinstance(entry.payload, Edit)
    }
    shown = build_view(transcript.path())
    if shown.checkpoint_id is None or shown.checkpoint_id in edited:
        return
    checkpoint = transcript.get(shown.checkpoint_id).payload
    assert isinstance(checkpoint, Checkpoint)
    opening = (
        checkpoint.replacement
        if checkpoint.replacement is not None
        else (build_summary_message(checkpoint.summary),)
    )
    assert shown.messages[: len(opening)] == opening


@pytest.mark.spec("I12")
@given(transcripts())
def test_a_count_of_the_provider_holds_only_for_the_view_it_was_made_of(
    transcript: Transcript,
) -> None:
    path = transcript.path()
    changes = [
        at for at, entry in enumerate(path) if isinstance(entry.payload, Checkpoint | Edit | Reset)
    ]
    valid = [
        entry.id
        for at, entry in enumerate(path)
        if isinstance(entry.payload, MessageEntry)
        and entry.payload.usage
        and entry.payload.usage.input_tokens > 0
        and at > max(changes, default=-1)
        and entry.payload.finish not in UNREPLAYABLE_FINISHES
    ]
    assert [
        anchor.entry_id
        for anchor in iter_provider_counts(path, model="m")
        if isinstance(anchor, ProviderCount)
    ] == valid[::-1]


def shown_by_the_book(path: Sequence[Entry]) -> list[Message]:
    """The view of a path whose call ids are unique, by the wording of the rules and without regard for time."""
    edits: dict[str, Edit] = {}
    for at, entry in enumerate(path):
        later = [
            each
            for each in path[at + 1 :]
            if isinstance(each.payload, Edit) and each.payload.target == entry.id
        ]
        standing = [each for each in later if not taken_back(each, path)]
        if standing and isinstance(standing[-1].payload, Edit):
            edits[entry.id] = standing[-1].payload
    hidden = {target for target, edit in edits.items() if edit.content is None}
    resets = [
        at
        for at, entry in enumerate(path)
        if isinstance(entry.payload, Reset) and entry.id not in hidden
    ]
    view = list(path[max(resets, default=-1) + 1 :])
    marks = [
        at
        for at, entry in enumerate(view)
        if isinstance(entry.payload, Checkpoint) and entry.id not in hidden
    ]
    messages: list[Message] = []
    if marks:
        checkpoint = view[marks[-1]].payload
        assert isinstance(checkpoint, Checkpoint)
        edit = edits.get(view[marks[-1]].id)
        if edit:
            messages.append(
                build_summary_message(
                    "".join(part for part in edit.content or () if isinstance(part, str))
                )
            )
        else:
            messages += (
                (build_summary_message(checkpoint.summary),)
                if checkpoint.replacement is None
                else checkpoint.replacement
            )
        kept = [
            at for at, entry in enumerate(view[: marks[-1]]) if entry.id == checkpoint.first_kept
        ]
        view = [*(view[kept[0] : marks[-1]] if kept else ()), *view[marks[-1] + 1 :]]
    voiced = [(entry, message) for entry in view if (message := voice(entry, edits.get(entry.id)))]
    results: dict[str | None, Message] = {}
    for _, message in voiced:
        if message.role == "tool":
            results.setdefault(message.tool_call_id, message)
    for _, message in voiced:
        if message.role != "tool":
            messages.append(message)
            answers = [(results.get(call.id), call.id) for call in message.tool_calls]
            came = sorted((voiced_at(voiced, result), result) for result, _ in answers if result)
            messages += [result for _, result in came]
            messages += [
                Message(role="tool", content=(MISSING_TOOL_RESULT,), tool_call_id=call)
                for result, call in answers
                if result is None
            ]
    return messages


def voiced_at(voiced: Sequence[tuple[Entry, Message]], result: Message) -> int:
    return next(at for at, (_, message) in enumerate(voiced) if message is result)


def taken_back(edit: Entry, path: Sequence[Entry]) -> bool:
    later = [
        each
        for each in path
        if isinstance(each.payload, Edit)
        and each.payload.target == edit.id
        and not taken_back(each, path)
    ]
    last = later[-1].payload if later else None
    return isinstance(last, Edit) and last.content is None


def voice(entry: Entry, edit: Edit | None) -> Message | None:
    """The message of one entry of a view."""
    if edit is not None and edit.content is None:
        return None
    match entry.payload:
        case MessageEntry(message=message, finish=finish) if not (
            message.tool_calls and finish in UNREPLAYABLE_FINISHES
        ):
            shown = message
        case CustomMessage(message=message):
            shown = message
        case BranchSummary(summary=summary):
            text = (
                summary
                if edit is None
                else "".join(part for part in edit.content or () if isinstance(part, str))
            )
            return Message(role="user", content=(f"<branch-summary>\n{text}\n</branch-summary>",))
        case _:
            return None
    shown = (
        shown if edit is None or edit.content is None else attrs.evolve(shown, content=edit.content)
    )
    return (
        None if shown.role == "assistant" and not shown.content and not shown.tool_calls else shown
    )


def test_a_memory_store_holds_what_a_file_holds() -> None:
    entries = new_transcript(InMemoryStore()).append_messages(
        user_message("one"), user_message("two")
    )
    assert Transcript(InMemoryStore(entries)).path() == tuple(entries)


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.binary(max_size=2)
    | st.text(max_size=5)
    | st.just("text"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=2).map(tuple)
        | st.dictionaries(
            st.sampled_from(["type", "text", "source", "url", "image_url", "a"]) | st.integers(),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
"""Values that a type checker would reject."""
text = st.text(st.characters(), max_size=4)
often_text = st.integers(0, 9).flatmap(lambda number: text if number else anything)
optional_texts = st.integers(0, 9).flatmap(lambda number: st.none() | text if number else anything)


def build(
    kind: type, instead: object, /, **fields: st.SearchStrategy[Any]
) -> st.SearchStrategy[Any]:
    """Values of a class, and another one instead where the class refuses the fields."""

    def attempt(**values: Any) -> Any:
        try:
            return kind(**values)
        except (TypeError, InvalidArgumentError):
            return instead

    return st.builds(attempt, **fields)


any_part = st.one_of(
    st.text(st.characters(), max_size=4),
    build(
        ImagePart,
        "refused",
        url=often_text,
        detail=optional_texts,
        width=st.none() | st.integers() | st.booleans(),
    ),
    build(
        DocumentPart,
        "refused",
        data=often_text,
        media_type=often_text,
        name=optional_texts,
        tokens=st.none() | st.integers() | st.booleans(),
    ),
    build(
        OpaquePart,
        "refused",
        value=anything,
        tokens=st.none() | st.integers(),
        provider=optional_texts,
    ),
    build(CacheBreakpointPart, "refused", kind=optional_texts, ttl=optional_texts),
    st.fixed_dictionaries({"type": st.just("hologram"), "value": anything}),
)
any_message = build(
    Message,
    Message(role="user", content="refused"),
    role=st.sampled_from(["system", "developer", "user", "assistant", "tool"]),
    content=st.lists(any_part, max_size=4) | st.lists(any_part, max_size=4).map(tuple) | often_text,
    name=optional_texts,
    tool_calls=st.lists(
        build(
            ToolCall,
            ToolCall(id="c", name="refused"),
            id=often_text,
            name=often_text,
            arguments=often_text,
        ),
        max_size=2,
    )
    | anything,
    tool_call_id=optional_texts,
)


def join_surrogates(value: object) -> object:
    """The value as JSON can express it: two halves of a surrogate pair, one after the other, are one character there."""
    return json.loads(json.dumps(value))


@given(any_message)
def test_what_a_transcript_accepts_it_can_read_back(message: Message) -> None:
    with new_file() as path:
        transcript = Transcript(JsonlStore(path))
        try:
            transcript.append(MessageEntry(message=message))
        except TranscriptError:
            return
        loaded = Transcript(JsonlStore(path))
        assert not JsonlStore(path).load().problems
        assert [
            join_surrogates(message_to_json(entry.message))
            for entry in loaded.entries
            if entry.message
        ] == [join_surrogates(message_to_json(message))]
