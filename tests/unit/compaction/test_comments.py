"""A value in a comment comes back as it was, and nothing in it ends the comment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit.compaction.comments import comment, commented


@given(value=st.dictionaries(st.text(), st.text(), max_size=3))
def test_what_goes_in_comes_out_and_stays_inside_one_line(value: dict[str, str]) -> None:
    line = comment(value)
    assert commented(line) == value
    assert "\n" not in line
    assert "-->" not in line[:-3]
    assert "--" not in line[4:-3]


@pytest.mark.parametrize(
    "line", ["", "text", "<!-- no json -->", "<!-- [1] -->", "<!-- {} --> x", '<!-- {"a": } -->', "<!-- {" + "[" * 9999 + "} -->"]
)
def test_any_other_line_says_nothing(line: str) -> None:
    assert commented(line) == {}
