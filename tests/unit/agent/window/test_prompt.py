from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from promptkit import BudgetExceededError, Message, SystemMessage, ToolCall, render
from promptkit.agent.window.prompt import Conversation, ConversationPrompt, ConversationView
from promptkit.fitting import describe_omitted
from promptkit.pairing import MISSING_TOOL_RESULT, pair_tool_calls
from promptkit.rendering.renderer import Renderer
from promptkit.testing import WordTokenizer
from promptkit.transcript.log.view import build_summary_message

TOKENIZER = WordTokenizer()
SUMMARY = build_summary_message("what was before")
PINNED = Message(role="system", content=("rules of the house",))


def asked(text: str) -> Message:
    return Message(role="user", content=(text,))


def said(text: str) -> Message:
    return Message(role="assistant", content=(text,))


def round_of(call: str, result: str) -> list[Message]:
    return [
        Message(role="assistant", tool_calls=(ToolCall(id=call, name="read"),)),
        Message(role="tool", content=(result,), tool_call_id=call),
    ]


TALK = (
    SUMMARY,
    asked("first question"),
    said("first answer"),
    asked("second question"),
    *round_of("c1", "some long result"),
    said("so far"),
)


def test_everything_is_shown_as_it_was_said_behind_the_instructions() -> None:
    prompt = ConversationPrompt(SystemMessage(required=True)["Be brief."])(
        ConversationView(messages=TALK)
    )
    rendered = render(prompt, tokenizer=TOKENIZER)
    assert rendered.messages == (Message(role="system", content=("Be brief.",)), *TALK)


def test_nothing_leaves_unless_it_may() -> None:
    prompt = ConversationPrompt(SystemMessage(required=True)["Be brief."])(
        ConversationView(messages=TALK)
    )
    whole = render(prompt, tokenizer=TOKENIZER).tokens
    assert render(prompt, tokenizer=TOKENIZER, budget=whole).tokens == whole
    with pytest.raises(BudgetExceededError):
        render(prompt, tokenizer=TOKENIZER, budget=whole - 1)


@given(budget=st.integers(9, 30), pinned=st.booleans())
def test_where_it_may_the_oldest_leave_first_and_summary_and_request_stay(
    budget: int, pinned: bool
) -> None:
    talk = (PINNED, *TALK) if pinned else TALK
    prompt = Conversation(view=ConversationView(messages=talk, may_prune=True))
    shown = render(prompt, tokenizer=TOKENIZER, budget=budget + 4).messages
    messages = [message for message in shown if message in talk]
    assert [message.text for message in shown if message not in talk] in (
        [],
        [describe_omitted(len(talk) - len(messages))],
    )
    assert SUMMARY in messages
    assert asked("second question") in messages
    assert (PINNED in messages) == pinned
    places = [
        talk.index(message)
        for message in messages
        if message not in {SUMMARY, PINNED, asked("second question")}
    ]
    gone = [at for at, message in enumerate(talk) if message not in messages]
    turns = [sum(message.role == "user" for message in talk[: at + 1]) for at in range(len(talk))]
    # no turn loses anything before an older one is gone
    assert all(turns[at] >= turns[left] for at in places for left in gone)
    behind = [message for message in messages if message not in {SUMMARY, PINNED}]
    assert behind[0].role == "user"  # what was asked stays for as long as an answer to it
    calls = [call.id for message in messages for call in message.tool_calls]
    assert calls == [message.tool_call_id for message in messages if message.role == "tool"]


@pytest.mark.parametrize("may_prune", [False, True])
def test_a_result_that_lost_its_call_is_repaired_and_reported(*, may_prune: bool) -> None:
    (_, result), (call, _) = round_of("c1", "found"), round_of("c2", "found")
    messages = result, asked("and now?"), call
    rendered = render(
        Conversation(view=ConversationView(messages=messages, may_prune=may_prune)),
        tokenizer=TOKENIZER,
    )
    answer = Message(role="tool", content=(MISSING_TOOL_RESULT,), tool_call_id="c2")
    assert rendered.messages == (asked("and now?"), call, answer)
    assert rendered.repairs == pair_tool_calls(messages).repairs


def test_a_view_says_what_is_the_summary_and_what_came_after_it() -> None:
    view = ConversationView(messages=TALK)
    assert view.summary is SUMMARY
    assert view.recent == TALK[1:]
    assert ConversationView(messages=TALK[1:]).summary is None
    assert ConversationView(messages=TALK, may_prune=True).keep_turns == 0
    assert ConversationView(messages=TALK).keep_turns >= 2


class Counting(WordTokenizer):
    def count(self, text: str) -> int:
        COUNTED.append(text)
        return super().count(text)


COUNTED: list[str] = []


def test_a_renderer_counts_only_what_is_new() -> None:
    renderer = Renderer(budget=1_000, tokenizer=Counting())
    renderer.render(Conversation(view=ConversationView(messages=TALK)))
    COUNTED.clear()
    grown = ConversationView(messages=(*TALK, asked("third question")))
    renderer.render(Conversation(view=grown))
    assert "first question" not in COUNTED
    assert "third question" in COUNTED
