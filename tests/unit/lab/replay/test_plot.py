"""The timeline: a line for each policy, the same bytes for the same results."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import attrs
import pytest

from promptkit.bench.plot import PlotError
from promptkit.cli.output.tables import print_replay
from promptkit.lab.replay.plot import MAX_FILES, draw_timeline
from promptkit.lab.replay.results import (
    FileResult,
    PolicyResult,
    ReplayTotals,
    TimelineRequest,
    results_to_json,
)
from promptkit.lab.replay.retention import RetentionCounts
from promptkit.lab.replay.runner import ReplayOptions, ReplayRules
from promptkit.tokens import Price


def policy(name: str, requests: int = 30) -> PolicyResult:
    steps = tuple(
        TimelineRequest(
            tokens=1_000 * (at % 10 + 1), cached=500 * (at % 10), checkpoint=at % 10 == 0 and at > 0
        )
        for at in range(requests)
    )
    return PolicyResult(
        policy=name,
        totals=ReplayTotals(requests=requests),
        price=1.0,
        price_summaries=0.1,
        price_with_lookups=1.0,
        timeline=steps,
    )


def file(*names: str, name: str = "talk.jsonl") -> FileResult:
    return FileResult(
        file=name,
        conversations=1,
        messages=60,
        window=32_000,
        model="gpt-5",
        policies=tuple(policy(each) for each in names),
    )


@pytest.mark.slow
def test_the_same_results_give_the_same_bytes() -> None:
    for form in (".svg", ".html"):
        assert draw_timeline([file("vscode", "off")], form) == draw_timeline(
            [file("vscode", "off")], form
        )


@pytest.mark.slow
def test_each_policy_has_its_line_in_context_and_in_cached_share() -> None:
    pictures = [
        draw_timeline([file(*names)], ".svg").decode() for names in (("vscode",), ("vscode", "off"))
    ]
    ET.fromstring(pictures[1])  # noqa: S314  # our own drawing
    # the style names all colours
    one, two = (picture.partition("</style>")[2] for picture in pictures)
    assert two.count('id="line2d') > one.count('id="line2d')
    assert "#c4501b" in two
    assert "#c4501b" not in one


@pytest.mark.slow
def test_the_page_has_the_figures_and_no_name_can_break_it() -> None:
    hostile = file("<script>alert(1)</script>", name="$\\frac{1$ <b> & \ud800")
    page = draw_timeline([hostile], ".html").decode("ascii")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert re.search(r"<td[^>]*>30</td>", page)


@pytest.mark.slow
def test_the_page_the_table_and_the_json_have_the_same_figures_of_what_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    counts = RetentionCounts(
        lines_used=8, lines_shown=1, contexts_used=8, contexts_shown=2, names_used=8, names_shown=6
    )
    result = attrs.evolve(policy("vscode"), totals=ReplayTotals(retention=counts))
    one = attrs.evolve(file(), policies=(result,))
    page = draw_timeline([one], ".html").decode("ascii")
    rules = ReplayRules(model="gpt-5", window=32_000, cache="openai")
    print_replay(
        [one],
        one,
        ReplayOptions(policies=("vscode",), rules=rules, price=Price(input=1.0, output=1.0)),
        each=False,
    )
    table = capsys.readouterr().out
    row = json.loads(results_to_json([one], one))["total"]["policies"][0]
    for name, share in (("quoted", 0.125), ("in context", 0.25), ("named", 0.75)):
        assert result.shown[name] == share == row[f"{name.replace(' ', '_')}_share"]
        assert f">{name}</th>" in page
        assert f'<td data-name="{name}">{share:.1%}</td>' in page
        assert name in table
        assert f" {share:.0%} " in table


@pytest.mark.long
def test_a_file_without_requests_is_drawn() -> None:
    empty = attrs.evolve(file("vscode"), policies=(policy("vscode", requests=0),))
    assert draw_timeline([empty], ".png").startswith(b"\x89PNG")


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(PlotError, match="at most"):
        draw_timeline([file("vscode")] * (MAX_FILES + 1), ".svg")
    with pytest.raises(PlotError, match=r"plot format '\.gif'"):
        draw_timeline([file("vscode")], ".gif")


def shown_texts(svg: bytes) -> list[str]:
    """Return the texts of a drawing: matplotlib writes each as a comment before its shapes."""
    return re.findall(r"<!-- (.*?) -->", svg.decode())


@pytest.mark.slow
@pytest.mark.parametrize("requests", [1, 2, 3, 7, 442])
def test_requests_are_numbered_in_whole_numbers(requests: int) -> None:
    drawn = attrs.evolve(file("vscode"), policies=(policy("vscode", requests=requests),))
    texts = shown_texts(draw_timeline([drawn], ".svg"))
    numbers = [
        text
        for text in texts[
            texts.index("tokens of the request") : texts.index(
                "request; dots: a summary replaced messages"
            )
        ]
        if re.fullmatch(r"[\d.]+", text)
    ]
    assert numbers
    assert all(number.isdecimal() and 1 <= int(number) <= requests for number in numbers)


def test_the_context_window_is_a_line_in_the_picture() -> None:
    svg = draw_timeline([file("vscode", "off")], ".svg")
    assert "context window, 32k" in shown_texts(svg)
    assert svg.count(b"stroke: #808080") == 2  # the line, and its sign in the legend
    tokens = [text for text in shown_texts(svg) if re.fullmatch(r"[\d.]+k", text)]
    assert tokens == ["5k", "10k", "15k", "20k", "25k", "30k"]


@pytest.mark.slow
def test_a_table_that_is_wider_than_the_page_is_scrolled_and_not_cut() -> None:
    page = draw_timeline([file("vscode")], ".html").decode()
    assert page.count('<div class="wide"><table>') == page.count("<table>") == 1
    assert ".wide { overflow-x: auto; }" in page
    assert '<meta name="viewport"' in page
