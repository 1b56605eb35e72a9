"""A conversation continues elsewhere, with a summary of what is left: on another branch, or in a new conversation with a goal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

import attrs

from promptkit.compaction.planning.breadcrumb import strip_breadcrumb
from promptkit.compaction.planning.plan import LastRequest, Plan, Summary, SummaryTask
from promptkit.compaction.planning.selection import is_system
from promptkit.compaction.policy.state import HANDOFF, WAIT_SECONDS
from promptkit.compaction.policy.usage import UsageByPart, count_parts, find_summary_ids
from promptkit.compaction.run.compactor import attach_data, collect_facts
from promptkit.compaction.run.events import CompactionCommitted, Events, get_conversation_id
from promptkit.compaction.run.hooks import CompactionHooks, run_pre_branch
from promptkit.compaction.run.progress import SummaryProgress
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
from promptkit.messages import Message, ToolDefinition
from promptkit.providers import Model
from promptkit.rendering.expand.sizing import Sizer
from promptkit.sizes import read_tokens
from promptkit.tokens import HeuristicTokenizer, Tokenizer
from promptkit.transcript import (
    BranchSummary,
    Checkpoint,
    CustomMessage,
    Entry,
    MessageEntry,
    Observation,
    Redactor,
    Setting,
    Transcript,
    TranscriptStore,
    TranscriptView,
    ViewItem,
    build_summary_message,
    build_view,
)

_LOGGER = logging.getLogger("promptkit")

BRANCH_TOKENS = 2_048
"""Token limit of a branch's summary. Source: pi."""

PREFACE = "Another way was tried from here and then left. What was said and found there:\n\n"

BRANCH = "branch"
"""The trigger of a branch's summary."""

PARENT_SETTING = "parent"
"""Name of the setting that says which conversation a new one comes from."""


@attrs.frozen(kw_only=True)
class SummaryWriter:
    """Writes the summary of what a conversation leaves, and reports it as events."""

    summarizer: Summarizer
    """An `InlineSummarizer` asks after the last request, which the prompt cache pays for."""
    max_tokens: int = attrs.field(default=BRANCH_TOKENS, converter=read_tokens)
    """Token limit of the summary."""
    last_request: LastRequest | None = None
    """The last request of the conversation."""
    tools: Sequence[ToolDefinition] = ()
    """The tools of the conversation. Some providers refuse tool calls in a request without them."""
    redactor: Redactor | None = None
    """Removes secrets from what the summarizer gets and from its summary."""
    tokenizer: Tokenizer = attrs.field(factory=HeuristicTokenizer)
    """Counts what is left, and the summary, which must not be too short for it."""
    seconds: float | None = WAIT_SECONDS
    """The longest time that one summarizer may take; None: no limit."""
    events: Events = attrs.field(factory=Events)
    """Receive the start and the end of the summary, its failed attempts and its requests."""
    count_request: Callable[[Transcript], UsageByPart] = attrs.field(
        default=attrs.Factory(lambda self: partial(_count_view, self.tokenizer), takes_self=True)
    )
    """Counts by part what the next request of a conversation takes, for the events."""

    def start(
        self, trigger: str, transcript: Transcript, plan: Plan, before: UsageByPart
    ) -> SummaryProgress:
        """Report that a summary is started, and the size of the next request before it."""
        progress = SummaryProgress(
            events=self.events, trigger=trigger, conversation=get_conversation_id(transcript)
        )
        progress.report_start(plan, before)
        return progress

    async def write(
        self, task: SummaryTask, progress: SummaryProgress, *, given: Summary | None = None
    ) -> Summary:
        """Write the summary of a task, within these limits.

        A summary that a hook has `given` is taken if it passes the same checks.

        Raises:
            SummaryError: No summary was made in time, or none that can stand for the messages that
                are left.
        """
        count = Sizer(self.tokenizer).count_message
        check = partial(
            check_length,
            replaced=sum(count(item.message) for item in task.plan.dropped),
            tokenizer=self.tokenizer,
        )
        task = redact_task(
            attrs.evolve(
                task,
                tools=self.tools,
                seconds=self.seconds,
                check=check,
                require_model=True,
                report=progress.report_attempt,
                observe=partial(progress.observe, compacted=task.plan.previous is not None),
            ),
            self.redactor,
        )
        if given is not None:
            given = attrs.evolve(given, author="hook")
            try:
                check(given)
                return self._finish(given, task)
            except SummaryError as error:
                _LOGGER.warning("a hook's summary is rejected, and another one is made: %s", error)
        return self._finish(await summarize_within_limits(self.summarizer, task), task)

    def report_commit(
        self,
        progress: SummaryProgress,
        summary: Summary,
        entry: Entry,
        sizes: Sequence[UsageByPart],
    ) -> None:
        """Report the entry that holds the summary, with the sizes of the next request before and after it."""
        before, after = sizes
        self.events.emit(
            CompactionCommitted(
                number=progress.number,
                trigger=progress.trigger,
                checkpoint=entry.id,
                mode=summary.mode,
                tokens_before=before.conversation,
                tokens_after=after.conversation,
                seconds=progress.seconds,
                before=before,
                after=after,
                model=summary.model,
                author=summary.author,
                usage=summary.usage,
                request_id=summary.request_id,
                summary=summary.text,
            )
        )

    def _finish(self, summary: Summary, task: SummaryTask) -> Summary:
        """Return the summary with the facts of what is left, and without secrets."""
        summary = redact_summary(add_facts(summary, task), self.redactor)
        if not summary.text.strip():
            raise SummaryError(reason="empty", detail="the summary is blank.", usage=summary.usage)
        return summary


