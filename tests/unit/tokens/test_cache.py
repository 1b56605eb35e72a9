# pyright: reportPrivateUsage=false
# Some promises can only be seen from inside.

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from promptkit.tokens.cache import CountCache


def lookup(cache: CountCache, text: str) -> int | None:
    found = cache.young.get(text)
    return cache.old(text) if found is None else found


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
    held = sum(text.__sizeof__() for text in [*cache.young, *cache._old])
    assert 40_000 < held <= 100_000


def test_what_is_used_again_outlives_what_is_not() -> None:
    cache = CountCache(4_000)
    for number in range(200):
        cache.put(str(number), number)
        if lookup(cache, "0") == 0:
            cache.put("0", 0)
    assert lookup(cache, "0") == 0
    assert lookup(cache, "1") is None


@settings(deadline=None)
@given(st.lists(st.text(max_size=300)))
def test_never_holds_more_bytes_than_it_may(texts: list[str]) -> None:
    cache = CountCache(3_000)
    for text in texts:
        cache.put(text, len(text))
    assert sum(text.__sizeof__() for text in [*cache.young, *cache._old]) <= 3_000


@settings(deadline=None)
@given(st.lists(st.text(max_size=9)))
def test_what_it_says_is_what_it_was_told(texts: list[str]) -> None:
    cache = CountCache(1_000)
    for text in texts:
        cache.put(text, len(text))
    assert all(lookup(cache, text) in {None, len(text)} for text in texts)
