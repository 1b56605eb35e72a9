"""`Truncate` cuts text to its share, marker included, and never inside a character."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from promptkit import SystemMessage, Text, Truncate, UserMessage, render
from promptkit.testing import WordTokenizer
from tests.behaviour.tokenizers import Chars, Runs

if TYPE_CHECKING:
    from promptkit.tokens import Tokenizer

TEXT = "\n".join(f"line {index}" for index in range(1, 11))


def cut(truncate: Truncate, budget: int, tokenizer: Tokenizer | None = None) -> str:
    made = render(UserMessage()[truncate], budget=budget, tokenizer=tokenizer or WordTokenizer())
    return "".join(message.text for message in made.messages)


def test_what_fits_is_left_alone() -> None:
    assert cut(Truncate()[TEXT], 20) == TEXT


def test_the_head_stays() -> None:
    made = cut(Truncate(keep="head", marker="[cut]")[TEXT], 9)
    assert made.startswith("line 1\nline 2")
    assert "[cut]" in made
    assert "line 10" not in made


def test_the_tail_stays() -> None:
    made = cut(Truncate(keep="tail", marker="[cut]")[TEXT], 9)
    assert made.endswith("line 9\nline 10")
    assert "[cut]" in made
    assert "line 1\n" not in made


def test_head_and_tail_stay_and_the_middle_goes() -> None:
    made = cut(Truncate(keep="middle", ratio=0.5, marker="\n[cut]\n")[TEXT], 9)
    assert made.startswith("line 1\n")
    assert made.endswith("line 10")
    assert "[cut]" in made


def test_a_limit_of_its_own_comes_before_the_share() -> None:
    assert len(cut(Truncate(tokens=5)[TEXT], 100).split()) <= 5


def test_a_later_group_cuts_to_what_is_left() -> None:
    prompt = (SystemMessage()["four words of system"], UserMessage(flex_grow=1)[Truncate()[TEXT]])
    made = render(prompt, budget=10, tokenizer=WordTokenizer())
    assert made.messages[0].text == "four words of system"
    assert made.messages[1].text.startswith("line 1")


characters = st.text(st.sampled_from("ab c1\n.é👨\u200d👩🇩🇪e\u0301"), max_size=60)


@given(
    characters,
    st.integers(0, 40),
    st.sampled_from(("head", "tail", "middle")),
    st.sampled_from((WordTokenizer(), Chars(), Runs())),
)
def test_never_costs_more_than_its_share(
    text: str, tokens: int, keep: str, tokenizer: Tokenizer
) -> None:
    made = cut(Truncate(keep=keep, tokens=tokens, marker="…")[text], 1_000, tokenizer)  # type: ignore[arg-type]  # one of the three  # pyright: ignore[reportArgumentType]
    assert tokenizer.count(made) <= tokens


@given(characters, st.integers(0, 40))
def test_the_head_is_a_prefix_and_the_tail_a_suffix(text: str, tokens: int) -> None:
    head = cut(Truncate(keep="head", tokens=tokens, marker="")[text], 1_000, Chars())
    tail = cut(Truncate(keep="tail", tokens=tokens, marker="")[text], 1_000, Chars())
    assert text.startswith(head) or not head.strip()
    assert text.endswith(tail) or not tail.strip()


@pytest.mark.parametrize("grapheme", ["👨\u200d👩\u200d👧", "🇩🇪", "e\u0301", "\r\n"])
def test_a_grapheme_is_never_cut(grapheme: str) -> None:
    text = f"x{grapheme}" * 8
    for tokens in range(1, len(text)):
        made = cut(Truncate(keep="head", tokens=tokens, marker="")[text], 1_000, Chars())
        assert made.replace(f"x{grapheme}", "") in {"", "x"}


def test_it_is_pruned_like_anything_else() -> None:
    prompt = UserMessage()[
        Truncate(priority=1, tokens=3)[TEXT], Text(priority=2, flex_grow=1)["kept"]
    ]
    assert render(prompt, budget=1, tokenizer=WordTokenizer()).messages[0].text == "kept"
