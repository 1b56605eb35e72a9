from __future__ import annotations

import re
from typing import Literal

import pytest
from hypothesis import given, settings, strategies as st

from promptkit.errors import TextTooLongError
from promptkit.tokens import counter as module
from promptkit.tokens.counter import CountCache, TextCounter
from tests.examples import examples

# pyright: reportPrivateUsage=false
# Some promises can only be seen from inside.


PIECES = [
    *" \t\n\r\v\f\x00\x1c\x85\u00a0\u2028\u3000/\\;:'\u2019\"=-#.,!?0123456789aAzéßİΣ",
    *[
        "\r\n",
        "  ",
        "\n\n",
        "'s",
        "'LL",
        "don't",
        "word",
        "Word",
        "WORD",
        "//",
        "/*",
        "\u0301",
        "\u20dd",
        "\u200d",
        "\ufeff",
    ],
    *[
        "汉字",
        "日本語",
        "한글",
        "שלום",
        "مرحبا",
        "नमस्ते",
        "👩‍👩‍👧",
        "🇩🇪",
        "\ud800",
        "\udc00",
        "<|endoftext|>",
        "<|im_start|>",
        "    ",
    ],
]
texts = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
NAMES = ["o200k_base", "cl100k_base"]
KEEPS: list[Literal["head", "tail"]] = ["head", "tail"]
COUNTERS = {name: TextCounter(name) for name in NAMES}


def plain(name: str, text: str) -> int:
    return len(COUNTERS[name].encoding.encode_ordinary(text))


class TestCount:
    @pytest.mark.parametrize("name", NAMES)
    @given(text=texts)
    def test_is_tiktokens(self, name: str, text: str) -> None:
        assert COUNTERS[name].count(text) == COUNTERS[name].count(text) == plain(name, text)

    def test_is_taken_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        counter = TextCounter("o200k_base")
        assert counter.count("once and only once") == 4
        monkeypatch.setattr(counter, "encoding", None)
        assert counter.count("once and only once") == 4

    @pytest.mark.parametrize("name", NAMES)
    @settings(max_examples=examples(500))
    @given(text=texts)
    def test_is_additive_at_every_safe_cut(self, name: str, text: str) -> None:
        counter = COUNTERS[name]
        assert counter.safe_cut
        whole = plain(name, text)
        for match in counter.safe_cut.finditer(text):
            place = match.start()
            assert 0 < place < len(text)
            assert plain(name, text[:place]) + plain(name, text[place:]) == whole

    def test_finds_cuts_between_words_and_lines(self) -> None:
        cut = COUNTERS["o200k_base"].safe_cut
        assert cut
        assert [match.start() for match in cut.finditer("one two\nthree\n/ \n  x")] == [3, 8]

    def test_the_older_encodings_are_cut_before_spaces_only(self) -> None:
        cut = TextCounter("r50k_base").safe_cut
        assert cut
        assert [match.start() for match in cut.finditer("one two\nthree")] == [3]
        assert TextCounter("of somebody else").safe_cut is None


