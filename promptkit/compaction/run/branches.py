"""A conversation continues elsewhere, with a summary of what is left: on another branch, or in a new conversation with a goal."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.breadcrumb import strip_breadcrumb
from promptkit.compaction.planning.plan import LastRequest, Plan, Summary, SummaryTask
from promptkit.compaction.planning.selection import is_system
from promptkit.compaction.policy.decisions import WAIT_SECONDS
from promptkit.compaction.run.compactor import collect_facts
from promptkit.compaction.summarizers.defaults import UNLIMITED, SummarizerContext
from promptkit.compaction.summarizers.fallback import FallbackSummarizer, summarize_within_limits
from promptkit.compaction.summarizers.model_summarizers import InlineSummarizer, SimpleSummarizer
from promptkit.compaction.summarizers.summarizer import (
    HANDOFF_TEMPLATE,
    Summarizer,
    add_facts,
    check_length,
    redact_summary,
    redact_task,
)
from promptkit.errors import SummaryError, TranscriptConflictError, TranscriptError
from promptkit.messages import Message
from promptkit.rendering.expand.sizing import Sizer
from promptkit.tokens import HeuristicTokenizer
from promptkit.transcript import (
    BranchSummary,
    Checkpoint,
    CustomMessage,
    Entry,
    MessageEntry,
    Observation,
    Setting,
    Transcript,
    TranscriptView,
    ViewItem,
    build_summary_message,
    build_view,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.providers import Model
    from promptkit.tokens import Tokenizer
    from promptkit.transcript import Redactor, TranscriptStore

BRANCH_TOKENS = 2_048
"""Token limit of a branch's summary. Source: pi."""

PREFACE = "Another way was tried from here and then left. What was said and found there:\n\n"

HANDOFF = "handoff"
"""Name of the document's message in the new conversation, and of the observation in the old one."""

PARENT_SETTING = "parent"
"""Name of the setting that says which conversation a new one comes from."""


@attrs.frozen(kw_only=True)
class SummaryWriter:
    """Writes the summary of what a conversation leaves."""

    summarizer: Summarizer
    """An `InlineSummarizer` asks after the last request, which the prompt cache pays for."""
    max_tokens: int = BRANCH_TOKENS
    """Token limit of the summary."""
    last_request: LastRequest | None = None
    """The last request of the conversation."""
    redactor: Redactor | None = None
    """Removes secrets from what the summarizer gets and from its summary."""
    tokenizer: Tokenizer = attrs.field(factory=HeuristicTokenizer)
    """Counts what is left, and the summary, which must not be too short for it."""
    seconds: float | None = WAIT_SECONDS
    """The longest time that one summarizer may take; None: no limit."""

    async def write(self, task: SummaryTask) -> Summary:
        """Write the summary of a task, within these limits.

        Raises:
            SummaryError: No summary was made in time, or none that can stand for the messages that are left.
        """
        sizer, tokenizer = Sizer(self.tokenizer), self.tokenizer
        replaced = sum(sizer.count_message(item.message) for item in task.plan.dropped)
        check = partial(check_length, replaced=replaced, tokenizer=tokenizer)
        task = attrs.evolve(task, seconds=self.seconds, check=check)
        if self.redactor is not None:
            task = redact_task(task, self.redactor)
        summary = add_facts(await summarize_within_limits(self.summarizer, task), task)
        if self.redactor is not None:
            summary = redact_summary(summary, self.redactor)
        if not summary.text.strip():
            raise SummaryError(reason="empty", detail="the summary is blank.", usage=summary.usage)
        return summary


async def switch_branch(
    transcript: Transcript,
    to: str | None,
    *,
    writer: SummaryWriter | None,
    instructions: str | None = None,
) -> Entry:
    """Continue from another entry, with a summary of the branch that is left.

    Nothing is written before the summary is ready, so a cancelled call leaves the conversation
    where it was. An error leaves the leaf unchanged, too.

    Args:
        transcript: The conversation.
        to: Id of the entry to continue from. None: the beginning.
        writer: Writes the summary. None: nothing is summarized.
        instructions: What the user asks of the summary.

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
    items = build_branch_items(find_abandoned_entries(transcript, to))
    if leaf is None or writer is None or not items:
        return transcript.rewind(to)
    plan = Plan(leaf=leaf, dropped=items)
    summary = await writer.write(
        SummaryTask(
            plan=plan,
            max_tokens=writer.max_tokens,
            instructions=instructions,
            facts=collect_facts(transcript, plan),
        )
    )
    if transcript.leaf != leaf:
        raise TranscriptConflictError(leaf, find_abandoned_entries(transcript, leaf))
    return transcript.rewind(
        to, BranchSummary(summary=f"{PREFACE}{summary.text}", leaf=leaf, facts=summary.facts)
    )


async def handoff(
    transcript: Transcript,
    view: TranscriptView,
    goal: str,
    store: TranscriptStore,
    *,
    writer: SummaryWriter,
) -> Transcript:
    """Continue the work in a new conversation with a goal.

    The new conversation gets a link to the old one, the view's system messages, and the summary as
    a visible message. The old conversation gets a note.

    Args:
        transcript: The conversation to hand off.
        view: Its view.
        goal: What the new conversation is for.
        store: An empty store for the new conversation.
        writer: Writes the summary.

    Returns:
        The new conversation.

    Raises:
        TranscriptError: The store is not empty. Checked before any request.
        SummaryError: No summary was made in time, or none that can stand for the conversation.
        TranscriptConflictError: The conversation continued in the meantime.
    """
    new = Transcript(store)
    leaf, last = transcript.leaf, writer.last_request
    if new.leaf is not None:
        problem = "the store for the new conversation is not empty: pass an empty store."
        raise TranscriptError(problem)
    if leaf is None:
        raise SummaryError(reason="nothing", detail="the conversation has no messages to hand off.")
    pinned = tuple(item for item in view.items if is_system(item))
    rest = tuple(item for item in view.items if not is_system(item))
    summary = await writer.write(
        SummaryTask(
            plan=Plan(leaf=leaf, previous=view.summary, dropped=rest, pinned=pinned),
            max_tokens=writer.max_tokens,
            instructions=goal,
            last_request=last,
            tools=() if last is None else last.tools,
        )
    )
    if transcript.leaf != leaf:
        raise TranscriptConflictError(leaf, find_abandoned_entries(transcript, leaf))
    link = {"transcript": transcript.store.address, "leaf": leaf, "goal": goal}
    system = (MessageEntry(message=item.message) for item in pinned)
    message = Message(role="user", content=(summary.text,))
    new.append(
        Setting(name=PARENT_SETTING, value=link),
        *system,
        CustomMessage(name=HANDOFF, message=message),
        expect="",
    )
    transcript.append(Observation(name=HANDOFF, data={"transcript": store.address, "goal": goal}))
    return new


def make_handoff_summarizer(context: SummarizerContext, model: Model) -> Summarizer:
    """Make a summarizer that writes handoffs: after the last request, or of the conversation as text."""
    inline = InlineSummarizer(
        model=model, window=context.window, tokenizer=context.tokenizer, template=HANDOFF_TEMPLATE
    )
    simple = SimpleSummarizer(
        model=model,
        window=context.window or UNLIMITED,
        tokenizer=context.tokenizer,
        template=HANDOFF_TEMPLATE,
    )
    return FallbackSummarizer([inline, simple])


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
