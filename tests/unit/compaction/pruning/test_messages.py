"""Reductions of the messages of a request: examples of each rule.

The laws: tests/behaviour/test_reduction.py.
"""

from __future__ import annotations

import pytest

from promptkit.compaction.pruning.messages import CUT_MARKER, cap_results, drop_images
from promptkit.messages import ImagePart, Message, Part, ToolCall
from promptkit.testing import WordTokenizer
from promptkit.tokens.models import tokenizer_for
from tests.conversations import words

TOKENIZER = WordTokenizer()
MARKER = TOKENIZER.count(CUT_MARKER)
IMAGE = ImagePart(url="https://example.com/x.png")


def system(text: str) -> Message:
    return Message(role="system", content=(text,))


def user(*content: Part) -> Message:
    return Message(role="user", content=content)


def answer(text: str) -> Message:
    return Message(role="assistant", content=(text,))


def rounds(
    call: str, *content: Part, text: str = "call", name: str = "read"
) -> tuple[Message, Message]:
    made = Message(role="assistant", content=(text,), tool_calls=(ToolCall(id=call, name=name),))
    return made, Message(role="tool", content=content, tool_call_id=call)


# -- caps


def test_a_long_result_keeps_forty_percent_head_and_sixty_percent_tail() -> None:
    text = " ".join(f"w{number}" for number in range(1_000))
    done = cap_results(rounds("a", text), 100 + MARKER, tokenizer=TOKENIZER)
    head, tail = done.messages[1].text.split(CUT_MARKER)
    assert head.split() == [f"w{number}" for number in range(40)]
    assert tail.split() == [f"w{number}" for number in range(940, 1_000)]
    assert TOKENIZER.count(done.messages[1].text) == 100 + MARKER
    assert [(change.index, change.kind, change.saved) for change in done.changes] == [
        (1, "capped", 900 - MARKER)
    ]


@pytest.mark.parametrize(("size", "capped"), [(99, False), (100, False), (101, True)])
def test_a_result_is_capped_above_the_limit_and_not_at_it(size: int, capped: bool) -> None:
    assert bool(cap_results(rounds("a", words(size)), 100, tokenizer=TOKENIZER).changes) is capped


def test_only_results_are_capped_and_not_those_of_exempt_tools() -> None:
    talk = (
        system(words(99)),
        user(words(99)),
        answer(words(99)),
        *rounds("a", words(99), name="skill"),
        user(words(99)),
    )
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
    talk = (
        user("look", IMAGE, "and", IMAGE),
        answer("I see"),
        *rounds("a", IMAGE),
        answer("ok"),
        user("and here", IMAGE),
    )
    done = drop_images(talk, tokenizer=WordTokenizer(per_image=100))
    assert done.messages[0].content == ("look", "[2 images were here]", "and")
    assert done.messages[3].content == ("[1 image was here]",)
    assert done.messages[5] == talk[5]  # the last request
    assert [(change.index, change.kind, change.saved) for change in done.changes] == [
        (0, "images", 196),
        (3, "images", 96),
    ]


def test_an_image_that_the_model_has_not_seen_yet_stays() -> None:
    talk = (user("look"), *rounds("a", IMAGE))
    assert drop_images(talk, tokenizer=WordTokenizer(per_image=100)).messages == talk
    seen = (*talk, answer("I see"))
    assert drop_images(seen, tokenizer=WordTokenizer(per_image=100)).messages[2].content == (
        "[1 image was here]",
    )


def test_an_image_that_costs_less_than_the_word_stays() -> None:
    talk = (user(IMAGE), answer("I see"), user("on"))
    assert drop_images(talk, tokenizer=WordTokenizer(per_image=4)).messages == talk
    assert drop_images(talk, tokenizer=WordTokenizer(per_image=5)).changes
