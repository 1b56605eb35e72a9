"""Remove secrets from what summarizers read and write: plans, tasks and summaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.summarizers.facts import redact_facts
from promptkit.transcript import Redactor, redact_message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from promptkit.compaction.planning.plan import Plan, Summary, SummaryTask
    from promptkit.transcript import ViewItem


def redact_task(task: SummaryTask, redactor: Redactor) -> SummaryTask:
    """Remove secrets from a task: from its plan, its facts and the user's instructions.

    The last request is unchanged: the model has seen it, and the provider's prompt cache holds
    exactly these bytes.
    """
    return attrs.evolve(
        task,
        plan=_redact_whole_plan(task.plan, redactor),
        instructions=None if task.instructions is None else redactor(task.instructions),
        facts=redact_facts(task.facts, redactor),
        redactor=redactor,
    )


def redact_summary(summary: Summary, redactor: Redactor) -> Summary:
    """Remove secrets from a summary and its facts."""
    return attrs.evolve(
        summary, text=redactor(summary.text), facts=redact_facts(summary.facts, redactor)
    )


def redact_plan(plan: Plan, redactor: Redactor) -> Plan:
    """Remove secrets from the messages that a plan drops.

    A checkpoint may show some of them again next to the summary.
    """
    previous = None if plan.previous is None else redactor(plan.previous)
    return attrs.evolve(
        plan,
        previous=previous,
        dropped=_redact_items(plan.dropped, redactor),
        prefix=_redact_items(plan.prefix, redactor),
    )


def _redact_whole_plan(plan: Plan, redactor: Redactor) -> Plan:
    kept, pinned, replayed = (
        _redact_items(items, redactor) for items in (plan.kept, plan.pinned, plan.replayed)
    )
    return attrs.evolve(redact_plan(plan, redactor), kept=kept, pinned=pinned, replayed=replayed)


def _redact_items(items: Iterable[ViewItem], redactor: Redactor) -> tuple[ViewItem, ...]:
    return tuple(
        attrs.evolve(
            item,
            message=redact_message(item.message, redactor),
            recorded=None if item.recorded is None else redact_message(item.recorded, redactor),
            unpruned=None if item.unpruned is None else redact_message(item.unpruned, redactor),
        )
        for item in items
    )
