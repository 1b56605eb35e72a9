"""No character of a prompt is invisible in a snapshot, and none is taken for another."""

from __future__ import annotations

import doctest
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit.testing import characters
from promptkit.testing.characters import backslashed, has_unseen, inline, json_safe

UNSEEN = {
    "carriage return": "\r",
    "null": "\0",
    "escape": "\x1b",
    "next line": "\x85",
    "soft hyphen": "\xad",
    "zero width space": "\u200b",
    "line separator": "\u2028",
    "right-to-left override": "\u202e",
    "byte order mark": "\ufeff",
    "tag letter": "\U000e0041",
    "lone surrogate": "\udc80",
}
SEEN = ["plain", "tab\tand\nline", "Grüße", "日本語", "👩\u200d💻", "back\\slash"]


@pytest.mark.parametrize("text", UNSEEN.values(), ids=UNSEEN)
def test_what_shows_nothing_is_escaped(text: str) -> None:
    assert has_unseen(f"a{text}b")
    for written in (backslashed(f"a{text}b"), inline(f"a{text}b")):
        assert "\\" in written
        assert text not in written
        assert written.encode("utf-8")


@pytest.mark.parametrize("text", SEEN)
def test_what_is_seen_stands_as_it_is(text: str) -> None:
    assert not has_unseen(text)


@given(st.text(st.characters(exclude_categories=())))
def test_an_escaped_text_is_read_back(text: str) -> None:
    quoted = backslashed(text).replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    assert json.loads(f'"{quoted}"') == text


@given(st.text(st.characters(exclude_categories=())))
def test_safe_json_is_the_same_value(text: str) -> None:
    written = json_safe(json.dumps(text, ensure_ascii=False))
    assert json.loads(written) == text
    assert written.encode("utf-8").decode() == written
    assert len(written.splitlines()) == 1


@given(st.text(st.characters(exclude_categories=())))
def test_an_inline_text_is_one_line_and_no_two_look_alike(text: str) -> None:
    written = inline(text)
    assert len(written.splitlines()) == 1
    assert (json.loads(written) if written.startswith('"') else written) == text


def test_the_examples_in_the_docstrings_print_what_they_say() -> None:
    failed, tried = doctest.testmod(characters)
    assert tried
    assert not failed
