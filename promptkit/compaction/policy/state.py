"""The state that a policy decides by, its decisions with their reasons, and the record of earlier compaction attempts, as plain values."""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from promptkit.reprs import describe_fields
from promptkit.tokens import ContextBudget

THRESHOLD = "threshold"
"""The trigger of a compaction because of the conversation's size."""

HANDOFF = "handoff"
"""The trigger of a compaction that keeps no messages and writes a document for the rest of the
work, if the preset has such a summarizer."""

WAIT_SECONDS = 60.0
"""Longest wait of a request for a summary, in seconds, where nothing else is configured."""


@attrs.frozen(kw_only=True)
class Reason:
    """The reason for a decision, with its figures.

    >>> print(Reason(why="warm cache", ratio=0.812, threshold=0.7961, warm=True))
    warm cache (ratio 0.812, threshold 0.796, warm)
    """

    why: str
    """One clause that says why."""
    ratio: float | None = None
    """The request's share of the size from which on it overflows. None: unknown, or not used."""
    threshold: float | None = None
    """The ratio that it was compared with."""
    warm: bool | None = None
    """The provider's prompt cache was assumed to be warm. None: not used."""

    def __str__(self) -> str:
        figures = [
            None if self.ratio is None else f"ratio {self.ratio:.3f}",
            None if self.threshold is None else f"threshold {self.threshold:.3f}",
            None if self.warm is None else "warm" if self.warm else "cold",
        ]
        shown = ", ".join(filter(None, figures))
        return f"{self.why} ({shown})" if shown else self.why


@attrs.frozen(kw_only=True)
class _Reasoned:
    reason: Reason


@attrs.frozen(kw_only=True)
class NoAction(_Reasoned):
    """Continue without a change."""


@attrs.frozen(kw_only=True)
class Prune(_Reasoned):
    """Replace old and superseded tool outputs in the view permanently."""

    only_superseded: bool = False
    """Replace only outputs that newer ones supersede."""
    only_reasoning: bool = False
    """Replace no outputs: take the reasoning of earlier turns out of the view."""


@attrs.frozen(kw_only=True)
class StartBackground(_Reasoned):
    """Start a summary in the background."""


@attrs.frozen(kw_only=True)
class ApplySummary(_Reasoned):
    """Apply the background summary."""


@attrs.frozen(kw_only=True)
class DiscardSummary(_Reasoned):
    """Discard the background summary, or cancel it while it is running.

    Another may be started later.
    """


@attrs.frozen(kw_only=True)
class Wait(_Reasoned):
    """Wait for the background summary, then decide again."""

    seconds: float
    """The longest wait."""


@attrs.frozen(kw_only=True)
class Compact(_Reasoned):
    """Summarize now, in the foreground."""

    trigger: str
    """The cause, as the checkpoint records it: `manual`, `threshold`, `foreground`, `handoff` or
    the name of a phase."""
    seconds: float = WAIT_SECONDS
    """The longest time that one summarizer may take. Then the next one is tried."""
    extract: bool = False
    """Ask no model: the summary is extracted from the conversation."""


@attrs.frozen(kw_only=True)
class RenderPruned(_Reasoned):
    """Render again with a history that may be pruned, without another summary.

    This is the last resort.
    """


@attrs.frozen(kw_only=True)
class Promote(_Reasoned):
    """Switch to a model with a larger context window instead of summarizing."""


@attrs.frozen(kw_only=True)
class Fail(_Reasoned):
    """Give up on this request."""


Decision: TypeAlias = (
    NoAction
    | Prune
    | StartBackground
    | ApplySummary
    | DiscardSummary
    | Wait
    | Compact
    | RenderPruned
    | Promote
    | Fail
)
"""Any decision of a policy."""


Phase: TypeAlias = Literal[
    "before_render",
    "rendered",
    "turn_end",
    "incomplete",
    "overflow",
    "rejected",
    "idle",
    "memory",
    "model_switch",
    "manual",
]
"""The moment at which a policy is asked.

- `before_render`: before a request is rendered.
- `rendered`: after the reply to a request that fits.
- `turn_end`: after the model's last reply of a turn.
- `incomplete`: the model's reply was cut off because the context window is full.
- `overflow`: a rendered request is larger than the budget.
- `rejected`: the provider refused a request as too large.
- `idle`: no turn is running.
- `memory`: the host is low on memory.
- `model_switch`: after the conversation's model was changed.
- `manual`: the user asked for a compaction.
"""

BackgroundState: TypeAlias = Literal["idle", "running", "ready", "failed"]
"""The state of the background summary."""


AttemptOutcome: TypeAlias = Literal["reduced", "not enough", "not reduced", "failed"]
"""The result of a compaction attempt.

- `reduced`: the request is smaller, and small enough.
- `not enough`: the request is smaller, but the next compaction would start at once.
- `not reduced`: the request is as large as before, or larger.
- `failed`: no summary was made.
"""

