"""Going to another place in a transcript without forgetting what was tried: the branch that is left is summarized where one goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.compactor import collect_facts, redact_summary, redact_task
from promptkit.compaction.planning.plan import Plan, SummaryTask
from promptkit.compaction.summarizers.breadcrumb import strip_breadcrumb
from promptkit.errors import SummaryError, TranscriptConflictError
from promptkit.transcript.entries import BranchSummary, Checkpoint, CustomMessage
from promptkit.transcript.view import build_view, build_summary_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.transcript.entries import Entry
    from promptkit.transcript.redaction import Redactor
    from promptkit.transcript.transcript import Transcript
    from promptkit.transcript.view import ViewItem

__all__ = ["build_branch_items", "find_abandoned_entries", "switch_branch"]

BRANCH_TOKENS = 2_048
"""The most that the summary of a branch has. (pi.)"""

PREFACE = "Another way was tried from here and then left. What was said and found there:\n\n"


def find_abandoned_entries(transcript: Transcript, to: str | None) -> tuple[Entry, ...]:
    """The entries that would be left by going to an entry: from behind the deepest one that both paths share to the leaf."""
    leaf = transcript.leaf
    if leaf is None:
        return ()
    return transcript.path(leaf) if to is None else transcript.branch_entries(leaf, to)


def build_branch_items(entries: Sequence[Entry]) -> tuple[ViewItem, ...]:
    """What was said on a branch, checkpoints and earlier branches as their summaries: a checkpoint hides nothing here.

    Edits hold: what was redacted or taken back is not told. Behind a reset nothing before it is.
    """
    return build_view(list(map(_plain, entries))).items


async def switch_branch(  # noqa: PLR0913  # what can be said of it
    transcript: Transcript,
    to: str | None,
    *,
    summarizer: Summarizer | None,
    max_tokens: int = BRANCH_TOKENS,
    instructions: str | None = None,
    preface: str = PREFACE,
    redactor: Redactor | None = None,
) -> Entry:
    """Go on from another entry, with a summary of what is left: a BranchSummary behind that entry. The last entry written is returned.

    Without a summarizer, or where nothing was said on the branch, nothing is summarized. Until the summary is there nothing is
    written: who cancels it stays where the conversation was. Raises SummaryError where there is no summary to be had, TranscriptError
    for an unknown entry, TranscriptConflictError if the conversation went on meanwhile; the leaf is as it was then.
    """
    leaf = transcript.leaf
    if to is not None:
        transcript.get(to)
    entries = find_abandoned_entries(transcript, to)
    items = build_branch_items(entries)
    if leaf is None or summarizer is None or not items:
        return transcript.rewind(to)
    plan = Plan(leaf=leaf, dropped=items)
    task = SummaryTask(plan=plan, max_tokens=max_tokens, instructions=instructions, facts=collect_facts(transcript, plan))
    summary = await summarizer.summarize(task if redactor is None else redact_task(task, redactor))
    if redactor is not None:
        summary = redact_summary(summary, redactor)
    if not summary.text.strip():
        raise SummaryError(reason="empty", detail="the summary of the branch is blank.", usage=summary.usage)
    if transcript.leaf != leaf:
        raise TranscriptConflictError(leaf, find_abandoned_entries(transcript, leaf))
    return transcript.rewind(to, BranchSummary(summary=f"{preface}{summary.text}", leaf=leaf, facts=summary.facts))


def _plain(entry: Entry) -> Entry:
    """An entry as it is told on a branch that was left."""
    if not isinstance(entry.payload, Checkpoint):
        return entry
    message = build_summary_message(strip_breadcrumb(entry.payload.summary))
    return attrs.evolve(entry, payload=CustomMessage(name="checkpoint", message=message))
