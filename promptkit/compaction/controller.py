"""Keeps one conversation within its window: asks the policy, and does what it decides.

Carries out what was decided about summaries, in the background and in the foreground, and remembers what each came to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.background import Background
from promptkit.compaction.events import Decided
from promptkit.compaction.planning.plan import SentRequest
from promptkit.compaction.planning.selection import KeepLastRound
from promptkit.compaction.policy.decisions import (
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
from promptkit.compaction.policy.state import Attempts, PolicyState, judge_attempt
from promptkit.compaction.policy.usage import WindowUsage
from promptkit.compaction.pruning.tool_outputs import Pruning, prune_outputs
from promptkit.errors import CompactionInProgressError, ContextWindowFullError

if TYPE_CHECKING:
    from promptkit.compaction.budget import Budget
    from promptkit.compaction.compactor import Compactor
    from promptkit.compaction.planning.plan import LastRequest, Plan
    from promptkit.compaction.policy.decisions import Decision
    from promptkit.compaction.policy.rules import Policy
    from promptkit.compaction.policy.state import Phase
    from promptkit.compaction.policy.usage import UsageReading
    from promptkit.messages import Message
    from promptkit.tokens.tokenizer import Tokenizer
    from promptkit.transcript.entries import Entry
    from promptkit.transcript.view import TranscriptView

__all__ = ["CompactionController", "Passes", "Promotion"]


class Passes:
    """The compactions of one conversation that nobody asked for. None of them raises: the events say why one came to nothing.

    `live` gives the last request where it shows all that a plan drops, `tokens` what the next request takes.
    """

    def __init__(self, compactor: Compactor, *, live: Callable[[Plan], LastRequest | None], tokens: Callable[[], int]) -> None:
        self.background = Background(unused=lambda draft: compactor.discard(draft, "it was made after it had been cancelled"))
        self.attempts = Attempts()
        self.compacted = False
        """A summary was put in place for the request at hand."""
        self._compactor = compactor
        self._live = live
        self._tokens = tokens
        self._failure_told = False

    def start(self) -> None:
        """Begin one in the background, if there is something to drop."""
        compactor = self._compactor
        keep = compactor.keep
        plan = compactor.plan(attrs.evolve(keep, background=True) if isinstance(keep, KeepLastRound) else keep)
        if plan.is_empty or compactor.running:
            return
        self._failure_told = False
        request = self._live(plan)
        self.background.start(lambda: compactor.draft(plan, trigger="background", last_request=request), plan)

    async def apply(self, budget: Budget) -> bool:
        """Put the background's result in place. Whether that was done."""
        draft = self.background.take()
        if draft is None:
            return False
        before = self._tokens()
        try:
            entry = await self._compactor.commit(draft)
        except Exception:  # noqa: BLE001  # the event has said why: the disk may be full, and the person may still be answered
            self.attempts = self.attempts.after_attempt("failed")
            return False
        if entry is None:
            return False
        self.compacted = True
        self.settle(before, budget, background=True)
        return True

    async def compact(self, trigger: str, budget: Budget, *, live: bool = True) -> bool:
        """Summarize in the foreground. Whether a summary is in place. `live`: the last request may be asked behind."""
        before = self._tokens()
        compactor = self._compactor
        plan = compactor.plan()
        try:
            entry = await compactor.compact(plan, trigger=trigger, last_request=self._live(plan) if live else None)
        except CompactionInProgressError:  # somebody asked for one meanwhile: it serves this request, too
            await compactor.settled()
            if compactor.changed(plan.leaf):
                self.compacted = True
                return True
            entry = None
        except Exception:  # noqa: BLE001  # the event has said why; the policy decides what to do without a summary
            entry = None
        if entry is None:
            self.attempts = self.attempts.after_attempt("failed")
            return False
        self.compacted = True
        self.settle(before, budget)
        return True

    def drop(self, why: str) -> None:
        """End the background's pass, whatever has become of it."""
        draft = self.background.cancel()
        if draft is not None:
            self._compactor.discard(draft, why)

    def settle(self, before: int, budget: Budget, *, background: bool = False) -> None:
        """A compaction is done that began with so many tokens."""
        self.attempts = self.attempts.after_attempt(judge_attempt(before, self._tokens(), budget=budget), background=background)

    def heed_failure(self) -> None:
        """Count a pass of the background that has failed, once."""
        if self.background.state == "failed" and not self._failure_told:
            self._failure_told = True
            self.attempts = self.attempts.after_attempt("failed", background=True)


@attrs.frozen(kw_only=True)
class Promotion:
    """A model with a larger window, and how to go on with it."""

    model: str
    go: Callable[[], object]


