"""One summary that is being made: its start, its failed attempts and its end are events."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import attrs

from promptkit.compaction.planning.plan import FailedAttempt, Plan
from promptkit.compaction.policy.usage import UsageByPart
from promptkit.compaction.run.events import (
    CompactionCancelled,
    CompactionFailed,
    CompactionStarted,
    Events,
    ObservedModel,
    SummaryAttemptFailed,
    SummaryDiscarded,
)
from promptkit.compaction.summarizers.summarizer import sum_usage
from promptkit.errors import EmptyReplyError, SummaryError
from promptkit.messages import Usage
from promptkit.providers import Model


@attrs.frozen(kw_only=True, eq=False)
class SummaryProgress:
    """Reports one summary as events: of a compaction, of a branch, or for a handoff."""

    events: Events
    trigger: str
    """Why the summary is made, such as `background` or `branch`."""
    conversation: str | None = None
    """The id of the conversation."""
    clock: Callable[[], float] = time.monotonic
    """Returns seconds that only grow."""
    number: int = attrs.field(
        default=attrs.Factory(lambda self: self.events.next_number(), takes_self=True)
    )
    """The number of the summary, as in its events."""
    started: float = attrs.field(
        default=attrs.Factory(lambda self: self.clock(), takes_self=True), init=False
    )
    """When it was started, in seconds by the clock."""
    _spent: list[Usage | None] = attrs.field(factory=list[Usage | None], init=False)

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return self.clock() - self.started

    def report_start(self, plan: Plan, before: UsageByPart) -> None:
        """Report the start, with what the summary will replace and the next request as it is without it."""
        self.events.emit(
            CompactionStarted(
                number=self.number,
                trigger=self.trigger,
                messages=len(plan.dropped) + len(plan.prefix),
                before=before,
                conversation=self.conversation,
            )
        )

    def report_attempt(self, failed: FailedAttempt) -> None:
        """Report a summarizer that made no summary."""
        self._spent.append(failed.usage)
        self.events.emit(
            SummaryAttemptFailed(
                number=self.number,
                trigger=self.trigger,
                summarizer=failed.summarizer,
                reason=failed.reason,
                detail=failed.detail,
                seconds=failed.seconds,
                usage=sum_usage([failed.usage]),
            )
        )

    def observe(self, model: Model, *, compacted: bool = False) -> ObservedModel:
        """Return a model whose requests for the summary are events."""
        return ObservedModel(
            model=model,
            events=self.events,
            conversation=self.conversation,
            compacted=compacted,
            compaction=self.number,
        )

    def report_cancellation(self, usage: Usage | None = None) -> None:
        """Report that a hook or a caller cancelled it. `usage` is its cost; None: that of the failed attempts."""
        self.events.emit(
            CompactionCancelled(
                number=self.number,
                trigger=self.trigger,
                seconds=self.seconds,
                usage=usage or sum_usage(self._spent),
            )
        )

    def report_discard(self, reason: str, usage: Usage | None) -> None:
        """Report that the summary is not used."""
        self.events.emit(
            SummaryDiscarded(
                number=self.number,
                trigger=self.trigger,
                reason=reason,
                seconds=self.seconds,
                usage=usage,
            )
        )

    @contextmanager
    def reporting_errors(self, usage: Usage | None = None) -> Generator[None]:
        """Report an error, or a cancellation, as the end, and let it pass. `usage` is as in `report_cancellation`."""
        try:
            yield
        except Exception as error:
            carried = error.usage if isinstance(error, SummaryError | EmptyReplyError) else None
            self.events.emit(
                CompactionFailed(
                    number=self.number,
                    trigger=self.trigger,
                    reason=error.reason
                    if isinstance(error, SummaryError)
                    else type(error).__name__,
                    detail=str(error),
                    seconds=self.seconds,
                    usage=usage or sum_usage(self._spent or [carried]),
                )
            )
            raise
        except BaseException:
            self.report_cancellation(usage)
            raise
