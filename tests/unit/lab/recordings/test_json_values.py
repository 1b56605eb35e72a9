"""Times, counts and what is left over: reading JSON that others wrote."""

from __future__ import annotations

import math

import pytest

from promptkit.lab.recordings.reading.values import (
    as_count,
    omit_fields,
    parse_time,
    usage_from_openai,
)
from promptkit.messages import Json, Usage


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-01-01T00:00:00Z", 1_767_225_600.0),
        ("2026-01-01T00:00:00.250+01:00", 1_767_222_000.25),
        ("2026-01-01T00:00:00", 1_767_225_600.0),
        (1_767_225_600, 1_767_225_600.0),
        (1_767_225_600_250, 1_767_225_600.25),
        (1_767_225_600.25, 1_767_225_600.25),
        ("yesterday", None),
        (True, None),
        (None, None),
        (10**30, None),
        (math.nan, None),
        ([], None),
    ],
)
def test_a_time_is_in_seconds_however_it_is_written(value: Json, expected: float | None) -> None:
    assert parse_time(value) == expected


def test_a_count_is_whole_and_not_below_zero() -> None:
    values: list[Json] = [0, 7, 2.9, -1, True, "7", math.inf, math.nan, None]
    assert [as_count(value) for value in values] == [0, 7, 2, None, None, None, None, None, None]


def test_usage_is_read_under_the_names_that_interfaces_give_it() -> None:
    assert usage_from_openai(
        {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    ) == Usage(input_tokens=9, output_tokens=2, cached_tokens=4)
    assert usage_from_openai({"input_tokens": 9, "cached_input_tokens": 20}) == Usage(
        input_tokens=9, cached_tokens=9
    )
    assert usage_from_openai({"total_tokens": 9}) is None
    assert usage_from_openai(None) is None


def test_what_is_left_says_something() -> None:
    assert omit_fields(
        {"a": 1, "b": None, "c": [], "d": {}, "e": "", "f": 0, "g": False}, {"a"}
    ) == {"f": 0, "g": False}