SUFFICIENT_RATIO = 0.78
"""The ratio that a request must be below after a compaction. From there on the next compaction
would start at once."""


CACHE_SECONDS = 300.0
"""Seconds for which the known providers keep a prompt in their cache after its last use, unless
they are paid for more."""

TTL_SECONDS = {"5m": CACHE_SECONDS, "1h": 3_600.0}
"""The seconds of each value of the option `cache_ttl`."""

CACHED_SHARE = 0.5
"""Share of a request that must have been read from the cache for the cache to be warm. What a
summary changed is read anew at first."""


def is_cache_warm(
    *,
    seconds_since_request: float | None,
    cached_share: float | None,
    mid_turn: bool,
    cache_seconds: float = CACHE_SECONDS,
) -> bool:
    """Return whether the provider's prompt cache holds the start of the next request, by what is known of the last one.

    Args:
        seconds_since_request: Seconds since the last request or reply. None: none is known, so that
            the cache is cold.
        cached_share: Share of the last request that the provider read from its cache. None:
            unknown, as with providers that do not report it.
        mid_turn: Whether a round of tool calls was completed in this turn. Decides where the share
            is unknown, as in VS Code.
        cache_seconds: Seconds for which the provider keeps a prompt.

    Returns:
        True if the cache is warm.
    """
    is_kept = seconds_since_request is not None and seconds_since_request <= cache_seconds
    return is_kept and (mid_turn if cached_share is None else cached_share >= CACHED_SHARE)


@attrs.frozen(kw_only=True)
class Attempts:
    """The record of compaction attempts.

    Each event returns a new value. Start with a new one after a reset or with another model.
    """

    unsuccessful: int = 0
    """Unsuccessful attempts since the last user message: failed ones in the foreground, and those
    that did not reduce enough."""
    consecutive_unsuccessful: int = 0
    """Unsuccessful attempts of any kind, one after the other."""
    last: AttemptOutcome | None = None
    """The outcome of the last attempt."""
    user_messages_since: int = 0
    """User messages since the last attempt."""
    ended_this_turn: int = 0
    """Attempts of any kind and outcome that have ended since the last user message."""

    def after_user_message(self) -> Attempts:
        """Return the record after a user message, which allows one more attempt."""
        return attrs.evolve(
            self,
            unsuccessful=0,
            ended_this_turn=0,
            user_messages_since=self.user_messages_since + 1,
        )

    def after_attempt(self, outcome: AttemptOutcome, *, background: bool = False) -> Attempts:
        """Return the record after an attempt.

        A failed `background` attempt does not use up the attempt of the foreground.
        """
        ended = self.ended_this_turn + 1
        if outcome == "reduced":
            return Attempts(last=outcome, ended_this_turn=ended)
        return Attempts(
            unsuccessful=self.unsuccessful + (not (background and outcome == "failed")),
            consecutive_unsuccessful=self.consecutive_unsuccessful + 1,
            last=outcome,
            ended_this_turn=ended,
        )


@attrs.frozen(kw_only=True)
class Rereading:
    """What the requests since the last compaction have read again.

    Each request returns a new value.
    """

    tokens: int = 0
    """Tokens by which they were larger than the first of them, added up."""
    cached: bool | None = None
    """Whether the provider reported that it read a part of them from its prompt cache. None: it has
    not reported anything."""
    missed: int = 0
    """The part of `tokens` that a cache which served earlier requests did not serve."""
    first: int | None = None
    """The size of the first of them, in tokens. None: there was none yet."""
    checkpoint_id: str | None = None
    """The checkpoint with which their view begins. None: the conversation was not compacted."""

    def after_request(
        self, tokens: int, *, cached: bool | None, checkpoint_id: str | None
    ) -> Rereading:
        """Return the value after another request.

        Args:
            tokens: The size of the request, in tokens.
            cached: Whether the provider reported that it read a part of it from its prompt cache.
                None: it reported nothing.
            checkpoint_id: The checkpoint with which its view begins. After another one the sum
                begins anew.
        """
        if self.first is None or checkpoint_id != self.checkpoint_id:
            # the first request was in no cache
            return Rereading(first=tokens, checkpoint_id=checkpoint_id)
        known = self.cached if cached is None else bool(self.cached) or cached
        more = max(0, tokens - self.first)
        return attrs.evolve(
            self,
            tokens=self.tokens + more,
            missed=self.missed + (more if known and cached is False else 0),
            cached=known,
        )


