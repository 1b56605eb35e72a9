"""The bar of `/context`."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, strategies as st

from promptkit.agent import ContextUsage
from promptkit.cli.chat.loop import draw_context, split_cells
from promptkit.compaction import UsageByPart, UsageReading

PARTS = UsageByPart(system=100, tools=300, summary=0, messages=2_000, results=1_600)
USAGE = ContextUsage(
    parts=PARTS,
    reading=UsageReading(local=4_000),
    messages=9,
    window=10_000,
    limit=8_000,
    threshold=6_000,
)


def shown(usage: ContextUsage, width: int = 80) -> list[str]:
    return [line.plain for line in draw_context(usage, width=width, colours=False)]


def test_each_part_has_its_share_of_the_bar_and_a_line_in_the_legend() -> None:
    _, bar, mark, *legend = shown(USAGE, width=41)
    assert {letter: bar.count(letter) for letter in "itsmr.-"} == {
        "i": 1,
        "t": 1,
        "s": 0,
        "m": 8,
        "r": 6,
        ".": 16,
        "-": 8,
    }
    assert bar == "".join(sorted(bar, key="itsmr.-".index))
    assert mark.index("^") == 24
    assert [line.split() for line in legend] == [
        ["i", "instructions", "100", "1.0%"],
        ["t", "tools", "300", "3.0%"],
        ["s", "summary", "0", "0.0%"],
        ["m", "messages", "2,000", "20.0%"],
        ["r", "tool", "results", "1,600", "16.0%"],
        [".", "free", "4,000", "40.0%"],
        ["-", "kept", "for", "the", "reply", "2,000", "20.0%"],
    ]


@pytest.mark.parametrize("threshold", [0, 3_000, 5_000, 9_999, 10_000])
@pytest.mark.parametrize("width", [21, 40, 80])
def test_the_mark_stands_below_the_cell_of_the_threshold_wherever_its_words_have_room(
    width: int, threshold: int
) -> None:
    lines = shown(attrs.evolve(USAGE, threshold=threshold), width)
    cells = len(lines[1])
    assert lines[2].index("^") == min(cells - 1, threshold * cells // 10_000)
    assert f"compacts at {threshold:,}" in " ".join(lines[2:4])


@pytest.mark.parametrize("width", [1, 20, 40, 80, 200])
@pytest.mark.parametrize("threshold", [None, 0, 5_000, 9_999, 10_000])
def test_no_line_is_wider_than_the_terminal(width: int, threshold: int | None) -> None:
    lines = shown(attrs.evolve(USAGE, threshold=threshold), width)
    assert max(map(len, lines)) <= max(width, 42)
    assert len(lines[1]) == max(20, min(72, width - 1))


def test_an_unknown_window_shows_the_parts_alone() -> None:
    usage = attrs.evolve(USAGE, window=None, limit=None, threshold=None)
    _, bar, *legend = shown(usage)
    assert set(bar) == {"i", "t", "m", "r"}
    assert len(legend) == 5


def test_a_request_above_its_limit_leaves_nothing_free() -> None:
    _, bar, *_ = shown(attrs.evolve(USAGE, parts=attrs.evolve(PARTS, results=20_000)))
    assert "." not in bar
    assert "-" not in bar


def test_an_empty_window_is_drawn() -> None:
    usage = attrs.evolve(USAGE, parts=UsageByPart(), window=None, limit=None, threshold=None)
    assert shown(usage)[1] == ""


def test_blocks_have_the_colour_of_their_part() -> None:
    bar = draw_context(USAGE, width=41, colours=True)[1]
    assert set(bar.plain) == {"█", "░", "▒"}
    assert {str(span.style) for span in bar.spans} >= {"cyan", "blue", "green", "yellow"}


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=8), st.integers(20, 200))
def test_the_cells_of_a_bar_are_all_given_and_nothing_that_is_there_is_hidden(
    tokens: list[int], cells: int
) -> None:
    counts = split_cells(tokens, cells)
    assert sum(counts) == (cells if sum(tokens) else 0)
    assert all(bool(count) == bool(each) for count, each in zip(counts, tokens, strict=True))
