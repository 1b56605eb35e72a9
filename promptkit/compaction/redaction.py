"""A compaction without secrets: in what a summarizer is given, and in what it gave."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.facts import without_secrets
from promptkit.transcript.redaction import redacted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from promptkit.compaction.plan import Plan, Summary, SummaryTask
    from promptkit.transcript.redaction import Redactor
    from promptkit.transcript.view import Projected

__all__ = ["redacted_cover", "redacted_summary", "redacted_task"]


def redacted_task(task: SummaryTask, redactor: Redactor) -> SummaryTask:
    """The task without secrets: its plan, its facts, what the person wants.

    The last request stays as it was sent: the model has seen it, and the provider's prompt cache knows these bytes alone.
    """
    return attrs.evolve(
        task,
        plan=_plan(task.plan, redactor),
        instructions=None if task.instructions is None else redactor(task.instructions),
        facts=without_secrets(task.facts, redactor),
        redactor=redactor,
    )


def redacted_summary(summary: Summary, redactor: Redactor) -> Summary:
    """The summary without secrets, in its facts, too."""
    return attrs.evolve(summary, text=redactor(summary.text), facts=without_secrets(summary.facts, redactor))


def redacted_cover(plan: Plan, redactor: Redactor) -> Plan:
    """The plan without secrets in what the summary stands for: a checkpoint may show some of it again beside the summary."""
    previous = None if plan.previous is None else redactor(plan.previous)
    return attrs.evolve(plan, previous=previous, dropped=_clean(plan.dropped, redactor), prefix=_clean(plan.prefix, redactor))


def _plan(plan: Plan, redactor: Redactor) -> Plan:
    kept, pinned, replayed = (_clean(items, redactor) for items in (plan.kept, plan.pinned, plan.replayed))
    return attrs.evolve(redacted_cover(plan, redactor), kept=kept, pinned=pinned, replayed=replayed)


def _clean(items: Iterable[Projected], redactor: Redactor) -> tuple[Projected, ...]:
    return tuple(attrs.evolve(item, message=redacted(item.message, redactor)) for item in items)