@attrs.frozen(kw_only=True)
class PolicyState:
    """The state that a policy decides by. Sizes are tokens of a request with its tools."""

    phase: Phase
    budget: ContextBudget
    tokens: int | None = None
    """Size of the next request, or of the last one. None: unknown."""
    fixed_tokens: int = 0
    """Tokens that every request has besides the conversation. A summary cannot reduce them."""
    prunable_tokens: int = 0
    """Tokens that replacing old and superseded tool outputs would save."""
    superseded_tokens: int = 0
    """The part of them that replacing superseded outputs alone would save."""
    reasoning_tokens: int = 0
    """Tokens that taking out the reasoning of earlier turns would save. 0 while the cache may hold it."""
    request_tokens: int = 0
    """Tokens of the user's last message, which a compaction repeats where it is not answered. 0 where
    it is answered, except after a reply."""
    rereading: Rereading = attrs.field(factory=Rereading)
    """What the requests since the last compaction have read again."""
    summary_tokens: int | None = None
    """Tokens that the model wrote for a summary of this conversation, its hidden reasoning included:
    the median of those that it reported. None: it has reported none."""
    warm: bool = False
    """Whether the start of the request is taken to be in the provider's prompt cache, by
    `is_cache_warm`."""
    cache_seconds: float = CACHE_SECONDS
    """Seconds for which the provider keeps a prompt without use: by the model's option `cache_ttl`, or
    else by the preset."""
    seconds_since_request: float | None = None
    """Seconds since the last request or reply. None: none is known."""
    cached_tokens: int | None = None
    """Tokens of the last counted request that the provider read from its cache. None: it has reported
    none lately, or nothing at all."""
    mid_turn: bool = False
    """Whether a round of tool calls was completed in this turn."""
    enabled: bool = True
    """Compact automatically."""
    background: BackgroundState = "idle"
    stale: bool = False
    """True if the history was changed after the background summary was started."""
    attempts: Attempts = attrs.field(factory=Attempts)
    messages: int = 0
    """Number of messages in the view."""
    idle_seconds: float = 0.0
    """Seconds since the last message."""
    to_smaller_window: bool = False
    """Whether this is the first request after a change to a model with a smaller context window."""
    larger_model: str | None = None
    """A model with a larger context window that the conversation may switch to."""
    compacted: bool = False
    """Whether a summary was already applied for this request."""
    extracted: bool = False
    """True if a summary without a model was already tried for this request."""
    waited: bool = False
    """Whether this request has already waited for the background summary."""
    pruned: bool = False
    """Whether this request was already rendered pruned."""
    model: str | None = None
    """The model of the conversation."""
    refused_by: str | None = None
    """The model whose provider refused the request, in the phase `rejected`."""

    __repr__ = describe_fields

    @property
    def ratio(self) -> float | None:
        """The request's share of the size from which on it overflows. None: unknown."""
        return self.budget.ratio(self.tokens)

    def reaches(self, ratio: float) -> bool:
        """Return whether the ratio is known, and not below another one."""
        return self.ratio is not None and not self.ratio < ratio

    @property
    def has_summary(self) -> bool:
        """True if a background summary is running or ready."""
        return self.background in {"running", "ready"}

    def unreachable(self, target_tokens: int | None) -> str | None:
        """Return why no summary can bring the request below `target_tokens`, or None if one may."""
        fixed = self.fixed_tokens
        request = 0 if self.phase == "rendered" else self.request_tokens
        if target_tokens is None or fixed + request < target_tokens:
            return None
        beside = f" beside {request:,} of the user's last message" if fixed < target_tokens else ""
        return (
            f"no summary helps: system prompt, tools and framing take {fixed:,} tokens{beside}, "
            f"and the request must take less than {target_tokens:,}"
        )

    def attempts_exhausted(
        self, attempts: int, breaker: int, *, ignore_failed: bool = False
    ) -> str | None:
        """Return why there must be no further attempt, or None if there may be one.

        Args:
            attempts: Attempts without progress that are allowed per user message.
            breaker: Consecutive attempts without progress after which no other is made. After as
                many user messages there is one more.
            ignore_failed: Do not count an attempt that failed against `attempts`, only one that did
                not reduce the request enough.

        Returns:
            The reason, as one clause.
        """
        tried = self.attempts
        if not self.enabled:
            return "automatic compaction is off"
        # A provider that was down may be up again: after `breaker` user messages it is tried once
        # more.
        if tried.consecutive_unsuccessful >= breaker and tried.user_messages_since < breaker:
            return f"{tried.consecutive_unsuccessful} attempts in a row failed or did not help"
        return (
            f"an attempt since the last user message was unsuccessful: {tried.last}"
            if tried.unsuccessful >= attempts and not (ignore_failed and tried.last == "failed")
            else None
        )


def judge_attempt(before: int, after: int, *, budget: ContextBudget) -> AttemptOutcome:
    """Judge a compaction by the size of the request before and after it.

    Args:
        before: Tokens of the request before the compaction, tools included.
        after: Tokens of the request after it.
        budget: The budget that gives the ratio.

    Returns:
        The outcome; never `failed`.
    """
    if after >= before:
        return "not reduced"
    ratio = budget.ratio(after)
    return "not enough" if ratio is not None and ratio >= SUFFICIENT_RATIO else "reduced"
