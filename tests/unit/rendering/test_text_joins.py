"""Texts that leave one by one are counted as they are sent, however the tokenizer counts where they join."""

from __future__ import annotations

import re
from itertools import groupby, permutations
from typing import TYPE_CHECKING

import attrs
import pytest
from hypothesis import given, note, settings, strategies as st

from promptkit import Chunk, Group, Image, KeepWith, Text, TextChunk, UserMessage
from promptkit.testing import WordTokenizer
from promptkit.tokens import CalibratedTokenizer
from tests.behaviour.test_oracle_equality import check
from tests.examples import examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

    from promptkit import Child
    from promptkit.tokens import Tokenizer


@attrs.frozen(kw_only=True)
class Squares(WordTokenizer):
    """A run of n letters, digits, white space or others is n * n tokens: joining texts costs more than both cost."""

    cut: str = r"(?<=[a-z])(?![a-z])|(?<=\d)(?!\d)|(?<=\s)(?!\s)|(?<=\.)(?!\.)"
    """Where counts add up: between two runs, and at the end of a text."""

    @property
    def safe_cut(self) -> re.Pattern[str] | None:
        return re.compile(self.cut) if self.cut else None

    def count(self, text: str) -> int:
        runs = [len(list(run)) for _, run in groupby(text, _kind)]
        return sum(length * length for length in runs)


@attrs.frozen(kw_only=True)
class Ends(WordTokenizer):
    """A line is one token; a text of n characters without a line break behind it is n * n: a line more may make a text cheaper."""

    @property
    def safe_cut(self) -> re.Pattern[str]:
        return re.compile(r"(?<=\n)(?=.)")

    def count(self, text: str) -> int:
        *lines, end = text.split("\n")
        return len(lines) + len(end) ** 2


@attrs.frozen(kw_only=True)
class Quarters(WordTokenizer):
    """Four characters are a token, so that every character of a text counts at each join of it."""

    @property
    def safe_cut(self) -> None:  # no position is known to be safe
        return None

    def count(self, text: str) -> int:
        return -(-len(text) // 4)


def _kind(character: str) -> str:
    return "a" if character.isalpha() else "1" if character.isdigit() else character


EXPANDED = KeepWith(group=1)[UserMessage(required=True)["z"]]
"""A message with which a prompt is not static."""

PRIORITIES = st.integers(0, 9)
WORDS = st.text("ab1. \n", max_size=4) | st.text("ab", max_size=2)
LONG = "a1" + 60 * "b"  # the last cut in it is far from its end


def _pieces(words: SearchStrategy[str]) -> SearchStrategy[Child]:
    """A text of one of the elements that texts are written in, or something between texts."""
    priority = PRIORITIES

    def one(build: Callable[[int, str], Child]) -> SearchStrategy[Child]:
        return st.builds(build, priority, words)

    def several(build: Callable[[int, list[str]], Child]) -> SearchStrategy[Child]:
        return st.builds(build, priority, st.lists(words, max_size=3))

    return st.one_of(
        words,
        one(lambda at, text: TextChunk(priority=at)[text]),
        one(lambda at, text: Text(priority=at)[text]),
        several(lambda at, texts: Group(priority=at)[texts]),
        several(lambda at, texts: Chunk(priority=at)[[Text()[text] for text in texts]]),
        several(
            lambda at, texts: Group(priority=at)[[TextChunk(priority=-at)[text] for text in texts]]
        ),
        one(lambda at, _: Image(url="https://x/y.png", priority=at)),
    )


TOKENIZERS: dict[str, Tokenizer] = {
    "cuts between runs": Squares(),
    "cuts at lines": Squares(cut=r"(?<=\n)(?=[^\s.])", per_message=1, per_image=2),
    "no cuts": Squares(cut=""),
    "no cuts, four characters a token": Quarters(),
    "scaled": CalibratedTokenizer(Squares(), 1.3),
}


@pytest.mark.parametrize("priority", [1, 3])
def test_a_line_is_counted_with_the_line_break_that_it_has_or_needs(priority: int) -> None:
    for one, other in permutations(["a\n", "b", "a1\n\n", "1", "."], 2):
        chunks = TextChunk(priority=2)[one], TextChunk(priority=priority)[other]
        check((UserMessage()[chunks], EXPANDED), Squares())


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=examples(150))
@given(pieces=st.lists(_pieces(WORDS | st.just(LONG)), min_size=1, max_size=9))
def test_a_message_is_counted_as_it_is_sent_whichever_of_its_texts_leave(
    name: str, pieces: list[Child]
) -> None:
    note(repr(pieces))
    check(UserMessage(priority=1)[pieces], TOKENIZERS[name])


@pytest.mark.long
@settings(max_examples=examples(300))
@given(
    lines=st.lists(st.tuples(st.text("ab", min_size=1, max_size=4), PRIORITIES), max_size=7),
    factor=st.sampled_from([1, 1.3]),
)
def test_lines_are_counted_as_they_are_sent_whichever_of_them_leave(
    lines: list[tuple[str, int]], factor: float
) -> None:
    message = UserMessage(priority=1)[[TextChunk(priority=at)[text] for text, at in lines]]
    tokenizer = Ends() if factor == 1 else CalibratedTokenizer(Ends(), factor)
    for other in (UserMessage(required=True)["z"], EXPANDED):
        check((message, other), tokenizer)
