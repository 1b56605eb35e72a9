"""Terminal output: escaped and clipped text, a spinner, and JSON."""

from __future__ import annotations

import json
import re
import sys
from contextlib import contextmanager
from textwrap import wrap
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

__all__ = ["clip", "escape_control_chars", "print_json", "print_legend", "show_spinner"]


# Control characters except tab and line feed; line and paragraph separators; characters that override or isolate the direction of
# writing; lone surrogates, which no encoding can write.
DANGEROUS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_control_chars(text: str) -> str:
    r"""Escape characters that would move the cursor, change colours or reverse the direction of writing in a terminal.

    >>> escape_control_chars("red: \x1b[31m")
    'red: \\x1b[31m'
    """
    return DANGEROUS.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004  # one byte


def clip(text: str, width: int) -> str:
    """Cut a text to at most `width` columns. A text that is cut ends with `…`."""
    from rich.cells import cell_len, set_cell_size

    text = text[: width + 1]  # every character takes at least one column, except combining characters
    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1).rstrip()}…"


@contextmanager
def show_spinner(task: str) -> Generator[None]:
    """Show `task` and a spinner on stderr while the block runs. Shows nothing if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(task)):
        yield


def print_legend(entries: Sequence[tuple[str, str]], *, width: int, indent: int = 0) -> None:
    """Print names and their meanings in two columns of at most `width` columns together. Long meanings wrap."""
    column = indent + max(len(name) for name, _ in entries) + 2
    for name, meaning in entries:
        start = f"{'':{indent}}{name}".ljust(column)
        for line in wrap(meaning, max(width - column, 20), break_on_hyphens=False):
            click.echo(f"{start}{line}")
            start = " " * column


def print_json(value: object) -> None:
    """Print a value as indented JSON, in ASCII: a prompt may contain text that the terminal's encoding cannot write."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))
