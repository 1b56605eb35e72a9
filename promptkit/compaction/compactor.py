"""Makes one compaction of a transcript happen: plan, hook, summary, check, commit. Or leaves everything as it was.

A summary that is made and not yet committed, and the checkpoint that it becomes.
A compaction without secrets: in what a summarizer is given, and in what it gave.
What is known before a summary is made: the facts of the checkpoint before it, and those of the branches that it covers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.events import (
    CompactionCancelled,
    CompactionCommitted,
    CompactionFailed,
    CompactionStarted,
    Events,
    SummaryDiscarded,
)
from promptkit.compaction.hooks import CompactionHooks, guarded_after, guarded_before
from promptkit.compaction.planning.blocks import is_opening
from promptkit.compaction.planning.plan import Plan, Summary, SummaryTask
from promptkit.compaction.planning.selection import KeepLastRound, select
from promptkit.compaction.pruning.capped_view import CappedView
from promptkit.compaction.replacement import Replacement
from promptkit.compaction.summarizers.breadcrumb import with_breadcrumb
from promptkit.compaction.summarizers.facts import Facts, without_secrets
from promptkit.errors import CompactionInProgressError, SummaryError, TranscriptConflictError
from promptkit.rendering.sizing import Sizer
from promptkit.transcript.entries import BranchSummary, Checkpoint, Edit, Reset
from promptkit.transcript.redaction import redact_payload
from promptkit.transcript.view import summary_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from promptkit.compaction.planning.plan import LastRequest
    from promptkit.compaction.planning.selection import Keep
    from promptkit.compaction.replacement import Replaced
    from promptkit.compaction.summarizers.summarizer import Summarizer
    from promptkit.messages import Json, Message, ToolDefinition
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.entries import Entry
    from promptkit.transcript.redaction import Redactor
    from promptkit.transcript.transcript import Transcript
    from promptkit.transcript.view import TranscriptView, ViewItem

__all__ = ["Compactor", "DraftSummary", "checkpoint_of", "collect_facts", "redact_plan", "redact_summary", "redact_task"]


@attrs.frozen(kw_only=True)
class DraftSummary:
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


def checkpoint_of(draft: DraftSummary, items: Sequence[ViewItem], *, replaced: Replaced, count: Callable[[Message], int]) -> Checkpoint:
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


def redact_task(task: SummaryTask, redactor: Redactor) -> SummaryTask:
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


def redact_summary(summary: Summary, redactor: Redactor) -> Summary:
    """The summary without secrets, in its facts, too."""
    return attrs.evolve(summary, text=redactor(summary.text), facts=without_secrets(summary.facts, redactor))


def redact_plan(plan: Plan, redactor: Redactor) -> Plan:
    """The plan without secrets in what the summary stands for: a checkpoint may show some of it again beside the summary."""
    previous = None if plan.previous is None else redactor(plan.previous)
    return attrs.evolve(plan, previous=previous, dropped=_clean(plan.dropped, redactor), prefix=_clean(plan.prefix, redactor))


def _plan(plan: Plan, redactor: Redactor) -> Plan:
    kept, pinned, replayed = (_clean(items, redactor) for items in (plan.kept, plan.pinned, plan.replayed))
    return attrs.evolve(redact_plan(plan, redactor), kept=kept, pinned=pinned, replayed=replayed)


def _clean(items: Iterable[ViewItem], redactor: Redactor) -> tuple[ViewItem, ...]:
    return tuple(attrs.evolve(item, message=redact_payload(item.message, redactor)) for item in items)


def collect_facts(transcript: Transcript, plan: Plan) -> Mapping[str, Json]:
    """What is carried over into the summary of a plan.

    Of branches that were left, only the files that were read and changed: what the person wanted there was left with them.
    """
    opening = next((item.entry for item in (*plan.dropped, *plan.pinned, *plan.replayed) if is_opening(item)), None)
    earlier = None if opening is None else transcript.get(opening).payload
    facts: Mapping[str, Json] = earlier.facts if isinstance(earlier, Checkpoint) else {}
    told = [transcript.get(item.entry).payload for item in (*plan.dropped, *plan.prefix) if item.kind == "branch_summary"]
    branches = [Facts.from_json(each.facts) for each in told if isinstance(each, BranchSummary) and each.facts]
    if not branches:
        return facts
    known = Facts.from_json(facts)
    read = _once(path for each in (known, *branches) for path in each.read)
    changed = _once(path for each in (known, *branches) for path in each.changed)
    return {**facts, **attrs.evolve(known, read=read, changed=changed).to_json()}


def _once(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))


TRIES = 10
"""How often a checkpoint is worked out anew because another process has just written."""


class Compactor:
    """Compacts one transcript. One compaction at a time; each that starts ends with exactly one event.

    `keep` says what of the view stays as it is, `choose` makes the plan of it (`partial(select, split=True)`), and `replacement` builds what
    stands for the rest; `max_summary_tokens` is the most that a summary may have, `max_result_tokens` the most that
    the view shows of one tool result. `tools` are those of the conversation: some providers refuse its calls without them. `read_tool`
    is the name of the tool by which the model reads the transcript. `redactor` takes secrets out of what summarizers are given and of
    what they give; without one, all of it is as it was said. `clock` gives seconds that only grow.
    """

    def __init__(  # noqa: PLR0913  # what a compaction is made of
        self,
        transcript: Transcript,
        *,
        summarizer: Summarizer,
        keep: Keep | None = None,
        choose: Callable[..., Plan] = select,
        replacement: Replacement | None = None,
        tokenizer: Tokenizer,
        max_summary_tokens: int,
        max_result_tokens: int | None = None,
        tools: Sequence[ToolDefinition] = (),
        hooks: CompactionHooks | None = None,
        redactor: Redactor | None = None,
        events: Events | None = None,
        read_tool: str = "read_file",
        clock: Callable[[], float] = time.monotonic,
        logger: logging.Logger | None = None,
    ) -> None:
        self.transcript = transcript
        self.summarizer = summarizer
        self.keep: Keep = KeepLastRound() if keep is None else keep
        self.max_summary_tokens = max_summary_tokens
        self._choose = choose
        self._replacement = replacement or Replacement()
        self.events = events or Events()
        self._tokenizer = tokenizer
        self._sizer = Sizer(tokenizer)
        self._shown = CappedView(tokenizer, result_tokens=max_result_tokens)
        self._tools = tuple(tools)
        self._hooks = hooks or CompactionHooks()
        self._redactor = redactor
        self._read_tool = read_tool
        self._clock = clock
        self._logger = logger or logging.getLogger("promptkit")
        self._running: asyncio.Event | None = None

    def switch(self, *, summarizer: Summarizer, tokenizer: Tokenizer, max_summary_tokens: int, max_result_tokens: int | None) -> None:
        """Go on with another model's figures."""
        self.summarizer = summarizer
        self.max_summary_tokens = max_summary_tokens
        self._tokenizer = tokenizer
        self._sizer = Sizer(tokenizer)
        self._shown.switch(tokenizer, result_tokens=max_result_tokens)

    @property
    def view(self) -> TranscriptView:
        """What the model is shown of the transcript now."""
        return self._shown.view(self.transcript.path())

    @property
    def running(self) -> bool:
        """Whether a compaction is running that was asked for with `compact`."""
        return self._running is not None

    def plan(self, keep: Keep | None = None) -> Plan:
        """What a compaction would drop now."""
        leaf = self.transcript.leaf
        if leaf is None:
            return Plan(leaf="")
        return self._choose(self.view, leaf=leaf, tokenizer=self._tokenizer, keep=self.keep if keep is None else keep)

    async def compact(
        self, plan: Plan | None = None, *, trigger: str, instructions: str | None = None, last_request: LastRequest | None = None
    ) -> Entry | None:
        """Summarize and commit. None if there is nothing to drop, if a hook called it off, or if the conversation changed meanwhile.

        Raises SummaryError if no summary was to be had, CompactionInProgressError while another is running; the transcript is as it was then.
        """
        if self._running is not None:
            raise CompactionInProgressError
        ended = self._running = asyncio.Event()
        try:
            draft = await self.draft(plan or self.plan(), trigger=trigger, instructions=instructions, last_request=last_request)
            return None if draft is None else await self.commit(draft)
        finally:
            self._running = None
            ended.set()

    async def settled(self) -> None:
        """Wait until no compaction is running."""
        while self._running is not None:
            await self._running.wait()

    async def draft(
        self, plan: Plan, *, trigger: str, instructions: str | None = None, last_request: LastRequest | None = None
    ) -> DraftSummary | None:
        """A summary for a plan, without touching the transcript. None if there is nothing to drop, or a hook called it off.

        It has started then, and ends with `commit` or `discard`, of which one must follow.
        """
        if plan.is_empty:
            return None
        number, since = self.events.number(), self._clock()
        self.events.emit(CompactionStarted(number=number, trigger=trigger, messages=len(plan.dropped) + len(plan.prefix)))
        try:
            summary = await self._summary(plan, trigger, instructions, last_request)
        except BaseException as error:
            if isinstance(error, Exception):
                self._failed(number, trigger, error, since)
            else:
                self.events.emit(CompactionCancelled(number=number, trigger=trigger, seconds=self._clock() - since))
            raise
        if summary is None:
            self.events.emit(CompactionCancelled(number=number, trigger=trigger, seconds=self._clock() - since))
            return None
        if self._redactor is not None:
            plan = redact_plan(plan, self._redactor)
        return DraftSummary(number=number, plan=plan, summary=summary, trigger=trigger, instructions=instructions, since=since)

    async def commit(self, draft: DraftSummary) -> Entry | None:
        """Write the checkpoint. None, and an event that says why, if the conversation is not what the plan was made for any more.

        What was appended meanwhile, here or by another process, stays behind the summary. Raises TranscriptError if it cannot be written.
        """
        try:
            entry = self._written(draft)
        except Exception as error:
            self._failed(draft.number, draft.trigger, error, draft.since)
            raise
        if entry is None:
            return None
        await guarded_after(self._hooks, entry, logger=self._logger)
        return entry

    def discard(self, draft: DraftSummary, reason: str) -> None:
        """Let go of a summary that is not needed any more."""
        self.events.emit(SummaryDiscarded(number=draft.number, trigger=draft.trigger, reason=reason, seconds=self._clock() - draft.since))

    def undo(self) -> Entry | None:
        """Take the latest compaction back: what it summarized is shown again. None if there is none."""
        checkpoint = self.view.checkpoint
        if checkpoint is None:
            return None
        return self.transcript.append(Edit(target=checkpoint, content=None, reason="undone"))[0]

    def changed(self, leaf: str) -> str | None:
        """Why what was worked out for a leaf does not hold any more; None while it does. Entries that were merely appended change nothing."""
        path = self.transcript.path()
        for at in range(len(path) - 1, -1, -1):
            if path[at].id == leaf:
                return None
            if isinstance(path[at].payload, Checkpoint | Edit | Reset):
                return f"a {path[at].kind} was written meanwhile"
        return "the conversation went another way"

    async def _summary(self, plan: Plan, trigger: str, instructions: str | None, last_request: LastRequest | None) -> Summary | None:
        wanted = await guarded_before(self._hooks, plan, trigger=trigger, instructions=instructions, logger=self._logger)
        if wanted.cancel:
            return None
        if wanted.summary is not None:
            try:
                return self._baked(plan, wanted.summary)
            except SummaryError as error:
                self._logger.warning("a hook's summary is not taken, and another is made: %s", error)
        task = SummaryTask(
            plan=plan,
            max_tokens=self._most(plan),
            instructions="\n\n".join(filter(None, (instructions, *wanted.instructions))) or None,
            last_request=last_request,
            tools=self._tools if last_request is None else last_request.tools,
            facts=collect_facts(self.transcript, plan),
            check=partial(self._baked, plan),
        )
        if self._redactor is not None:
            task = redact_task(task, self._redactor)
        return self._baked(plan, await self.summarizer.summarize(task))

    def _most(self, plan: Plan) -> int:
        """The tokens that a summary may have and be smaller than what it stands for. Raises SummaryError where none can be."""
        replaced = self._replaced(plan)
        room = replaced - self._replacement.cost(plan, Summary(text=self._told(""), mode=""), self._tokenizer) - 1
        if room < 1:
            detail = f"none is smaller than the {replaced:,} tokens that it would stand for."
            raise SummaryError(reason="not_smaller", detail=detail)
        return min(self.max_summary_tokens, room)

    def _replaced(self, plan: Plan) -> int:
        return sum(self._sizer.message(item.message) for item in (*plan.dropped, *plan.prefix))

    def _told(self, text: str) -> str:
        """A summary's text with its breadcrumb."""
        store = self.transcript.store
        return with_breadcrumb(text, place=store.place, lines=store.lines, tool=self._read_tool)

    def _baked(self, plan: Plan, summary: Summary) -> Summary:
        """The summary with its breadcrumb; everything that it stands for is on the disk by now. Raises SummaryError if nothing is gained."""
        if self._redactor is not None:
            summary = redact_summary(summary, self._redactor)
        if not summary.text.strip():
            raise SummaryError(reason="empty", detail="the summary is blank.", usage=summary.usage)
        tokens = self._tokenizer.count(summary.text)
        if tokens > self.max_summary_tokens:
            most = f"{self.max_summary_tokens:,} is the most that it may have"
            raise SummaryError(reason="too_large", detail=f"the summary has {tokens:,} tokens, and {most}.", usage=summary.usage)
        baked = attrs.evolve(summary, text=self._told(summary.text))
        replaced = self._replaced(plan)
        if self._replacement.cost(plan, baked, self._tokenizer) >= replaced:
            detail = f"the summary is no smaller than the {replaced:,} tokens that it stands for."
            raise SummaryError(reason="not_smaller", detail=detail, usage=summary.usage)
        return baked

    def _written(self, draft: DraftSummary) -> Entry | None:
        """The entry of the checkpoint, behind whatever was written meanwhile; None if that changed what it rests on."""
        for left in reversed(range(TRIES)):
            stale = self.changed(draft.plan.leaf)
            if stale is not None:
                self.discard(draft, stale)
                return None
            replaced = self._replacement.build(draft.plan, draft.summary, self._tokenizer)
            checkpoint = checkpoint_of(draft, self.view.items, replaced=replaced, count=self._sizer.message)
            try:
                (entry,) = self.transcript.append(checkpoint, expect=self.transcript.leaf or "")
            except TranscriptConflictError:  # another process has written, and that has been read by now
                if not left:
                    raise
            else:
                self._committed(draft, entry, checkpoint)
                return entry
        return None

    def _committed(self, draft: DraftSummary, entry: Entry, checkpoint: Checkpoint) -> None:
        self.events.emit(
            CompactionCommitted(
                number=draft.number,
                trigger=draft.trigger,
                checkpoint=entry.id,
                mode=draft.summary.mode,
                tokens_before=checkpoint.tokens_before or 0,
                tokens_after=checkpoint.tokens_after or 0,
                seconds=self._clock() - draft.since,
            )
        )

    def _failed(self, number: int, trigger: str, error: Exception, since: float) -> None:
        reason = error.reason if isinstance(error, SummaryError) else type(error).__name__
        self.events.emit(CompactionFailed(number=number, trigger=trigger, reason=reason, detail=str(error), seconds=self._clock() - since))
