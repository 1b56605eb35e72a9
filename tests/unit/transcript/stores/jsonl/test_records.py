"""Entries as JSON: everything comes back, nothing is made into something else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from promptkit import DocumentPart, ImagePart, Message, OpaquePart, ToolCall, Usage
from promptkit.errors import TranscriptError
from promptkit.messages import CacheBreakpointPart
from promptkit.transcript.log.entries import (
    KINDS,
    BranchSummary,
    Checkpoint,
    CustomEntry,
    CustomMessage,
    Edit,
    Entry,
    Label,
    MessageEntry,
    Observation,
    Reset,
    Setting,
    UnknownEntry,
)
from promptkit.transcript.stores.jsonl.format import (
    entry_from_json,
    entry_to_json,
    message_from_json,
    message_to_json,
)

if TYPE_CHECKING:
    from promptkit.messages import Json

texts = st.text(max_size=8)
numbers = st.integers(-5, 10**12)
json_values: st.SearchStrategy[Any] = st.recursive(  # Any: JSON of any shape
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, json_values, max_size=3)
parts = st.one_of(
    texts,
    st.builds(
        ImagePart,
        url=texts,
        detail=st.none() | texts,
        width=st.none() | numbers,
        height=st.none() | numbers,
    ),
    st.builds(
        DocumentPart,
        data=texts,
        media_type=texts,
        name=st.none() | texts,
        tokens=st.none() | numbers,
    ),
    st.builds(
        OpaquePart, value=json_values, tokens=st.none() | numbers, provider=st.none() | texts
    ),
    st.builds(CacheBreakpointPart, kind=st.none() | texts, ttl=st.none() | texts),
)
contents = st.lists(parts, max_size=3).map(tuple)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=contents,
    name=st.none() | texts,
    tool_calls=st.lists(st.builds(ToolCall, id=texts, name=texts, arguments=texts), max_size=2).map(
        tuple
    ),
    tool_call_id=st.none() | texts,
)
usages = st.none() | st.builds(
    Usage, input_tokens=numbers, output_tokens=numbers, cached_tokens=numbers
)
payloads = st.one_of(
    st.builds(
        MessageEntry,
        message=messages,
        usage=usages,
        model=st.none() | texts,
        finish=st.none() | texts,
    ),
    st.builds(
        Checkpoint,
        summary=texts,
        first_kept=st.none() | texts,
        replacement=st.none() | st.lists(messages, max_size=2).map(tuple),
        trigger=texts,
        tokens_before=st.none() | numbers,
        usage=usages,
        facts=objects,
    ),
    st.builds(BranchSummary, summary=texts, leaf=texts, facts=objects),
    st.builds(Edit, target=texts, content=st.none() | contents, reason=texts),
    st.builds(Reset, reason=texts),
    st.builds(CustomEntry, name=texts, data=json_values),
    st.builds(CustomMessage, name=texts, message=messages),
    st.builds(Setting, name=texts, value=json_values),
    st.builds(Label, target=texts, label=texts),
    st.builds(Observation, name=texts, data=json_values),
    st.builds(UnknownEntry, kind=st.just("of a later version"), data=objects),
)
entries = st.builds(
    Entry,
    id=st.text(min_size=1, max_size=8),
    parent_id=st.none() | texts,
    time=st.floats(allow_nan=False, allow_infinity=False),
    payload=payloads,
)


@given(entries)
def test_an_entry_comes_back_as_it_was(entry: Entry) -> None:
    assert entry_from_json(json.loads(json.dumps(entry_to_json(entry)))) == entry


@given(messages)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    assert message_from_json(json.loads(json.dumps(message_to_json(message)))) == message


def test_every_kind_has_a_word() -> None:
    assert len(set(KINDS.values())) == len(KINDS) == 11


def test_what_has_its_default_is_left_out() -> None:
    assert message_to_json(Message(role="user", content=("hi",))) == {
        "role": "user",
        "content": ["hi"],
    }


def test_a_part_of_a_later_version_is_kept_and_sent_to_nobody() -> None:
    part: dict[str, Json] = {"type": "hologram", "data": [1]}
    message = message_from_json({"role": "user", "content": ["a", part]})
    assert message.content == ("a", OpaquePart(value=part, tokens=0, provider="unknown"))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"role": "user", "content": "letters"}, r"'letters' must be a list @ \$\.content"),
        ({"role": "user", "content": [5]}, r"5 is not a part of a message @ \$\.content\[0\]"),
        ({"role": "user", "name": 5}, r"5 must be a text @ \$\.name"),
        ({"role": "nobody"}, r"nobody not in literal .* @ \$\.role"),
        ({"role": ["user"]}, "not in literal"),
        ({}, r"required field missing @ \$\.role"),
        (
            {"role": "user", "tool_calls": [{"id": None, "name": "x"}]},
            r"None must be a text @ \$\.tool_calls\[0\]\.id",
        ),
        (
            {"role": "user", "content": [{"type": "image", "url": "u", "width": True}]},
            "True must be a whole number",
        ),
        ({"role": "user", "content": {"x" * 100: 1}}, r"\{'x+… must be a list"),
    ],
)
def test_nothing_is_made_into_what_it_is_not(data: dict[str, Json], why: str) -> None:
    with pytest.raises(TranscriptError, match=why) as caught:
        message_from_json(data)
    assert "\n" not in str(caught.value)


GOOD: dict[str, Json] = {"id": "a", "parent_id": None, "kind": "reset", "time": 1.5, "data": {}}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"id": ""}, "a field of the entry has an invalid value"),
        ({"id": 1}, "a field of the entry has an invalid value"),
        ({"time": True}, "a field of the entry has an invalid value"),
        ({"time": float("inf")}, "a field of the entry has an invalid value"),
        ({"data": []}, "a field of the entry has an invalid value"),
        (
            {"kind": "checkpoint"},
            r"the data of the checkpoint cannot be read: required field missing @ \$\.summary",
        ),
        ({"kind": "checkpoint", "data": {"summary": "s", "facts": 5}}, "5 must be an object"),
        ({"kind": "message", "data": {"message": []}}, "the data of the message cannot be read"),
    ],
)
def test_what_is_no_entry_is_named(changes: dict[str, Json], why: str) -> None:
    assert entry_from_json(GOOD).payload == Reset()
    with pytest.raises(TranscriptError, match=why) as caught:
        entry_from_json(GOOD | changes)
    assert "\n" not in str(caught.value)


def test_missing_fields_are_named() -> None:
    with pytest.raises(TranscriptError, match="the entry has no parent_id, time"):
        entry_from_json({"id": "a", "kind": "reset", "data": {}})
