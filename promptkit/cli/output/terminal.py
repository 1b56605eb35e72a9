"""Text that a terminal may print: what would move its cursor, recolour it or turn the direction of writing is spelled out.

A sign of life for a person who waits; nothing for a pipe or a log.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["clip", "escape_control_chars", "show_spinner"]


# Control characters but tab and line feed; line and paragraph separators; what overrides or isolates the direction of writing;
# half surrogate pairs, which no encoding can write.
DANGEROUS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_control_chars(text: str) -> str:
    r"""The text, with `\x1b` for an escape character and so on.

    >>> escape_control_chars("red: \x1b[31m")
    'red: \\x1b[31m'
    """
    return DANGEROUS.sub(_spelled, text)


def clip(text: str, width: int) -> str:
    """The beginning of a text that takes at most `width` columns, marked where it is cut."""
    from rich.cells import cell_len, set_cell_size

    text = text[: width + 1]  # no character takes less than a column but those that are drawn over another
    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1).rstrip()}…"


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004  # one byte


@contextmanager
def show_spinner(on: str) -> Generator[None]:
    """Show `on` beside a spinner while the block runs, on stderr and only if it is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(on)):
        yield
