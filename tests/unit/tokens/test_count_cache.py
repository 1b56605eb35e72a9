from __future__ import annotations

from hypothesis import given, strategies as st

from promptkit.tokens import openai_tokenizer as module
from promptkit.tokens.openai_tokenizer import CountCache

# pyright: reportPrivateUsage=false
# Some promises can only be seen from inside.


def test_remembers() -> None:
    cache = CountCache(10_000)
    cache.put("a", 1)
    assert cache.counts.get("a") == 1
    assert cache.counts.get("b") is None


def test_a_text_larger_than_half_of_it_is_not_kept() -> None:
    cache = CountCache(10_000)
    cache.put("x" * 6_000, 1)
    assert cache.counts == {}
    cache.put("x" * 4_000, 1)
    assert len(cache.counts) == 1


def test_holds_about_as_many_bytes_as_it_may() -> None:
    cache = CountCache(100_000)
    for number in range(10_000):
        cache.put(f"{number:1000}", number)
    held = sum(text.__sizeof__() for text in cache.counts)
    assert 40_000 < held <= 100_000


def test_never_holds_more_than_it_may_with_what_a_dict_takes_for_each() -> None:
    cache = CountCache(10_000)
    for number in range(30):
        cache.put(f"{number:1000}", number)
        assert sum(text.__sizeof__() + module._ENTRY for text in cache.counts) <= 10_000


def test_a_full_cache_starts_anew_with_the_text_that_did_not_fit() -> None:
    cache = CountCache(10_000)
    sizes: list[int] = []
    for number in range(30):
        cache.put(f"{number:1000}", number)
        assert cache.counts[f"{number:1000}"] == number
        sizes.append(len(cache.counts))
    assert sizes[:8] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert sizes.count(1) > 2


@given(st.lists(st.text(max_size=300)))
def test_never_holds_more_bytes_than_it_may(texts: list[str]) -> None:
    cache = CountCache(3_000)
    for text in texts:
        cache.put(text, len(text))
    assert sum(text.__sizeof__() for text in cache.counts) <= 3_000


@given(st.lists(st.text(max_size=9)))
def test_what_it_says_is_what_it_was_told(texts: list[str]) -> None:
    cache = CountCache(1_000)
    for text in texts:
        cache.put(text, len(text))
    assert all(cache.counts.get(text) in {None, len(text)} for text in texts)


@given(st.lists(st.dictionaries(st.text(max_size=99), st.integers())))
def test_what_is_cached_together_is_there_together_or_too_large_for_half_of_it(
    batches: list[dict[str, int]],
) -> None:
    cache = CountCache(3_000)
    for counts in batches:
        cache.put_all(counts)
        size = sum(text.__sizeof__() + module._ENTRY for text in counts)
        assert size > 1_500 or counts.items() <= cache.counts.items()
        assert sum(text.__sizeof__() + module._ENTRY for text in cache.counts) <= 3_000


def test_counts_that_are_too_large_for_a_cache_together_are_cached_one_by_one() -> None:
    cache = CountCache(1_000)
    cache.put_all({f"{number} {'x' * 100}": number for number in range(4)})
    assert cache.counts
    cache.put_all({"y": 1, "z": 2})
    assert cache.counts["z"] == 2
