"""The picture of docs/choosing.md is the one that its program draws, in colours that can be read."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

import promptkit
from tests.docs.choosing_picture import COLOURS, COLUMNS, PICTURE, draw_picture


def test_the_picture_is_the_one_that_is_drawn() -> None:
    assert PICTURE.read_text(encoding="utf-8") == draw_picture(), (
        "run python -m tests.docs.choosing_picture"
    )


def test_the_picture_is_well_formed_and_names_what_there_is() -> None:
    names = [column.name for column in COLUMNS]
    assert [name for name in names if " " not in name and not hasattr(promptkit, name)] == []
    texts = {element.text for element in ET.fromstring(draw_picture()).iter() if element.text}  # noqa: S314  # our own picture
    assert {*names, "the loop", "your program", "the framework"} <= texts


def luminance(colour: str) -> float:
    """The relative luminance of a colour, as WCAG defines it."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("shade", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("text", "on"),
    [
        ("text", "page"),
        ("quiet", "page"),
        *(("text", f"{owner}-box") for owner in ("promptkit", "program", "framework")),
    ],
)
def test_every_text_can_be_read_on_a_light_and_on_a_dark_page(
    text: str, on: str, shade: int
) -> None:
    bright, dim = sorted(
        (luminance(COLOURS[text][shade]), luminance(COLOURS[on][shade])), reverse=True
    )
    assert (bright + 0.05) / (dim + 0.05) >= 4.5
