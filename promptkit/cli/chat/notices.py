"""Print what happens to the context window: summaries that are started, ready, applied, discarded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from promptkit.compaction.run.events import (
    CompactionCancelled,
    CompactionCommitted,
    CompactionFailed,
    CompactionStarted,
    DecisionMade,
    SummaryDiscarded,
)

if TYPE_CHECKING:
    from promptkit.cli.chat.screen import Screen
    from promptkit.compaction.run.background import Background
    from promptkit.compaction.run.events import Event

STYLE = "magenta"

TRIGGERS = {
    "background": "in the background",
    "manual": "as you asked",
    "foreground": "now, because the request does not fit",
}


class CompactionNotices:
    """An event subscriber that prints a line for each step of a compaction.

    Call `watch_background` with the session's background before the first turn, so that a summary
    is announced when it is ready.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._background: Background | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = True

    def watch_background(self, background: Background) -> None:
        """Set the background whose summaries are announced when they are ready."""
        self._background = background

    def announce_ready(self) -> None:
        """Announce a background summary that is ready, once."""
        if not self._ready and self._background is not None and self._background.state == "ready":
            self._ready = True
            self._note("the summary is ready and will be used in the next request")

    def __call__(self, event: Event) -> None:
        """Print an event."""
        match event:
            case CompactionStarted(trigger=trigger, messages=messages):
                self._note(
                    f"summarizing {_messages(messages)}, {TRIGGERS.get(trigger, f'now ({trigger})')}"
                )
                if trigger == "background":
                    self._wait_for_it()
            case CompactionCommitted(tokens_before=before, tokens_after=after, mode=mode):
                self._ready = True
                self._note(
                    f"summary applied ({mode}): {before:,} → {after:,} tokens; /undo reverts it"
                )
            case CompactionFailed(trigger="manual"):
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

    def _wait_for_it(self) -> None:
        self._ready = False
        task = asyncio.get_running_loop().create_task(self._tell_later())
        self._tasks.add(task)  # the event loop keeps only weak references to tasks
        task.add_done_callback(self._tasks.discard)

    async def _tell_later(self) -> None:
        if self._background is not None:
            await self._background.wait()
            self.announce_ready()

    def _note(self, text: str) -> None:
        self._screen.print_note(f"  ~ {text}", STYLE)


def _messages(number: int) -> str:
    return f"{number:,} message{'' if number == 1 else 's'}"
