"""Make one compaction of a transcript happen."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Required, TypedDict, Unpack

import attrs

from promptkit.compaction.planning.blocks import is_checkpoint_item, is_summary, is_user_request
from promptkit.compaction.planning.breadcrumb import (
    add_breadcrumb,
    remove_breadcrumb_lines,
    strip_breadcrumb,
)
from promptkit.compaction.planning.facts import Facts
from promptkit.compaction.planning.plan import (
    CarriedContext,
    KnownFacts,
    LastRequest,
    Plan,
    Summary,
    SummaryTask,
)
from promptkit.compaction.planning.selection import Keep, KeepLastRound, select
from promptkit.compaction.planning.tool_calls import FILE_RULES, FileRule
from promptkit.compaction.planning.user_messages import mark_invented_quotes
from promptkit.compaction.planning.worker import (
    LONG,
    is_much,
    let_others_run,
    run_beside,
    run_in_turns,
    run_in_worker,
)
from promptkit.compaction.policy.state import HANDOFF
from promptkit.compaction.policy.usage import UsageByPart, count_parts, find_summary_ids
from promptkit.compaction.pruning.tool_outputs import (
    CappedView,
    ResultLimits,
    prune_reasoning,
)
from promptkit.compaction.run.events import (
    CompactionCommitted,
    Events,
    get_conversation_id,
)
from promptkit.compaction.run.hooks import (
    CompactionHooks,
    PreCompactResult,
    run_on_branch_change,
    run_post_compact,
    run_pre_compact,
)
from promptkit.compaction.run.pins import list_pins
from promptkit.compaction.run.progress import SummaryProgress
from promptkit.compaction.run.replacement import (
    Replacement,
    ReplacementMessages,
    carry_from_facts,
)
from promptkit.compaction.summarizers.extractive import (
    EXTRACTIVE,
    ExtractiveSummarizer,
    format_left_out,
)
from promptkit.compaction.summarizers.fallback import summarize_within_limits
from promptkit.compaction.summarizers.losses import (
    Losses,
    LossMeter,
    MeasuredFact,
    find_left_out,
)
from promptkit.compaction.summarizers.summarizer import (
    Summarizer,
    check_length,
    redact_carried,
    redact_plan,
    redact_summary,
    redact_task,
    updated_facts,
)
from promptkit.errors import (
    CompactionInProgressError,
    SummaryError,
    TranscriptConflictError,
)
from promptkit.rendering.expand.sizing import Sizer
from promptkit.transcript import (
    BranchSummary,
    Checkpoint,
    Edit,
    Entry,
    Reset,
    TranscriptView,
    ViewItem,
    build_summary_message,
    redact_json,
)
from promptkit.transcript.log.entry_sequence import EntrySequence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from promptkit.messages import Message, ToolDefinition
    from promptkit.tokens import Tokenizer
    from promptkit.tools import Supersedes
    from promptkit.transcript import Redactor, Transcript

_LOGGER = logging.getLogger("promptkit")

MANY = 2_500
"""Entries whose view is built in the event loop at most, some 5 ms: that of more is built in the
thread."""

MAX_LOOK_UP = 5_000
"""Of the entries that are no longer shown, the newest, among which an example of a search is
tried."""

COMMIT_ATTEMPTS = 10
"""How often a checkpoint is rebuilt because another process has just appended to the transcript."""


EXTRACT_TOKENS = 500
"""The most tokens of what a summary is completed with."""

LEAST_GAIN_DIVISOR = 10
"""A compaction must save a tenth of what it replaces. Otherwise the next one would follow soon, and
each costs a prompt cache."""


@attrs.frozen(kw_only=True)
class DraftSummary:
    """A summary that is made and not yet committed."""

    progress: SummaryProgress
    """Reports how the compaction ends."""
    plan: Plan
    summary: Summary
    """The checked summary, with its breadcrumb."""
    instructions: str | None


class CompactionOrder(TypedDict, total=False):
    """Why and how one compaction runs."""

    trigger: Required[str]
    """Why it runs, as the checkpoint records it."""
    instructions: str | None
    """The user's instructions for the summary."""
    last_request: LastRequest | None
    """The last request, if it shows everything that the plan drops."""
    seconds: float | None
    """The longest time that one summarizer may take; None: no limit."""
    require_model: bool
    """Only a model may write the summary, where the conversation has a summarizing model."""
    extract: bool
    """No model is asked: the summary is extracted from the conversation."""


