"""The picture of docs/rendering.md: where the lines of a message break.

Run with `python -m tests.docs.line_breaks_picture`, it writes the picture.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from promptkit import Child, PromptElement, Text, TextChunk, UserMessage, component, render, tag
from tests.docs.choosing_picture import COLOURS
from tests.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PICTURE", "ROWS", "draw_picture"]

PICTURE = ROOT / "docs" / "images" / "line-breaks.svg"


@component
def word(text: str) -> Child:
    return text


ROWS: tuple[tuple[str, tuple[str | PromptElement, ...], str], ...] = (
    ('"a", "b"', ("a", "b"), "strings are joined as they are"),
    ('"a\\n", "b"', ("a\n", "b"), "a line break of your own"),
    (
        'TextChunk()["a"], TextChunk()["b"]',
        (TextChunk()["a"], TextChunk()["b"]),
        "a TextChunk starts a line",
    ),
    ('"a", TextChunk()["b"], "c"', ("a", TextChunk()["b"], "c"), "and does not end it"),
    ('word("a"), word("b")', (word("a"), word("b")), "an element behind an element starts a line"),
    ('"a", word("b"), "c"', ("a", word("b"), "c"), "but not behind a string"),
    (
        '"a", word("b"), word("c")',
        ("a", word("b"), word("c")),
        "the first stands behind a string, the second does not",
    ),
    (
        'Text()["a"], " ", Text()["b"]',
        (Text()["a"], " ", Text()["b"]),
        "a string between them keeps them in a line",
    ),
    ('"a", tag.x()["b"], "c"', ("a", tag.x()["b"], "c"), "tags have lines of their own"),
)
"""What is written, its children, and the rule."""

LEFT, MIDDLE, RIGHT, TOP, LINE, WIDTH = 20, 300, 400, 62, 17, 780


def draw_picture() -> str:
    """Draw the picture, as SVG."""
    rows = list(_draw_rows())
    height = TOP + sum(_height(children) for _, children, _ in ROWS)
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    described = html.escape("; ".join(f"{written}: {rule}" for written, _, rule in ROWS))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title description" font-family="Helvetica, Arial, sans-serif" font-size="13">',
            '<title id="title">Where the lines of a message break</title>',
            f'<desc id="description">{described}</desc>',
            f"<style>{_style(0)} @media (prefers-color-scheme: dark) {{ {_style(1)} }}</style>",
            f'<rect class="page" width="{WIDTH}" height="{height}" rx="10"/>',
            _write(LEFT, 30, "What is written", css="quiet"),
            _write(MIDDLE, 30, "What is sent", css="quiet"),
            _write(RIGHT, 30, "Why", css="quiet"),
            *rows,
            "</svg>",
            "",
        ]
    )


def _sent(children: tuple[str | PromptElement, ...]) -> list[str]:
    return render(UserMessage()[children], budget=100).messages[0].text.split("\n")


def _height(children: tuple[str | PromptElement, ...]) -> int:
    return len(_sent(children)) * LINE + 16


def _draw_rows() -> Iterator[str]:
    y = TOP
    for written, children, rule in ROWS:
        sent = _sent(children)
        yield f'<rect class="promptkit-box" x="{MIDDLE - 8}" y="{y - 15}" width="84" height="{len(sent) * LINE + 6}" rx="5"/>'
        yield _write(LEFT, y, written, css="text", code=True)
        yield _write(RIGHT, y, rule, css="text")
        for number, line in enumerate(sent):
            yield _write(MIDDLE, y + number * LINE, line, css="text", code=True)
        y += _height(children)


def _write(x: int, y: int, text: str, *, css: str, code: bool = False) -> str:
    font = ' font-family="Menlo, Consolas, monospace" font-size="12"' if code else ""
    return (
        f'<text class="{css}" x="{x}" y="{y}" xml:space="preserve"{font}>{html.escape(text)}</text>'
    )


def _style(shade: int) -> str:
    names = {"page": "page", "text": "text", "quiet": "quiet", "promptkit-box": "promptkit-box"}
    return " ".join(f".{css} {{ fill: {COLOURS[name][shade]} }}" for css, name in names.items())


if __name__ == "__main__":
    PICTURE.write_text(draw_picture(), encoding="utf-8")
