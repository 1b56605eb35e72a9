"""Events of compaction and pruning, as plain data for subscribers such as a usage meter, a log or a trace."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import attrs

from promptkit.compaction.policy.parts import UsageByPart

if TYPE_CHECKING:
    from promptkit.messages import Usage

__all__ = [
    "CompactionCancelled",
    "CompactionCommitted",
    "CompactionFailed",
    "CompactionStarted",
    "DecisionMade",
    "Event",
    "Events",
    "RequestPruned",
    "Subscriber",
    "SummaryAttemptFailed",
    "SummaryDiscarded",
    "logging_subscriber",
]


class Events:
    """Sends events to subscribers, in order. An error that a subscriber raises is logged and has no further effect.

    Several conversations may share one `Events`, as a fork does with its original. Compactions are numbered through all of them.

    Args:
        subscribers: The subscribers.
        logger: Logs the errors of subscribers. Default: the logger `promptkit`.

    >>> Events(print, logging_subscriber(logging.getLogger("myapp")))
    """

    def __init__(self, *subscribers: Subscriber, logger: logging.Logger | None = None) -> None:
        self._subscribers = list(subscribers)
        self._numbers = itertools.count(1)
        self._logger = logger or logging.getLogger("promptkit")

    def subscribe(self, subscriber: Subscriber) -> None:
        """Add a subscriber."""
        self._subscribers.append(subscriber)

    def next_number(self) -> int:
        """Return the number of the next compaction, from 1. Each number is returned once."""
        return next(self._numbers)

    def emit(self, event: Event) -> None:
        """Send an event to all subscribers."""
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception:
                self._logger.exception("a subscriber to promptkit's events raised an error")


def logging_subscriber(logger: logging.Logger) -> Subscriber:
    """Make a subscriber that logs one line for each event: failures as warnings, decisions as debug messages, the rest as information.

    Texts of the conversation, such as the summary, are not logged.
    """

    def write(event: Event) -> None:
        match event:
            case CompactionFailed() | SummaryAttemptFailed():
                level = logging.WARNING
            case DecisionMade():
                level = logging.DEBUG
            case _:
                level = logging.INFO
        shown = [field.name for field in attrs.fields(type(event)) if field.repr]
        logger.log(level, "%s %s", type(event).__name__, " ".join(f"{name}={getattr(event, name)!r}" for name in shown))

    return write


@attrs.frozen(kw_only=True)
class DecisionMade:
    """The policy made a decision."""

    decision: str
    """The class name of the decision, such as `StartBackground`."""
    reason: str
    """The reason in words, with the figures."""
    tokens: int | None = None
    """Tokens of the current request. None: unknown."""
    ratio: float | None = None
    """These tokens as a share of the budget's base."""
    threshold: float | None = None
    """What the ratio was compared with."""
    warm: bool | None = None
    """Whether the provider's prompt cache was assumed to be warm, where that matters."""


@attrs.frozen(kw_only=True)
class CompactionStarted:
    """A compaction has started. Exactly one of the events committed, failed, cancelled and discarded follows."""

    number: int
    """The number of the compaction among all of one `Events`. Its last event has the same number."""
    trigger: str
    """What started the compaction, such as `manual` or `background`."""
    messages: int
    """Number of messages that the summary will replace."""


@attrs.frozen(kw_only=True)
class CompactionCommitted:
    """The summary's checkpoint was written. Figures are tokens and seconds."""

    number: int
    trigger: str
    checkpoint: str
    """The id of the checkpoint's entry."""
    mode: str
    """How the summary was made, such as `live` or `extractive`."""
    tokens_before: int
    """The tokens of the conversation."""
    tokens_after: int
    seconds: float
    before: UsageByPart = attrs.field(factory=UsageByPart)
    """The request by part as it would have been without the compaction, instructions and tools included."""
    after: UsageByPart = attrs.field(factory=UsageByPart)
    """The request by part as it is now."""
    model: str | None = None
    """The model that wrote the summary. None: no model was asked."""
    usage: Usage | None = None
    """The cost of all requests for the summary, failed attempts included. None: no model was asked."""
    request_id: str | None = None
    """The provider's name for the request that wrote the summary, where it gave one."""
    summary: str = attrs.field(default="", repr=False)
    """The text of the summary. Logs and traces leave it out."""


@attrs.frozen(kw_only=True)
class CompactionFailed:
    """No summary was made, or the checkpoint could not be written. The transcript is unchanged."""

    number: int
    trigger: str
    reason: str
    """A word, such as `too_large`, or the name of the error's class."""
    detail: str
    """The error's text."""
    seconds: float
    usage: Usage | None = None
    """The cost of the requests so far, as far as the provider reported it."""


@attrs.frozen(kw_only=True)
class SummaryAttemptFailed:
    """A summarizer was asked and made no summary. The next one is tried, if there is one."""

    number: int
    """The number of the compaction."""
    trigger: str
    summarizer: str
    """The name of the summarizer's class."""
    reason: str
    """A word, such as `no_sections` or `timeout`, or the name of the error's class."""
    detail: str
    """The error's text."""
    seconds: float
    input_tokens: int = 0
    """The cost of the attempt, as far as the provider reported it."""
    output_tokens: int = 0


@attrs.frozen(kw_only=True)
class CompactionCancelled:
    """The compaction was cancelled. The transcript is unchanged."""

    number: int
    trigger: str
    seconds: float
    usage: Usage | None = None
    """The cost of the requests so far, as far as the provider reported it."""


@attrs.frozen(kw_only=True)
class SummaryDiscarded:
    """A summary was made and is not used, because the conversation changed or is small enough again."""

    number: int
    trigger: str
    reason: str
    seconds: float
    usage: Usage | None = None
    """The cost of the requests so far, as far as the provider reported it."""


@attrs.frozen(kw_only=True)
class RequestPruned:
    """A request was made smaller without a summary: messages were omitted or shortened. The transcript is unchanged."""

    messages: int
    """Number of the view's messages that are not in the request in full."""
    tokens: int
    """Tokens saved."""


Event: TypeAlias = (
    DecisionMade
    | CompactionStarted
    | SummaryAttemptFailed
    | CompactionCommitted
    | CompactionFailed
    | CompactionCancelled
    | SummaryDiscarded
    | RequestPruned
)
"""Any event that a subscriber receives."""


Subscriber: TypeAlias = Callable[[Event], None]
"""A callable that receives each event, in order."""
