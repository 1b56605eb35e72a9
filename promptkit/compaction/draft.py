"""A summary that is made and not yet committed, and the checkpoint that it becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.transcript.entries import Checkpoint
from promptkit.transcript.view import summary_message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptkit.compaction.plan import Plan, Summary
    from promptkit.compaction.replacement import Replaced
    from promptkit.messages import Message
    from promptkit.transcript.view import Projected

__all__ = ["Draft", "checkpoint_of"]


@attrs.frozen(kw_only=True)
class Draft:
    """A summary that is made and not yet committed."""

    number: int
    """Of the compaction, as in its events."""
    plan: Plan
    summary: Summary
    """Its text is baked: the breadcrumb is in it."""
    trigger: str
    instructions: str | None
    since: float
    """When it was begun, by the compactor's clock."""


def checkpoint_of(draft: Draft, items: Sequence[Projected], *, replaced: Replaced, count: Callable[[Message], int]) -> Checkpoint:
    """What is written for a draft. `items` are the view now: that of the plan, and what came since, which is kept."""
    plan = draft.plan
    planned = sum(map(len, (plan.dropped, plan.prefix, plan.kept, plan.pinned, plan.replayed)))
    kept = items[planned - len(plan.kept) :]  # an earlier checkpoint's messages come first in a view, and are never among these
    opening = replaced.messages
    plain = opening == (summary_message(draft.summary.text),)
    return Checkpoint(
        summary=draft.summary.text,
        first_kept=kept[0].entry if kept else None,
        replacement=None if plain else opening,
        own=() if plain else replaced.own,
        portable=replaced.portable,
        trigger=draft.trigger,
        instructions=draft.instructions,
        model=draft.summary.model,
        usage=draft.summary.usage,
        facts=draft.summary.facts,
        tokens_before=sum(count(item.message) for item in items),
        tokens_after=sum(map(count, opening)) + sum(count(item.message) for item in kept),
    )