def _count_view(tokenizer: Tokenizer, transcript: Transcript) -> UsageByPart:
    view = build_view(transcript.path())
    return count_parts(view.messages, find_summary_ids(view.items), Sizer(tokenizer).count_message)


async def switch_branch(  # keywords
    transcript: Transcript,
    to: str | None,
    *,
    writer: SummaryWriter | None,
    instructions: str | None = None,
    hooks: CompactionHooks | None = None,
) -> Entry | None:
    """Continue from another entry, with a summary of the branch that is left.

    Nothing is written before the summary is ready, so a cancelled call leaves the conversation
    where it was. An error leaves the leaf unchanged, too.

    Args:
        transcript: The conversation.
        to: Id of the entry to continue from. None: the beginning.
        writer: Writes the summary. None: nothing is summarized.
        instructions: What the user asks of the summary.
        hooks: Asked before the conversation leaves the branch.

    Returns:
        The last entry that was written: a BranchSummary after the target entry, or a mere rewind if
        the branch has no messages. None if a hook cancelled the switch.

    Raises:
        SummaryError: No summary was made in time, or none that can stand for the branch. Where a
            summarizer can ask a model, no summary is extracted without one.
        TranscriptError: The entry is unknown.
        TranscriptConflictError: The conversation continued in the meantime.
    """
    leaf = transcript.leaf
    if to is not None:
        transcript.get(to)
    plan = Plan(leaf=leaf or "", dropped=build_branch_items(find_abandoned_entries(transcript, to)))
    if leaf is None or writer is None or plan.is_empty:
        asked = await run_pre_branch(hooks, plan, to=to, instructions=instructions)
        return None if asked.cancel else transcript.rewind(to)
    before = writer.count_request(transcript)
    progress = writer.start(BRANCH, transcript, plan, before)
    with progress.reporting_errors():
        asked = await run_pre_branch(hooks, plan, to=to, instructions=instructions)
        if asked.cancel:
            progress.report_cancellation()
            return None
        task = SummaryTask(
            plan=plan,
            max_tokens=writer.max_tokens,
            instructions=asked.join_instructions(instructions),
            facts=collect_facts(transcript, plan),
        )
        summary = attach_data(
            await writer.write(task, progress, given=asked.summary), asked, writer.redactor
        )
    with progress.reporting_errors(summary.usage):
        if transcript.leaf != leaf:
            raise TranscriptConflictError(leaf, find_abandoned_entries(transcript, leaf))
        entry = transcript.rewind(
            to,
            BranchSummary(
                summary=f"{PREFACE}{summary.text}",
                leaf=leaf,
                facts=summary.facts.to_json(),
                model=summary.model,
                author=summary.author,
                usage=summary.usage,
                data=summary.data,
            ),
        )
    writer.report_commit(progress, summary, entry, (before, writer.count_request(transcript)))
    return entry


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
    leaf = transcript.leaf
    if new.leaf is not None:
        raise TranscriptError(
            "the store for the new conversation is not empty: pass an empty store."
        )
    if leaf is None:
        raise SummaryError(reason="nothing", detail="the conversation has no messages to hand off.")
    pinned = tuple(item for item in view.items if is_system(item))
    rest = tuple(item for item in view.items if not is_system(item))
    plan = Plan(leaf=leaf, previous=view.summary, dropped=rest, pinned=pinned)
    before = writer.count_request(transcript)
    progress = writer.start(HANDOFF, transcript, plan, before)
    with progress.reporting_errors():
        summary = await writer.write(
            SummaryTask(
                plan=plan,
                max_tokens=writer.max_tokens,
                instructions=goal,
                last_request=writer.last_request,
            ),
            progress,
        )
    with progress.reporting_errors(summary.usage):
        if transcript.leaf != leaf:
            raise TranscriptConflictError(leaf, find_abandoned_entries(transcript, leaf))
        link = {"transcript": transcript.store.address, "leaf": leaf, "goal": goal}
        document = new.append(
            Setting(name=PARENT_SETTING, value=link),
            *(MessageEntry(message=item.message) for item in pinned),
            CustomMessage(
                name=HANDOFF,
                message=Message(role="user", content=(summary.text,)),
                model=summary.model,
                usage=summary.usage,
            ),
            expect="",
        )[-1]
        transcript.append(
            Observation(name=HANDOFF, data={"transcript": store.address, "goal": goal})
        )
    writer.report_commit(progress, summary, document, (before, writer.count_request(new)))
    return new


def make_handoff_summarizer(context: SummarizerContext, model: Model) -> Summarizer:
    """Make a summarizer that writes handoffs: after the last request, or of the conversation as text."""
    return FallbackSummarizer(
        [
            InlineSummarizer(
                model=model,
                window=context.window,
                tokenizer=context.tokenizer,
                template=HANDOFF_TEMPLATE,
            ),
            SimpleSummarizer(
                model=model,
                window=context.window or UNLIMITED,
                tokenizer=context.tokenizer,
                template=HANDOFF_TEMPLATE,
            ),
        ]
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
