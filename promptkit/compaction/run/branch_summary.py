"""Switching to another branch of a transcript, with a summary of the branch that is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.breadcrumb import strip_breadcrumb
from promptkit.compaction.planning.plan import Plan, SummaryTask
from promptkit.compaction.policy.decisions import WAIT_SECONDS
from promptkit.compaction.run.compactor import collect_facts
from promptkit.compaction.run.redaction import redact_summary, redact_task
from promptkit.compaction.summarizers.fallback import summarize_within_limits
from promptkit.compaction.summarizers.sections import check_length
from promptkit.compaction.summarizers.summarizer import add_facts
from promptkit.errors import SummaryError, TranscriptConflictError
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens.estimates import HeuristicTokenizer
from promptkit.transcript.log.entries import BranchSummary, Checkpoint, CustomMessage
from promptkit.transcript.log.view import build_summary_message, build_view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.log.entries import Entry
    from promptkit.transcript.log.redaction import Redactor
    from promptkit.transcript.log.transcript import Transcript
    from promptkit.transcript.log.view import ViewItem

BRANCH_TOKENS = 2_048
"""Default token limit of a branch's summary. Source: pi."""


PREFACE = "Another way was tried from here and then left. What was said and found there:\n\n"


async def switch_branch(  # noqa: PLR0913  # keywords
    transcript: Transcript,
    to: str | None,
    *,
    summarizer: Summarizer | None,
    max_tokens: int = BRANCH_TOKENS,
    instructions: str | None = None,
    preface: str = PREFACE,
    redactor: Redactor | None = None,
    tokenizer: Tokenizer | None = None,
    seconds: float | None = WAIT_SECONDS,
) -> Entry:
    """Continue from another entry, with a summary of the branch that is left.

    Nothing is written before the summary is ready, so a cancelled call leaves the conversation
    where it was. An error leaves the leaf unchanged, too.

    Args:
        transcript: The conversation.
        to: Id of the entry to continue from. None: the beginning.
        summarizer: Writes the summary. None: nothing is summarized.
        max_tokens: Token limit of the summary. Default: 2,048.
        instructions: What the user asks of the summary.
        preface: Text before the summary.
        redactor: Removes secrets from what the summarizer gets and from its summary.
        tokenizer: Counts the branch and the summary, which must not be too short for it. None: the
            tokens are estimated.
        seconds: The longest time that one summarizer may take; None: no limit.

    Returns:
        The last entry that was written: a BranchSummary after the target entry, or a mere rewind if
        the branch has no messages.

    Raises:
        SummaryError: No summary was made in time, or none that can stand for the branch.
        TranscriptError: The entry is unknown.
        TranscriptConflictError: The conversation continued in the meantime.
    """
    leaf = transcript.leaf
    if to is not None:
        transcript.get(to)
    entries = find_abandoned_entries(transcript, to)
    items = build_branch_items(entries)
    if leaf is None or summarizer is None or not items:
        return transcript.rewind(to)
    plan = Plan(leaf=leaf, dropped=items)
    counting = tokenizer or HeuristicTokenizer()
    replaced = sum(map(Sizer(counting).count_message, (item.message for item in items)))
    task = SummaryTask(
        plan=plan,
        max_tokens=max_tokens,
        instructions=instructions,
        facts=collect_facts(transcript, plan),
        seconds=seconds,
        check=lambda summary: check_length(summary, replaced=replaced, tokenizer=counting),
    )
    if redactor is not None:
        task = redact_task(task, redactor)
    summary = add_facts(await summarize_within_limits(summarizer, task), task)
    if redactor is not None:
        summary = redact_summary(summary, redactor)
    if not summary.text.strip():
        raise SummaryError(
            reason="empty", detail="the summary of the branch is blank.", usage=summary.usage
        )
    if transcript.leaf != leaf:
        raise TranscriptConflictError(leaf, find_abandoned_entries(transcript, leaf))
    return transcript.rewind(
        to, BranchSummary(summary=f"{preface}{summary.text}", leaf=leaf, facts=summary.facts)
    )


def find_abandoned_entries(transcript: Transcript, to: str | None) -> Sequence[Entry]:
    """Return the entries that the conversation leaves when it moves to another entry.

    These are the entries after the last one that both paths share, up to the leaf.
    """
    leaf = transcript.leaf
    if leaf is None:
        return ()
    return transcript.path(leaf) if to is None else transcript.branch_entries(leaf, to)


def build_branch_items(entries: Sequence[Entry]) -> tuple[ViewItem, ...]:
    """Return the messages of a branch, with checkpoints and earlier branches as their summaries.

    A checkpoint hides nothing here. Edits apply: redacted and undone messages are omitted. A reset
    hides everything before it.
    """
    return build_view(list(map(_expand_checkpoint, entries))).items


def _expand_checkpoint(entry: Entry) -> Entry:
    """Replace a checkpoint by a message with its summary, so that it hides nothing."""
    if not isinstance(entry.payload, Checkpoint):
        return entry
    message = build_summary_message(strip_breadcrumb(entry.payload.summary))
    return attrs.evolve(entry, payload=CustomMessage(name="checkpoint", message=message))