class TestHostileText:
    @pytest.mark.parametrize("name", NAMES)
    @given(text=texts, run=st.sampled_from(["", " " * 60, "\t" * 60, "\u00a0" * 60]), more=texts)
    def test_long_texts_count_the_same_in_blocks(
        self, name: str, text: str, run: str, more: str
    ) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_LONG", 30)
            patch.setattr(module, "_BLOCK", 10)
            patch.setattr(module, "_RUN", re.compile(r"\s{20}"))
            counter = TextCounter(name, cache_bytes=0)
            assert counter._long == 30
            assert counter.count(text + run + more) == plain(name, text + run + more)
            assert counter._encode(text + run + more) == counter.encoding.encode_ordinary(
                text + run + more
            )

    @pytest.mark.slow
    def test_a_million_spaces_are_counted(self) -> None:
        assert COUNTERS["cl100k_base"].count(" " * 1_000_000) == 7_813

    @pytest.mark.slow
    @pytest.mark.parametrize("keep", KEEPS)
    def test_a_million_spaces_are_cut(self, keep: Literal["head", "tail"]) -> None:
        text = " " * 1_000_000
        assert COUNTERS["cl100k_base"].truncate(text, 8_000, keep) == text
        assert (
            0.99 * 7_000 * 128
            < len(COUNTERS["cl100k_base"].truncate(text, 7_000, keep))
            <= 7_000 * 128
        )

    def test_a_text_that_is_too_long_is_refused_before_it_is_encoded(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        counter = TextCounter("o200k_base", max_text_bytes=1_000)
        monkeypatch.setattr(counter, "encoding", None)
        for text in ("x" * 1_001, "é" * 501, "é" * 1_000, "\ud800" * 400, "𐀀" * 251):
            with pytest.raises(TextTooLongError, match="longer than the limit of 1,000: cut it"):
                counter.count(text)

    def test_the_longest_text_that_may_be_is_counted(self) -> None:
        counter = TextCounter("o200k_base", max_text_bytes=1_000)
        assert counter.count("é" * 500) == plain("o200k_base", "é" * 500)


class TestTruncate:
    @pytest.mark.parametrize("name", NAMES)
    @given(text=texts, tokens=st.integers(-1, 60))
    def test_is_a_head_or_tail_that_fits(self, name: str, text: str, tokens: int) -> None:
        counter = COUNTERS[name]
        head, tail = counter.truncate(text, tokens, "head"), counter.truncate(text, tokens, "tail")
        assert text.startswith(head)
        assert text.endswith(tail)
        assert max(plain(name, head), plain(name, tail)) <= max(tokens, 0)
        if plain(name, text) <= tokens:
            assert head == tail == text

    @pytest.mark.parametrize("name", NAMES)
    @settings(max_examples=examples(25))
    @given(
        words=st.lists(
            st.sampled_from(["one ", "two,", "three\n", "汉字", "4567"]), min_size=600, max_size=600
        ),
        tokens=st.integers(1, 40),
    )
    def test_keeps_nearly_all_that_fits(self, name: str, words: list[str], tokens: int) -> None:
        text = "".join(words)
        for keep in ("head", "tail"):
            kept = COUNTERS[name].truncate(text, tokens, "head" if keep == "head" else "tail")
            assert tokens - 4 <= plain(name, kept) <= tokens

    @pytest.mark.parametrize("keep", KEEPS)
    @pytest.mark.parametrize("tokens", range(1, 20))
    def test_keeps_every_word_that_fits(self, tokens: int, keep: Literal["head", "tail"]) -> None:
        # one token, and so long that some excerpts have as many tokens as are asked for
        word = " responsibilities"
        assert COUNTERS["o200k_base"].truncate(word * 1_000, tokens, keep) == word * tokens

    def test_a_text_of_four_tokens_for_each_character_is_cut(self) -> None:
        assert plain("o200k_base", "𐀀") == 4
        assert COUNTERS["o200k_base"].truncate("𐀀" * 10, 39, "head") == "𐀀" * 9

    @pytest.mark.parametrize(
        "text", ["some words and\n" * 80_000, "汉字文本没有空格" * 80_000, "x" * 600_000]
    )
    def test_encodes_a_small_part_of_a_long_text(
        self, text: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        counter = TextCounter("o200k_base")
        seen: list[int] = []
        encoding = counter.encoding
        encode = encoding.encode_ordinary

        def watched(piece: str) -> list[int]:
            seen.append(len(piece))
            return encode(piece)

        monkeypatch.setattr(encoding, "encode_ordinary", watched)
        assert 90 <= counter.count(counter.truncate(text, 100, "head")) <= 100
        assert 90 <= counter.count(counter.truncate(text, 100, "tail")) <= 100
        assert sum(seen) < 30_000

    def test_a_text_over_the_limit_may_be_cut(self) -> None:
        counter = TextCounter("o200k_base", max_text_bytes=1_000)
        assert counter.truncate("word " * 1_000, 3, "head") == "word word word"

    def test_shrinks_until_it_fits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        counter = TextCounter("o200k_base")

        def count_one_more(text: str) -> int:
            return len(text.split()) + 1

        monkeypatch.setattr(counter, "count", count_one_more)
        assert counter.truncate("one two three four five", 4, "head") == "one two three"


class TestAnEncodingWithoutSafeCuts:
    """The counter of an encoding without a pattern for safe cuts."""

    text = "some words and\n" * 40_000

    def test_is_counted_as_tiktoken_counts(self) -> None:
        counter = TextCounter("o200k_base")
        counter.safe_cut = None
        assert counter.count(self.text) == plain("o200k_base", self.text)

    @pytest.mark.parametrize("keep", KEEPS)
    def test_is_truncated_as_others_are(self, keep: Literal["head", "tail"]) -> None:
        counter = TextCounter("o200k_base")
        counter.safe_cut = None
        assert counter.truncate(self.text, 100, keep) == COUNTERS["o200k_base"].truncate(
            self.text, 100, keep
        )


# pyright: reportPrivateUsage=false
# Some promises can only be seen from inside.


def lookup(cache: CountCache, text: str) -> int | None:
    found = cache.recent.get(text)
    return cache.pop_older(text) if found is None else found


def test_remembers() -> None:
    cache = CountCache(10_000)
    cache.put("a", 1)
    assert lookup(cache, "a") == 1
    assert lookup(cache, "b") is None


def test_a_text_larger_than_half_of_it_is_not_kept() -> None:
    cache = CountCache(10_000)
    cache.put("x" * 6_000, 1)
    assert len(cache) == 0


def test_holds_about_as_many_bytes_as_it_may() -> None:
    cache = CountCache(100_000)
    for number in range(10_000):
        cache.put(f"{number:1000}", number)
    held = sum(text.__sizeof__() for text in [*cache.recent, *cache._older])
    assert 40_000 < held <= 100_000


def test_never_holds_more_than_it_may_with_what_a_dict_takes_for_each() -> None:
    cache = CountCache(10_000)
    for number in range(30):
        cache.put(f"{number:1000}", number)
        held = [*cache.recent, *cache._older]
        assert len(cache) == len(held)
        assert sum(text.__sizeof__() + module._ENTRY for text in held) <= 10_000


def test_what_is_used_again_outlives_what_is_not() -> None:
    cache = CountCache(4_000)
    for number in range(200):
        cache.put(str(number), number)
        if lookup(cache, "0") == 0:
            cache.put("0", 0)
    assert lookup(cache, "0") == 0
    assert lookup(cache, "1") is None


@given(st.lists(st.text(max_size=300)))
def test_never_holds_more_bytes_than_it_may(texts: list[str]) -> None:
    cache = CountCache(3_000)
    for text in texts:
        cache.put(text, len(text))
    assert sum(text.__sizeof__() for text in [*cache.recent, *cache._older]) <= 3_000


@given(st.lists(st.text(max_size=9)))
def test_what_it_says_is_what_it_was_told(texts: list[str]) -> None:
    cache = CountCache(1_000)
    for text in texts:
        cache.put(text, len(text))
    assert all(lookup(cache, text) in {None, len(text)} for text in texts)
