"""What a program may do before and after a compaction: call it off, write the summary itself, add what the summary must heed.

Several hooks as one: a program's own beside those that write checkpoints and memories into files.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from promptkit.compaction.planning.plan import Plan, Summary
    from promptkit.transcript.entries import Entry

__all__ = ["CompactionHooks", "HookChain", "PreCompactResult", "guarded_after", "guarded_before"]


@attrs.frozen(kw_only=True)
class PreCompactResult:
    """What a hook wants before a compaction."""

    cancel: bool = False
    """Leave the conversation as it is."""
    summary: Summary | None = None
    """A summary of its own: no model is asked. One that is blank, too large or no smaller than what it stands for is not taken."""
    instructions: tuple[str, ...] = ()
    """What the summary must heed besides what the person asked."""


class CompactionHooks:
    """Does nothing: subclass it, and override what you need."""

    async def pre_compact(self, plan: Plan, *, trigger: str, instructions: str | None) -> PreCompactResult:
        """Called before a summary is made, in the foreground and in the background."""
        _ = plan, trigger, instructions
        return PreCompactResult()

    async def post_compact(self, checkpoint: Entry) -> None:
        """Called when the checkpoint stands in the transcript."""
        _ = checkpoint


async def guarded_before(
    hooks: CompactionHooks, plan: Plan, *, trigger: str, instructions: str | None, logger: logging.Logger
) -> PreCompactResult:
    """What the hook wants; nothing, where it raises: a hook cannot keep a conversation from being saved."""
    try:
        return await hooks.pre_compact(plan, trigger=trigger, instructions=instructions)
    except Exception:
        logger.exception("a hook raised before a compaction, which goes on without it")
        return PreCompactResult()


async def guarded_after(hooks: CompactionHooks, checkpoint: Entry, *, logger: logging.Logger) -> None:
    """Call the hook; what it raises is logged."""
    try:
        await hooks.post_compact(checkpoint)
    except Exception:
        logger.exception("a hook raised after a compaction, which stands")


class HookChain(CompactionHooks):
    """Asks each in order. One that raises is logged and passed over; the others are heard.

    The first that calls the compaction off ends the questions. Of several summaries the first counts; instructions are added up.
    """

    def __init__(self, *hooks: CompactionHooks, logger: logging.Logger | None = None) -> None:
        self._hooks = hooks
        self._logger = logger or logging.getLogger("promptkit")

    async def before(self, plan: Plan, *, trigger: str, instructions: str | None) -> PreCompactResult:
        """What all of them want."""
        summary = None
        added: list[str] = []
        for hooks in self._hooks:
            wanted = await guarded_before(hooks, plan, trigger=trigger, instructions=instructions, logger=self._logger)
            if wanted.cancel:
                return wanted
            summary = summary or wanted.summary
            added += wanted.instructions
        return PreCompactResult(summary=summary, instructions=tuple(added))

    async def after(self, checkpoint: Entry) -> None:
        """Tell each."""
        for hooks in self._hooks:
            await guarded_after(hooks, checkpoint, logger=self._logger)
