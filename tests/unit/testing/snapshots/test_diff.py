"""What a failed test shows of a changed snapshot."""

from __future__ import annotations

from difflib import unified_diff

from hypothesis import given, strategies as st

from promptkit.testing.snapshots.markdown import diff_lines

BEFORE = "# 20 tokens\n\n## System\n\n```\none\ntwo\n# three\nfour\nfive\nsix\n```\n\n## User\n\n```\nhello\n```\n"


def test_each_change_is_shown_with_the_lines_around_it_and_the_headings_above() -> None:
    assert diff_lines(BEFORE, BEFORE.replace("five", "FIVE").replace("hello", "hello\nthere")) == [
        "@@ line 7 # 20 tokens ## System @@",
        " two",
        " # three",
        " four",
        "-five",
        "+FIVE",
        " six",
        " ```",
        " ",
        "@@ line 15 # 20 tokens ## User @@",
        " ",
        " ```",
        " hello",
        "+there",
        " ```",
    ]


def test_a_change_below_a_heading_belongs_to_that_heading() -> None:
    before = "# 20 tokens\n\n14 of 20 tokens.\n\n# 10 tokens\n\n9 of 10 tokens.\n"
    (place, *_) = diff_lines(before, before.replace("9 of", "8 of"))
    assert place == "@@ line 4 # 10 tokens @@"


def test_a_heading_inside_a_text_is_none() -> None:
    (place, *_) = diff_lines(BEFORE, BEFORE.replace("six", "SIX"))
    assert place == "@@ line 8 # 20 tokens ## System @@"


def test_a_text_without_headings_has_lines_only() -> None:
    assert diff_lines('{\n  "a": 1\n}\n', '{\n  "a": 2\n}\n')[0] == "@@ line 1 @@"


def test_what_is_no_change_is_not_shown() -> None:
    assert diff_lines(BEFORE, BEFORE) == []


def test_a_line_that_looks_like_the_head_of_a_diff_is_shown() -> None:
    assert diff_lines("bye\n-- \nada\n", "bye\n++ \nada\n") == [
        "@@ line 1 @@",
        " bye",
        "--- ",
        "+++ ",
        " ada",
    ]


def test_each_place_has_its_own_headings() -> None:
    before = "# a\n\n## b\n\n## c\n" + "\n" * 9 + "one\n" + "\n" * 9 + "# d\n" + "\n" * 9 + "two\n"
    places = [
        line
        for line in diff_lines(before, before.replace("one", "1").replace("two", "2"))
        if line.startswith("@@")
    ]
    assert places == ["@@ line 12 # a ## c @@", "@@ line 32 # d @@"]


def test_a_small_change_of_a_long_text_costs_little() -> None:
    before = "\n".join(["same"] * 200_000)
    assert diff_lines(before, f"{before}\nmore") == [
        "@@ line 199998 @@",
        " same",
        " same",
        " same",
        "+more",
    ]


LINES = st.lists(st.sampled_from(["a", "b", "# c", "```", ""]), max_size=12).map("\n".join)


@given(LINES, LINES)
def test_the_lines_that_are_gone_and_new_are_those_of_a_plain_diff(before: str, after: str) -> None:
    shown = [line for line in diff_lines(before, after) if line[:1] in {"-", "+"}]
    one, other = before.removesuffix("\n").split("\n"), after.removesuffix("\n").split("\n")
    assert sum(line.startswith("+") for line in shown) - sum(
        line.startswith("-") for line in shown
    ) == len(other) - len(one)
    assert bool(shown) == bool(list(unified_diff(one, other)))
