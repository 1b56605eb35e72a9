"""The pictures: the same run gives the same bytes, and no name can break them.

What a heat map shows.
"""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from functools import cache
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import attrs
import pytest
from typing_extensions import override

from promptkit.bench.plot import (
    DARK_COLOURS,
    DARK_TEXT,
    FORMATS,
    LIGHT_TEXT,
    PlotError,
    check_drawable,
    draw_run,
    format_size,
    select_largest,
)
from promptkit.bench.results import Element, Sweep, run_to_json
from promptkit.lab.replay.plot import draw_timeline
from promptkit.lab.replay.results import FileResult
from tests.examples import keep_first
from tests.unit.bench.prompts import BUDGETS, run_of, sweep_of

if TYPE_CHECKING:
    from pathlib import Path

    from promptkit.bench.results import Run


HOSTILE = (
    "<script>alert(1)</script>",
    "$\\frac{1$",
    "日本語 \U0001f600",
    "-->",
    "]]>",
    "a & b",
    "n" * 500,
    "\ud800",
)
"""Names of elements."""


def named(*names: str) -> Run:
    sweep = attrs.evolve(
        sweep_of(model="gpt-5"),
        elements=tuple(Element(path=name, whole=10, kept=(None, 0, 5)) for name in names),
    )
    return attrs.evolve(run_of(sweep), target=names[0])


RUNS = {
    "one": run_of(sweep_of()),
    "two models": run_of(
        sweep_of(model="gpt-5"),
        sweep_of(model="gpt-4", required=(70, None, None), notes=(None, 1, 2)),
    ),
    "no times": run_of(sweep_of(cold=None, warm=None, floor=None), repeat=0),
    "nothing fits": run_of(
        sweep_of(required=(500, 500, 500), notes=(None,) * 3, rules=(None,) * 3)
    ),
    "no elements": run_of(attrs.evolve(sweep_of(), elements=())),
    "one budget": attrs.evolve(
        run_of(
            attrs.evolve(
                sweep_of(),
                points=sweep_of().points[:1],
                elements=(Element(path="A", whole=9, kept=(3,)),),
            )
        ),
        budgets=BUDGETS[:1],
    ),
    "many": named(*(f"Group > Section {number}" for number in range(60))),
    "hostile": named(*HOSTILE),
}


@cache
def drawn(name: str, form: str) -> bytes:
    """A run as a picture, which takes a second to draw."""
    return draw_run(RUNS[name], form)


@pytest.mark.long
@pytest.mark.parametrize("name", keep_first(1, *RUNS))
def test_every_run_can_be_drawn(name: str) -> None:
    page = drawn(name, ".html").decode("ascii")
    assert page.startswith("<!doctype html>")
    drawing = ET.fromstring(page[page.index("<svg") : page.index("</figure>")])  # noqa: S314  # our own
    assert drawing.tag.endswith("svg")


@pytest.mark.parametrize("name", [pytest.param("one", marks=pytest.mark.slow), "hostile"])
@pytest.mark.slow
def test_a_picture_is_a_file_of_its_form(name: str) -> None:
    assert drawn(name, ".png").startswith(b"\x89PNG")
    assert ET.fromstring(drawn(name, ".svg")).tag.endswith("svg")  # noqa: S314  # our own


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    run = RUNS["one"]
    path = tmp_path / "run.json"
    path.write_text(run_to_json(run), encoding="ascii")
    program = (
        "import sys; from pathlib import Path; from promptkit.bench.plot import draw_run; from promptkit.bench.results import read_run; "
        "[sys.stdout.buffer.write(draw_run(read_run(Path(sys.argv[1])), form)) for form in sys.argv[2:]]"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path), *FORMATS], capture_output=True, check=True
    )
    assert done.stdout == b"".join(drawn("one", form) for form in FORMATS)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.addresses: list[str] = []
        self.text: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.addresses += [
            value or ""
            for name, value in attrs
            if name in ("src", "href", "xlink:href", "action", "data")
        ]
        self.addresses += [value for name, value in attrs if name.startswith("on") and value]

    @override
    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.mark.long
def test_the_page_is_complete_in_itself_and_holds_every_name_as_text() -> None:
    tags = _Tags()
    tags.feed(drawn("hostile", ".html").decode())
    assert "svg" in tags.seen
    assert {"script", "link", "img", "iframe", "object"}.isdisjoint(tags.seen)
    assert [
        address
        for address in tags.addresses
        if not address.startswith(("#", "data:image/png;base64,"))
    ] == []
    assert {name for name in HOSTILE if name != "\ud800"} <= set(tags.text)


@pytest.mark.long
def test_the_page_says_every_figure_in_a_table() -> None:
    tags = _Tags()
    tags.feed(drawn("two models", ".html").decode())
    text = " ".join(tags.text)
    for figure in (
        "needs 70",
        "gpt-5 (o200k_base)",
        "gpt-4 (o200k_base)",
        "A > Notes",
        "95%",
        "20.0 ms (2.00x)",
    ):
        assert figure in text, figure


