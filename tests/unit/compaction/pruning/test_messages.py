"""Reductions of the messages of a request: examples of each rule. The laws: tests/behaviour/test_reduction.py."""

from __future__ import annotations

import pytest

from promptkit.compaction.pruning.messages import CUT_MARKER, cap_results, drop_images, truncate_messages
from promptkit.errors import BudgetExceededError
from promptkit.messages import ImagePart, Message, Part, ToolCall
from promptkit.testing import WordTokenizer
from promptkit.tokens.models import tokenizer_for
from promptkit.transcript.view import build_summary_message
from tests.conversations import ConversationBuilder, words

TOKENIZER = WordTokenizer()
MARKER = TOKENIZER.count(CUT_MARKER)
IMAGE = ImagePart(url="https://example.com/x.png")


def system(text: str) -> Message:
    return Message(role="system", content=(text,))


def user(*content: Part) -> Message:
    return Message(role="user", content=content)


def answer(text: str) -> Message:
    return Message(role="assistant", content=(text,))


def rounds(call: str, *content: Part, text: str = "call", name: str = "read") -> tuple[Message, Message]:
    made = Message(role="assistant", content=(text,), tool_calls=(ToolCall(id=call, name=name),))
    return made, Message(role="tool", content=content, tool_call_id=call)


# One token each: what goes is told by what is left.
REQUEST = (
    system("s"),
    user("u1"),
    *rounds("a", "r1"),
    answer("a1"),
    user("u2"),
    answer("a2"),
    user("u3"),
    *rounds("b", "r2"),
    *rounds("c", "r3"),
)


def left(limit: int, messages: tuple[Message, ...] = REQUEST, beside: int = 0) -> str:
    return " ".join(
        message.text for message in truncate_messages(messages, limit, tokenizer=TOKENIZER, headroom=0, fixed_tokens=beside).messages
    )


@pytest.mark.parametrize(
    ("limit", "texts"),
    [
        (12, "s u1 call r1 a1 u2 a2 u3 call r2 call r3"),
        (11, "s u1 a1 u2 a2 u3 call r2 call r3"),  # a round is a step
        (10, "s u1 a1 u2 a2 u3 call r2 call r3"),
        (9, "s u1 u2 a2 u3 call r2 call r3"),
        (8, "s u1 u2 u3 call r2 call r3"),
        (7, "s u2 u3 call r2 call r3"),
        (6, "s u3 call r2 call r3"),
        (5, "s u3 call r3"),
        (4, "s u3 call r3"),
    ],
)
def test_first_old_answers_go_then_old_requests_then_rounds_of_this_turn(limit: int, texts: str) -> None:
    assert left(limit) == texts


@pytest.mark.spec("E81")
@pytest.mark.parametrize("limit", [0, 3])
def test_system_the_last_request_and_the_newest_round_never_go_and_the_failure_is_explicit(limit: int) -> None:
    with pytest.raises(BudgetExceededError, match=rf"4 required tokens do not fit a budget of {limit}") as caught:
        truncate_messages(REQUEST, limit, tokenizer=TOKENIZER)
    names = ("messages[0] (system)", "messages[7] (user)", "messages[10] (assistant)", "messages[11] (tool)")
    assert caught.value.largest == dict.fromkeys(names, 1)
    assert caught.value.messages == REQUEST


def test_what_stands_beside_the_messages_counts() -> None:
    assert left(10, beside=6) == "s u3 call r3"
    with pytest.raises(BudgetExceededError) as caught:
        truncate_messages(REQUEST, 9, tokenizer=TOKENIZER, fixed_tokens=8)
    assert caught.value.largest["tools and framing"] == 8


def test_headroom_saves_the_next_request_from_being_cut_again() -> None:
    talk = (*(answer(words(10)) for _ in range(20)), user("go"))
    done = truncate_messages(talk, 200, tokenizer=TOKENIZER, headroom=0.25)
    assert done.tokens_after <= 150
    more = (*done.messages, *rounds("x", words(20)))
    assert truncate_messages(more, 200, tokenizer=TOKENIZER, headroom=0.25).messages == more


def test_headroom_is_a_wish_and_the_limit_is_not() -> None:
    talk = (answer("old"), user(words(99)))
    assert truncate_messages(talk, 99, tokenizer=TOKENIZER, headroom=0.5).messages == talk[1:]


def test_a_summary_of_what_was_before_goes_last() -> None:
    talk = (system("s"), build_summary_message("what was"), user("u1"), answer("a1"), user("u2"), *rounds("a", "r"))
    size = sum(TOKENIZER.count(message.text) for message in (talk[0], talk[1], *talk[4:]))
    assert [message.text for message in truncate_messages(talk, size, tokenizer=TOKENIZER, headroom=0).messages] == [
        "s",
        talk[1].text,
        "u2",
        "call",
        "r",
    ]
    assert left(size - 1, talk) == "s u2 call r"


@pytest.mark.parametrize("limit", [100, 5])
def test_results_of_no_call_go_whether_it_fits_or_not(limit: int) -> None:
    lost = Message(role="tool", content=("lost",), tool_call_id="nobody")
    late = Message(role="tool", content=("late",), tool_call_id="b")
    repeated = Message(role="tool", content=("again",), tool_call_id="b")
    done = truncate_messages((lost, user("u"), late, *rounds("b", "r"), repeated), limit, tokenizer=TOKENIZER, headroom=0)
    assert [message.text for message in done.messages] == ["u", "call", "r"]
    assert [(change.index, change.kind) for change in done.changes] == [(0, "orphan"), (2, "orphan"), (5, "orphan")]


