"""What `promptkit chat` shows: the model's text as it comes, and lines about what happens beside it."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from promptkit.cli.output.terminal import escape_control_chars

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["PROMPT", "Screen"]

PROMPT = "> "

BAR = 20
"""Characters."""


class Screen:
    """Writes to stdout, from any thread. Nothing that it is given can control the terminal.

    On a terminal the text is wrapped between words. `typing`: a person types at a prompt; what is told meanwhile is written above it,
    or after the line where it has been begun.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(highlight=False)
        self._quiet = quiet
        self._lock = threading.RLock()
        self._waiting: list[Text] = []
        self._typing = False
        self._word = ""
        self._column = 0
        self._wraps = self.console.is_terminal

    @property
    def is_interactive(self) -> bool:
        """Whether a person sits at both ends."""
        return sys.stdin is not None and sys.stdin.isatty() and self.console.is_terminal

    @contextlib.contextmanager
    def typing(self) -> Generator[None]:
        """While the block runs, a prompt stands on the screen."""
        self._set(typing=True)
        try:
            yield
        finally:
            self._set(typing=False)

    def write_text(self, piece: str) -> None:
        """A piece of the model's text."""
        with self._lock:
            for part in re.findall(r"\n|[^\S\n]+|\S+", escape_control_chars(piece)):
                self._take(part)
            self.console.file.flush()

    def end_text(self) -> None:
        """The text is at its end."""
        with self._lock:
            self._put_word()
            if self._column:
                self._newline()
            self._flush()

    def print_line(self, text: str, style: str = "") -> None:
        """A line of the program's own. It waits while the model is in the middle of one."""
        shown = Text(escape_control_chars(text), style=style)
        with self._lock:
            self._waiting.append(shown)
            if not self._column and not self._word:
                self._flush()

    def print_note(self, text: str, style: str = "bright_black") -> None:
        """A line about what goes on, which is left out where only the answers are wanted."""
        if not self._quiet:
            self.print_line(text, style)

    def print_meter(self, tokens: int, base: int | None, rest: str) -> None:
        """How full the window is: a bar, the figures, and what else is known."""
        if self._quiet:
            return
        if base is None:
            self.print_note(f"context {tokens:,} tokens of an unknown window{rest}")
            return
        full, empty = "█░" if self.console.encoding.startswith("utf") else "#."
        share = tokens / base
        filled = min(BAR, round(BAR * share))
        style = "green" if share < 0.65 else "yellow" if share < 0.9 else "red"  # noqa: PLR2004  # where a summary is of use, and needed
        line = Text.assemble(
            ("context ", "bright_black"),
            (full * filled, style),
            (empty * (BAR - filled), "bright_black"),
            (f" {tokens:,} of {base:,} tokens{rest}", "bright_black"),
        )
        with self._lock:
            self._waiting.append(line)
            self._flush()

    def _set(self, *, typing: bool) -> None:
        with self._lock:
            self._typing = typing
            if not typing:
                self._flush()

    def _take(self, part: str) -> None:
        if part == "\n":
            self._put_word()
            self._newline()
            self._flush()
        elif part.isspace():
            self._put_word()
            self._write(part.expandtabs(4))
        elif self._wraps:
            self._word += part
        else:
            self._write(part)

    def _put_word(self) -> None:
        word, self._word = self._word, ""
        if word and self._column and self._column + cell_len(word) >= self.console.width:
            self._newline()
        self._write(word)

    def _write(self, text: str) -> None:
        self.console.file.write(text)
        self._column += cell_len(text)

    def _newline(self) -> None:
        self.console.file.write("\n")
        self._column = 0

    def _flush(self) -> None:
        if not self._waiting or (self._typing and _line_begun()):
            return
        if self._typing:
            self.console.file.write("\r\x1b[K")
        for line in self._waiting:
            self.console.print(line, soft_wrap=not self._wraps)
        self._waiting.clear()
        if self._typing:
            self.console.file.write(PROMPT)
        self.console.file.flush()


def _line_begun() -> bool:
    """Whether the person has typed something that a new line above the prompt would tear apart."""
    readline = sys.modules.get("readline")
    return readline is None or bool(readline.get_line_buffer())