@pytest.mark.slow
def test_a_name_is_drawn_as_it_is_and_not_as_a_formula() -> None:
    picture = draw_run(named("$x^2$"), ".svg").decode()
    assert "<!-- $x^2$" in picture  # what matplotlib says of the text it draws


@pytest.mark.slow
def test_the_heat_map_is_drawn_as_shapes_that_stay_sharp() -> None:
    picture = drawn("one", ".svg").decode()
    heat_map = picture[picture.index('id="QuadMesh_1"') :]
    assert len(re.findall(r"<path d=", heat_map[: heat_map.index("</g>")])) == 2 * len(BUDGETS)


@pytest.mark.parametrize("form", [".pdf", "", "svg", ".SVGZ"])
def test_an_unknown_form_is_refused(form: str) -> None:
    with pytest.raises(PlotError, match=r"use \.svg, \.png, \.html"):
        check_drawable(form)


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        PlotError,
        match=r"run `pip install 'matplotlib>=3\.9'`, or `pip install '\.\[plot\]'` in a checkout",
    ):
        draw_run(RUNS["one"], ".svg")


def of(*elements: tuple[str, int], kept: tuple[int | None, ...] = (None, 1, 2)) -> Sweep:
    return attrs.evolve(
        sweep_of(),
        elements=tuple(Element(path=path, whole=whole, kept=kept) for path, whole in elements),
    )


def names(sweep: Sweep, most: int = 12) -> list[str]:
    return [element.path for element in select_largest(sweep, most)]


def test_the_largest_come_first_and_equals_as_they_are_written() -> None:
    assert names(of(("B", 5), ("A", 50), ("D", 5), ("C", 7))) == ["A", "C", "B", "D"]


def test_a_first_step_that_all_share_is_left_out() -> None:
    assert names(of(("P > A", 2), ("P > B > C", 1))) == ["A", "B > C"]
    assert names(of(("P > A", 2), ("Q > B", 1))) == ["P > A", "Q > B"]
    assert names(of(("P", 1))) == ["P"]
    assert names(of(("P", 2), ("P > A", 1))) == ["P (itself)", "P > A"]


def test_the_rest_is_summed_up_in_a_row_of_its_own() -> None:
    rows = select_largest(of(*((f"E{number}", 100 - number) for number in range(10))), 3)
    assert [row.path for row in rows] == ["E0", "E1", "E2", "7 more"]
    assert rows[-1].whole == sum(100 - number for number in range(3, 10))
    assert rows[-1].kept == (None, 7, 14)


def test_one_other_is_shown_as_it_is() -> None:
    assert names(of(*((f"E{number}", 100 - number) for number in range(4))), 3) == [
        "E0",
        "E1",
        "E2",
        "E3",
    ]


def test_more_than_the_whole_of_one_does_not_hide_the_loss_of_another() -> None:
    sweep = attrs.evolve(
        sweep_of(),
        elements=tuple(Element(path=f"E{n}", whole=10, kept=(30 if n else 0,)) for n in range(4)),
    )
    assert select_largest(sweep, 1)[-1].kept == (30,)
    sweep = attrs.evolve(
        sweep,
        elements=tuple(
            Element(path=f"E{n}", whole=10, kept=(0 if n == 3 else 30,)) for n in range(4)
        ),
    )
    assert select_largest(sweep, 1)[-1].kept_share(0) == 2 / 3


def test_a_prompt_without_elements_has_no_rows() -> None:
    assert select_largest(of()) == ()


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (0, "0"),
        (1, "1"),
        (999, "999"),
        (1000, "1k"),
        (1382, "1.4k"),
        (9960, "10k"),
        (15789, "16k"),
        (128_000, "128k"),
        (999_999, "1m"),
        (1_050_000, "1.1m"),
        (2_000_000, "2m"),
    ],
)
def test_a_size_takes_four_characters_at_most(tokens: int, text: str) -> None:
    assert format_size(tokens) == text


@pytest.mark.slow
def test_every_colour_of_a_drawing_is_read_on_a_dark_page_too() -> None:
    replay = draw_timeline(
        [FileResult(file="a", conversations=1, messages=1, window=9, model="gpt-5", policies=())],
        ".svg",
    ).decode()
    for picture in (drawn("two models", ".svg").decode(), replay):
        rules = picture[
            picture.index("@media (prefers-color-scheme: dark)") : picture.index("</style>")
        ]
        drawing = picture.partition("</style>")[2]
        for colour in {"#ffffff", "#000000", "#eeeeee"} & set(
            re.findall(r"(?:fill|stroke): (#\w{6})", drawing)
        ):
            assert f': {colour}"]' in rules
        assert "svg { fill: #e4e6ea }" in rules


@pytest.mark.long
def test_a_text_on_a_cell_keeps_its_colour_on_a_dark_page() -> None:
    drawing = drawn("one", ".svg").decode().partition("</style>")[2]
    written = set(re.findall(r'<g style="fill: (#\w{6})"', drawing))
    assert written
    assert written <= {LIGHT_TEXT, DARK_TEXT}
    assert not written & set(DARK_COLOURS)
