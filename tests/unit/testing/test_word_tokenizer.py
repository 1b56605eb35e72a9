"""WordTokenizer: counts that can be checked by eye."""

from __future__ import annotations

import re

from hypothesis import given, strategies as st

from promptkit import (
    AssistantMessage,
    Image,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    render,
)
from promptkit.elements import Opaque
from promptkit.messages import DocumentPart, ImagePart, OpaquePart
from promptkit.testing import WordTokenizer

TEXTS = st.text(st.sampled_from("ab \n\t\u00a0\u2028\x1c.é"), max_size=12)


def test_a_word_is_a_run_of_what_is_no_white_space() -> None:
    assert [
        WordTokenizer().count(text) for text in ("", " \n", "one", "two words", " a-b,c\n\nd ")
    ] == [0, 0, 1, 2, 2]


@given(TEXTS)
def test_counts_add_up_at_every_safe_cut(text: str) -> None:
    tokenizer = WordTokenizer()
    assert tokenizer.safe_cut is not None
    for place in tokenizer.safe_cut.finditer(text):
        assert tokenizer.count(text[: place.start()]) + tokenizer.count(
            text[place.start() :]
        ) == tokenizer.count(text)


@given(TEXTS)
def test_every_place_beside_white_space_is_a_safe_cut(text: str) -> None:
    safe = WordTokenizer().safe_cut
    assert safe is not None
    places = {match.start() for match in safe.finditer(text)}
    assert places == {
        at for at in range(len(text) + 1) if re.search(r"\s", text[max(0, at - 1) : at + 1])
    }


def test_a_prompt_costs_its_words_and_nothing_else() -> None:
    prompt = (SystemMessage()["You are terse."], UserMessage(name="Ada")["Why is the sky blue?"])
    assert render(prompt, budget=99, tokenizer=WordTokenizer()).tokens == 8


def test_framing_is_counted_by_message_call_and_image() -> None:
    tokenizer = WordTokenizer(per_message=100, per_call=10, per_image=1000)
    calls = [
        ToolCall(id="c1", name="read", arguments='{"path": "a.py"}'),
        ToolCall(id="c2", name="read"),
    ]
    prompt = (
        UserMessage()["look here", Image(url="https://example.org/a.png")],
        AssistantMessage(tool_calls=calls)["I look."],
        ToolMessage(tool_call_id="c1")["a b c"],
        ToolMessage(tool_call_id="c2")["d"],
    )
    assert render(prompt, budget=9_999, tokenizer=tokenizer).tokens == (100 + 2 + 1000) + (
        100 + 2 + 2 * 10
    ) + (100 + 3) + (100 + 1)


def test_calls_without_text_stand_in_no_message() -> None:
    prompt = (
        AssistantMessage(tool_calls=[ToolCall(id="c", name="f")]),
        ToolMessage(tool_call_id="c")["done"],
    )
    assert (
        render(prompt, budget=999, tokenizer=WordTokenizer(per_message=100, per_call=10)).tokens
        == 10 + 101
    )


def test_other_parts_cost_what_they_say() -> None:
    tokenizer = WordTokenizer(per_image=7)
    parts = (
        ImagePart(url="x"),
        DocumentPart(data="", media_type="x", tokens=5),
        OpaquePart(value=None),
        OpaquePart(value=1, tokens=3),
    )
    assert [tokenizer.count_part(part).tokens for part in parts] == [7, 5, 0, 3]
    assert (
        render(UserMessage()["a", Opaque(value=1, tokens=3)], budget=9, tokenizer=tokenizer).tokens
        == 4
    )


def test_two_with_the_same_framing_are_equal() -> None:
    assert WordTokenizer(per_message=1) == WordTokenizer(per_message=1) != WordTokenizer()
    assert (
        repr(WordTokenizer(per_call=2)) == "WordTokenizer(per_message=0, per_call=2, per_image=0)"
    )
