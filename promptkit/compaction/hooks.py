"""What a program may do before and after a compaction: call it off, write the summary itself, add what the summary must heed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from promptkit.compaction.plan import Plan, Summary
    from promptkit.transcript.entries import Entry

__all__ = ["Before", "Hooks", "guarded_after", "guarded_before"]


@attrs.frozen(kw_only=True)
class Before:
    """What a hook wants before a compaction."""

    cancel: bool = False
    """Leave the conversation as it is."""
    summary: Summary | None = None
    """A summary of its own: no model is asked. One that is blank, too large or no smaller than what it stands for is not taken."""
    instructions: tuple[str, ...] = ()
    """What the summary must heed besides what the person asked."""


class Hooks:
    """Does nothing: subclass it, and override what you need."""

    async def before(self, plan: Plan, *, trigger: str, instructions: str | None) -> Before:
        """Called before a summary is made, in the foreground and in the background."""
        _ = plan, trigger, instructions
        return Before()

    async def after(self, checkpoint: Entry) -> None:
        """Called when the checkpoint stands in the transcript."""
        _ = checkpoint


async def guarded_before(hooks: Hooks, plan: Plan, *, trigger: str, instructions: str | None, logger: logging.Logger) -> Before:
    """What the hook wants; nothing, where it raises: a hook cannot keep a conversation from being saved."""
    try:
        return await hooks.before(plan, trigger=trigger, instructions=instructions)
    except Exception:
        logger.exception("a hook raised before a compaction, which goes on without it")
        return Before()


async def guarded_after(hooks: Hooks, checkpoint: Entry, *, logger: logging.Logger) -> None:
    """Call the hook; what it raises is logged."""
    try:
        await hooks.after(checkpoint)
    except Exception:
        logger.exception("a hook raised after a compaction, which stands")
