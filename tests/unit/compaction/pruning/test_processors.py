"""Processors of requests, above all `truncate_history`, the last resort of every preset: examples.

The laws: tests/behaviour/test_reduction.py.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from promptkit.compaction.pruning.processors import (
    RequestLimits,
    cap_tool_results,
    remove_images,
    truncate_history,
)
from promptkit.fitting import describe_omitted
from promptkit.fitting.shorten import CUT_MARKER
from promptkit.messages import ImagePart, Message
from promptkit.testing import WordTokenizer
from promptkit.transcript.log.view import build_summary_message
from tests.conversations import (
    ConversationBuilder,
    assistant_message,
    call_message,
    result_message,
    user_message,
    words,
)

TOKENIZER = WordTokenizer()
IMAGE = ImagePart(url="https://example.com/x.png")
MARKER = TOKENIZER.count(describe_omitted(1))


def truncate(
    messages: list[Message],
    limit: int,
    *,
    step: float = 0,
    beside: int = 0,
    request: Message | None = None,
) -> list[str]:
    """The texts of a request that is pruned; of a marker the number of messages."""
    markers = {
        message.tool_call_id: f"cut: {message.tool_call_id}"
        for message in messages
        if message.tool_call_id
    }
    limits = RequestLimits(
        limit=limit,
        fixed_tokens=beside,
        tokenizer=TOKENIZER,
        pruned=True,
        request=request,
        cut_markers=markers,
    )
    return [
        message.text.removesuffix(" omitted]")
        for message in truncate_history(step)(messages, limits)
    ]


def rounds(call: str, text: str) -> list[Message]:
    return [call_message(call), result_message(call, text)]


TALK = [
    user_message(words(10, "u1_")),
    *rounds("a", words(10, "r1_")),
    assistant_message(words(10, "a1_")),
    user_message(words(10, "u2_")),
    *rounds("b", words(10, "r2_")),
    *rounds("c", words(10, "r3_")),
]


def test_the_request_says_how_many_messages_are_left_out_in_their_place() -> None:
    assert [text.partition("_")[0] for text in truncate(TALK, 43)] == [
        "[3 messages",
        "a1",
        "u2",
        "",
        "r2",
        "",
        "r3",
    ]
    assert truncate(TALK, 60) == [message.text for message in TALK]


def test_a_quarter_of_the_limit_is_dropped_at_once_so_that_the_next_requests_begin_alike() -> None:
    talk: list[Message] = []
    starts: list[tuple[str, ...]] = []
    for number in range(60):
        talk += [user_message(words(2, f"u{number}_")), assistant_message(words(14, f"a{number}_"))]
        shown = truncate(talk, 400, step=0.25)
        starts.append(tuple(shown[:6]))
        assert sum(map(TOKENIZER.count, shown)) <= 400
    changes = sum(one != other for one, other in pairwise(starts))
    assert 3 <= changes <= 9  # the start is complete, and then 560 tokens are dropped, 100 at once


def test_the_results_of_the_newest_round_are_shortened_together_and_name_the_call_that_reads_all_of_them() -> (
    None
):
    newest = [
        call_message("a", "b"),
        result_message("a", words(200)),
        result_message("b", words(300)),
    ]
    shown = truncate([*TALK, user_message("Go."), *newest], 100)
    assert shown[-4:-2] == ["Go.", ""]
    assert ["cut: a" in shown[-2], "cut: b" in shown[-1]] == [True, True]
    assert abs(TOKENIZER.count(shown[-2]) - TOKENIZER.count(shown[-1])) <= 1
    assert CUT_MARKER not in "".join(shown)


def test_what_the_user_wrote_last_stays_as_it_is_also_before_a_message_of_the_program() -> None:
    request, reminder = user_message(words(30, "ask")), user_message(words(9, "reminder"))
    talk = [*TALK, request, *rounds("d", words(90)), reminder]
    assert {request.text, reminder.text} <= set(truncate(talk, 60, request=request))


def test_the_summary_goes_last_and_only_where_it_does_not_fit() -> None:
    summary = build_summary_message(words(20, "what"))
    talk = [summary, *TALK]
    least = TOKENIZER.count(summary.text) + 10 + 10 + MARKER
    assert summary.text in truncate(talk, least)
    assert truncate(talk, 20 + MARKER) == [TALK[4].text, "[7 messages", "", TALK[-1].text]


def test_what_stands_beside_the_messages_counts() -> None:
    assert truncate(TALK, 63, beside=20) == truncate(TALK, 43)


@pytest.mark.spec("E81")
def test_system_the_last_request_and_the_newest_round_never_go_and_the_failure_is_explicit() -> (
    None
):
    talk = [Message(role="system", content=(words(50),)), *TALK]
    # the render raises the error, with the figures of the whole prompt
    assert truncate(talk, 50) == [message.text for message in talk]


@pytest.mark.spec("E82")
def test_a_truncation_leaves_the_transcript_as_it_was() -> None:
    talk = ConversationBuilder()
    for number in range(20):
        talk.user(words(5))
        talk.round(f"c{number}", words(5))
    before = list(talk.path)
    truncate(list(talk.view.messages), 50)
    assert list(talk.path) == before
    assert len(talk.view.messages) == 60


def without_images(messages: list[Message], *, per_image: int = 100) -> list[Message]:
    tokenizer = WordTokenizer(per_image=per_image)
    limits = RequestLimits(limit=1, fixed_tokens=0, tokenizer=tokenizer, pruned=True)
    return [*remove_images()(messages, limits)]


@pytest.mark.spec("E110")
def test_images_are_replaced_by_their_number() -> None:
    talk = [
        Message(role="user", content=("look", IMAGE, "and", IMAGE)),
        assistant_message("I see"),
        call_message("a"),
        Message(role="tool", content=(IMAGE,), tool_call_id="a"),
        assistant_message("ok"),
        Message(role="user", content=("and here", IMAGE)),
    ]
    done = without_images(talk)
    assert done[0].content == ("look", "[2 images were here]", "and")
    assert done[3].content == ("[1 image was here]",)
    assert done[5] == talk[5]  # the last request


def test_an_image_that_the_model_has_not_seen_yet_stays() -> None:
    talk = [
        user_message("look"),
        call_message("a"),
        Message(role="tool", content=(IMAGE,), tool_call_id="a"),
    ]
    assert without_images(talk) == talk
    assert without_images([*talk, assistant_message("I see")])[2].content == ("[1 image was here]",)


def test_an_image_that_costs_less_than_the_word_stays() -> None:
    image = Message(role="user", content=(IMAGE,))
    talk = [image, assistant_message("I see"), user_message("on")]
    assert without_images(talk, per_image=4) == talk
    assert without_images(talk, per_image=5) != talk


def test_only_tool_results_are_capped() -> None:
    talk = [user_message(words(99)), assistant_message(words(99)), *rounds("a", words(99))]
    limits = RequestLimits(limit=None, fixed_tokens=0, tokenizer=TOKENIZER)
    done = cap_tool_results(50)(talk, limits)
    assert [at for at, message in enumerate(done) if message is not talk[at]] == [3]
