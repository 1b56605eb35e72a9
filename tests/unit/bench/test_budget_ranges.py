"""Budgets as people write them."""

from __future__ import annotations

import click
import pytest
from hypothesis import given, strategies as st

from promptkit.bench.sweep import MAX_BUDGETS, InvalidBudgetsError, parse_budgets
from promptkit.cli.input.params import SIZE


@pytest.mark.parametrize(
    ("text", "budgets"),
    [
        ("8000", (8000,)),
        ("8k", (8000,)),
        ("1.5k", (1500,)),
        ("8_000", (8000,)),
        ("1M", (1_000_000,)),
        (" 8k , 2k ", (2000, 8000)),
        ("8k,2k,8000", (2000, 8000)),
        ("1k:8k:log4", (1000, 2000, 4000, 8000)),
        ("1k:4k:lin4", (1000, 2000, 3000, 4000)),
        ("1:10:lin4", (1, 4, 7, 10)),
        ("1k:3k:1k", (1000, 2000, 3000)),
        ("1k:3500:1k", (1000, 2000, 3000)),
        ("1k:1k:log3", (1000,)),
        ("500,1k:3k:1k,2500", (500, 1000, 2000, 2500, 3000)),
        ("1:4:log9", (1, 2, 3, 4)),
    ],
)
def test_reads_sizes_and_ranges_sorted_and_each_once(text: str, budgets: tuple[int, ...]) -> None:
    assert parse_budgets(text) == budgets


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "invalid token count"),
        ("8k,", "invalid token count"),
        ("0", "at least 1 token"),
        ("-5", "invalid token count"),
        ("1.0001k5", "invalid token count"),
        ("1.5", "invalid token count"),
        ("1k:2k", "A:B:log16"),
        ("1k:2k:3k:4k", "A:B:log16"),
        ("1k:2k:", "invalid token count"),
        ("1k:2k:0", "at least 1 token"),
        ("2k:1k:log4", "must not be larger than the second"),
        ("1k:2k:log1", "at least 2 sizes"),
        ("1k:2k:lin0", "at least 2 sizes"),
        ("1:1m:1", f"at most {MAX_BUDGETS:,} are allowed"),
        ("1:100m:log99999999999", f"more than {MAX_BUDGETS:,} budgets"),
        ("1:100m:lin1001", f"more than {MAX_BUDGETS:,} budgets"),
        ("1:900:1,1001:1900:1", f"at most {MAX_BUDGETS:,} are allowed"),
    ],
)
def test_refuses_what_says_no_budgets_or_too_many(text: str, said: str) -> None:
    with pytest.raises(InvalidBudgetsError, match=said):
        parse_budgets(text)


@given(
    first=st.integers(1, 10**7),
    factor=st.integers(1, 10**4),
    number=st.integers(2, 60),
    kind=st.sampled_from(["log", "lin"]),
)
def test_a_range_has_both_its_ends_and_no_more_sizes_than_asked_for(
    first: int, factor: int, number: int, kind: str
) -> None:
    last = first * factor
    budgets = parse_budgets(f"{first}:{last}:{kind}{number}")
    assert (budgets[0], budgets[-1]) == (first, last)
    assert len(budgets) <= number
    assert list(budgets) == sorted(set(budgets))


@pytest.mark.parametrize(
    "text", ["8000", "8_000", "8k", "1.5k", "1m", "0.5k", "1.2345", "8q", "k", "1__0", "٣"]
)
def test_a_single_size_is_read_as_everywhere_on_the_command_line(text: str) -> None:
    try:
        expected = SIZE.convert(text, None, None)
    except click.BadParameter:
        with pytest.raises(InvalidBudgetsError):
            parse_budgets(text)
    else:
        assert parse_budgets(text) == (expected,)
