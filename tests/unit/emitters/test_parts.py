"""What is done with parts before they get a form."""

from __future__ import annotations

from types import MappingProxyType

from promptkit.emitters.media import DataUrl, parse_data_url
from promptkit.emitters.parts import plain, visible
from promptkit.messages import BoundaryPart, Json, Message, OpaquePart


def test_text_is_joined_up_to_the_next_part_and_over_what_is_left_out() -> None:
    boundary = BoundaryPart()
    other = OpaquePart(value={}, provider="responses")
    message = Message(role="user", content=("a", "b", other, "c", boundary, "", boundary, "d"))
    assert visible(message, "chat") == ["abc", boundary, boundary, "d"]


def test_a_plain_value_shares_nothing_with_its_source() -> None:
    source: dict[str, Json] = {"a": [MappingProxyType({"b": [1]})], "c": "d"}
    copy = plain(source)
    assert copy == {"a": [{"b": [1]}], "c": "d"}
    assert type(copy["a"][0]) is dict
    assert copy["a"] is not source["a"]


def test_a_value_of_any_depth_is_copied() -> None:
    value: Json = []
    for _ in range(100_000):
        value = [value]
    copy = plain(value)
    depth = 0
    while copy:
        copy = copy[0]
        depth += 1
    while isinstance(value, list) and value:  # or freeing it would recurse
        value = value[0]
    assert depth == 100_000


def test_a_data_url_is_taken_apart() -> None:
    assert parse_data_url("DATA:Image/PNG;charset=x;BASE64,AA,A") == DataUrl("image/png", is_base64=True, data="AA,A")
    assert parse_data_url("data:,hi") == DataUrl("", is_base64=False, data="hi")
    assert parse_data_url("https://example.org/data:") is None
