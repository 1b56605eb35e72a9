"""What happens to a conversation's window, as plain data for whoever wants to know: a meter, a log, a trace."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import TypeAlias

import attrs

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
    "SummaryDiscarded",
    "logging_subscriber",
]


@attrs.frozen(kw_only=True)
class DecisionMade:
    """The policy looked at the window."""

    decision: str
    """The name of the decision's class, such as `StartBackground`."""
    reason: str
    """In words, with the figures."""
    tokens: int | None = None
    """Of the request at hand; None: unknown."""
    ratio: float | None = None
    """What these are of the budget's base."""
    threshold: float | None = None
    """What the ratio was compared with."""
    warm: bool | None = None
    """Whether the provider's prompt cache was taken to be warm, where that matters."""


@attrs.frozen(kw_only=True)
class CompactionStarted:
    """A summary is being made. Exactly one of committed, failed, cancelled and discarded follows."""

    number: int
    """Of the compaction, among all of one Events: the terminal event has the same."""
    trigger: str
    messages: int
    """How many messages the summary will stand for."""


@attrs.frozen(kw_only=True)
class CompactionCommitted:
    """The summary stands in the transcript. Figures are tokens and seconds."""

    number: int
    trigger: str
    checkpoint: str
    """The id of the entry."""
    mode: str
    tokens_before: int
    tokens_after: int
    seconds: float


@attrs.frozen(kw_only=True)
class CompactionFailed:
    """No summary was to be had, or it could not be written; the transcript is as it was."""

    number: int
    trigger: str
    reason: str
    detail: str
    seconds: float


@attrs.frozen(kw_only=True)
class CompactionCancelled:
    """It was called off; the transcript is as it was."""

    number: int
    trigger: str
    seconds: float


@attrs.frozen(kw_only=True)
class SummaryDiscarded:
    """A summary was made and is not used: the conversation moved on, or is small enough again."""

    number: int
    trigger: str
    reason: str
    seconds: float


@attrs.frozen(kw_only=True)
class RequestPruned:
    """A request was made smaller without a summary: messages were left out of it, or shortened. The transcript has them as they were."""

    messages: int
    """How many of the view's are not in it as they were said."""
    tokens: int
    """What that saved."""


Event: TypeAlias = (
    DecisionMade | CompactionStarted | CompactionCommitted | CompactionFailed | CompactionCancelled | SummaryDiscarded | RequestPruned
)
"""What a subscriber is told."""

Subscriber: TypeAlias = Callable[[Event], None]
"""Is told of each event, in order."""


class Events:
    """Hands events to subscribers, in order. One that raises is logged and breaks nothing.

    Several conversations may share one, as a fork does with what it was forked from: compactions are numbered through all of them.
    """

    def __init__(self, *subscribers: Subscriber, logger: logging.Logger | None = None) -> None:
        self._subscribers = list(subscribers)
        self._numbers = itertools.count(1)
        self._logger = logger or logging.getLogger("promptkit")

    def subscribe(self, subscriber: Subscriber) -> None:
        """Have one more told."""
        self._subscribers.append(subscriber)

    def next_number(self) -> int:
        """The number of a compaction that is about to start, from 1; no other one has it."""
        return next(self._numbers)

    def emit(self, event: Event) -> None:
        """Tell all."""
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception:
                self._logger.exception("a subscriber to promptkit's events raised")


def logging_subscriber(logger: logging.Logger) -> Subscriber:
    """A subscriber that writes one line for each event: failures as warnings, the rest as information."""

    def write(event: Event) -> None:
        level = (
            logging.WARNING if isinstance(event, CompactionFailed) else logging.INFO if not isinstance(event, DecisionMade) else logging.DEBUG
        )
        facts = " ".join(f"{name}={value!r}" for name, value in attrs.asdict(event).items())
        logger.log(level, "%s %s", type(event).__name__, facts)

    return write
