"""Keep one conversation within its context window: ask the policy, and carry out its decisions."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import attrs

from promptkit.compaction.planning.blocks import find_last_user_request, has_completed_round
from promptkit.compaction.planning.plan import LastRequest, Plan, SentRequest
from promptkit.compaction.planning.selection import KeepLastRound, KeepNothing
from promptkit.compaction.planning.worker import let_others_run, take_turn
from promptkit.compaction.policy.rules import Policy
from promptkit.compaction.policy.state import (
    CACHE_SECONDS,
    HANDOFF,
    THRESHOLD,
    TTL_SECONDS,
    WAIT_SECONDS,
    ApplySummary,
    Attempts,
    Compact,
    Decision,
    DiscardSummary,
    NoAction,
    Phase,
    PolicyState,
    Promote,
    Prune,
    RenderPruned,
    StartBackground,
    Wait,
    is_cache_warm,
    judge_attempt,
)
from promptkit.compaction.policy.usage import (
    UsageReading,
    WindowUsage,
    describe_largest,
    find_last_reply,
    find_summary_tokens,
)
from promptkit.compaction.pruning.processors import (
    Processor,
    RequestLimits,
    ViewProcessor,
    truncate_history,
)
from promptkit.compaction.pruning.tool_outputs import (
    ONLY_STATED,
    OutputRules,
    Pruning,
    ReduceToolResults,
    prune_outputs,
    prune_reasoning,
)
from promptkit.compaction.run.background import Background
from promptkit.compaction.run.compactor import Compactor
from promptkit.compaction.run.events import DecisionMade
from promptkit.compaction.run.state import (
    ConversationState,
    PendingRequest,
    RequestState,
    RequestVersion,
)
from promptkit.errors import CompactionInProgressError, ContextWindowFullError
from promptkit.messages import Message, as_mapping
from promptkit.providers import Model
from promptkit.rendering.expand.sizing import Sizer
from promptkit.reprs import describe
from promptkit.tokens import ContextBudget, Tokenizer
from promptkit.tokens.models import model_name
from promptkit.transcript import Edit, Entry, MessageEntry, TranscriptView

LEAST_REPLACED = 500
"""The tokens that a compaction on the user's request must replace: for fewer no model is asked."""

LEAST_SHARE = 20
"""In a small window, this part of it is enough: a twentieth."""


@attrs.frozen(kw_only=True)
class _Course:
    """The decisions that one kind of phase carries out, and when the policy decides again."""

    carries_out: tuple[type[Decision], ...]
    """The decisions that are carried out. Any other one ends the phase."""
    again_after: tuple[type[Decision], ...] = ()
    """The policy decides again after one of these was carried out."""
    again_without: tuple[type[Decision], ...] = ()
    """The policy decides again if one of these could not be carried out."""
    discards: str | None = None
    """Why a background summary is discarded before a compaction in the foreground. None: it is
    not."""


_PREPARE = _Course(
    carries_out=(ApplySummary, Wait, Promote, DiscardSummary, Prune, Compact),
    again_after=(Wait, Promote, DiscardSummary, Prune),
)
"""Before a request is rendered."""

_MAKE_ROOM = _Course(
    carries_out=(ApplySummary, Wait, Promote, DiscardSummary, Compact, RenderPruned),
    again_after=(Wait, DiscardSummary),
    again_without=(ApplySummary, Compact),
    discards="the request could not wait for it",
)
"""While a request is too large."""

_ONCE = _Course(carries_out=(Promote, Prune, Compact), discards="a summary is made now: {trigger}")
"""While no request is pending."""


@attrs.frozen(kw_only=True)
class _Moment:
    """A phase, and what is known in it alone."""

    phase: Phase
    course: _Course = _ONCE
    tokens: int | None = None
    """The size of the request. None: that of the next request, whenever the policy decides."""
    refused_by: str | None = None
    idle_seconds: float = 0.0
    to_smaller_window: bool = False

    @property
    def fits(self) -> bool:
        """True unless the next request is known to be too large."""
        return self.course is not _MAKE_ROOM


