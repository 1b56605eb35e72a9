"""The picture of docs/choosing.md: which part of an agent's work is whose, in each way to use promptkit.

Run with `python -m tests.docs.choosing_picture`, it writes the picture.
"""

from __future__ import annotations

import html
from itertools import groupby
from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs

from tests.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["COLOURS", "COLUMNS", "PICTURE", "draw_picture"]

PICTURE = ROOT / "docs" / "images" / "choosing.svg"

Owner: TypeAlias = Literal["promptkit", "program", "framework"]

ROWS = (
    ("the loop", "ask the model, run tools"),
    ("the history", "keep every message"),
    ("the summaries", "of what no longer fits"),
    ("the prompt", "what a request shows, in order"),
    ("the budget", "count, shorten, drop"),
)
"""The parts of an agent's work."""


@attrs.frozen
class Column:
    """A way to use promptkit."""

    have: str
    """The program that it is for."""
    name: str
    owners: tuple[Owner, Owner, Owner, Owner, Owner]
    """Who does the work of each row."""


COLUMNS = (
    Column("messages", "fit", ("program", "program", "program", "program", "promptkit")),
    Column(
        "a prompt of many parts",
        "render",
        ("program", "program", "program", "promptkit", "promptkit"),
    ),
    Column(
        "an agent with a loop of its own",
        "ContextWindow",
        ("program", "promptkit", "promptkit", "promptkit", "promptkit"),
    ),
    Column(
        "tools, and no loop yet",
        "AgentSession",
        ("promptkit", "promptkit", "promptkit", "promptkit", "promptkit"),
    ),
    Column(
        "an agent of a framework",
        "an integration",
        ("framework", "framework", "promptkit", "framework", "promptkit"),
    ),
)

LABELS: dict[Owner, str] = {
    "promptkit": "promptkit",
    "program": "your program",
    "framework": "the framework",
}

LEFT, TOP, WIDTH, HEIGHT, GAP = 210, 92, 130, 46, 8
"""The place of the first box, and the sizes of all of them, in pixels."""

COLOURS: dict[str, tuple[str, str]] = {
    "page": ("#ffffff", "#0d1117"),
    "text": ("#1f2328", "#e6edf3"),
    "quiet": ("#59636e", "#9198a1"),
    "promptkit-box": ("#dbe9ff", "#12315c"),
    "promptkit-line": ("#3b6fc4", "#5b93e6"),
    "program-box": ("#f1f2f4", "#22272e"),
    "program-line": ("#9aa2ab", "#6b747e"),
    "framework-box": ("#fdf0d5", "#41310d"),
    "framework-line": ("#b98a1d", "#c99b33"),
}
"""The colours on a light page and on a dark one."""


def draw_picture() -> str:
    """Draw the picture, as SVG."""
    width = LEFT + len(COLUMNS) * (WIDTH + GAP) + 16
    height = TOP + len(ROWS) * (HEIGHT + GAP) + 12
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    font = 'font-family="Helvetica, Arial, sans-serif" font-size="13"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title description" {font}>',
        '<title id="title">Which part of an agent\'s work is whose</title>',
        f'<desc id="description">{html.escape(" ".join(map(_describe, COLUMNS)))}</desc>',
        f"<style>{_style(0)} @media (prefers-color-scheme: dark) {{ {_style(1)} }}</style>",
        f'<rect class="page" width="{width}" height="{height}" rx="10"/>',
        *_write(24, 36, "You have", css="quiet", anchor="start"),
        *_write(24, 70, "Use", css="quiet", anchor="start"),
    ]
    for row, (title, detail) in enumerate(ROWS):
        y = TOP + row * (HEIGHT + GAP) + HEIGHT // 2
        lines += _write(24, y - 3, title, css="text", anchor="start", bold=True)
        lines += _write(24, y + 14, detail, css="quiet", anchor="start", size=11)
    for number, column in enumerate(COLUMNS):
        lines += _draw_column(column, LEFT + number * (WIDTH + GAP))
    return "\n".join([*lines, "</svg>", ""])


def _draw_column(column: Column, x: int) -> Iterator[str]:
    words = column.have.split()
    half = len(words) if len(column.have) < 16 else (len(words) + 1) // 2
    middle = x + WIDTH // 2
    for line, text in enumerate(filter(None, (" ".join(words[:half]), " ".join(words[half:])))):
        yield from _write(middle, 30 + 15 * line, text, css="text")
    yield from _write(middle, 72, column.name, css="text", bold=True, size=14)
    row = 0
    for owner, same in groupby(column.owners):
        rows = len(list(same))
        y, height = TOP + row * (HEIGHT + GAP), rows * (HEIGHT + GAP) - GAP
        yield f'<rect class="{owner}" x="{x}" y="{y}" width="{WIDTH}" height="{height}" rx="7" stroke-width="1.5"/>'
        yield from _write(middle, y + height // 2 + 5, LABELS[owner], css="text")
        row += rows


def _write(
    x: int,
    y: int,
    text: str,
    *,
    css: str,
    anchor: str = "middle",
    bold: bool = False,
    size: int = 13,
) -> Iterator[str]:
    weight = ' font-weight="600"' if bold else ""
    yield f'<text class="{css}" x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}"{weight}>{html.escape(text)}</text>'


def _style(shade: int) -> str:
    colour = {name: both[shade] for name, both in COLOURS.items()}
    plain = [f".{name} {{ fill: {colour[name]} }}" for name in ("page", "text", "quiet")]
    boxes = [
        f".{owner} {{ fill: {colour[f'{owner}-box']}; stroke: {colour[f'{owner}-line']} }}"
        for owner in LABELS
    ]
    return " ".join(plain + boxes)


def _describe(column: Column) -> str:
    parts = (
        f"{LABELS[owner]} has {title}"
        for owner, (title, _) in zip(column.owners, ROWS, strict=True)
    )
    return f"With {column.have}, use {column.name}: {', '.join(parts)}."


if __name__ == "__main__":
    PICTURE.write_text(draw_picture(), encoding="utf-8")
