"""Compactions as spans of OpenTelemetry, for programs that trace with it. Needs the extra `otel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.events import (
    CompactionCancelled,
    CompactionCommitted,
    CompactionFailed,
    CompactionStarted,
    DecisionMade,
    RequestPruned,
)

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

    from promptkit.compaction.events import Event, Subscriber

__all__ = ["otel_subscriber"]

SPAN = "promptkit.compaction"
PREFIX = "promptkit."


def otel_subscriber(tracer: Tracer | None = None) -> Subscriber:
    """A subscriber that makes a span of each compaction, and an event on the current span of each decision and each request made smaller.

    One for each Events: compactions are numbered within theirs. `tracer` is by default that of the global provider, under the name
    `promptkit`. A span lasts from the start to what ended the compaction, and hangs below the span that was current when it started; its
    attribute `promptkit.outcome` is `committed`, `failed`, `cancelled` or `discarded`, and a failed one has the status ERROR. Attributes
    are the fields of the events, named `promptkit.<field>`; no text of the conversation is among them. Raises ImportError without
    OpenTelemetry.
    """
    from opentelemetry import trace
    from opentelemetry.trace import Status, StatusCode

    made = trace.get_tracer("promptkit") if tracer is None else tracer
    spans: dict[int, Span] = {}

    def tell(event: Event) -> None:
        if isinstance(event, DecisionMade | RequestPruned):
            name = "decided" if isinstance(event, DecisionMade) else "request_reduced"
            trace.get_current_span().add_event(f"{PREFIX}{name}", _attributes(event))
            return
        if isinstance(event, CompactionStarted):
            spans[event.number] = made.start_span(SPAN, attributes=_attributes(event))
            return
        span = spans.pop(event.number, None)
        if span is None:  # it began before anybody listened
            return
        span.set_attributes({**_attributes(event), f"{PREFIX}outcome": _outcome(event)})
        if isinstance(event, CompactionFailed):
            span.set_status(Status(StatusCode.ERROR, event.reason))
        span.end()

    return tell


def _outcome(event: Event) -> str:
    match event:
        case CompactionCommitted():
            return "committed"
        case CompactionFailed():
            return "failed"
        case CompactionCancelled():
            return "cancelled"
        case _:
            return "discarded"


def _attributes(event: Event) -> dict[str, str | int | float | bool]:
    """The fields that say something; what is not known is no attribute, and what a provider wrote may tell of the conversation."""
    facts: dict[str, str | int | float | bool | None] = attrs.asdict(event)
    facts.pop("detail", None)
    return {f"{PREFIX}{name}": value for name, value in facts.items() if value is not None}