@attrs.define(eq=False, slots=False)
class Compactor:
    """Compact one transcript: make a plan, run the hooks, get a summary, check it, and commit a checkpoint.

    Or change nothing.

    Only one compaction runs at a time. Each one that starts ends with exactly one event.
    """

    transcript: Transcript
    """The conversation."""
    summarizer: Summarizer = attrs.field(kw_only=True)
    """Writes summaries."""
    keep: Keep = attrs.field(factory=KeepLastRound, kw_only=True)
    """Which messages stay verbatim; by default the last round."""
    choose: Callable[..., Plan] = attrs.field(default=select, kw_only=True)
    """Makes the plan of a compaction, for example `partial(select, split=True)`."""
    replacement: Replacement = attrs.field(factory=Replacement, kw_only=True)
    """Builds the messages that replace what is dropped."""
    tokenizer: Tokenizer = attrs.field(kw_only=True)
    """Counts messages and summaries."""
    max_summary_tokens: int = attrs.field(kw_only=True)
    """The most tokens of a summary."""
    max_result_tokens: int | None = attrs.field(default=None, kw_only=True)
    """The most tokens of one tool result in the view; None: no limit."""
    result_limits: ResultLimits = attrs.field(factory=ResultLimits, kw_only=True)
    """The limits that tools declare for themselves."""
    tools: Sequence[ToolDefinition] = attrs.field(default=(), kw_only=True)
    """The tools of the conversation. Some providers refuse tool calls in a request without them."""
    supersedes: Mapping[str, Supersedes] = attrs.field(
        factory=dict[str, "Supersedes"], kw_only=True
    )
    """The `supersedes` of tools, by their names."""
    hooks: CompactionHooks = attrs.field(factory=CompactionHooks, kw_only=True)
    """Run before and after a compaction."""
    redactor: Redactor | None = attrs.field(default=None, kw_only=True)
    """Removes secrets from what summarizers read and write; None: nothing is removed. The last
    request goes out as it was sent."""
    events: Events = attrs.field(factory=Events, kw_only=True)
    """Receive what happens."""
    look_up: Callable[[Facts, Sequence[Entry]], str | None] | None = attrs.field(
        default=None, kw_only=True
    )
    """Returns an example call with which the model looks up the transcript, for the breadcrumb of a
    summary: from its facts and the entries that are no longer shown."""
    file_rules: tuple[FileRule, ...] = attrs.field(default=FILE_RULES, kw_only=True)
    """Tell which files a tool call reads or changes, for the file lists of summaries."""
    count_fixed: Callable[[], UsageByPart] = attrs.field(default=UsageByPart, kw_only=True)
    """Returns the parts of every request besides the conversation, for the sizes in events."""
    clock: Callable[[], float] = attrs.field(default=time.monotonic, kw_only=True)
    """Returns seconds that only grow."""
    handoff: Summarizer | None = attrs.field(default=None, init=False)
    """Writes the summaries with the trigger `handoff`; None: `summarizer` does."""
    sizer: Sizer = attrs.field(init=False)
    """Counts messages, each once while it stays in the view."""
    _capped_view: CappedView = attrs.field(init=False)
    _counted: tuple[TranscriptView, Sizer, UsageByPart] | None = attrs.field(
        default=None, init=False
    )
    """The view that was counted last, by what, and its parts."""
    _running: asyncio.Event | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.sizer = Sizer(self.tokenizer)
        self._capped_view = CappedView(
            self.tokenizer, result_tokens=self.max_result_tokens, limits=self.result_limits
        )

    def update_settings(
        self,
        *,
        summarizer: Summarizer,
        tokenizer: Tokenizer,
        max_summary_tokens: int,
        max_result_tokens: int | None,
        replacement: Replacement,
    ) -> None:
        """Use another model's summarizer, tokenizer and limits (tokens) from now on."""
        self.summarizer = summarizer
        self.replacement = replacement
        self.max_summary_tokens = max_summary_tokens
        self.tokenizer = tokenizer
        if tokenizer != self.sizer.tokenizer:
            self.sizer = Sizer(tokenizer)
        self._capped_view.set_limits(tokenizer, result_tokens=max_result_tokens)

    def set_tools(
        self,
        tools: Sequence[ToolDefinition],
        *,
        limits: Mapping[str, int],
        supersedes: Mapping[str, Supersedes],
    ) -> None:
        """Use other tools, the limits (tokens) of their results and what they supersede, from now on.

        The results of tools that had a limit before keep it, so that the view does not change.
        """
        self.tools = tools
        self.supersedes = {**self.supersedes, **supersedes}
        known = self.result_limits.by_tool
        if any(name not in known for name in limits):
            self.result_limits = attrs.evolve(self.result_limits, by_tool={**limits, **known})
            self._capped_view = CappedView(
                self.tokenizer,
                result_tokens=self._capped_view.limits[1],
                limits=self.result_limits,
            )

    @property
    def view(self) -> TranscriptView:
        """The messages of the transcript that the next request shows."""
        return self._capped_view.build_view(self.transcript.path())

    async def read_ahead(self) -> None:
        """Build the view and count its messages while the event loop goes on, if much of it was not read before.

        Texts are counted in the loop's own thread, a few at a time: in a second one each look-up in
        tiktoken's patterns takes a lock, a tenth of the time.
        """
        path, before = self.transcript.path(), self._capped_view
        unread = before.get_unread(path)
        if not is_much(unread, LONG):
            return
        if is_much(unread) and (
            len(unread) > MANY
            or isinstance(unread, EntrySequence)  # that is read from a store
            or before.may_cap_much(unread)
        ):
            view = before.copy_limits()
            await run_in_worker(view.build_view, path)
            if before is self._capped_view and before.limits == view.limits:
                self._capped_view = view
        # of a little, only what is new: the others were counted for an earlier request
        await run_in_turns(
            self.sizer.count_messages,
            self.view.messages[0 if is_much(unread) else -len(unread) :],
        )

    def find_cut_markers(self) -> dict[str, str]:
        """Return what replaces the middle of tool results of the view that a request shortens, by the ids of their calls."""
        return self._capped_view.find_cut_markers(self.transcript.path())

    @property
    def running(self) -> bool:
        """Whether a compaction that was started with `compact` is running."""
        return self._running is not None

    def plan(self, keep: Keep | None = None) -> Plan:
        """Plan a compaction of the current view. `keep` replaces the compactor's own."""
        leaf = self.transcript.leaf
        if leaf is None:
            return Plan(leaf="")
        return self.choose(
            self.view,
            leaf=leaf,
            tokenizer=self.tokenizer,
            keep=self.keep if keep is None else keep,
        )

    async def compact(
        self, plan: Plan | None = None, **order: Unpack[CompactionOrder]
    ) -> Entry | None:
        """Summarize and commit.

        Args:
            plan: What to drop and what to keep; by default the plan of the current view.
            order: Why and how the compaction runs.

        Returns:
            The checkpoint; None if there is nothing to drop, if a hook cancelled, or if the
            conversation changed meanwhile.

        Raises:
            SummaryError: No summary was made.
            CompactionInProgressError: Another compaction is running.
            TranscriptError: The checkpoint cannot be written. In all three cases the transcript is
                unchanged.
        """
        if self._running is not None:
            raise CompactionInProgressError
        ended = self._running = asyncio.Event()
        try:
            if plan is not None:
                await let_others_run()  # the plan of thousands of messages took some milliseconds
            draft = await self.draft(plan or self.plan(), **order)
            return None if draft is None else await self.commit(draft)
        finally:
            self._running = None
            ended.set()

    async def wait_idle(self) -> None:
        """Wait until no compaction is running."""
        while self._running is not None:
            await self._running.wait()

    async def draft(self, plan: Plan, **order: Unpack[CompactionOrder]) -> DraftSummary | None:
        """Make a summary without changing the transcript. `commit` or `discard` must follow.

        Args:
            plan: What to drop and what to keep.
            order: Why and how the compaction runs.

        Returns:
            The summary; None if there is nothing to drop, or if a hook cancelled.

        Raises:
            SummaryError: No summary was made.
        """
        last_request = order.get("last_request")
        if plan.is_empty:
            return None
        progress = SummaryProgress(
            events=self.events,
            trigger=order["trigger"],
            conversation=get_conversation_id(self.transcript),
            clock=self.clock,
        )
        progress.report_start(plan, self.count_request())
        with progress.reporting_errors():
            await asyncio.sleep(0)  # counting thousands of messages took some milliseconds
            task = SummaryTask(
                plan=plan,
                max_tokens=self.max_summary_tokens,
                instructions=order.get("instructions"),
                last_request=last_request,
                tools=self.tools if last_request is None else last_request.tools,
                facts=collect_facts(self.transcript, plan),
                file_rules=self.file_rules,
                seconds=order.get("seconds"),
                require_model=order.get("require_model", False),
                report=progress.report_attempt,
                observe=partial(progress.observe, compacted=plan.previous is not None),
            )
            summary = await self._make_summary(
                task,
                progress.trigger,
                ExtractiveSummarizer(tokenizer=self.tokenizer) if order.get("extract") else None,
            )
        if summary is None:
            progress.report_cancellation()
            return None
        return DraftSummary(
            progress=progress,
            plan=redact_plan(plan, self.redactor),
            summary=summary,
            instructions=order.get("instructions"),
        )

    async def commit(self, draft: DraftSummary) -> Entry | None:
        """Append the checkpoint of a summary.

        Entries that were appended meanwhile, here or by another process, stay after the summary.

        Returns None, after an event that says why, if the messages that the plan covers have
        changed. Raises TranscriptError if the checkpoint cannot be written.
        """
        with draft.progress.reporting_errors(draft.summary.usage):
            files = await self._load_files(draft)
            plan = draft.plan
            replaced = await run_beside(
                (*plan.dropped, *plan.prefix),
                self.replacement.build,
                plan,
                draft.summary,
                self.tokenizer,
                files=files,
            )
            # the replacement of a long conversation took some milliseconds, and so does its checkpoint
            await let_others_run()
            entry = self._write(draft, replaced, files)
        if entry is None:
            return None
        await run_post_compact(self.hooks, entry)
        return entry

    def discard(self, draft: DraftSummary, reason: str) -> None:
        """Discard a summary that is no longer needed, and report the reason as an event."""
        draft.progress.report_discard(reason, draft.summary.usage)

    def undo(self) -> Entry | None:
        """Undo the latest compaction, so that the messages it summarized are shown again.

        Returns None if there is none.
        """
        checkpoint = self.view.checkpoint_id
        if checkpoint is None:
            return None
        (entry,) = self.transcript.append(Edit(target=checkpoint, content=None, reason="undone"))
        self.report_branch_change()
        return entry

    def report_branch_change(self) -> None:
        """Tell the hooks that the conversation continues on another branch, or without a checkpoint that it had."""
        run_on_branch_change(self.hooks, self.transcript)

    def find_change(self, leaf: str) -> str | None:
        """Return why a plan that was made at a leaf is stale; None while it is valid.

        What was appended, also if it was edited, is no change.
        """
        path = self.transcript.path()
        edited: set[str] = set()
        appended: set[str] = set()
        for at in range(len(path) - 1, -1, -1):
            entry = path[at]
            if entry.id == leaf:
                return None if edited <= appended else "an edit was written meanwhile"
            if isinstance(entry.payload, Checkpoint | Reset):
                return f"a {entry.kind} was written meanwhile"
            if isinstance(entry.payload, Edit):
                edited.add(entry.payload.target)
            appended.add(entry.id)
        return "the conversation continues on another branch"

    async def _make_summary(
        self, task: SummaryTask, trigger: str, extractor: Summarizer | None
    ) -> Summary | None:
        plan = task.plan
        result = await run_pre_compact(
            self.hooks, plan, trigger=trigger, instructions=task.instructions
        )
        if result.cancel:
            return None
        task = redact_task(
            attrs.evolve(
                task,
                instructions=result.join_instructions(task.instructions),
                known_memories=result.known_memories,
            ),
            self.redactor,
        )
        items = (*plan.dropped, *plan.prefix)
        facts = await run_beside(items, updated_facts, task)
        readable = task.plan
        check = _CheckOnce(
            lambda summary: self._check(
                plan, attrs.evolve(summary, facts=facts.merge(summary.facts)), readable
            )
        )
        if result.summary is not None:
            try:
                given = attrs.evolve(result.summary, author="hook")
                checked = await run_beside(items, check, given)
                completed = await run_beside(items, self._complete, readable, checked)
                return attach_data(completed, result, self.redactor)
            except SummaryError as error:
                _LOGGER.warning("a hook's summary is rejected, and another one is made: %s", error)
        task = attrs.evolve(
            task,
            known_facts=KnownFacts(plan=task.plan, facts=facts),
            max_tokens=await run_beside(items, self._max_tokens, plan, facts),
            requests_beside=self.replacement.keeps_user_messages,
            check=check,
        )
        handoff = self.handoff if trigger == HANDOFF else None
        summary = check(
            await summarize_within_limits(extractor or handoff or self.summarizer, task)
        )
        return attach_data(
            await run_beside(items, self._complete, readable, summary), result, self.redactor
        )

    def _complete(self, plan: Plan, summary: Summary) -> Summary:
        """Return a checked summary with what it lost, completed by the extract if that is too much and there is room."""
        dropped = (item.unpruned or item.message for item in (*plan.dropped, *plan.prefix))
        meter = LossMeter(summary.facts, dropped)
        measured = self._measure(meter, plan, summary)
        left_out = () if summary.mode == EXTRACTIVE else find_left_out(measured)
        if left_out and summary.replacement is None:
            extract = format_left_out(left_out, summary.facts, EXTRACT_TOKENS, self.tokenizer)
            carried = attrs.evolve(summary.carried or CarriedContext(), extract=extract)
            completed = attrs.evolve(summary, carried=carried)
            if self._count_room(plan, completed) >= 0:
                summary, measured = completed, self._measure(meter, plan, completed)
        return attrs.evolve(summary, losses=Losses.from_facts(measured).to_json())

    def _measure(self, meter: LossMeter, plan: Plan, summary: Summary) -> tuple[MeasuredFact, ...]:
        """Measure what the messages after a compaction show of the facts that those before it showed."""
        built = self.replacement.build(plan, summary, self.tokenizer)
        messages = built.messages if built.portable is None else built.portable
        return meter.measure(
            [*messages, *(item.message for item in plan.kept)],
            has_way_back=strip_breadcrumb(summary.text) != summary.text,
        )

    def _max_tokens(self, plan: Plan, facts: Facts) -> int:
        """Return the most tokens of a summary that saves enough of what it replaces.

        Raises SummaryError if there is no such summary.
        """
        empty = Summary(text=self._with_breadcrumb("", Facts(), plan), mode="", facts=facts)
        if self.replacement.carry is carry_from_facts:  # a program's own wants the summary itself
            empty = self.replacement.add_carried(plan, empty)
        room = self._count_room(plan, empty)
        if room < 1:
            raise SummaryError(
                reason="not_smaller",
                detail=f"no summary can save a tenth of the {self.count_replaced(plan):,} tokens that it would replace."
                f"{self.replacement.describe_live(empty, self.tokenizer)}",
            )
        return min(self.max_summary_tokens, room)

    def _count_room(self, plan: Plan, summary: Summary) -> int:
        """Return how many more tokens may replace what a plan drops, beside a summary, if that is to save a tenth. Below 0: the summary saves less."""
        return _most_left(self.count_replaced(plan)) - self.replacement.count_tokens(
            plan, summary, self.tokenizer
        )

    def count_replaced(self, plan: Plan) -> int:
        """Return the tokens of the messages that a summary would replace."""
        return sum(self.sizer.count_message(item.message) for item in (*plan.dropped, *plan.prefix))

    def _with_breadcrumb(self, text: str, facts: Facts, plan: Plan) -> str:
        """Append the breadcrumb to a summary's text.

        Everything that the summary replaces is already on the disk.
        """
        call = None
        if self.look_up is not None:
            shown = {item.entry_id for item in (*plan.kept, *plan.pinned, *plan.replayed)}
            newest = self.transcript.path(plan.leaf)[-MAX_LOOK_UP:]
            call = self.look_up(facts, [entry for entry in newest if entry.id not in shown])
        return add_breadcrumb(
            text, location=self.transcript.store.address, entries=len(self.transcript), call=call
        )

    def _check(self, plan: Plan, summary: Summary, readable: Plan) -> Summary:
        """Return the summary with its breadcrumb and what is carried beside it.

        What is carried comes from the `readable` plan, without secrets. Raises SummaryError if it is blank, too short, too large or saves too little.
        """
        summary = redact_summary(summary, self.redactor)
        text = remove_breadcrumb_lines(summary.text)
        if summary.mode != EXTRACTIVE:
            shown = (*readable.kept, *readable.pinned, *readable.replayed)
            said = [item.message.text for item in shown if is_user_request(item)]
            said += summary.facts.requests
            if mark_invented_quotes(text, said) != text:
                text = mark_invented_quotes(text, [*said, *self._find_said(plan.leaf)])
        summary = attrs.evolve(summary, text=text)
        if not summary.text.strip():
            raise SummaryError(reason="empty", detail="the summary is blank.", usage=summary.usage)
        tokens = self.tokenizer.count(summary.text)
        replaced = self.count_replaced(plan)
        check_length(summary, replaced=replaced, tokenizer=self.tokenizer)
        if tokens > self.max_summary_tokens:
            raise SummaryError(
                reason="too_large",
                detail=f"the summary has {tokens:,} tokens, and at most {self.max_summary_tokens:,} are allowed.",
                usage=summary.usage,
            )
        text = self._with_breadcrumb(summary.text, summary.facts, plan)
        checked = self.replacement.add_carried(readable, attrs.evolve(summary, text=text))
        checked = attrs.evolve(checked, carried=redact_carried(checked.carried, self.redactor))
        left = self.replacement.count_tokens(plan, checked, self.tokenizer)
        if left > _most_left(replaced):
            raise SummaryError(
                reason="not_smaller",
                detail=f"the summary leaves {left:,} of the {replaced:,} tokens that it replaces; a compaction must save at least a tenth."
                f"{self.replacement.describe_live(checked, self.tokenizer)}",
                usage=summary.usage,
            )
        return checked

    def _find_said(self, leaf: str) -> list[str]:
        """Return the texts of all messages of the user up to an entry, without secrets: also those that left the facts."""
        said = [
            entry.message.text
            for entry in self.transcript.path(leaf)
            if entry.kind == "message"
            and entry.message is not None
            and entry.message.role == "user"
        ]
        return said if self.redactor is None else [self.redactor(each) for each in said]

    async def _load_files(self, draft: DraftSummary) -> tuple[Message, ...]:
        """Read the files that the checkpoint shows, if it is to show any: so many that it still saves a tenth."""
        files, plan = self.replacement.files, draft.plan
        if files is None or self.find_change(plan.leaf) is not None:
            return ()
        return await files.load(
            plan,
            draft.summary,
            room=self._count_room(plan, draft.summary),
            rules=self.file_rules,
            tokenizer=self.tokenizer,
            redactor=self.redactor,
        )

    def _update_pins(self, draft: DraftSummary) -> DraftSummary:
        """Return a draft with the pins that hold now, or the same one if they have not changed."""
        now = Facts(pins=list_pins(self.transcript.path(), _find_opening(draft.plan)))
        if self.redactor is not None:
            now = now.redact(self.redactor)
        facts = draft.summary.facts
        if now.pins == facts.pins:
            return draft
        facts = attrs.evolve(facts, pins=now.pins)
        return attrs.evolve(draft, summary=attrs.evolve(draft.summary, facts=facts))

    def _write(
        self, draft: DraftSummary, replaced: ReplacementMessages, files: tuple[Message, ...]
    ) -> Entry | None:
        """Append the checkpoint after whatever was written meanwhile, with the pins that hold now.

        Returns None if that made the plan stale.
        """
        for left in reversed(range(COMMIT_ATTEMPTS)):
            stale = self.find_change(draft.plan.leaf)
            if stale is not None:
                self.discard(draft, stale)
                return None
            latest = self._update_pins(draft)
            if latest is not draft:
                draft = latest
                replaced = self.replacement.build(
                    draft.plan, draft.summary, self.tokenizer, files=files
                )
            view, count = self.view, self.sizer.count_message
            kept, shown = view.items, self._count_view(view)
            before = self.count_fixed() + shown
            checkpoint = build_checkpoint(
                draft, kept, tokens=shown.total, replaced=replaced, count=count
            )
            start = next(
                (at for at, item in enumerate(kept) if item.entry_id == checkpoint.first_kept),
                len(kept),
            )
            edits, saved = prune_reasoning(kept[start:], count=count)
            checkpoint = attrs.evolve(
                checkpoint, tokens_after=(checkpoint.tokens_after or 0) - saved
            )
            try:
                entry, *_ = self.transcript.append(
                    checkpoint, *edits, expect=self.transcript.leaf or ""
                )
            except TranscriptConflictError:
                # another process has appended, and its entries have been read by now
                if not left:
                    raise
            else:
                self.sizer.start_next_render()  # keep no counts of what two compactions have dropped
                self._report_commit(draft, entry, checkpoint, before)
                return entry
        return None

    def count_request(self, transcript: Transcript | None = None) -> UsageByPart:
        """Count by part what the next request takes. None: of the compactor's own transcript."""
        path = (self.transcript if transcript is None else transcript).path()
        return self.count_fixed() + self._count_view(self._capped_view.build_view(path))

    def _count_view(self, view: TranscriptView) -> UsageByPart:
        """Count a view by part, each view once."""
        counted, sizer = self._counted, self.sizer
        if counted is None or counted[0] is not view or counted[1] is not sizer:
            parts = count_parts(view.messages, find_summary_ids(view.items), sizer.count_message)
            counted = self._counted = view, sizer, parts
        return counted[2]

    def _report_commit(
        self, draft: DraftSummary, entry: Entry, checkpoint: Checkpoint, before: UsageByPart
    ) -> None:
        self.events.emit(
            CompactionCommitted(
                number=draft.progress.number,
                trigger=draft.progress.trigger,
                checkpoint=entry.id,
                mode=draft.summary.mode,
                tokens_before=checkpoint.tokens_before or 0,
                tokens_after=checkpoint.tokens_after or 0,
                dropped=checkpoint.dropped or 0,
                shown=checkpoint.shown or 0,
                seconds=draft.progress.seconds,
                before=before,
                after=self.count_request(),
                model=draft.summary.model,
                author=draft.summary.author,
                usage=draft.summary.usage,
                request_id=draft.summary.request_id,
                losses=Losses.from_json(draft.summary.losses),
                summary=draft.summary.text,
            )
        )


