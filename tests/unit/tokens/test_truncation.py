from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest
import regex  # type: ignore[import-untyped]  # it has none
from hypothesis import example, given, settings, strategies as st

from promptkit.testing import WordTokenizer
from promptkit.tokens.models import tokenizer_for
from promptkit.tokens.truncation import list_shorter_texts, truncate_text
from tests.behaviour.tokenizers import Chars, Runs
from tests.examples import examples

if TYPE_CHECKING:
    from promptkit.tokens.tokenizer import Tokenizer

Keep = Literal["head", "tail", "middle"]
KEEPS: list[Keep] = ["head", "tail", "middle"]
TOKENIZER = tokenizer_for(None)
PIECES = [
    "word ",
    "line\n",
    "\r\n",
    "\n",
    "\r",
    "é",
    "e\u0301",
    "\u0301",
    "👩‍👩‍👧",
    "🇩🇪",
    "🇩",
    "\u200d",
    "नि",
    "क्ष",
    "각",
    "ᄀ",
    "汉",
    " ",
    "a",
    "\ud800",
]
texts = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)
markers = st.sampled_from(["[…]", "", "\n[cut]\n", "…", "\u0301"])


def cut(
    text: str,
    tokens: int,
    keep: Keep = "head",
    marker: str = "[…]",
    *,
    ratio: float = 0.4,
    tokenizer: Tokenizer = TOKENIZER,
) -> str:
    head = {"head": 1.0, "tail": 0.0, "middle": ratio}[keep]
    return truncate_text(text, tokens, head=head, marker=marker, tokenizer=tokenizer)


@settings(max_examples=examples(300))
@given(
    text=texts,
    tokens=st.integers(-1, 50),
    keep=st.sampled_from(KEEPS),
    marker=markers,
    ratio=st.floats(0, 1),
)
def test_never_has_more_tokens_than_it_may(
    text: str, tokens: int, keep: Keep, marker: str, ratio: float
) -> None:
    for tokenizer in (TOKENIZER, Runs()):
        assert tokenizer.count(
            cut(text, tokens, keep, marker, ratio=ratio, tokenizer=tokenizer)
        ) <= max(tokens, 0)


@given(text=texts, keep=st.sampled_from(KEEPS), marker=markers, more=st.integers(0, 3))
def test_what_fits_is_unchanged(text: str, keep: Keep, marker: str, more: int) -> None:
    assert cut(text, TOKENIZER.count(text) + more, keep, marker) == text
    assert cut(
        text, WordTokenizer().count(text) + more, keep, marker, tokenizer=WordTokenizer()
    ) in {text, ""}


@settings(max_examples=examples(300))
@given(text=texts, tokens=st.integers(0, 50), keep=st.sampled_from(KEEPS))
@example(text="🇩🇪" * 40, tokens=20, keep="tail")
@example(text="x" + "🇩🇪" * 400, tokens=200, keep="head")
@example(text="🇩🇪" * 400, tokens=201, keep="head")
@example(text="x" + "🇩🇪" * 400, tokens=201, keep="head")
@example(text="🇩🇪" * 400 + "\u0301" * 90, tokens=80, keep="tail")
@example(text="👩‍👩‍👧" * 40, tokens=20, keep="middle")
@example(text="a\r\n" * 40, tokens=10, keep="tail")
@example(text="e" + "\u0301" * 400, tokens=20, keep="head")
@pytest.mark.parametrize("tokenizer", [TOKENIZER, Chars()], ids=["gpt-4o", "characters"])
def test_no_grapheme_is_split(tokenizer: Tokenizer, text: str, tokens: int, keep: Keep) -> None:
    shown = cut(text, tokens, keep, marker="|", tokenizer=tokenizer)
    head, marker, tail = shown.partition("|")
    if not marker:
        assert shown in {text, ""}
        return
    clusters = [0, *(match.end() for match in regex.finditer(r"\X", text))]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) in clusters
    assert len(text) - len(tail) in clusters


