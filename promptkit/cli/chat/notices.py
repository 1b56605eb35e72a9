"""What happens to the window, as lines for a person."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from promptkit.compaction.events import (
    CompactionCancelled,
    CompactionCommitted,
    CompactionFailed,
    CompactionStarted,
    DecisionMade,
    SummaryDiscarded,
)

if TYPE_CHECKING:
    from promptkit.cli.chat.screen import Screen
    from promptkit.compaction.background import Background
    from promptkit.compaction.events import Event

__all__ = ["CompactionNotices"]

STYLE = "magenta"

WHERE = {"background": "beside the conversation", "manual": "as you asked", "foreground": "now, for it does not fit any more"}


class CompactionNotices:
    """Tells of summaries: begun, ready, in place, dropped. To be subscribed to a session's events; `watch` is told whose they are."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._background: Background | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = True

    def watch_background(self, background: Background) -> None:
        """The background whose summaries are waited for."""
        self._background = background

    def announce_ready(self) -> None:
        """Say once of each summary that it is ready."""
        if not self._ready and self._background is not None and self._background.state == "ready":
            self._ready = True
            self._note("the summary is ready; it takes its place when you go on")

    def __call__(self, event: Event) -> None:
        """Tell of an event."""
        match event:
            case CompactionStarted(trigger=trigger, messages=messages):
                self._note(f"a summary of {_messages(messages)} is being made, {WHERE.get(trigger, f'now ({trigger})')}")
                if trigger == "background":
                    self._wait_for_it()
            case CompactionCommitted(tokens_before=before, tokens_after=after, mode=mode):
                self._ready = True
                self._note(f"the summary ({mode}) is in place: {before:,} → {after:,} tokens (/undo)")
            case CompactionFailed(trigger="manual"):
                pass  # who asked for it is told anyway
            case CompactionFailed(detail=detail):
                self._note(f"no summary was made: {detail.removeprefix('no summary: ')}")
            case CompactionCancelled():
                self._note("the summary was called off")
            case SummaryDiscarded(reason=reason):
                self._note(f"the summary is dropped: {reason}")
            case DecisionMade(decision="RenderPruned", reason=reason):
                self._note(f"the oldest messages are left out of this request, see /receipt: {reason}")
            case _:
                pass

    def _wait_for_it(self) -> None:
        self._ready = False
        task = asyncio.get_running_loop().create_task(self._tell_later())
        self._tasks.add(task)  # the loop itself keeps no task alive
        task.add_done_callback(self._tasks.discard)

    async def _tell_later(self) -> None:
        if self._background is not None:
            await self._background.wait()
            self.announce_ready()

    def _note(self, text: str) -> None:
        self._screen.print_note(f"  ~ {text}", STYLE)


def _messages(number: int) -> str:
    return f"{number:,} message{'' if number == 1 else 's'}"