def test_two_calls_with_one_id_keep_their_results() -> None:
    call = ToolCall(id="x", name="t")
    both = (
        Message(role="assistant", tool_calls=(call, call)),
        Message(role="tool", content=("1",), tool_call_id="x"),
        Message(role="tool", content=("2",), tool_call_id="x"),
    )
    assert truncate_messages(both, 10, tokenizer=TOKENIZER).messages == both


def test_a_request_without_a_user_message_gives_up_its_oldest_rounds() -> None:
    assert left(2, (*rounds("a", "1"), *rounds("b", "2"))) == "call 2"
    assert left(0, ()) == ""


@pytest.mark.spec("E82")
def test_a_truncation_leaves_the_transcript_as_it_was() -> None:
    talk = ConversationBuilder()
    for number in range(20):
        talk.user(words(5))
        talk.round(f"c{number}", words(5))
    before = list(talk.path)
    truncate_messages(talk.view.messages, 50, tokenizer=TOKENIZER)
    assert list(talk.path) == before
    assert len(talk.view.messages) == 60


# -- caps


def test_a_long_result_keeps_forty_percent_head_and_sixty_percent_tail() -> None:
    text = " ".join(f"w{number}" for number in range(1_000))
    done = cap_results(rounds("a", text), 100 + MARKER, tokenizer=TOKENIZER)
    head, tail = done.messages[1].text.split(CUT_MARKER)
    assert head.split() == [f"w{number}" for number in range(40)]
    assert tail.split() == [f"w{number}" for number in range(940, 1_000)]
    assert TOKENIZER.count(done.messages[1].text) == 100 + MARKER
    assert [(change.index, change.kind, change.saved) for change in done.changes] == [(1, "capped", 900 - MARKER)]


@pytest.mark.parametrize(("size", "capped"), [(99, False), (100, False), (101, True)])
def test_a_result_is_capped_above_the_limit_and_not_at_it(size: int, capped: bool) -> None:
    assert bool(cap_results(rounds("a", words(size)), 100, tokenizer=TOKENIZER).changes) is capped


def test_only_results_are_capped_and_not_those_of_exempt_tools() -> None:
    talk = (system(words(99)), user(words(99)), answer(words(99)), *rounds("a", words(99), name="skill"), user(words(99)))
    assert cap_results(talk, 50, tokenizer=TOKENIZER, exempt={"skill"}).messages == talk
    assert [change.index for change in cap_results(talk, 50, tokenizer=TOKENIZER).changes] == [4]


@pytest.mark.spec("E79")
@pytest.mark.parametrize("limit", range(1, 60, 7))
def test_a_result_of_several_parts_keeps_its_images_and_is_capped_as_a_whole(limit: int) -> None:
    talk = rounds("a", words(30), IMAGE, words(5), words(40), IMAGE)
    done = cap_results(talk, limit, tokenizer=TOKENIZER).messages[1]
    assert [part for part in done.content if isinstance(part, ImagePart)] == [IMAGE, IMAGE]
    assert [isinstance(part, str) for part in done.content] == [True, False, True, True, False]
    assert sum(TOKENIZER.count(part) for part in done.content if isinstance(part, str)) <= limit
    if limit >= 15:
        assert done.content[2] == words(5)  # the small part is whole while there is room for it


@pytest.mark.parametrize("limit", [20, 40, 77, 200])
def test_what_is_capped_is_whole_characters_within_the_limit(limit: int) -> None:
    tokenizer = tokenizer_for("gpt-4o")
    text = "👩‍👩‍👧 und 🇩🇪 und e\u0301 und 汉字 \ud83d\n" * 300
    capped = cap_results(rounds("a", text), limit, tokenizer=tokenizer).messages[1].text
    assert tokenizer.count(capped) <= limit
    head, tail = capped.split(CUT_MARKER) if CUT_MARKER in capped else (capped, "")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert "\u200d" not in head[-1:] + tail[:1]


# -- images


@pytest.mark.spec("E110")
def test_images_are_replaced_by_their_number() -> None:
    talk = (user("look", IMAGE, "and", IMAGE), answer("I see"), *rounds("a", IMAGE), answer("ok"), user("and here", IMAGE))
    done = drop_images(talk, tokenizer=WordTokenizer(per_image=100))
    assert done.messages[0].content == ("look", "[2 images were here]", "and")
    assert done.messages[3].content == ("[1 image was here]",)
    assert done.messages[5] == talk[5]  # the last request
    assert [(change.index, change.kind, change.saved) for change in done.changes] == [(0, "images", 196), (3, "images", 96)]


def test_an_image_that_the_model_has_not_seen_yet_stays() -> None:
    talk = (user("look"), *rounds("a", IMAGE))
    assert drop_images(talk, tokenizer=WordTokenizer(per_image=100)).messages == talk
    seen = (*talk, answer("I see"))
    assert drop_images(seen, tokenizer=WordTokenizer(per_image=100)).messages[2].content == ("[1 image was here]",)


def test_an_image_that_costs_less_than_the_word_stays() -> None:
    talk = (user(IMAGE), answer("I see"), user("on"))
    assert drop_images(talk, tokenizer=WordTokenizer(per_image=4)).messages == talk
    assert drop_images(talk, tokenizer=WordTokenizer(per_image=5)).changes