@settings(max_examples=examples(300))
@given(
    text=texts.map(lambda text: text.replace("\n", "")),
    tokens=st.integers(1, 50),
    keep=st.sampled_from(["head", "tail"]),
)
@example(text="x" * 30 + "🇩🇪" * 400, tokens=201, keep="head")
@example(text="x" * 30 + "🇩🇪" * 400, tokens=202, keep="tail")
def test_every_grapheme_that_fits_is_kept(
    text: str, tokens: int, keep: Literal["head", "tail"]
) -> None:
    places = [0, *(match.end() for match in regex.finditer(r"\X", text))]
    head = text[: max(place for place in places if place < tokens)] + "|"
    tail = (
        "|" + text[min(place for place in places if place > len(text) - tokens) :]
        if len(text) > tokens
        else ""
    )
    expected = text if len(text) <= tokens else head if keep == "head" else tail
    assert cut(text, tokens, keep, marker="|", tokenizer=Chars()) == expected


@pytest.mark.parametrize("marker", ["[…]", "\n[…]\n"])
@pytest.mark.parametrize("keep", KEEPS)
def test_cuts_at_the_end_of_a_line_where_one_is_near(keep: Keep, marker: str) -> None:
    text = "".join(f"line number {number}\n" for number in range(200))
    shown = cut(text, 100, keep, marker)
    head, _, tail = shown.partition(marker.strip())
    assert not head or head.endswith("\n")
    assert not tail or tail.startswith("\n")
    assert "\n\n" not in shown


# Lines of 20 characters, each a token. Within 15 % of what is kept, the cut moves to a line.
@pytest.mark.parametrize(
    ("room", "keep", "marker", "shown"),
    [
        (100, "head", "|", 100),
        (117, "head", "|", 100),
        (119, "head", "|", 119),
        (117, "head", "\n|", 99),
        (101, "tail", "|", 101),
        (117, "tail", "|", 101),
        (118, "tail", "|", 118),
        (117, "tail", "|\n", 100),
    ],
)
def test_moves_to_a_line_within_15_percent_of_what_is_kept(
    room: int, keep: Keep, marker: str, shown: int
) -> None:
    text = f"{'x' * 19}\n" * 20
    kept = text[:shown] + marker if keep == "head" else marker + text[-shown:]
    assert cut(text, room + len(marker), keep, marker, tokenizer=Chars()) == kept


@pytest.mark.parametrize(
    ("room", "keep", "marker", "shown"),
    [
        (117, "head", "|", 100),
        (117, "head", "\n|", 98),
        (110, "tail", "|", 102),
        (101, "tail", "|", 100),
        (110, "tail", "|\n", 100),
    ],
)
def test_a_line_break_of_two_characters_stays_or_goes_as_a_whole(
    room: int, keep: Keep, marker: str, shown: int
) -> None:
    text = f"{'x' * 18}\r\n" * 20
    kept = text[:shown] + marker if keep == "head" else marker + text[-shown:]
    assert cut(text, room + len(marker), keep, marker, tokenizer=Chars()) == kept


def test_in_the_middle_the_head_has_two_fifths_if_nothing_else_is_said() -> None:
    assert (
        truncate_text("x" * 1_000, 101, head=0.4, marker="|", tokenizer=Chars())
        == "x" * 40 + "|" + "x" * 60
    )


@pytest.mark.parametrize(("keep", "shown"), [("head", "x|"), ("tail", "|x")])
def test_one_token_beside_the_marker_is_used(keep: Keep, shown: str) -> None:
    assert cut("x" * 100, 2, keep, "|", tokenizer=Chars()) == shown


def test_middle_gives_the_head_its_part() -> None:
    text = " ".join(map(str, range(1_000)))
    head, _, tail = cut(text, 100, "middle", ratio=0.25, marker="|").partition("|")
    assert 0.15 < TOKENIZER.count(head) / TOKENIZER.count(tail) < 0.35


def test_where_only_the_marker_fits_it_stands_alone_and_where_it_does_not_nothing_does() -> None:
    assert cut("many words " * 9, TOKENIZER.count("[…]")) == "[…]"
    assert cut("many words " * 9, TOKENIZER.count("[…]") - 1) == ""
    assert cut("many words " * 9, 2, tokenizer=Chars()) == ""