def _most_left(replaced: int) -> int:
    """Return the most tokens that may take the place of what a compaction replaces."""
    return replaced * (LEAST_GAIN_DIVISOR - 1) // LEAST_GAIN_DIVISOR


class _CheckOnce:
    """Check each summary once: a fallback over several summarizers checks what the compactor then checks again."""

    def __init__(self, check: Callable[[Summary], Summary]) -> None:
        self._check = check
        self._passed: tuple[Summary, Summary] | None = None

    def __call__(self, summary: Summary) -> Summary:
        """Return the checked summary. Raises SummaryError if it fails the check."""
        if self._passed is None or attrs.evolve(self._passed[0], usage=summary.usage) != summary:
            self._passed = summary, self._check(summary)
        return attrs.evolve(self._passed[1], usage=summary.usage)


def build_checkpoint(
    draft: DraftSummary,
    items: Sequence[ViewItem],
    *,
    tokens: int,
    replaced: ReplacementMessages,
    count: Callable[[Message], int],
) -> Checkpoint:
    """Build the checkpoint of a summary.

    Args:
        draft: The summary and its plan.
        items: The current view: that of the plan, and what was appended since, which is kept.
        tokens: The tokens of the messages of that view.
        replaced: The messages that replace what is dropped.
        count: Counts the tokens of a message.
    """
    plan = draft.plan
    planned = sum(map(len, (plan.dropped, plan.prefix, plan.kept, plan.pinned, plan.replayed)))
    # an earlier checkpoint's messages come first in a view, and are never among these
    kept = items[planned - len(plan.kept) :]
    opening = replaced.messages
    plain = opening == (build_summary_message(draft.summary.text),)
    dropped = sum(len(items) - sum(map(is_summary, items)) for items in (plan.dropped, plan.prefix))
    return Checkpoint(
        summary=draft.summary.text,
        first_kept=kept[0].entry_id if kept else None,
        replacement=None if plain else opening,
        own=() if plain else replaced.generated,
        portable=replaced.portable,
        trigger=draft.progress.trigger,
        instructions=draft.instructions,
        model=draft.summary.model,
        author=draft.summary.author,
        usage=draft.summary.usage,
        data=draft.summary.data,
        facts=draft.summary.facts.to_json(),
        losses=draft.summary.losses,
        tokens_before=tokens,
        tokens_after=sum(map(count, opening)) + sum(count(item.message) for item in kept),
        dropped=dropped,
        shown=max(0, dropped - draft.summary.missed),
    )


