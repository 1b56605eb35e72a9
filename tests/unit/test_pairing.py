"""`pair_tool_calls`: whatever a recording contains, calls and results come out together."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import chain
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from promptkit.errors import InvalidArgumentError
from promptkit.messages import Message, Repair, ToolCall
from promptkit.pairing import (
    MISSING_TOOL_RESULT,
    PairedMessages,
    ToolCallPairer,
    pair_tool_calls,
)


def said(text: str) -> Message:
    return Message(role="user", content=(text,))


def called(*ids: str, text: str = "") -> Message:
    return Message(
        role="assistant",
        content=(text,) if text else (),
        tool_calls=tuple(ToolCall(id=i, name="read") for i in ids),
    )


def calling(ids: list[str]) -> Message:
    return called(*ids)


def returned(key: str | None, text: str = "ok") -> Message:
    return Message(role="tool", content=(text,), tool_call_id=key)


def kinds(paired: PairedMessages) -> list[str]:
    return [repair.kind for repair in paired.repairs]


def shape(paired: PairedMessages) -> list[str]:
    """`user`, `+a,b` for calls, `a=text` for results."""
    out: list[str] = []
    for message in paired.messages:
        if message.role == "tool":
            out.append(f"{message.tool_call_id}={message.text}")
        elif message.tool_calls:
            out.append("+" + ",".join(call.id for call in message.tool_calls))
        else:
            out.append(message.role)
    return out


messages = st.one_of(
    st.builds(said, st.sampled_from(["hello", ""])),
    st.builds(calling, st.lists(st.sampled_from(["a", "b", "c", "a_2", ""]), max_size=3)),
    st.builds(
        returned,
        st.sampled_from(["a", "b", "c", "a_2", "", None]),
        st.sampled_from(["one", "two", ""]),
    ),
)


def answered(ids: list[str]) -> list[Message]:
    return [called(*ids), *map(returned, ids)]


rounds = st.one_of(
    st.builds(answered, st.lists(st.sampled_from(["a", "b", "c", "a_2"]), max_size=2, unique=True)),
    st.lists(messages, min_size=1, max_size=1),
)


class TestWhatIsRight:
    def test_stays_byte_for_byte(self) -> None:
        turns = (
            said("hi"),
            called("a", "b"),
            returned("b"),
            returned("a"),
            called("c"),
            returned("c", ""),
        )
        assert pair_tool_calls(turns) == PairedMessages(messages=turns, sources=tuple(range(6)))

    def test_keeps_the_very_messages(self) -> None:
        turns = (said("hi"), called("a"), returned("a"))
        assert all(
            mine is theirs
            for mine, theirs in zip(pair_tool_calls(turns).messages, turns, strict=True)
        )

    def test_makes_no_objects_for_a_recording_without_faults(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ToolCallPairer, "add", None)
        turns = [
            said("hi"),
            called("a", "b"),
            returned("b"),
            returned("a"),
            called(),
            called("c"),
            returned("c", ""),
        ]
        assert all(
            one is other for one, other in zip(pair_tool_calls(turns).messages, turns, strict=True)
        )

    def test_nothing_gives_nothing(self) -> None:
        assert pair_tool_calls([]) == PairedMessages(messages=(), sources=())


class TestRepairs:
    def test_a_call_without_a_result_is_answered_by_a_placeholder(self) -> None:
        paired = pair_tool_calls([called("a", "b"), returned("b"), said("go on")])
        assert shape(paired) == ["+a,b", "b=ok", f"a={MISSING_TOOL_RESULT}", "user"]
        assert paired.repairs == (
            Repair(
                kind="missing result",
                detail=f"turns[0]: call 'a' has no result; {MISSING_TOOL_RESULT!r} answers it.",
            ),
        )

    @pytest.mark.parametrize("before", [[], [said("hi"), called("z"), returned("z")]])
    def test_a_last_call_without_a_result_is_answered_too(self, before: list[Message]) -> None:
        assert kinds(pair_tool_calls([*before, called("a", "b"), returned("b")])) == [
            "missing result"
        ]

    def test_only_the_model_makes_calls(self) -> None:
        asked = Message(role="user", tool_calls=(ToolCall(id="a", name="read"),))
        assert pair_tool_calls([asked, returned("a")]).messages == (asked,)

    def test_what_is_no_message_is_refused_with_its_place(self) -> None:
        with pytest.raises(InvalidArgumentError, match=r"turns\[1\] must be a Message"):
            pair_tool_calls([said("hi"), {"role": "user", "content": "hi"}])  # type: ignore[list-item]  # wrong on purpose

    def test_a_result_of_no_call_is_dropped(self) -> None:
        paired = pair_tool_calls([said("hi"), returned("x"), returned(None)])
        assert shape(paired) == ["user"]
        assert kinds(paired) == ["orphan result", "orphan result"]

    def test_the_first_of_several_results_stays(self) -> None:
        paired = pair_tool_calls([called("a"), returned("a", "one"), returned("a", "two")])
        assert shape(paired) == ["+a", "a=one"]
        assert kinds(paired) == ["repeated result"]

    def test_a_repeated_id_is_made_unique_on_both_sides(self) -> None:
        paired = pair_tool_calls(
            [
                called("0"),
                returned("0", "one"),
                called("0"),
                returned("0", "two"),
                called("0_2"),
                returned("0_2", "three"),
            ]
        )
        assert shape(paired) == ["+0", "0=one", "+0_2", "0_2=two", "+0_2_2", "0_2_2=three"]
        assert kinds(paired) == ["repeated call id", "repeated call id"]

    def test_equal_ids_in_one_round_are_answered_in_order(self) -> None:
        paired = pair_tool_calls([called("a", "a"), returned("a", "one"), returned("a", "two")])
        assert shape(paired) == ["+a,a_2", "a=one", "a_2=two"]

    def test_a_result_answers_the_latest_call_of_its_id(self) -> None:
        paired = pair_tool_calls(
            [called("a"), said("never mind"), called("a"), returned("a", "late")]
        )
        assert shape(paired) == ["+a", f"a={MISSING_TOOL_RESULT}", "user", "+a_2", "a_2=late"]

    def test_a_result_before_its_call_is_moved_behind_it(self) -> None:
        paired = pair_tool_calls([returned("a", "early"), said("hi"), called("a"), said("thanks")])
        assert shape(paired) == ["user", "+a", "a=early", "user"]
        assert kinds(paired) == ["moved result"]

    def test_a_result_that_stands_apart_is_moved_behind_its_call(self) -> None:
        paired = pair_tool_calls(
            [called("a", "b"), returned("a"), said("wait"), returned("b", "late")]
        )
        assert shape(paired) == ["+a,b", "a=ok", "b=late", "user"]
        assert kinds(paired) == ["moved result"]

    def test_an_empty_id_is_given_a_name(self) -> None:
        paired = pair_tool_calls([called(""), returned("", "ok")])
        assert shape(paired) == ["+call_2", "call_2=ok"]

    def test_repairs_come_in_the_order_of_the_recording(self) -> None:
        paired = pair_tool_calls(
            [returned("x"), called("a"), said("hi"), called("a"), returned("a")]
        )
        assert kinds(paired) == ["orphan result", "missing result", "repeated call id"]


class TestLaws:
    @given(st.lists(messages, max_size=14))
    def test_the_output_is_always_well_paired(self, turns: list[Message]) -> None:
        paired = pair_tool_calls(turns)
        ids = [call.id for message in paired.messages for call in message.tool_calls]
        assert len(set(ids)) == len(ids)
        open_ids: list[str] = []
        for message in paired.messages:
            if message.role == "tool":
                assert message.tool_call_id in open_ids, "a result stands right behind its call"
                open_ids.remove(message.tool_call_id)
            else:
                assert not open_ids, "every call is answered before anything else is said"
                open_ids = [call.id for call in message.tool_calls]
        assert not open_ids

    @given(st.lists(messages, max_size=14))
    def test_pairing_twice_changes_nothing(self, turns: list[Message]) -> None:
        once = pair_tool_calls(turns)
        assert pair_tool_calls(once.messages) == PairedMessages(
            messages=once.messages, sources=tuple(range(len(once.messages)))
        )

    @given(st.lists(messages, max_size=14))
    def test_nothing_but_tool_messages_is_lost_or_moved(self, turns: list[Message]) -> None:
        paired = pair_tool_calls(turns)
        assert [(m.role, m.content) for m in paired.messages if m.role != "tool"] == [
            (m.role, m.content) for m in turns if m.role != "tool"
        ]

    @given(st.lists(messages, max_size=14))
    def test_every_change_is_reported(self, turns: list[Message]) -> None:
        paired = pair_tool_calls(turns)
        assert bool(paired.repairs) == (paired.messages != tuple(turns))
        results = Counter(m.role for m in turns)["tool"]
        dropped = sum(kind in {"orphan result", "repeated result"} for kind in kinds(paired))
        added = kinds(paired).count("missing result")
        assert Counter(m.role for m in paired.messages)["tool"] == results - dropped + added

    @given(st.lists(messages, max_size=14))
    def test_later_messages_do_not_rename_a_call(self, turns: list[Message]) -> None:
        whole = [
            call.id for message in pair_tool_calls(turns).messages for call in message.tool_calls
        ]
        for end in range(len(turns)):
            part = [
                call.id
                for message in pair_tool_calls(turns[:end]).messages
                for call in message.tool_calls
            ]
            assert part == whole[: len(part)]

    @given(st.lists(messages, max_size=14), st.lists(st.booleans(), min_size=14, max_size=14))
    def test_a_conversation_that_grows_is_paired_as_if_it_had_been_there_at_once(
        self, turns: list[Message], looks: list[bool]
    ) -> None:
        pairer = ToolCallPairer()
        seen: list[Message] = []
        for message, look in zip(turns, looks, strict=False):
            pairer.add(message)
            if look:
                first = pairer.settle()
                assert seen[:first] == pairer.messages[:first], (
                    "what is before the first change has not changed"
                )
                seen = list(pairer.messages)
        pairer.settle()
        assert PairedMessages(
            messages=tuple(pairer.messages), sources=tuple(pairer.sources), repairs=pairer.repairs
        ) == pair_tool_calls(turns)

    @given(groups=st.lists(st.lists(rounds, max_size=2), max_size=5), early=st.booleans())
    @example(groups=[[answered(["a"])], [[returned("a")]]], early=False)
    @example(groups=[[[returned("a")]], [answered(["a"])]], early=True)
    @example(groups=[[[called("a")]], [answered(["b"])], [[returned("a")]]], early=False)
    def test_messages_that_are_added_together_are_paired_as_if_they_were_added_one_by_one(
        self, groups: list[list[list[Message]]], *, early: bool
    ) -> None:
        together = ToolCallPairer(allow_early_results=early)
        single = ToolCallPairer(allow_early_results=early)
        for group in (list(chain.from_iterable(group)) for group in groups):
            together.extend(group)
            for message in group:
                single.add(message)
            assert together.settle() == single.settle()
            assert together.messages == single.messages
            assert together.sources == single.sources
            assert together.repairs == single.repairs

    @given(st.lists(messages, max_size=14))
    def test_sources_say_where_each_message_comes_from(self, turns: list[Message]) -> None:
        paired = pair_tool_calls(turns)
        for message, source in zip(paired.messages, paired.sources, strict=True):
            if message.role == "tool" and message.text == MISSING_TOOL_RESULT:
                assert turns[source].tool_calls
            else:
                assert (message.role, message.content) == (
                    turns[source].role,
                    turns[source].content,
                )

    @given(st.lists(messages, max_size=14))
    def test_without_early_results_a_result_answers_only_a_call_before_it(
        self, turns: list[Message]
    ) -> None:
        pairer = ToolCallPairer(allow_early_results=False)
        for message in turns:
            pairer.add(message)
        pairer.settle()
        last = -1
        for message, source in zip(pairer.messages, pairer.sources, strict=True):
            if message.role != "tool":
                last = source
            assert source >= last


SOUND = [[said("hi"), called(f"c{i}"), returned(f"c{i}")] for i in range(800)]


@pytest.mark.parametrize(
    "turns",
    [
        SOUND,
        [[called("same"), returned("same")]] * 800,
        [[called("never")]] * 800,
        [[returned("lost")]] * 800,
    ],
    ids=["sound", "one id", "no results", "no calls"],
)
def test_work_grows_with_the_number_of_messages(turns: list[list[Message]]) -> None:
    def steps(turns: list[list[Message]]) -> int:
        """The lines of Python that run: a count, where a clock would measure the machine."""
        messages = [message for turn in turns for message in turn]
        count = 0

        # Any: as sys.settrace declares it
        def trace(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal count
            count += 1
            return trace

        sys.settrace(trace)
        try:
            pair_tool_calls(messages)
        finally:
            sys.settrace(None)
        return count

    assert steps(turns[:800]) < 4.4 * steps(turns[:200]), "four times the messages"
