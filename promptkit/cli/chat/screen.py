"""The output of `promptkit chat`: the model's text as it is streamed, and notes between its lines, such as what happens to the context window."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import threading
from collections.abc import Generator

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from promptkit.cli.output.terminal import count_nouns, draw_bar, escape_control_chars
from promptkit.compaction import Event
from promptkit.compaction.run.background import Background
from promptkit.compaction.run.events import (
    CompactionCancelled,
    CompactionCommitted,
    CompactionFailed,
    CompactionStarted,
    DecisionMade,
    SummaryDiscarded,
)

PROMPT = "> "

STARTED, NEEDED = 0.65, 0.9
"""Shares of the context window at about which a summary is started, and is needed."""

BAR = 20
"""Columns of the bar that shows how full the context window is."""


class Screen:
    """Writes to stdout, from any thread. Control characters are escaped.

    On a terminal, text is wrapped between words. While the user types at the prompt (`typing`),
    notes are written above the prompt, or after the line if the user has started one.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(highlight=False)
        self._quiet = quiet
        self._lock = threading.RLock()
        self._waiting: list[Text] = []
        self._typing = False
        self._word = ""
        self._column = 0

    @property
    def is_interactive(self) -> bool:
        """Whether stdin and stdout are both terminals."""
        return sys.stdin is not None and sys.stdin.isatty() and self.console.is_terminal

    @contextlib.contextmanager
    def typing(self) -> Generator[None]:
        """Tell the screen that a prompt is shown while the block runs."""
        self._typing = True
        try:
            yield
        finally:
            with self._lock:
                self._typing = False
                self._flush()

    def write_text(self, piece: str) -> None:
        """Write a part of the model's text."""
        with self._lock:
            for part in re.findall(r"\n|[^\S\n]+|\S+", escape_control_chars(piece)):
                self._take(part)
            self.console.file.flush()

    def end_text(self) -> None:
        """End the model's text, and write the notes that were waiting."""
        with self._lock:
            self._put_word()
            if self._column:
                self._newline()
            self._flush()

    def print_line(self, text: str | Text, style: str = "") -> None:
        """Print a line that is not the model's, as it is if it has colours already.

        Waits until the current line of the model ends.
        """
        shown = text if isinstance(text, Text) else Text(escape_control_chars(text), style=style)
        with self._lock:
            self._waiting.append(shown)
            if not self._column and not self._word:
                self._flush()

    def print_note(self, text: str, style: str = "bright_black") -> None:
        """Print a note about what happens. Prints nothing with `quiet`."""
        if not self._quiet:
            self.print_line(text, style)

    def print_meter(self, tokens: int, base: int | None, rest: str) -> None:
        """Print how full the context window is.

        Args:
            tokens: Tokens of the conversation.
            base: Tokens that it may have. None: unknown.
            rest: Text to add at the end of the line.
        """
        if self._quiet or base is None:
            self.print_note(f"context {tokens:,} tokens, window unknown{rest}")
            return
        share = tokens / base
        style = "green" if share < STARTED else "yellow" if share < NEEDED else "red"
        self.print_line(
            Text.assemble(
                ("context ", "bright_black"),
                draw_bar(self.console, share, BAR, style),
                (f" {tokens:,} of {base:,} tokens{rest}", "bright_black"),
            )
        )

    def _take(self, part: str) -> None:
        if part == "\n":
            self._put_word()
            self._newline()
            self._flush()
        elif part.isspace():
            self._put_word()
            self._write(part.expandtabs(4))
        elif self.console.is_terminal:
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
            self.console.print(line, soft_wrap=not self.console.is_terminal)
        self._waiting.clear()
        if self._typing:
            self.console.file.write(PROMPT)
        self.console.file.flush()


def _line_begun() -> bool:
    """Return True if the user has started a line, which a note above the prompt would split."""
    readline = sys.modules.get("readline")
    return readline is None or bool(readline.get_line_buffer())


TRIGGERS = {
    "background": "in the background",
    "manual": "as you asked",
    "foreground": "now, because the request does not fit",
    "branch": "before they are left",
    "handoff": "for a new conversation",
}


class CompactionNotices:
    """An event subscriber that prints a line for each step of a compaction.

    Set `background` to that of the session before the first turn, so that a summary is announced
    when it is ready.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.background: Background | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready = True

    def announce_ready(self) -> None:
        """Announce a background summary that is ready, once."""
        if not self._ready and self.background is not None and self.background.state == "ready":
            self._ready = True
            self._note("the summary is ready and will be used in the next request")

    def __call__(self, event: Event) -> None:
        """Print an event."""
        match event:
            case CompactionStarted(trigger=trigger, messages=messages):
                self._note(
                    f"summarizing {count_nouns(messages, 'message')}, {TRIGGERS.get(trigger, f'now ({trigger})')}"
                )
                if trigger == "background":
                    self._ready = False
                    # the event loop keeps only weak references to tasks
                    self._task = asyncio.get_running_loop().create_task(self._tell_later())
            case CompactionCommitted(trigger="branch" | "handoff", mode=mode):
                self._note(f"summary written ({mode})")
            case CompactionCommitted(tokens_before=before, tokens_after=after, mode=mode):
                self._ready = True
                self._note(
                    f"summary applied ({mode}): {before:,} → {after:,} tokens; /undo reverts it"
                )
            case CompactionFailed(trigger="manual" | "branch"):
                pass  # the command reports the error
            case CompactionFailed(detail=detail):
                self._note(f"no summary was made: {detail.removeprefix('no summary: ')}")
            case CompactionCancelled():
                self._note("the summary was cancelled")
            case SummaryDiscarded(reason=reason):
                self._note(f"the summary was discarded: {reason}")
            case DecisionMade(decision="RenderPruned", reason=reason):
                self._note(
                    f"the oldest messages were removed from this request (/receipt lists them): {reason}"
                )
            case _:
                pass

    async def _tell_later(self) -> None:
        if self.background is not None:
            await self.background.wait()
            self.announce_ready()

    def _note(self, text: str) -> None:
        self._screen.print_note(f"  ~ {text}", "magenta")
