"""Arguments as an object: all of it, or an error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from promptkit.emitters.arguments import arguments_object
from tests.unit.emitters.conversations import arguments


@given(arguments())
def test_what_is_read_says_the_same(text: str) -> None:
    assert arguments_object(text) == json.loads(text)


@pytest.mark.parametrize("text", ["", " \n", "{}"])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    assert arguments_object(text) == {}


def test_a_big_integer_keeps_every_digit() -> None:
    digits = "9" * 400
    assert json.dumps(arguments_object(f'{{"n": {digits}}}')) == f'{{"n": {digits}}}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1]", "not an object"),
        ('"{}"', "not an object"),
        ("null", "not an object"),
        ('{"path": "a.py"', "delimiter"),
        ("{} {}", "Extra data"),
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        ('{"in": {"a": 1, "b": 2, "a": 1}}', "'a' stands twice"),
        ('{"n": 1e400}', "1e400 is beyond"),
        ('{"n": -1e400}', "beyond"),
        ('{"n": NaN}', "NaN is no JSON"),
        ('{"n": -Infinity}', "Infinity is no JSON"),
        (f'{{"n": {"9" * 5000}}}', "digits"),
        ('{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_object_or_would_change_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        arguments_object(text)
