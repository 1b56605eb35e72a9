from __future__ import annotations

import pytest

from promptkit.compaction.planning.blocks import (
    Block,
    extract_summary_text,
    find_last_user_request,
    find_open_user_requests,
    group_blocks,
    has_completed_round,
    is_user_request,
    starts_turn,
)
from promptkit.messages import Message, ToolCall
from promptkit.transcript.log.entries import Checkpoint
from promptkit.transcript.log.view import ViewItem, build_summary_message
from tests.conversations import ConversationBuilder


def test_calls_and_all_their_results_are_one_block() -> None:
    talk = ConversationBuilder()
    talk.user("q")
    talk.calls("a", "b")
    talk.result("a", "1")
    talk.result("b", "2")
    talk.answer("done")
    assert group_blocks(talk.view.items) == [Block(0, 1), Block(1, 4), Block(4, 5)]


@pytest.mark.parametrize("answered", [(), ("a",), ("b",)])
def test_calls_without_all_results_are_running_while_the_model_has_not_gone_on(
    answered: tuple[str, ...],
) -> None:
    talk = ConversationBuilder()
    talk.user("q")
    talk.calls("a", "b")
    for call in answered:
        talk.result(call, "r")
    talk.reminder("still there")
    assert group_blocks(talk.view.items)[1] == Block(1, 4, running=True)
    talk.answer("I give up on these")
    assert group_blocks(talk.view.items)[1] == Block(1, 4)


def test_a_result_that_says_what_the_placeholder_says_is_a_result() -> None:
    talk = ConversationBuilder()
    talk.round("a", "[no result was recorded]")
    assert group_blocks(talk.view.items) == [Block(0, 2)]


def test_calls_that_a_checkpoint_baked_in_are_not_running() -> None:
    talk = ConversationBuilder()
    baked = (
        Message(role="assistant", tool_calls=(ToolCall(id="a", name="t"),)),
        Message(role="tool", content=("r",), tool_call_id="a"),
    )
    talk.append(Checkpoint(summary="S", replacement=baked))
    assert group_blocks(talk.view.items) == [Block(0, 2)]
    assert has_completed_round(talk.view.items)


@pytest.mark.parametrize(
    "text", ["", "one", "two\nlines", "</conversation-summary", "<conversation-summary>"]
)
def test_a_summary_is_read_out_of_its_tags(text: str) -> None:
    message = build_summary_message(text)
    again = extract_summary_text(message)
    assert again is not None
    assert build_summary_message(again) == message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "<conversation-summary>\n",
        "\n</conversation-summary>",
        "<conversation-summary>\n</conversation-summary>",
    ],
)
def test_what_has_not_the_tags_is_no_summary(text: str) -> None:
    assert extract_summary_text(Message(role="user", content=(text,))) is None


def test_tags_that_the_user_writes_are_a_request() -> None:
    talk = ConversationBuilder()
    talk.user("<conversation-summary>\nI am no summary\n</conversation-summary>")
    assert is_user_request(talk.view.items[0])


def _mixed() -> ConversationBuilder:
    talk = ConversationBuilder()
    talk.user("one")
    talk.round("a", "r")
    talk.answer("done")
    talk.user("two")
    talk.user("and this")
    talk.round("b", "r")
    talk.reminder("hurry")
    return talk


def test_requests_are_what_the_user_asked_for() -> None:
    items = _mixed().view.items
    assert [at for at in range(len(items)) if is_user_request(items[at])] == [0, 4, 5]
    assert find_last_user_request(items) == 5
    assert find_last_user_request(items[:0]) is None


def test_open_requests_are_those_since_the_last_full_answer() -> None:
    talk = _mixed()
    assert find_open_user_requests(talk.view.items) == [4, 5]
    talk.answer("all done")
    assert find_open_user_requests(talk.view.items) == []


@pytest.mark.spec("E18")
def test_turns_start_at_the_first_message_from_outside() -> None:
    talk = _mixed()
    talk.branch("what happened there")
    items = talk.view.items
    assert [at for at in range(len(items)) if starts_turn(items, at)] == [0, 4, 8]


@pytest.mark.parametrize(
    ("steps", "warm"),
    [
        ("", False),
        ("call", False),
        ("half", False),
        ("round", True),
        ("round call", True),
        ("round reminder", True),
        ("round answer", True),
        ("call answer", False),
        ("round user", False),
        ("answer", False),
    ],
)
def test_the_cache_is_warm_once_a_round_of_this_turn_is_complete(steps: str, warm: bool) -> None:
    talk = ConversationBuilder()
    for number, step in enumerate(["user", "round", "answer", "user", *steps.split()]):
        match step:
            case "call":
                talk.calls(f"c{number}")
            case "half":
                talk.calls(f"c{number}", "other")
                talk.result("other", "r")
            case "round":
                talk.round(f"c{number}", "r")
            case "reminder":
                talk.reminder("hurry")
            case "answer":
                talk.answer("done")
            case _:
                talk.user("next")
    assert has_completed_round(talk.view.items) is warm


def test_calls_without_placeholders_are_no_completed_round() -> None:
    calls = Message(role="assistant", tool_calls=(ToolCall(id="a", name="t"),))
    assert not has_completed_round([ViewItem(message=calls, entry_id="e1")])
