"""The picture of docs/rendering.md is the one that its program draws."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from tests.docs.line_breaks_picture import PICTURE, ROWS, draw_picture


def test_the_picture_is_the_one_that_is_drawn() -> None:
    assert PICTURE.read_text(encoding="utf-8") == draw_picture(), (
        "run python -m tests.docs.line_breaks_picture"
    )


def test_the_picture_is_well_formed_and_shows_each_rule() -> None:
    texts = {element.text for element in ET.fromstring(draw_picture()).iter() if element.text}  # noqa: S314  # our own picture
    assert {written for written, _, _ in ROWS} | {rule for _, _, rule in ROWS} <= texts