def attach_data(summary: Summary, hook: PreCompactResult, redactor: Redactor | None) -> Summary:
    """Return a summary with what hooks attach to it, without secrets."""
    return attrs.evolve(
        summary,
        data={
            name: value if redactor is None else redact_json(value, redactor)
            for name, value in hook.data.items()
        },
    )


def collect_facts(transcript: Transcript, plan: Plan) -> Facts:
    """Collect the facts that are carried over into the summary of a plan: those of the previous checkpoint.

    From abandoned branches only the files that were read and changed are added: the user's requests
    there no longer hold.
    """
    opening = _find_opening(plan)
    earlier = None if opening is None else transcript.get(opening).payload
    facts = Facts.from_json(earlier.facts) if isinstance(earlier, Checkpoint) else Facts()
    facts = attrs.evolve(facts, pins=list_pins(transcript.path(plan.leaf), opening))
    payloads = (
        transcript.get(item.entry_id).payload
        for item in (*plan.dropped, *plan.prefix)
        if item.kind == "branch_summary"
    )
    branches = (each.facts for each in payloads if isinstance(each, BranchSummary) and each.facts)
    known = [facts, *map(Facts.from_json, branches)]
    return attrs.evolve(
        facts,
        read=tuple(dict.fromkeys(path for each in known for path in each.read)),
        changed=tuple(dict.fromkeys(path for each in known for path in each.changed)),
    )


def _find_opening(plan: Plan) -> str | None:
    """Return the id of the checkpoint that the view of a plan begins with, or None."""
    items = (*plan.dropped, *plan.pinned, *plan.replayed)
    opening = next(filter(is_checkpoint_item, items), None)
    return None if opening is None else opening.entry_id
