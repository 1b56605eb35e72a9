"""The timeline: a line for each policy, the same bytes for the same results."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import attrs
import pytest

from promptkit.bench.plot import PlotError
from promptkit.replay.plot import MAX_FILES, draw_timeline
from promptkit.replay.results import FileResult, PolicyResult, ReplayTotals, TimelineRequest


def policy(name: str, requests: int = 30) -> PolicyResult:
    steps = tuple(
        TimelineRequest(tokens=1_000 * (at % 10 + 1), cached=500 * (at % 10), checkpoint=at % 10 == 0 and at > 0) for at in range(requests)
    )
    return PolicyResult(policy=name, totals=ReplayTotals(requests=requests), price=1.0, price_summaries=0.1, timeline=steps)


def file(*names: str, name: str = "talk.jsonl") -> FileResult:
    return FileResult(file=name, conversations=1, messages=60, window=32_000, model="gpt-5", policies=tuple(policy(each) for each in names))


def test_the_same_results_give_the_same_bytes() -> None:
    for form in (".svg", ".html"):
        assert draw_timeline([file("vscode", "off")], form) == draw_timeline([file("vscode", "off")], form)


def test_each_policy_has_its_line_in_context_and_in_cached_share() -> None:
    one, two = (draw_timeline([file(*names)], ".svg").decode() for names in (("vscode",), ("vscode", "off")))
    ET.fromstring(two)  # noqa: S314  # our own drawing
    assert two.count('id="line2d') > one.count('id="line2d')
    assert "#c4501b" in two
    assert "#c4501b" not in one


def test_the_page_has_the_figures_and_no_name_can_break_it() -> None:
    hostile = file("<script>alert(1)</script>", name="$\\frac{1$ <b> & \ud800")
    page = draw_timeline([hostile], ".html").decode("ascii")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert re.search(r"<td>30</td>", page)


def test_a_file_without_requests_is_drawn() -> None:
    empty = attrs.evolve(file("vscode"), policies=(policy("vscode", requests=0),))
    assert draw_timeline([empty], ".png").startswith(b"\x89PNG")


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(PlotError, match="at most"):
        draw_timeline([file("vscode")] * (MAX_FILES + 1), ".svg")
    with pytest.raises(PlotError, match=r"plot format '\.gif'"):
        draw_timeline([file("vscode")], ".gif")