def test_what_the_marker_costs_beside_text_is_taken_from_the_text() -> None:
    class Joined(WordTokenizer):
        def count(self, text: str) -> int:
            return super().count(text) + 2 * (" |" in text and len(text) > 2)

    assert cut("one two three four five", 4, marker=" |", tokenizer=Joined()).split() == [
        "one",
        "|",
    ]


def test_a_join_of_one_token_is_taken_from_the_text_too() -> None:
    assert cut("1'a'a1", 3, "tail", "..") == "..1"


def test_a_mark_on_the_first_letter_is_not_cut_off() -> None:
    assert cut("e\u0301bcd", 2, "head", "|", tokenizer=Chars()) == "|"


@pytest.mark.parametrize("keep", KEEPS)
def test_without_tokens_nothing_stays_also_of_a_text_that_costs_nothing(keep: Keep) -> None:
    assert cut(" \n ", 0, keep, tokenizer=WordTokenizer()) == ""


def test_white_space_that_costs_nothing_does_not_stay_at_the_end_that_is_cut() -> None:
    text = "\n\none two three four\n\n"
    assert cut(text, 3, "tail", "|", tokenizer=WordTokenizer()).startswith("|")
    assert cut(text, 3, "head", "|", tokenizer=WordTokenizer()).endswith("|")


def test_a_text_that_fits_stays_also_where_the_tokenizer_would_cut_it_too_short() -> None:
    class Short(WordTokenizer):
        def truncate(
            self, text: str, tokens: int, *, keep: Literal["head", "tail"] = "head"
        ) -> str:
            return super().truncate(text, tokens - 1, keep=keep)

    assert cut("a b c", 3, tokenizer=Short()) == "a b c"


def test_works_with_any_tokenizer() -> None:
    assert cut("one two three four five", 4, "head", " […]", tokenizer=WordTokenizer()).split() == [
        "one",
        "two",
        "three",
        "[…]",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "汉字" * 500_000,
        "\u0301" * 300_000,
        "🇩🇪" * 100_000,
        "🇩🇪" * 100_000 + "\u0301" * 500,
        "각" * 200_000,
        "a " * 500_000,
    ],
)
@pytest.mark.parametrize("keep", KEEPS)
def test_a_long_text_is_cut_without_counting_it(text: str, keep: Keep) -> None:
    assert TOKENIZER.count(cut(text, 50, keep)) <= 50


def test_each_shorter_text_keeps_a_third_of_the_one_before_and_the_last_is_the_marker() -> None:
    text = "x" * 900 + "y" * 900
    shorter = list_shorter_texts(text, len(text), head=0.25, marker="[cut]")
    assert shorter == [
        "x" * 150 + "[cut]" + "y" * 450,
        "x" * 50 + "[cut]" + "y" * 150,
        "x" * 16 + "[cut]" + "y" * 50,
        "[cut]",
    ]
    # of a text that is shown shortened, a third of what is shown
    assert [len(each) for each in list_shorter_texts(text, 600, head=0.25, marker="[cut]")] == [
        205,
        71,
        5,
    ]


def test_of_a_text_in_lines_shorter_texts_keep_whole_lines() -> None:
    text = "".join(f"line {number}\n" for number in range(1_000, 1_100))
    for shorter in list_shorter_texts(text, len(text), head=0.5, marker="[cut]\n")[:-1]:
        head, tail = shorter.split("[cut]\n")
        assert (text.startswith(head), head[-1]) == (True, "\n")
        assert (text.endswith(tail), tail[:6]) == (True, "line 1")


@pytest.mark.parametrize(
    ("length", "marker", "sizes"),
    [
        (600, "", [200, 66]),
        (600, " \n", [202, 68]),
        (600, "m" * 66, [266, 132, 66]),
        (600, "m" * 67, [267, 67]),
        (192, "m" * 64, [128, 64]),
        (191, "m", [1]),
        (64, "m" * 64, []),
        (65, "m" * 64, [64]),
    ],
)
def test_a_marker_that_is_blank_or_no_shorter_than_what_is_shown_is_no_shorter_text(
    length: int, marker: str, sizes: list[int]
) -> None:
    shorter = list_shorter_texts("x" * 600, length, head=0.5, marker=marker)
    assert [len(each) for each in shorter] == sizes
