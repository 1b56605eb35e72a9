from __future__ import annotations

from promptkit.compaction.policy.usage import UsageByPart, count_parts, find_summary_ids
from promptkit.messages import Message
from promptkit.testing import WordTokenizer
from promptkit.tokens.tokenizer import count_message
from tests.conversations import (
    ConversationBuilder,
    assistant_message,
    call_message,
    result_message,
    user_message,
    words,
)

TOKENIZER = WordTokenizer()
ONE = UsageByPart(system=1, tools=2, summary=4, messages=8, results=16)


def count(message: Message) -> int:
    return count_message(message, TOKENIZER)


def test_the_total_and_the_sum_have_every_part_once() -> None:
    assert UsageByPart().total == 0
    assert ONE.total == 31
    assert ONE + ONE + UsageByPart() == UsageByPart(
        system=2, tools=4, summary=8, messages=16, results=32
    )


def test_each_message_is_in_the_part_of_its_role_and_a_summary_in_its_own() -> None:
    summary = user_message(words(100))
    messages = [
        Message(role="system", content=(words(1),)),
        Message(role="system", content=(words(1),)),
        summary,
        user_message(words(10)),
        call_message("c", text=words(10)),
        result_message("c", words(1_000)),
        result_message("c", words(1_000)),
        assistant_message(words(10)),
    ]
    assert count_parts(messages, {id(summary)}, count) == UsageByPart(
        system=2, summary=100, messages=30, results=2_000
    )
    assert count_parts([summary, summary], {id(summary)}, count) == UsageByPart(summary=200)
    assert count_parts([], (), count) == UsageByPart()


def test_a_summary_and_what_stands_beside_it_are_found_in_a_view() -> None:
    talk = ConversationBuilder()
    talk.user("old")
    talk.checkpoint("the summary")
    talk.user("new")
    talk.branch("another branch")
    items = talk.view.items
    found = find_summary_ids(items)
    assert [item.kind for item in items if id(item.message) in found] == [
        "summary",
        "branch_summary",
    ]
    assert len(items) == 3
