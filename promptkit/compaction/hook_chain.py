"""Several hooks as one: a program's own beside those that write checkpoints and memories into files."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from promptkit.compaction.hooks import Before, Hooks, guarded_after, guarded_before

if TYPE_CHECKING:
    from promptkit.compaction.plan import Plan
    from promptkit.transcript.entries import Entry

__all__ = ["HookChain"]


class HookChain(Hooks):
    """Asks each in order. One that raises is logged and passed over; the others are heard.

    The first that calls the compaction off ends the questions. Of several summaries the first counts; instructions are added up.
    """

    def __init__(self, *hooks: Hooks, logger: logging.Logger | None = None) -> None:
        self._hooks = hooks
        self._logger = logger or logging.getLogger("promptkit")

    async def before(self, plan: Plan, *, trigger: str, instructions: str | None) -> Before:
        """What all of them want."""
        summary = None
        added: list[str] = []
        for hooks in self._hooks:
            wanted = await guarded_before(hooks, plan, trigger=trigger, instructions=instructions, logger=self._logger)
            if wanted.cancel:
                return wanted
            summary = summary or wanted.summary
            added += wanted.instructions
        return Before(summary=summary, instructions=tuple(added))

    async def after(self, checkpoint: Entry) -> None:
        """Tell each."""
        for hooks in self._hooks:
            await guarded_after(hooks, checkpoint, logger=self._logger)