@attrs.define(eq=False, slots=False)
class CompactionController:
    """Carry out the policy's decisions for one transcript.

    There is one for each conversation, used in one event loop.

    A request takes these steps. `prepare` returns the request's state. If the render does not fit,
    `make_room` returns the next state and the request is rendered again. `on_rendered` and
    `on_reply` report a request that fits and its reply.
    """

    compactor: Compactor
    """Makes and commits summaries."""
    state: ConversationState
    """The model, the budget, and what happened so far."""
    policy: Policy = attrs.field(kw_only=True)
    """Decides what happens in each phase."""
    enabled: bool = attrs.field(default=True, kw_only=True)
    """False: nothing is compacted automatically; a request that is too large is pruned."""
    reduce: ReduceToolResults | None = attrs.field(default=None, kw_only=True)
    """Which tool results are replaced by placeholders where the policy says so; None: none."""
    processors: Sequence[Processor] = attrs.field(default=(), kw_only=True)
    """Change the messages of each request. The size of a conversation is that of the changed
    messages. The last resort of pruned requests, `truncate_history()`, runs behind them."""
    preset_cache_seconds: float = attrs.field(default=CACHE_SECONDS, kw_only=True)
    """Seconds after a request for which the provider's prompt cache holds it, unless the model's
    option `cache_ttl` says it."""
    clock: Callable[[], float] = attrs.field(default=time.monotonic, kw_only=True)
    """Returns seconds that only grow."""
    processor: ViewProcessor = attrs.field(init=False)
    """Makes the messages of requests from views."""
    background: Background = attrs.field(init=False)
    """The background summary."""
    _window: WindowUsage = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.processor = ViewProcessor((*self.processors, truncate_history()))
        self.background = Background(
            unused=lambda draft: self.compactor.discard(
                draft, "it was finished after it had been cancelled"
            )
        )
        self._window = self._new_window()
        last = find_last_reply(self.compactor.transcript.path())
        if last is not None and isinstance(last.payload, MessageEntry):
            same = last.payload.model in {None, self.model}
            asked_at = self.clock() - max(0.0, time.time() - last.time) if same else None
            self.state = attrs.evolve(self.state, asked_at=asked_at)

    def __repr__(self) -> str:
        return describe(self, model=self.model, limit=self.state.budget.limit, enabled=self.enabled)

    @property
    def model(self) -> str:
        """The name of the model that answers."""
        return model_name(self.state.model)

    @property
    def budget(self) -> ContextBudget:
        """The token budget of requests."""
        return self.state.budget

    @property
    def version(self) -> RequestVersion:
        """The version of what requests are built from."""
        return self.compactor.transcript.leaf, self.state.version

    @property
    def view(self) -> TranscriptView:
        """The messages of the transcript that the next request shows."""
        return self.compactor.view

    @property
    def processed_view(self) -> TranscriptView:
        """The view with the messages as the next request shows them, if it need not be pruned."""
        return self.processor.process(
            self.view,
            RequestLimits(
                limit=None,
                fixed_tokens=self.fixed_tokens,
                tokenizer=self.state.tokenizer,
                model=self.model,
                count_message=self.sizer.count_message,
            ),
        )

    @property
    def mid_turn(self) -> bool:
        """Whether a round of tool calls was completed in this turn."""
        return has_completed_round(self.view.items)

    @property
    def warm(self) -> bool:
        """Whether the provider's prompt cache is taken to hold the start of the next request."""
        return self._is_warm(self.usage().cached_share)

    def _is_warm(self, cached_share: float | None) -> bool:
        return is_cache_warm(
            seconds_since_request=self.seconds_since_request,
            cached_share=cached_share,
            mid_turn=self.mid_turn,
            cache_seconds=self.cache_seconds,
        )

    @property
    def cache_seconds(self) -> float:
        """Seconds after a request for which the provider's prompt cache holds it."""
        options = as_mapping(getattr(self.state.model, "options", None))
        return TTL_SECONDS.get(str(options.get("cache_ttl")), self.preset_cache_seconds)

    @property
    def seconds_since_request(self) -> float | None:
        """Seconds since the last request or reply, also of a program that had the conversation before. None: none is known."""
        asked_at = self.state.asked_at
        return None if asked_at is None else self.clock() - asked_at

    @property
    def fixed_tokens(self) -> int:
        """The tokens that every request has besides the conversation, as far as they are known."""
        return self._window.fixed_tokens

    @property
    def sizer(self) -> Sizer:
        """Counts messages with the tokenizer of the state, each once while it stays in the view."""
        return self._window.meter.sizer

    def usage(self) -> UsageReading:
        """Measure how much of the context window the next request takes."""
        return self._window.reading(self.budget.window)

    def on_user_message(self) -> None:
        """Handle a new user message: one more automatic attempt is allowed."""
        self.state = attrs.evolve(self.state, attempts=self.state.attempts.after_user_message())

    def set_budget(self, budget: ContextBudget) -> None:
        """Continue with another budget for the same model."""
        self.state = self.state.on_budget_change(budget)

    def set_model(self, model: str | Model, budget: ContextBudget, *, tokenizer: Tokenizer) -> None:
        """Continue with another model.

        A pending background summary stays where the window is larger than before: the policy judges
        it by the new size. Otherwise it is discarded.
        """
        before, window = self.budget.window, budget.window
        if before is None or window is None or window <= before:
            self._discard_background("the model was changed")
        self.state = attrs.evolve(self.state, attempts=Attempts()).on_model_change(
            model, budget, tokenizer
        )
        self._window = self._new_window()

    def set_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Count with another tokenizer for the same model from now on.

        What the conversation shows is not changed.
        """
        self.state = attrs.evolve(self.state, tokenizer=tokenizer)
        self._window.set_tokenizer(tokenizer)

    def on_branch_change(self, reason: str) -> None:
        """Handle a rewind, a change of the branch or a reset.

        What was prepared for the branch that is left, such as a background summary, is discarded.
        """
        self._discard_background(reason)
        self.state = self.state.on_branch_change()
        self.compactor.report_branch_change()

    def undo(self) -> Entry | None:
        """Show again what the latest compaction summarized. Returns None if there is none."""
        self._discard_background("a compaction was undone")
        self.state = attrs.evolve(self.state, attempts=Attempts())
        return self.compactor.undo()

    async def close(self) -> None:
        """Cancel the background summary and wait until it has ended.

        No other one starts afterwards.
        """
        self._discard_background("the conversation was closed")
        await self.background.close()

    async def prepare(self) -> RequestState:
        """Act before a request is rendered: apply a ready summary, prune, or compact at a threshold."""
        state = RequestState()
        smaller, self.state = (
            self.state.to_smaller_window,
            attrs.evolve(self.state, to_smaller_window=None),
        )
        if smaller is not None:
            state, _, _ = await self._run(
                _Moment(phase="model_switch", to_smaller_window=smaller), state
            )
        state = await self._react_to_overflow(state)
        state, _, _ = await self._run(_Moment(phase="before_render", course=_PREPARE), state)
        return state

    async def _react_to_overflow(self, state: RequestState) -> RequestState:
        """Make room if the provider counted more tokens than the context window has, and answered.

        Reacts once to a reply.
        """
        reading = self.usage()
        if (
            state.compacted
            or not reading.overflowed
            or reading.counted_entry_id == self.state.overflowed_reply
        ):
            return state
        self.state = attrs.evolve(self.state, overflowed_reply=reading.counted_entry_id)
        try:
            made = await self._make_room("overflow", state, reading.tokens)
        except ContextWindowFullError:  # as far as is counted here, the request fits
            return state
        # for the same reason pruning would leave nothing out
        return attrs.evolve(made, pruned=False)

    async def make_room(
        self, state: RequestState, tokens: int, *, refused_by: str | None = None
    ) -> RequestState:
        """Act on a request that is too large. Afterwards it is to be rendered again.

        Args:
            state: What was already done for this request.
            tokens: The size of the request, in tokens.
            refused_by: The model whose provider refused the request; None if the render already
                exceeded the budget.

        Returns:
            The state with which to render again.

        Raises:
            ContextWindowFullError: Nothing else can be done. It names the largest messages.
        """
        # what it was pruned to was still too large, and the budget is smaller now
        if refused_by is not None:
            state = attrs.evolve(state, pruned=False, refused=True)
        try:
            return await self._make_room(
                "overflow" if refused_by is None else "rejected",
                state,
                tokens,
                refused_by=refused_by,
            )
        except ContextWindowFullError as error:
            raise ContextWindowFullError(
                f"{error}. {describe_largest(self.view.messages, self.state.tokenizer)}"
            ) from error

    async def make_room_for_reply(self) -> bool:
        """Act on a reply that was cut off because the context window is full.

        Returns True if the next reply has more room.
        """
        try:
            state = await self._make_room("incomplete", RequestState(), self.usage().tokens)
        except ContextWindowFullError:
            return False
        return not state.pruned  # the same request fits, so that nothing would be left out of it

    async def _make_room(
        self, phase: Phase, state: RequestState, tokens: int, *, refused_by: str | None = None
    ) -> RequestState:
        moment = _Moment(phase=phase, course=_MAKE_ROOM, tokens=tokens, refused_by=refused_by)
        state, decision, done = await self._run(moment, state)
        if done or (isinstance(decision, NoAction) and refused_by not in {None, self.model}):
            return state
        raise ContextWindowFullError(str(decision.reason))

    async def run_phase(self, phase: Phase, *, idle_seconds: float = 0.0) -> bool:
        """Run a phase of the policy in which no request is pending, for example `turn_end` or `idle`.

        Args:
            phase: The phase.
            idle_seconds: Seconds since the last message.

        Returns:
            True if a compaction, a promotion or a pruning ran.
        """
        _, _, done = await self._run(
            _Moment(phase=phase, idle_seconds=idle_seconds), RequestState()
        )
        return done

    async def _run(
        self, moment: _Moment, state: RequestState
    ) -> tuple[RequestState, Decision, bool]:
        """Ask the policy and carry its decisions out, until one of them ends the phase.

        Returns the state, the last decision, and whether it was carried out.
        """
        course = moment.course
        while True:
            tokens = self.usage().tokens if moment.tokens is None else moment.tokens
            decision = self._decide(moment, tokens, state)
            done = False
            if isinstance(decision, course.carries_out):
                state, done = await self._carry_out(decision, moment, state)
            if not isinstance(decision, course.again_after if done else course.again_without):
                return state, decision, done

    async def _carry_out(
        self, decision: Decision, moment: _Moment, state: RequestState
    ) -> tuple[RequestState, bool]:
        """Carry a decision out. Returns the next state, and whether anything was done."""
        done = True
        match decision:
            case Wait(seconds=seconds):
                state = attrs.evolve(state, waited=True)
                await self.background.wait(seconds)
            case DiscardSummary(reason=reason):
                self._discard_background(str(reason))
            case RenderPruned():
                state = attrs.evolve(state, pruned=True)
            case Promote():
                done = self._promote()
            case Prune():
                done = self._prune_outputs(decision)
            case ApplySummary():
                done = await self._apply_background()
                state = attrs.evolve(state, compacted=done or state.compacted)
            case Compact(trigger=trigger, extract=extract):
                state = attrs.evolve(state, extracted=extract or state.extracted)
                if moment.course.discards is not None:
                    self._discard_background(moment.course.discards.format(trigger=trigger))
                done = await self._compact(
                    decision, reuse_request=moment.refused_by is None, fits=moment.fits
                )
                state = attrs.evolve(state, compacted=done or state.compacted)
            case _:
                done = False
        return state, done

    def on_rendered(self, request: PendingRequest) -> None:
        """Handle a rendered request that fits."""
        self.state = attrs.evolve(self.state, pending=request, asked_at=self.clock())
        self._window.on_rendered(
            request.tokens,
            self.budget.window,
            items=len(self.view.items),
            pruned=request.state.pruned,
        )

    @property
    def wait_seconds(self) -> float:
        """The longest time that one summarizer may take on the request of the user, in seconds, by the policy."""
        decision = self.policy.decide(
            self._build_state(_Moment(phase="manual"), None, RequestState())
        )
        return decision.seconds if isinstance(decision, Compact) else WAIT_SECONDS

    def on_reply(self, request: PendingRequest, reply: Message) -> None:
        """Handle the reply to a rendered request, which is in the transcript: start a background summary if it is time."""
        window, answered = self._window, None
        if window.leaf is not None and not request.state.pruned and not window.moved:
            answered = SentRequest(
                request=request.content, leaf=window.leaf, items=window.items
            ).with_reply(reply, self.view.items)
        self.state = attrs.evolve(
            self.state, pending=None, answered=answered, asked_at=self.clock()
        )
        tokens = window.on_reply(self.budget.window)
        rereading = window.add_request(self.state.rereading, checkpoint_id=self.view.checkpoint_id)
        if self.view.checkpoint_id != self.state.rereading.checkpoint_id:
            self.state = attrs.evolve(
                self.state,
                summary_tokens=find_summary_tokens(self.compactor.transcript.path(), self.model),
            )
        self.state = attrs.evolve(self.state, rereading=rereading)
        decision = self._decide(_Moment(phase="rendered"), tokens, request.state)
        if isinstance(decision, StartBackground):
            self._start_background()

    async def compact(
        self, instructions: str | None = None, *, allow_extractive: bool = False
    ) -> Entry | None:
        """Compact now, on the user's request.

        Args:
            instructions: What the summary should pay attention to.
            allow_extractive: Take a summary without a model if no model wrote one. Otherwise that
                raises SummaryError, unless the conversation has no summarizing model.

        Returns:
            The checkpoint; None if there is nothing to drop, or too little.

        Raises:
            SummaryError: No summary was made.
            CompactionInProgressError: Another compaction is running.
        """
        if self.compactor.running:
            raise CompactionInProgressError
        before, plan = self.usage().tokens, self.compactor.plan()
        decision = self._decide(_Moment(phase="manual"), before, RequestState())
        window = self.budget.window
        least = LEAST_REPLACED if window is None else min(LEAST_REPLACED, window // LEAST_SHARE)
        if not isinstance(decision, Compact) or self.compactor.count_replaced(plan) < least:
            return None
        self._discard_background("a compaction was requested")
        entry = await self.compactor.compact(
            plan,
            trigger="manual",
            instructions=instructions,
            last_request=self._live_request(plan),
            seconds=decision.seconds,
            require_model=not allow_extractive,
        )
        if entry is not None:
            self._record_outcome(before)
        return entry

    def _decide(self, moment: _Moment, tokens: int | None, request: RequestState) -> Decision:
        if self.background.state == "failed" and not self.state.failure_counted:
            self.state = attrs.evolve(
                self.state.on_attempt("failed", background=True), failure_counted=True
            )
        state = self._build_state(moment, tokens, request)
        decision = self.policy.decide(state)
        reason = decision.reason
        self.compactor.events.emit(
            DecisionMade(
                decision=type(decision).__name__,
                reason=str(reason),
                tokens=tokens,
                ratio=state.ratio,
                threshold=reason.threshold,
                warm=reason.warm,
            )
        )
        return decision

    def _build_state(
        self, moment: _Moment, tokens: int | None, request: RequestState
    ) -> PolicyState:
        plan, warm, phase = self.background.plan, self.warm, moment.phase
        prunable = self._find_prunable(tokens) if phase == "before_render" else Pruning()
        seconds, promotion = self.seconds_since_request, self.state.promotion
        # Without a request of this window nothing is known of the cache: another program may have filled it.
        is_cold = phase == "before_render" and seconds is not None and seconds > self.cache_seconds
        return PolicyState(
            phase=phase,
            budget=self.budget,
            tokens=tokens,
            fixed_tokens=self._window.fixed_tokens,
            prunable_tokens=prunable.saved_tokens,
            superseded_tokens=prunable.superseded_tokens,
            reasoning_tokens=self._plan_reasoning()[1] if is_cold else 0,
            request_tokens=self._count_user_request(phase),
            rereading=self.state.rereading,
            summary_tokens=self.state.summary_tokens,
            warm=warm,
            cache_seconds=self.cache_seconds,
            seconds_since_request=seconds,
            cached_tokens=self.usage().cached_tokens,
            mid_turn=self.mid_turn,
            enabled=self.enabled,
            background=self.background.state,
            stale=plan is not None and self.compactor.find_change(plan.leaf) is not None,
            attempts=self.state.attempts,
            messages=len(self.view.items),
            idle_seconds=moment.idle_seconds,
            to_smaller_window=moment.to_smaller_window,
            larger_model=promotion.model if promotion else None,
            compacted=request.compacted,
            extracted=request.extracted,
            waited=request.waited,
            pruned=request.pruned,
            model=self.model,
            refused_by=moment.refused_by,
        )

    def _count_user_request(self, phase: Phase) -> int:
        """Count the tokens of the user's last message, unless it is answered and nothing was rendered for it."""
        items = self.view.items
        at = find_last_user_request(items)
        is_answered = bool(items) and items[-1].message.role == "assistant"
        return (
            0
            if at is None or (is_answered and phase != "rendered")
            else self.sizer.count_message(items[at].message)
        )

    def _start_background(self) -> None:
        """Start a background summary if there is something to drop."""
        compactor = self.compactor
        keep = compactor.keep
        plan = compactor.plan(
            attrs.evolve(keep, background=True) if isinstance(keep, KeepLastRound) else keep
        )
        if plan.is_empty or compactor.running:
            return
        self.state = attrs.evolve(self.state, failure_counted=False)
        request = self._live_request(plan)
        self.background.start(
            lambda: compactor.draft(
                plan, trigger="background", last_request=request, require_model=True
            ),
            plan,
        )

    async def _apply_background(self) -> bool:
        """Commit the background summary. Returns True if it is in place."""
        draft = self.background.take()
        if draft is None:
            return False
        before = self.usage().tokens
        try:
            entry = await self.compactor.commit(draft)
        except Exception:  # noqa: BLE001  # an event reported why, for example a full disk; the request may still be possible
            self.state = self.state.on_attempt("failed")
            return False
        if entry is None:
            return False
        self._record_outcome(before, background=True)
        return True

    async def _compact(
        self, decision: Compact, *, reuse_request: bool = True, fits: bool = True
    ) -> bool:
        """Compact in the foreground.

        Returns True if a summary is in place. An event reports a failure, which is not raised.

        If no document for a handoff is made, the conversation is summarized as at any threshold.
        While the next request still `fits`, only a model's summary is put in place, and a failure
        does not use up the attempt of a request that does not fit.
        """
        before = self.usage().tokens
        compactor = self.compactor
        is_handoff = decision.trigger == HANDOFF
        await take_turn()
        plan = compactor.plan(KeepNothing() if is_handoff else None)
        try:
            entry = await compactor.compact(
                plan,
                trigger=decision.trigger,
                last_request=self._live_request(plan) if reuse_request else None,
                seconds=decision.seconds,
                require_model=fits,
                extract=decision.extract,
            )
        except CompactionInProgressError:
            # one that the user requested is running: it serves this request, too
            await compactor.wait_idle()
            if compactor.find_change(plan.leaf):
                return True
            entry = None
        except Exception:  # noqa: BLE001  # an event reported why; the policy decides how to continue without a summary
            entry = None
        if entry is None and is_handoff:
            return await self._compact(
                attrs.evolve(decision, trigger=THRESHOLD), reuse_request=reuse_request, fits=fits
            )
        if entry is None:
            if not decision.extract:  # no model was asked, so it is not bounded
                self.state = self.state.on_attempt("failed", background=fits)
            return False
        self._record_outcome(before)
        await (
            let_others_run()
        )  # the checkpoint took some milliseconds, and so does the next request
        return True

    def _discard_background(self, reason: str) -> None:
        draft = self.background.cancel()
        if draft is not None:
            self.compactor.discard(draft, reason)

    def _record_outcome(self, before: int, *, background: bool = False) -> None:
        """Record what a committed compaction of a conversation of `before` tokens achieved."""
        self.state = self.state.on_attempt(
            judge_attempt(before, self.usage().tokens, budget=self.budget), background=background
        )

    def _live_request(self, plan: Plan) -> LastRequest | None:
        """Return the last request if it shows all that a plan drops, so that the summary can be requested behind it."""
        sent = self.state.answered
        return (
            sent.request
            if sent is not None
            and sent.shows(plan, self.view.items)
            and not self.compactor.find_change(sent.leaf)
            else None
        )

    def _promote(self) -> bool:
        promotion = self.state.promotion
        if promotion is None:
            return False
        self.state = attrs.evolve(self.state, promotion=None)
        promotion.switch()
        # a larger window needs no reaction
        self.state = attrs.evolve(self.state, to_smaller_window=None)
        return True

    def _find_prunable(self, tokens: int | None) -> Pruning:
        """Plan the replacement of tool results, for a request of so many tokens.

        The request after one that the cache did not hold, such as the first after a compaction, is
        in the cache: that one was written to it.
        """
        share = self.usage().cached_share
        if share is not None and self.state.rereading.cached is not False:
            share = 1.0
        applies = (self.reduce or ONLY_STATED).applies(
            warm=self._is_warm(share), ratio=self.budget.ratio(tokens)
        )
        return self._plan_pruning() if applies else Pruning()

    def _plan_pruning(self) -> Pruning:
        compactor = self.compactor
        if self.reduce is None and not compactor.supersedes:
            return Pruning()
        return prune_outputs(
            compactor.transcript.path(),
            self.view,
            self.reduce or ONLY_STATED,
            tokenizer=self.state.tokenizer,
            rules=OutputRules(file_rules=compactor.file_rules, supersedes=compactor.supersedes),
        )

    def _plan_reasoning(self) -> tuple[tuple[Edit, ...], int]:
        return prune_reasoning(self.view.items, count=self.sizer.count_message)

    def _prune_outputs(self, decision: Prune) -> bool:
        if decision.only_reasoning:
            edits, _ = self._plan_reasoning()
        else:
            pruning = self._plan_pruning()
            edits = pruning.superseded if decision.only_superseded else pruning.edits
        if edits:
            self.compactor.transcript.append(*edits)
        return bool(edits)

    def _new_window(self) -> WindowUsage:
        sizer = self.compactor.sizer
        return WindowUsage(
            self.compactor.transcript,
            view=lambda: self.processed_view,
            changed=self.compactor.find_change,
            tokenizer=self.state.tokenizer,
            model=self.model,
            fixed_tokens=self.budget.tools,
            sizer=sizer if sizer.tokenizer == self.state.tokenizer else None,
        )