class CompactionController:
    """Acts on the policy's decisions for one transcript. One per conversation, in one event loop.

    With `enabled=False` nothing is done that nobody asked for, but what is too large is rendered pruned. `prunes`: the policy takes old
    tool outputs out, and is told what that would save.
    """

    def __init__(  # noqa: PLR0913  # what a window is kept with
        self,
        compactor: Compactor,
        *,
        budget: Budget,
        policy: Policy,
        tokenizer: Tokenizer,
        model: str,
        enabled: bool = True,
        prunes: bool = False,
    ) -> None:
        self.compactor = compactor
        self.budget = budget
        self.policy = policy
        self.enabled = enabled
        self.prunes = prunes
        self.model = model
        self._passes = Passes(compactor, live=self._live, tokens=lambda: self.reading().tokens)
        self.pruned = False
        """The request at hand is to be rendered with a history that may be pruned."""
        self._tokenizer = tokenizer
        self._window = WindowUsage(
            compactor.transcript,
            view=lambda: self.compactor.view,
            changed=compactor.changed,
            tokenizer=tokenizer,
            model=model,
            fixed=budget.tools,
        )
        self._sent: SentRequest | None = None
        self._waited = self._switched = self._smaller = False
        self._warm = False
        self.promotion: Promotion | None = None
        """A larger model that the conversation may go on with."""

    @property
    def background(self) -> Background:
        """The summary in the making."""
        return self._passes.background

    @property
    def attempts(self) -> Attempts:
        """What automatic compaction has come to."""
        return self._passes.attempts

    @attempts.setter
    def attempts(self, attempts: Attempts) -> None:
        self._passes.attempts = attempts

    @property
    def beside(self) -> int:
        """The tokens that every request has beside the conversation, as far as that is known."""
        return self._window.fixed

    @property
    def warm(self) -> bool:
        """Whether the start of the next request is in the provider's cache: a round of tool calls is done in this turn."""
        return self._warm

    @property
    def view(self) -> TranscriptView:
        """What the model is shown of the transcript now."""
        return self.compactor.view

    def reading(self) -> UsageReading:
        """How much of the window the next request takes."""
        return self._window.reading(self.budget.window)

    def asked(self) -> None:
        """The person has spoken: one more attempt is free."""
        self.attempts = self.attempts.after_user_message()
        self._warm = False

    def worked(self) -> None:
        """A round of tool calls is done: the start of the next request is in the provider's cache."""
        self._warm = True

    def switch(self, model: str, budget: Budget, *, tokenizer: Tokenizer) -> None:
        """Go on with another model. A summary in the making is dropped: it was made for the window of the one before."""
        self.turned("the model was changed")
        self._tokenizer = tokenizer
        self._smaller = budget.window is not None and (self.budget.window is None or budget.window < self.budget.window)
        self.model, self.budget = model, budget
        self._window = WindowUsage(
            self.compactor.transcript,
            view=lambda: self.compactor.view,
            changed=self.compactor.changed,
            tokenizer=tokenizer,
            model=model,
            fixed=budget.tools,
        )
        self._sent = None
        self._warm = False
        self._switched = True

    def turned(self, why: str) -> None:
        """The conversation goes on from elsewhere, or with another model: what was in the making or tried before is of no matter."""
        self._passes.drop(why)
        self.attempts = Attempts()

    async def close(self) -> None:
        """End what runs in the background, and wait until it has ended. Nothing is begun there after that."""
        self._passes.drop("the conversation was closed")
        await self.background.close()

    async def prepare(self) -> None:
        """Before a request is rendered: put in place what is ready, prune, or compact at a threshold."""
        self.pruned = self._passes.compacted = self._waited = False
        if self._switched:
            self._switched = False
            await self.moment("model_switch")
        while True:
            decision = self._decide("before_render", self.reading().tokens)
            match decision:
                case ApplySummary():
                    await self._passes.apply(self.budget)
                case Wait(seconds=seconds):
                    self._waited = True
                    await self.background.wait(seconds)
                    continue
                case Promote() if self._promoted():
                    continue
                case DiscardSummary(reason=because):
                    self._passes.drop(str(because))
                    continue
                case Prune():
                    if self._prune():
                        continue
                case Compact(trigger=trigger):
                    await self._passes.compact(trigger, self.budget)
                case _:
                    pass
            return

    async def overflow(self, tokens: int, *, refused_by: str | None = None) -> None:  # noqa: C901  # a case for each decision
        """A request was too large: by the render's count, or because a provider refused it.

        Afterwards it is to be rendered again. Raises ContextWindowFullError where nothing more can be done.
        """
        if refused_by is not None:
            self.pruned = False  # what it was pruned to was still too much, and the budget is a smaller one now
        while True:
            decision = self._decide("overflow" if refused_by is None else "rejected", tokens, refused_by)
            match decision:
                case ApplySummary():
                    if await self._passes.apply(self.budget):
                        return
                case Wait(seconds=seconds):
                    self._waited = True
                    await self.background.wait(seconds)
                case Compact(trigger=trigger):
                    self._passes.drop("the foreground could not wait for it")
                    if await self._passes.compact(trigger, self.budget, live=refused_by is None):
                        return
                case Promote() if self._promoted():
                    return
                case RenderPruned():
                    self.pruned = True
                    return
                case DiscardSummary(reason=because):
                    self._passes.drop(str(because))
                case NoAction() if refused_by not in {None, self.model}:
                    return
                case _:
                    raise ContextWindowFullError(str(decision.reason))

    async def moment(self, phase: Phase, *, idle_seconds: float = 0.0) -> bool:
        """One of the phases in which nothing is about to be rendered. Whether something was done."""
        self._passes.compacted = False
        match self._decide(phase, self.reading().tokens, idle_seconds=idle_seconds):
            case Compact(trigger=trigger):
                self._passes.drop(f"a summary is made now: {trigger}")
                return await self._passes.compact(trigger, self.budget)
            case Promote():
                return self._promoted()
            case Prune():
                return self._prune()
            case _:
                return False

    def rendered(self, tokens: int) -> None:
        """A request of so many tokens was rendered, and fits."""
        self._window.on_rendered(tokens, self.budget.window, pruned=self.pruned)

    def answered(self, request: LastRequest, reply: Message) -> None:
        """The model's answer to what was rendered is in the transcript: start a summary beside the conversation, if it is time."""
        window, self._sent = self._window, None
        if window.leaf is not None and not self.pruned and not window.moved:
            self._sent = SentRequest(request=request, leaf=window.leaf, items=window.items).answered(reply, self.view.items)
        decision = self._decide("rendered", window.on_reply(self.budget.window))
        if isinstance(decision, StartBackground):
            self._passes.start()

    async def compact(self, instructions: str | None = None) -> Entry | None:
        """Summarize because somebody asks for it. Raises SummaryError if no summary is to be had; None if there is nothing to drop, or too little."""
        if self.compactor.running:
            raise CompactionInProgressError
        before, plan = self.reading().tokens, self.compactor.plan()
        if not isinstance(self._decide("manual", before), Compact):
            return None
        self._passes.drop("a compaction was asked for")
        entry = await self.compactor.compact(plan, trigger="manual", instructions=instructions, last_request=self._live(plan))
        if entry is not None:
            self._passes.settle(before, self.budget)
        return entry

    def _live(self, plan: Plan) -> LastRequest | None:
        """The last request, if it shows all that a plan drops."""
        sent = self._sent
        usable = sent is not None and sent.shows(plan, self.view.items) and not self.compactor.changed(sent.leaf)
        return sent.request if sent is not None and usable else None

    def _promoted(self) -> bool:
        promotion, self.promotion = self.promotion, None
        if promotion is None:
            return False
        promotion.go()
        self._switched = False  # nothing needs to be made smaller for a larger window
        return True

    def _state(self, phase: Phase, tokens: int | None, refused_by: str | None, idle_seconds: float) -> PolicyState:
        self._passes.heed_failure()
        plan = self.background.plan
        return PolicyState(
            phase=phase,
            budget=self.budget,
            tokens=tokens,
            fixed=self._window.fixed,
            prunable=self._pruning().saved if self.prunes and phase == "before_render" else 0,
            warm=self._warm,
            enabled=self.enabled,
            background=self.background.state,
            stale=plan is not None and self.compactor.changed(plan.leaf) is not None,
            attempts=self.attempts,
            messages=len(self.view.items),
            idle_seconds=idle_seconds,
            to_smaller_window=self._smaller,
            larger_model=self.promotion.model if self.promotion else None,
            compacted=self._passes.compacted,
            waited=self._waited,
            pruned=self.pruned,
            model=self.model,
            refused_by=refused_by,
        )

    def _decide(self, phase: Phase, tokens: int | None, refused_by: str | None = None, *, idle_seconds: float = 0.0) -> Decision:
        state = self._state(phase, tokens, refused_by, idle_seconds)
        decision = self.policy.decide(state)
        why = decision.reason
        event = Decided(
            decision=type(decision).__name__, reason=str(why), tokens=tokens, ratio=state.ratio, threshold=why.threshold, warm=why.warm
        )
        self.compactor.events.emit(event)
        return decision

    def _pruning(self) -> Pruning:
        return prune_outputs(self.compactor.transcript.path(), self.view, tokenizer=self._tokenizer)

    def _prune(self) -> bool:
        edits = self._pruning().edits
        if edits:
            self.compactor.transcript.append(*edits)
        return bool(edits)
