"""Model-specific additions to a request."""

from __future__ import annotations

import pytest

from promptkit.compaction.planning.facts import is_thinking
from promptkit.compaction.summarizers.quirks import (
    QUIRKS,
    REMINDER,
    Quirks,
    adapt_messages,
    find_quirks,
    remove_calls,
    remove_orphans,
)
from promptkit.messages import ImagePart, Message, OpaquePart, ToolCall
from promptkit.transcript.log.view import build_summary_message

CLAUDE = Quirks(keep_thinking=True, hidden_calls="tool_search")
THOUGHT = OpaquePart(
    value={"type": "thinking", "thinking": "hm", "signature": "s"}, provider="anthropic"
)
SUMMARY = build_summary_message("S")


def asked(text: str) -> Message:
    return Message(role="user", content=(text,))


def calls(*ids: str, text: str = "", name: str = "read") -> Message:
    return Message(
        role="assistant",
        content=(text,) if text else (),
        tool_calls=tuple(ToolCall(id=each, name=name) for each in ids),
    )


def result(call: str) -> Message:
    return Message(role="tool", content=("out",), tool_call_id=call)


@pytest.mark.parametrize(
    ("model", "quirks"),
    [
        (
            "claude-opus-4-1",
            Quirks(say_no_tools=True, keep_thinking=True, hidden_calls="tool_search"),
        ),
        (
            "anthropic/claude-3-opus",
            Quirks(say_no_tools=True, keep_thinking=True, hidden_calls="tool_search"),
        ),
        ("claude-sonnet-4-5", CLAUDE),
        ("Gemini-2.5-pro", Quirks(strip_orphans=True)),
        ("gpt-4.1-mini", Quirks(remind_to_continue=True)),
        ("gpt-4o", Quirks()),
        ("gpt-5", Quirks()),
        ("", Quirks()),
        (None, Quirks()),
    ],
)
def test_each_family_has_its_row(model: str | None, quirks: Quirks) -> None:
    assert find_quirks(model) == quirks


def test_a_table_of_ones_own_comes_first() -> None:
    table = (("^mine", Quirks(say_no_tools=True)), *QUIRKS)

    assert find_quirks("mine-7b", table).say_no_tools
    assert find_quirks("gemini", table).strip_orphans


class TestAdapted:
    def test_without_quirks_nothing_is_changed(self) -> None:
        messages = (SUMMARY, calls("c1"), asked("x"), result("c9"))

        assert adapt_messages(messages, Quirks(), thinking=THOUGHT) == messages

    def test_the_reminder_stands_behind_the_summary(self) -> None:
        system = Message(role="system", content=("You help.",))

        shown = adapt_messages((system, SUMMARY, asked("x")), Quirks(remind_to_continue=True))

        assert shown == (system, SUMMARY, asked(REMINDER), asked("x"))

    def test_without_a_summary_nobody_is_reminded(self) -> None:
        assert adapt_messages((asked("x"),), Quirks(remind_to_continue=True)) == (asked("x"),)

    @pytest.mark.spec("E14")
    def test_the_last_thought_leads_the_first_answer_behind_a_summary(self) -> None:
        shown = adapt_messages(
            (SUMMARY, asked("x"), calls("c1", text="I look."), result("c1"), calls("c2")),
            CLAUDE,
            thinking=THOUGHT,
        )

        assert shown[2].content == (THOUGHT, "I look.")
        assert shown[4].content == ()

    @pytest.mark.spec("E14")
    def test_an_answer_with_a_thought_of_its_own_keeps_it_byte_for_byte(self) -> None:
        own = OpaquePart(value={"type": "redacted_thinking", "data": "z"}, provider="anthropic")
        answer = Message(role="assistant", content=(own, "I look."))

        assert adapt_messages((SUMMARY, answer), CLAUDE, thinking=THOUGHT) == (SUMMARY, answer)

    def test_without_a_summary_no_thought_is_moved(self) -> None:
        assert (
            adapt_messages((asked("x"), calls("c1"), result("c1")), CLAUDE, thinking=THOUGHT)[
                1
            ].content
            == ()
        )

    def test_twice_is_once(self) -> None:
        messages = (SUMMARY, asked("x"), calls("c1", "c2"), result("c1"), result("c9"))
        every = Quirks(remind_to_continue=True, strip_orphans=True, keep_thinking=True)

        once = adapt_messages(messages, every, thinking=THOUGHT)

        assert once != messages
        assert adapt_messages(once, every, thinking=THOUGHT) == once


class TestOrphans:
    def test_calls_and_results_that_stand_alone_go(self) -> None:
        messages = [
            result("c0"),
            asked("x"),
            calls("c1", "c2"),
            result("c2"),
            result("c3"),
            asked("y"),
            result("c1"),
        ]

        assert remove_orphans(messages) == (asked("x"), calls("c2"), result("c2"), asked("y"))

    def test_what_was_said_beside_a_call_stays(self) -> None:
        assert remove_orphans([calls("c1", text="I look.")]) == (
            Message(role="assistant", content=("I look.",)),
        )
        assert remove_orphans([calls("c1")]) == ()

    def test_of_two_results_of_one_call_the_first_stays(self) -> None:
        other = Message(role="tool", content=("again",), tool_call_id="c1")

        assert remove_orphans([calls("c1"), result("c1"), other]) == (calls("c1"), result("c1"))


def test_calls_of_hidden_tools_go_with_their_results() -> None:
    search = calls("s1", name="tool_search_regex")
    both = Message(
        role="assistant",
        tool_calls=(ToolCall(id="s2", name="tool_search_regex"), ToolCall(id="c1", name="read")),
    )

    shown = remove_calls(
        [search, result("s1"), both, result("s2"), result("c1")], CLAUDE.hidden_calls
    )

    assert shown == (calls("c1"), result("c1"))
    assert remove_calls([search, result("s1")], None) == (search, result("s1"))


@pytest.mark.parametrize(
    "part",
    ["text", ImagePart(url="u"), OpaquePart(value="x"), OpaquePart(value={"type": "reasoning"})],
)
def test_other_parts_are_no_thoughts(part: object) -> None:
    assert not is_thinking(part)
    assert is_thinking(THOUGHT)
