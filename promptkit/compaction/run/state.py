"""The state of a conversation besides its transcript, as one value that each event replaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import attrs

from promptkit.compaction.planning.plan import LastRequest, SentRequest
from promptkit.compaction.policy.state import AttemptOutcome, Attempts, Rereading
from promptkit.providers import Model
from promptkit.rendering.expand.render_cache import RequestRuns
from promptkit.tokens import ContextBudget, Tokenizer, tokenizer_for

RequestVersion: TypeAlias = "tuple[str | None, int]"
"""The last entry of the transcript, and the version of the conversation's state. If neither has
changed, neither have the view, the model and the budget that a request is built from."""


@attrs.frozen(kw_only=True)
class RequestState:
    """What was already done for one request.

    `prepare` creates it, `make_room` replaces it.
    """

    compacted: bool = False
    """A summary was committed for this request."""
    extracted: bool = False
    """A summary without a model was tried for this request."""
    waited: bool = False
    """This request waited for the background summary."""
    pruned: bool = False
    """The request is to be rendered with a history that may be pruned."""
    refused: bool = False
    """A provider refused this request as too large once."""
    limit: int | None = None
    """The most tokens of this request, after a refusal that has taught nothing about the window.
    None: the budget alone."""


@attrs.frozen(kw_only=True)
class PendingRequest:
    """A request that has no reply yet."""

    state: RequestState
    """What was done for it."""
    content: LastRequest
    tokens: int
    model: str | Model
    """The model that is to answer it."""
    runs: RequestRuns
    """What the components of its prompt rendered."""
    seconds: float | None = None
    """Seconds since the request or reply before it. None: unknown."""


@attrs.frozen
class RefusedRequest:
    """A request that a provider refused, to be made again as long as the version is the one that room was made in."""

    state: RequestState
    runs: RequestRuns
    version: RequestVersion


@attrs.frozen(kw_only=True)
class Promotion:
    """A model with a larger context window, and the function that switches the conversation to it."""

    model: str
    switch: Callable[[], object]


@attrs.frozen(kw_only=True)
class ConversationState:
    """What is known of a conversation besides its transcript.

    Each event returns a new value.
    """

    model: str | Model
    """The model that answers."""
    budget: ContextBudget
    """The token budget of requests."""
    tokenizer: Tokenizer
    """Counts messages, with what it learned from the provider's counts."""
    version: int = 0
    """The number of changes of the model and the budget."""
    attempts: Attempts = attrs.field(factory=Attempts)
    """The outcome of automatic compactions so far."""
    promotion: Promotion | None = None
    """A larger model that the policy may switch to."""
    pending: PendingRequest | None = None
    """The last request, while it has no reply."""
    refused: RefusedRequest | None = None
    """The last request, after its refusal."""
    answered: SentRequest | None = None
    """The last request that was answered, if a summary may be requested behind it."""
    asked_at: float | None = None
    """The time of the last request or reply; None: there was none since this conversation or this
    model was opened."""
    rereading: Rereading = attrs.field(factory=Rereading)
    summary_tokens: int | None = None
    """Tokens that the model reported for a summary of this conversation; None: it has reported none."""
    to_smaller_window: bool | None = None
    """Whether the model was changed to one with a smaller window, until the next request reacts to
    it. None: it was not changed."""
    failure_counted: bool = False
    """Whether the failure of the present background summary is among the attempts."""
    overflowed_reply: str | None = None
    """The last reply whose request was counted as larger than the context window, and was reacted
    to."""

    def on_model_change(
        self, model: str | Model, budget: ContextBudget, tokenizer: Tokenizer
    ) -> ConversationState:
        """Return the state with another model.

        For a smaller window the last answered request stays, behind which the previous model may be
        asked for a summary.
        """
        before = self.budget.window
        smaller = budget.window is not None and (before is None or budget.window < before)
        return attrs.evolve(
            self,
            model=model,
            budget=budget,
            tokenizer=tokenizer,
            version=self.version + 1,
            answered=self.answered if smaller else None,
            asked_at=None,
            to_smaller_window=smaller,
        )

    def on_budget_change(self, budget: ContextBudget) -> ConversationState:
        """Return the state with another budget for the same model."""
        return attrs.evolve(self, budget=budget, version=self.version + int(budget != self.budget))

    def on_branch_change(self) -> ConversationState:
        """Return the state after the conversation continued elsewhere, where no request was made."""
        return attrs.evolve(self, attempts=Attempts(), pending=None, refused=None)

    def on_attempt(self, outcome: AttemptOutcome, *, background: bool = False) -> ConversationState:
        """Return the state after an attempt to compact, of the kinds of `Attempts.after_attempt`."""
        return attrs.evolve(
            self, attempts=self.attempts.after_attempt(outcome, background=background)
        )

    def on_refusal(self, state: RequestState, version: RequestVersion) -> ConversationState:
        """Return the state after the refusal of the pending request, for which room was made."""
        if self.pending is None:
            return self
        return attrs.evolve(
            self,
            pending=attrs.evolve(self.pending, state=state),
            refused=RefusedRequest(state, self.pending.runs, version),
        )


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
