"""A writer of summaries that does what a test tells it, and a record of what a conversation's events were."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import UnionType
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction import (
    CacheMissed,
    CompactionCancelled,
    CompactionCommitted,
    CompactionFailed,
    CompactionStarted,
    DecisionMade,
    Event,
    Events,
    ReplyReceived,
    RequestFailed,
    RequestPruned,
    RequestSent,
    SummaryDiscarded,
    ToolCalled,
    ToolReturned,
    ToolsChanged,
    TurnEnded,
    TurnStarted,
    WindowLearned,
)
from promptkit.compaction.planning.plan import Plan, Summary
from promptkit.compaction.run.compactor import DraftSummary
from promptkit.compaction.run.progress import SummaryProgress

if TYPE_CHECKING:
    from promptkit.compaction.planning.plan import SummaryTask
    from promptkit.compaction.run.background import Background

__all__ = ["ENDS", "WRITTEN", "Recorder", "Writer", "draft", "state"]


ENDS = {
    CompactionStarted: CompactionCommitted
    | CompactionFailed
    | CompactionCancelled
    | SummaryDiscarded,
    TurnStarted: TurnEnded,
    RequestSent: ReplyReceived | RequestFailed,
    ToolCalled: ToolReturned,
}
"""The event of each kind of start, and those of its ends."""

WRITTEN = "S S S S S"
"""What a writer writes: long enough for a conversation of a thousand tokens."""


@attrs.define
class Writer:
    """Writes `text`, when `gate` is open; or raises.

    A stubborn one writes although it was cancelled.
    """

    text: str = WRITTEN
    gate: asyncio.Event | None = None
    error: Exception | None = None
    stubborn: bool = False
    tasks: list[SummaryTask] = attrs.field(factory=list["SummaryTask"])

    async def summarize(self, task: SummaryTask) -> Summary:
        self.tasks.append(task)
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            if not self.stubborn:
                raise
        if self.error is not None:
            raise self.error
        return Summary(text=self.text, mode="test")


@attrs.define
class Recorder:
    """A subscriber that keeps everything."""

    events: list[Event] = attrs.field(factory=list[Event])

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    @property
    def ends(self) -> list[str]:
        """What compactions came to, in order: the names of the events without their nouns."""
        names = [
            type(event).__name__
            for event in self.events
            if isinstance(event, ENDS[CompactionStarted])
        ]
        return [name.removeprefix("Compaction").removeprefix("Summary").lower() for name in names]

    @property
    def decisions(self) -> list[str]:
        return [event.decision for event in self.events if isinstance(event, DecisionMade)]

    @property
    def triggers(self) -> list[str]:
        return [event.trigger for event in self.events if isinstance(event, CompactionStarted)]

    def check(self) -> None:
        """Everything that started has ended with exactly one event, and nothing ended that had not started."""
        for start, ends in ENDS.items():
            started, ended = self._numbers(start), self._numbers(ends)
            assert Counter(ended) == Counter(started)
            assert len(set(started)) == len(started)

    def _numbers(self, kinds: type[object] | UnionType) -> list[int]:
        numbered = [
            event
            for event in self.events
            if not isinstance(
                event, DecisionMade | RequestPruned | WindowLearned | ToolsChanged | CacheMissed
            )
        ]
        return [event.number for event in numbered if isinstance(event, kinds)]


def draft(number: int) -> DraftSummary:
    """A summary of nothing in particular."""
    return DraftSummary(
        progress=SummaryProgress(events=Events(), trigger="background", number=number),
        plan=Plan(leaf=""),
        summary=Summary(text="S", mode="test"),
        instructions=None,
    )


def state(background: Background) -> str:
    """Where it stands; type checkers take a property for what it was."""
    return background.state
