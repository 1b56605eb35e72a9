"""Times, counts and what is left over: reading JSON that others wrote."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Callable

import pytest

from promptkit.lab.recordings.reading.values import (
    as_count,
    omit_fields,
    parse_object,
    parse_objects,
    parse_time,
    usage_from_openai,
)
from promptkit.messages import Json, Usage
from tests.calls import count_calls


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


def peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_of_many_objects_on_a_line_one_at_a_time_is_in_memory() -> None:
    rows = [{"row": number, "text": str(number)} for number in range(200)]
    line = json.dumps({"rows": rows}).encode() * 40

    def count() -> int:
        return sum(isinstance(record, dict) for _, record in parse_objects(line))

    assert count() == 40
    assert peak(count) < peak(lambda: [record for _, record in parse_objects(line)]) / 2


def test_a_line_that_is_nested_too_deeply_is_not_read_twice() -> None:
    line = b'{"deep":' + b"[" * 250 + b"]" * 250 + b',"wide":[' + b"{}," * 1_000 + b"{}]}"

    assert list(parse_objects(line)) == [(line, "nested too deeply.")]
    once = count_calls(lambda: parse_object(line))
    assert count_calls(lambda: list(parse_objects(line))) < 1.5 * once
