"""Keep one conversation within its context window: ask the policy, and carry out its decisions."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.planning.blocks import find_last_user_request, has_completed_round
from promptkit.compaction.planning.plan import SentRequest
from promptkit.compaction.planning.selection import KeepLastRound, KeepNothing
from promptkit.compaction.policy.decisions import (
    HANDOFF,
    THRESHOLD,
    WAIT_SECONDS,
    ApplySummary,
    Compact,
    DiscardSummary,
    NoAction,
    Promote,
    Prune,
    RenderPruned,
    StartBackground,
    Wait,
)
from promptkit.compaction.policy.least import describe_largest
from promptkit.compaction.policy.state import (
    CACHE_SECONDS,
    Attempts,
    PolicyState,
    Rereading,
    is_cache_warm,
    judge_attempt,
)
from promptkit.compaction.policy.usage import WindowUsage
from promptkit.compaction.pruning.processors import RequestLimits, ViewProcessor, truncate_history
from promptkit.compaction.pruning.tool_outputs import Pruning, prune_outputs
from promptkit.compaction.run.background import Background
from promptkit.compaction.run.events import DecisionMade
from promptkit.errors import CompactionInProgressError, ContextWindowFullError
from promptkit.tokens.budget import ContextBudget
from promptkit.tokens.models import tokenizer_for

if TYPE_CHECKING:
    from promptkit.compaction.planning.plan import LastRequest, Plan
    from promptkit.compaction.policy.decisions import Decision
    from promptkit.compaction.policy.rules import Policy
    from promptkit.compaction.policy.state import Phase
    from promptkit.compaction.policy.usage import UsageReading
    from promptkit.compaction.pruning.processors import Processor
    from promptkit.compaction.pruning.tool_outputs import ReduceToolResults
    from promptkit.compaction.run.compactor import Compactor
    from promptkit.messages import Message
    from promptkit.providers.model import Model
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.log.entries import Entry
    from promptkit.transcript.log.view import TranscriptView


@attrs.frozen(kw_only=True)
class RequestState:
    """What was already done for one request.

    `prepare` creates it, `make_room` replaces it; the controller does not store it.
    """

    compacted: bool = False
    """A summary was committed for this request."""
    waited: bool = False
    """This request waited for the background summary."""
    pruned: bool = False
    """The request is to be rendered with a history that may be pruned."""
    refused: bool = False
    """A provider refused this request as too large once."""


@attrs.frozen(kw_only=True)
class Promotion:
    """A model with a larger context window, and the function that switches the conversation to it."""

    model: str
    switch: Callable[[], object]


def find_promotion(
    models: Sequence[Model],
    window: int | None,
    *,
    switch: Callable[[Model], object],
    tokenizer: Tokenizer | None = None,
) -> Promotion | None:
    """Find the first model whose window is known and has more than `window` tokens.

    Args:
        models: The models that the conversation may be switched to, the smallest first.
        window: The context window of the present model, in tokens. None: unknown, so that no model
            is known to be larger.
        switch: Switches the conversation to a model.
        tokenizer: Counts tokens; by default each model's own.

    Returns:
        The promotion, or None if there is no such model.
    """
    if window is None:
        return None
    for model in models:
        size = ContextBudget.for_model(
            model, tokenizer=tokenizer or tokenizer_for(model.name)
        ).window
        if size is not None and size > window:
            return Promotion(model=model.name, switch=partial(switch, model))
    return None


@attrs.frozen(kw_only=True)
class _ModelChange:
    """A change of the model that the next request has to react to."""

    to_smaller_window: bool


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
    budget: ContextBudget = attrs.field(kw_only=True)
    """The token budget of requests."""
    policy: Policy = attrs.field(kw_only=True)
    """Decides what happens in each phase."""
    tokenizer: Tokenizer = attrs.field(kw_only=True)
    """Counts messages."""
    model: str = attrs.field(kw_only=True)
    """The name of the model that answers."""
    enabled: bool = attrs.field(default=True, kw_only=True)
    """False: nothing is compacted automatically; a request that is too large is pruned."""
    reduce: ReduceToolResults | None = attrs.field(default=None, kw_only=True)
    """Which tool results are replaced by placeholders where the policy says so; None: none."""
    processors: Sequence[Processor] = attrs.field(default=(), kw_only=True)
    """Change the messages of each request. The size of a conversation is that of the changed
    messages. The last resort of pruned requests, `truncate_history()`, runs behind them."""
    cache_seconds: float = attrs.field(default=CACHE_SECONDS, kw_only=True)
    """Seconds after a request for which the provider's prompt cache holds it."""
    clock: Callable[[], float] = attrs.field(default=time.monotonic, kw_only=True)
    """Returns seconds that only grow."""
    processor: ViewProcessor = attrs.field(init=False)
    """Makes the messages of requests from views."""
    background: Background = attrs.field(init=False)
    """The background summary."""
    attempts: Attempts = attrs.field(factory=Attempts, init=False)
    """The outcome of automatic compactions so far."""
    promotion: Promotion | None = attrs.field(default=None, init=False)
    """A larger model that the policy may switch to."""
    _window: WindowUsage = attrs.field(init=False)
    _sent: SentRequest | None = attrs.field(default=None, init=False)
    _asked_at: float | None = attrs.field(default=None, init=False)
    """The time of the last request or reply; None: there was none since this conversation or this
    model was opened."""
    _rereading: Rereading = attrs.field(factory=Rereading, init=False)
    _model_change: _ModelChange | None = attrs.field(default=None, init=False)
    _failure_counted: bool = attrs.field(default=False, init=False)
    _overflowed_reply: str | None = attrs.field(default=None, init=False)
    """The last reply whose request was counted as larger than the context window, and was reacted
    to."""

    def __attrs_post_init__(self) -> None:
        self.processor = ViewProcessor((*self.processors, truncate_history()))
        self.background = Background(
            unused=lambda draft: self.compactor.discard(
                draft, "it was finished after it had been cancelled"
            )
        )
        self._window = self._new_window()

    @property
    def view(self) -> TranscriptView:
        """The messages of the transcript that the next request shows."""
        return self.compactor.view

    @property
    def processed_view(self) -> TranscriptView:
        """The view with the messages as the next request shows them, if it need not be pruned."""
        limits = RequestLimits(limit=None, fixed_tokens=self.fixed_tokens, tokenizer=self.tokenizer)
        return self.processor.process(self.view, limits)

    @property
    def mid_turn(self) -> bool:
        """Whether a round of tool calls was completed in this turn."""
        return has_completed_round(self.view.items)

    @property
    def warm(self) -> bool:
        """Whether the provider's prompt cache is taken to hold the start of the next request."""
        return is_cache_warm(
            seconds_since_request=None if self._asked_at is None else self.clock() - self._asked_at,
            cached_share=self.usage().cached_share,
            mid_turn=self.mid_turn,
            cache_seconds=self.cache_seconds,
        )

    @property
    def fixed_tokens(self) -> int:
        """The tokens that every request has besides the conversation, as far as they are known."""
        return self._window.fixed_tokens

    def usage(self) -> UsageReading:
        """Measure how much of the context window the next request takes."""
        return self._window.reading(self.budget.window)

    def on_user_message(self) -> None:
        """Handle a new user message: one more automatic attempt is allowed."""
        self.attempts = self.attempts.after_user_message()

    def set_model(self, model: str, budget: ContextBudget, *, tokenizer: Tokenizer) -> None:
        """Continue with another model.

        A pending background summary is discarded: it was made for the previous model's window.
        """
        self.reset("the model was changed")
        smaller = budget.window is not None and (
            self.budget.window is None or budget.window < self.budget.window
        )
        self.tokenizer = tokenizer
        self.model, self.budget = model, budget
        self._window = self._new_window()
        self._sent = self._asked_at = None
        self._model_change = _ModelChange(to_smaller_window=smaller)

    def set_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Count with another tokenizer for the same model from now on.

        What the conversation shows is not changed.
        """
        self.tokenizer = tokenizer
        self._window.set_tokenizer(tokenizer)

    def reset(self, reason: str) -> None:
        """Discard the pending background summary and reset the attempt counter, for example after a rewind."""
        self._discard_background(reason)
        self.attempts = Attempts()

    async def close(self) -> None:
        """Cancel the background summary and wait until it has ended.

        No other one starts afterwards.
        """
        self._discard_background("the conversation was closed")
        await self.background.close()

    async def prepare(self) -> RequestState:
        """Act before a request is rendered: apply a ready summary, prune, or compact at a threshold."""
        state = RequestState()
        change, self._model_change = self._model_change, None
        if change is not None:
            state, _ = await self._run_phase(
                "model_switch", state, to_smaller_window=change.to_smaller_window
            )
        state = await self._react_to_overflow(state)
        while True:
            match self._decide("before_render", self.usage().tokens, state):
                case ApplySummary():
                    return attrs.evolve(
                        state, compacted=await self._apply_background() or state.compacted
                    )
                case Wait(seconds=seconds):
                    state = attrs.evolve(state, waited=True)
                    await self.background.wait(seconds)
                case Promote() if self._promote():
                    pass
                case DiscardSummary(reason=reason):
                    self._discard_background(str(reason))
                case Prune() as decision if self._prune_outputs(decision):
                    pass
                case Compact() as decision:
                    return attrs.evolve(
                        state, compacted=await self._compact(decision) or state.compacted
                    )
                case _:
                    return state

    async def _react_to_overflow(self, state: RequestState) -> RequestState:
        """Make room if the provider counted more tokens than the context window has, and answered.

        Reacts once to a reply.
        """
        reading = self.usage()
        if (
            state.compacted
            or not reading.overflowed
            or reading.counted_entry_id == self._overflowed_reply
        ):
            return state
        self._overflowed_reply = reading.counted_entry_id
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
            problem = f"{error}. {describe_largest(self.view.messages, self.tokenizer)}"
            raise ContextWindowFullError(problem) from error

    async def make_room_for_reply(self) -> bool:
        """Act on a reply that was cut off because the context window is full.

        Returns True if the next reply has more room.
        """
        try:
            state = await self._make_room("incomplete", RequestState(), self.usage().tokens)
        except ContextWindowFullError:
            return False
        return not state.pruned  # the same request fits, so that nothing would be left out of it

    async def _make_room(  # noqa: C901  # a case for each decision
        self, phase: Phase, state: RequestState, tokens: int, *, refused_by: str | None = None
    ) -> RequestState:
        while True:
            decision = self._decide(phase, tokens, state, refused_by=refused_by)
            match decision:
                case ApplySummary():
                    if await self._apply_background():
                        return attrs.evolve(state, compacted=True)
                case Wait(seconds=seconds):
                    state = attrs.evolve(state, waited=True)
                    await self.background.wait(seconds)
                case Compact():
                    self._discard_background("the request could not wait for it")
                    if await self._compact(decision, reuse_request=refused_by is None, fits=False):
                        return attrs.evolve(state, compacted=True)
                case Promote() if self._promote():
                    return state
                case RenderPruned():
                    return attrs.evolve(state, pruned=True)
                case DiscardSummary(reason=reason):
                    self._discard_background(str(reason))
                case NoAction() if refused_by not in {None, self.model}:
                    return state
                case _:
                    raise ContextWindowFullError(str(decision.reason))

    async def run_phase(self, phase: Phase, *, idle_seconds: float = 0.0) -> bool:
        """Run a phase of the policy in which no request is pending, for example `turn_end` or `idle`.

        Args:
            phase: The phase.
            idle_seconds: Seconds since the last message.

        Returns:
            True if a compaction, a promotion or a pruning ran.
        """
        _, acted = await self._run_phase(phase, RequestState(), idle_seconds=idle_seconds)
        return acted

    def on_rendered(self, state: RequestState, tokens: int) -> None:
        """Handle a rendered request of `tokens` that fits."""
        self._asked_at = self.clock()
        self._window.on_rendered(
            tokens, self.budget.window, items=len(self.view.items), pruned=state.pruned
        )

    @property
    def wait_seconds(self) -> float:
        """The longest time that one summarizer may take on the request of the user, in seconds, by the policy."""
        decision = self.policy.decide(self._build_state("manual", None, RequestState()))
        return decision.seconds if isinstance(decision, Compact) else WAIT_SECONDS

    def on_reply(self, state: RequestState, request: LastRequest, reply: Message) -> None:
        """Handle the reply to a rendered request, which is in the transcript: start a background summary if it is time."""
        window, self._sent = self._window, None
        self._asked_at = self.clock()
        if window.leaf is not None and not state.pruned and not window.moved:
            self._sent = SentRequest(
                request=request, leaf=window.leaf, items=window.items
            ).with_reply(reply, self.view.items)
        tokens = window.on_reply(self.budget.window)
        self._rereading = window.add_request(self._rereading, checkpoint_id=self.view.checkpoint_id)
        decision = self._decide("rendered", tokens, state)
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
        decision = self._decide("manual", before, RequestState())
        if not isinstance(decision, Compact):
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

    async def _run_phase(
        self,
        phase: Phase,
        state: RequestState,
        *,
        idle_seconds: float = 0.0,
        to_smaller_window: bool = False,
    ) -> tuple[RequestState, bool]:
        decision = self._decide(
            phase,
            self.usage().tokens,
            state,
            idle_seconds=idle_seconds,
            to_smaller_window=to_smaller_window,
        )
        match decision:
            case Compact(trigger=trigger):
                self._discard_background(f"a summary is made now: {trigger}")
                compacted = await self._compact(decision)
                return attrs.evolve(state, compacted=compacted), compacted
            case Promote():
                return state, self._promote()
            case Prune():
                return state, self._prune_outputs(decision)
            case _:
                return state, False

    def _decide(  # noqa: PLR0913  # what differs between the phases
        self,
        phase: Phase,
        tokens: int | None,
        request: RequestState,
        *,
        refused_by: str | None = None,
        idle_seconds: float = 0.0,
        to_smaller_window: bool = False,
    ) -> Decision:
        self._count_background_failure()
        state = self._build_state(
            phase,
            tokens,
            request,
            refused_by=refused_by,
            idle_seconds=idle_seconds,
            to_smaller_window=to_smaller_window,
        )
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

    def _build_state(  # noqa: PLR0913  # what differs between the phases
        self,
        phase: Phase,
        tokens: int | None,
        request: RequestState,
        *,
        refused_by: str | None = None,
        idle_seconds: float = 0.0,
        to_smaller_window: bool = False,
    ) -> PolicyState:
        plan, warm = self.background.plan, self.warm
        prunable = self._find_prunable(tokens, warm=warm) if phase == "before_render" else Pruning()
        return PolicyState(
            phase=phase,
            budget=self.budget,
            tokens=tokens,
            fixed_tokens=self._window.fixed_tokens,
            prunable_tokens=prunable.saved_tokens,
            superseded_tokens=prunable.superseded_tokens,
            request_tokens=self._count_user_request() if phase == "rendered" else 0,
            rereading=self._rereading,
            warm=warm,
            mid_turn=self.mid_turn,
            enabled=self.enabled,
            background=self.background.state,
            stale=plan is not None and self.compactor.find_change(plan.leaf) is not None,
            attempts=self.attempts,
            messages=len(self.view.items),
            idle_seconds=idle_seconds,
            to_smaller_window=to_smaller_window,
            larger_model=self.promotion.model if self.promotion else None,
            compacted=request.compacted,
            waited=request.waited,
            pruned=request.pruned,
            model=self.model,
            refused_by=refused_by,
        )

    def _count_user_request(self) -> int:
        """Count the tokens of the user's last message."""
        at = find_last_user_request(self.view.items)
        return 0 if at is None else self._window.count(self.view.items[at].message)

    def _start_background(self) -> None:
        """Start a background summary if there is something to drop."""
        compactor = self.compactor
        keep = compactor.keep
        plan = compactor.plan(
            attrs.evolve(keep, background=True) if isinstance(keep, KeepLastRound) else keep
        )
        if plan.is_empty or compactor.running:
            return
        self._failure_counted = False
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
            self.attempts = self.attempts.after_attempt("failed")
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
        plan = compactor.plan(KeepNothing() if is_handoff else None)
        try:
            entry = await compactor.compact(
                plan,
                trigger=decision.trigger,
                last_request=self._live_request(plan) if reuse_request else None,
                seconds=decision.seconds,
                require_model=fits,
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
            self.attempts = self.attempts.after_attempt("failed", background=fits)
            return False
        self._record_outcome(before)
        return True

    def _discard_background(self, reason: str) -> None:
        draft = self.background.cancel()
        if draft is not None:
            self.compactor.discard(draft, reason)

    def _record_outcome(self, before: int, *, background: bool = False) -> None:
        """Record what a committed compaction of a conversation of `before` tokens achieved."""
        outcome = judge_attempt(before, self.usage().tokens, budget=self.budget)
        self.attempts = self.attempts.after_attempt(outcome, background=background)

    def _count_background_failure(self) -> None:
        if self.background.state == "failed" and not self._failure_counted:
            self._failure_counted = True
            self.attempts = self.attempts.after_attempt("failed", background=True)

    def _live_request(self, plan: Plan) -> LastRequest | None:
        """Return the last request if it shows all that a plan drops, so that the summary can be requested behind it."""
        sent = self._sent
        usable = (
            sent is not None
            and sent.shows(plan, self.view.items)
            and not self.compactor.find_change(sent.leaf)
        )
        return sent.request if sent is not None and usable else None

    def _promote(self) -> bool:
        promotion, self.promotion = self.promotion, None
        if promotion is None:
            return False
        promotion.switch()
        self._model_change = None  # a larger window needs no reaction
        return True

    def _find_prunable(self, tokens: int | None, *, warm: bool) -> Pruning:
        """Plan the replacement of tool results, for a request of so many tokens."""
        if self.reduce is None or not self.reduce.applies(
            warm=warm, ratio=self.budget.ratio(tokens)
        ):
            return Pruning()
        return self._plan_pruning(self.reduce)

    def _plan_pruning(self, reduce: ReduceToolResults) -> Pruning:
        compactor = self.compactor
        return prune_outputs(
            compactor.transcript.path(),
            self.view,
            reduce,
            tokenizer=self.tokenizer,
            file_rules=compactor.file_rules,
        )

    def _prune_outputs(self, decision: Prune) -> bool:
        pruning = Pruning() if self.reduce is None else self._plan_pruning(self.reduce)
        edits = pruning.superseded if decision.only_superseded else pruning.edits
        if edits:
            self.compactor.transcript.append(*edits)
        return bool(edits)

    def _new_window(self) -> WindowUsage:
        return WindowUsage(
            self.compactor.transcript,
            view=lambda: self.processed_view,
            changed=self.compactor.find_change,
            tokenizer=self.tokenizer,
            model=self.model,
            fixed_tokens=self.budget.tools,
        )
