"""What is done with parts before they get a form.

Arguments as an object: all of it, or an error.
"""

from __future__ import annotations

import json
from types import MappingProxyType

import pytest
from hypothesis import given

from promptkit.messages import CacheBreakpointPart, Json, Message, OpaquePart, copy_json
from promptkit.wire.parts import DataUrl, parse_arguments, parse_data_url, select_parts
from tests.unit.wire.strategies import arguments


def test_adjacent_texts_are_joined_and_texts_around_what_is_left_out_stay_apart() -> None:
    breakpoint_part = CacheBreakpointPart()
    other = OpaquePart(value={}, provider="responses")
    message = Message(
        role="user", content=("a", "b", other, "c", breakpoint_part, "", breakpoint_part, "d")
    )
    assert select_parts(message, "chat") == ["ab", "c", breakpoint_part, breakpoint_part, "d"]
    assert select_parts(message, "chat", cache=False) == ["ab", "c", "d"]


def test_a_plain_value_shares_nothing_with_its_source() -> None:
    source: dict[str, Json] = {"a": [MappingProxyType({"b": [1]})], "c": "d"}
    copy = copy_json(source)
    assert copy == {"a": [{"b": [1]}], "c": "d"}
    assert type(copy["a"][0]) is dict
    assert copy["a"] is not source["a"]


def test_a_value_of_any_depth_is_copied() -> None:
    value: Json = []
    for _ in range(100_000):
        value = [value]
    copy = copy_json(value)
    depth = 0
    while copy:
        copy = copy[0]
        depth += 1
    while isinstance(value, list) and value:  # or freeing it would recurse
        value = value[0]
    assert depth == 100_000


def test_a_data_url_is_taken_apart() -> None:
    assert parse_data_url("DATA:Image/PNG;charset=x;BASE64,AA,A") == DataUrl(
        "image/png", is_base64=True, data="AA,A"
    )
    assert parse_data_url("data:,hi") == DataUrl("", is_base64=False, data="hi")
    assert parse_data_url("https://example.org/data:") is None


@given(arguments())
def test_what_is_read_says_the_same(text: str) -> None:
    assert parse_arguments(text) == json.loads(text)


@pytest.mark.parametrize("text", ["", " \n", "{}"])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    assert parse_arguments(text) == {}


def test_a_big_integer_keeps_every_digit() -> None:
    digits = "9" * 400
    assert json.dumps(parse_arguments(f'{{"n": {digits}}}')) == f'{{"n": {digits}}}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1]", "not an object"),
        ('"{}"', "not an object"),
        ("null", "not an object"),
        ('{"path": "a.py"', "delimiter"),
        ("{} {}", "Extra data"),
        ('{"a": 1, "a": 2}', "'a' occurs twice"),
        ('{"in": {"a": 1, "b": 2, "a": 1}}', "'a' occurs twice"),
        ('{"n": 1e400}', "1e400 is beyond"),
        ('{"n": -1e400}', "beyond"),
        ('{"n": NaN}', "NaN is not JSON"),
        ('{"n": -Infinity}', "Infinity is not JSON"),
        (f'{{"n": {"9" * 5000}}}', "digits"),
        ('{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_arguments_that_are_no_object_or_would_change_are_rejected_with_the_reason(
    text: str, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        parse_arguments(text)
