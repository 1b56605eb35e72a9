"""`find_first_difference` names the first block that a prompt cache cannot serve, and nothing where all can be served."""

from __future__ import annotations

from promptkit import Message, ToolCall
from promptkit.wire.first_difference import FirstDifference, find_first_difference
from tests.conversations import assistant_message, call_message, result_message, user_message

TALK = (
    user_message("Read a.py."),
    call_message("c1", text="I read it."),
    result_message("c1", "x = 1"),
)


def test_a_request_that_begins_with_the_one_before_has_no_difference() -> None:
    assert find_first_difference(TALK, TALK) is None
    assert find_first_difference(TALK, (*TALK, assistant_message("Done."))) is None
    assert find_first_difference((), TALK) is None


def test_a_block_behind_the_last_one_of_the_request_before_is_new_and_no_difference() -> None:
    grown = Message(role="user", content=("Read a.py.", "And b.py."))
    assert find_first_difference(TALK[:1], (grown,)) is None
    assert find_first_difference(TALK, (grown, *TALK[1:])) == FirstDifference(
        message=0, block=1, before=None, after="And b.py."
    )


def test_the_first_block_that_differs_is_named_and_tool_calls_follow_content() -> None:
    pruned = (*TALK[:2], result_message("c1", "[pruned]"))
    assert find_first_difference(TALK, pruned) == FirstDifference(
        message=2, block=0, before="x = 1", after="[pruned]"
    )
    call = ToolCall(id="c1", name="grep", arguments="{}")
    other = Message(role="assistant", content="I read it.", tool_calls=(call,))
    assert find_first_difference(TALK, (TALK[0], other, TALK[2])) == FirstDifference(
        message=1, block=1, before=TALK[1].tool_calls[0], after=call
    )


def test_a_message_of_another_role_or_call_differs_as_a_whole() -> None:
    summary = user_message("Summary: a.py was read.")
    assert find_first_difference(TALK, (TALK[0], summary)) == FirstDifference(
        message=1, before=TALK[1], after=summary
    )
    renamed = result_message("c2", "x = 1")
    assert find_first_difference(TALK, (*TALK[:2], renamed)) == FirstDifference(
        message=2, before=TALK[2], after=renamed
    )


def test_a_request_that_ends_earlier_differs_where_it_ends() -> None:
    assert find_first_difference(TALK, TALK[:2]) == FirstDifference(
        message=2, before=TALK[2], after=None
    )
