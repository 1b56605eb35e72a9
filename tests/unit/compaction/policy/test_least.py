from __future__ import annotations

import pytest

from promptkit import ContextBudget
from promptkit.compaction.policy.rules import (
    compact_on_demand,
    default_policy,
    fail_if_too_large,
    first_match,
    render_pruned_if_too_large,
    require_messages,
)
from promptkit.compaction.policy.usage import (
    LeastSize,
    compacts_overflow,
    count_newest,
    describe_largest,
)
from promptkit.errors import ContextWindowFullError
from promptkit.messages import Message
from promptkit.testing import WordTokenizer
from tests.conversations import (
    ConversationBuilder,
    assistant_message,
    call_message,
    result_message,
    user_message,
    words,
)

TOKENIZER = WordTokenizer(per_message=1)


def test_without_a_summary_only_three_parts_count() -> None:
    assert LeastSize(instructions=1, tools=2, newest=4).total == 7
    assert LeastSize(instructions=1, tools=2, newest=4, summary=8, beside=16).total == 31


@pytest.mark.parametrize(
    ("newest", "summary", "beside", "possible"),
    [
        (70, 0, 0, True),
        (71, 0, 0, False),
        (70, 60, 10, True),  # the newest message is not repeated beside a summary
        (0, 60, 10, True),
        (0, 60, 11, False),
        (0, 71, 0, False),
    ],
)
def test_requests_fit_if_they_do_without_a_summary_and_with_one(
    newest: int, summary: int, beside: int, *, possible: bool
) -> None:
    least = LeastSize(
        instructions=10, tools=20, newest=newest, summary=summary, beside=beside, limit=100
    )
    assert least.is_possible is possible


def test_without_a_limit_every_size_is_possible() -> None:
    least = LeastSize(instructions=10**9, tools=0, newest=0)
    assert least.is_possible
    least.check()


def test_the_sizes_are_listed_with_what_to_do_and_parts_of_zero_are_left_out() -> None:
    least = LeastSize(instructions=9_000, tools=1_000, newest=40, summary=1_500, limit=10_000)
    assert least.explain() == (
        "the conversation can be compacted to 11,540 tokens at least, and a request may have 10,000: instructions 9,000, tools 1,000, "
        "the newest message 40, the largest summary 1,500. Shorten the largest of them, or use a larger window or model."
    )
    with pytest.raises(ContextWindowFullError, match="11,540 tokens at least"):
        least.check()
    assert (
        LeastSize(instructions=9, tools=0, newest=0, beside=3)
        .explain()
        .startswith(
            "the conversation can be compacted to 12 tokens at least: instructions 9, what stands beside it 3."
        )
    )


@pytest.mark.parametrize("budget", [ContextBudget(window=10_000), ContextBudget()])
def test_a_policy_compacts_what_overflows_or_never_summarizes(budget: ContextBudget) -> None:
    assert compacts_overflow(default_policy(rng=lambda: 0.5), budget)
    assert compacts_overflow(
        first_match([require_messages(4, [default_policy(rng=lambda: 0.5).decide])]), budget
    )
    for rule in (render_pruned_if_too_large, fail_if_too_large, compact_on_demand):
        assert not compacts_overflow(first_match([rule]), budget)


def test_the_newest_are_the_last_user_message_and_the_last_reply_after_it() -> None:
    talk = ConversationBuilder()
    talk.user(words(100))
    talk.answer(words(200))
    talk.user(words(10))
    assert count_newest(talk.view.items, TOKENIZER) == 11
    talk.answer(words(30))
    talk.round("c1", words(500))
    assert count_newest(talk.view.items, TOKENIZER) == 11 + 0  # a call without a text
    talk.answer(words(20))
    assert count_newest(talk.view.items, TOKENIZER) == 11 + 21
    talk.reminder(words(7))
    assert count_newest(talk.view.items, TOKENIZER) == 11 + 21


def test_without_a_user_message_the_newest_is_the_last_reply() -> None:
    talk = ConversationBuilder()
    talk.system(words(100))
    talk.answer(words(20))
    assert count_newest(talk.view.items, TOKENIZER) == 21
    assert count_newest((), TOKENIZER) == 0


def test_the_largest_messages_are_named_with_the_tool_of_a_result() -> None:
    messages = [
        Message(role="system", content=(words(5),)),
        user_message(words(50)),
        call_message("c1", name="read_file"),
        result_message("c1", words(300)),
        assistant_message(words(50)),
        user_message(words(70)),
        assistant_message(words(2)),
    ]
    assert describe_largest(messages, TOKENIZER) == (
        "The largest messages: result of read_file 301, user 71, user 51. Shorten them, or use a larger window or model."
    )
