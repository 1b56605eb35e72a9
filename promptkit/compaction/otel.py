"""Compactions as spans of OpenTelemetry. Needs the extra `otel`."""

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
from promptkit.compaction.policy.parts import UsageByPart
from promptkit.messages import Usage

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

    from promptkit.compaction.events import Event, Subscriber

__all__ = ["otel_subscriber"]

SPAN = "promptkit.compaction"
PREFIX = "promptkit."

TEXTS = frozenset({"detail", "summary"})
"""The fields of events with texts: a provider's error may quote the conversation, too."""


def otel_subscriber(tracer: Tracer | None = None) -> Subscriber:
    """Make a subscriber that records compactions as spans. Decisions and pruned requests are events on the current span.

    A span lasts from the start of a compaction to its last event. Its parent is the span that was current at the start. Its attribute
    `promptkit.outcome` is `committed`, `failed`, `cancelled` or `discarded`; a failed one has the status ERROR. Other attributes are the
    fields of the events, named `promptkit.<field>`. None of them contains text of the conversation.

    Use one subscriber for each `Events`, because compactions are numbered within theirs.

    Args:
        tracer: Default: the global provider's tracer with the name `promptkit`.

    Raises:
        ImportError: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry import trace
        from opentelemetry.trace import Status, StatusCode
    except ImportError as error:
        hint = "run `pip install 'opentelemetry-api>=1.27'`, or `pip install '.[otel]'` in a checkout of promptkit"
        message = f"otel_subscriber needs OpenTelemetry: {hint}."
        raise ImportError(message) from error

    used_tracer = trace.get_tracer("promptkit") if tracer is None else tracer
    spans: dict[int, Span] = {}

    def on_event(event: Event) -> None:
        if isinstance(event, DecisionMade | RequestPruned):
            name = "decision_made" if isinstance(event, DecisionMade) else "request_pruned"
            trace.get_current_span().add_event(f"{PREFIX}{name}", _select_attributes(event))
            return
        if isinstance(event, CompactionStarted):
            spans[event.number] = used_tracer.start_span(SPAN, attributes=_select_attributes(event))
            return
        span = spans.pop(event.number, None)
        if span is None:  # the compaction started before the subscription
            return
        span.set_attributes({**_select_attributes(event), f"{PREFIX}outcome": _describe_outcome(event)})
        if isinstance(event, CompactionFailed):
            span.set_status(Status(StatusCode.ERROR, event.reason))
        span.end()

    return on_event


def _describe_outcome(event: Event) -> str:
    match event:
        case CompactionCommitted():
            return "committed"
        case CompactionFailed():
            return "failed"
        case CompactionCancelled():
            return "cancelled"
        case _:
            return "discarded"


def _select_attributes(event: Event) -> dict[str, str | int | float | bool]:
    """Return the known fields of an event, those of sizes and usage with both names. Without texts that may quote the conversation."""
    selected: dict[str, str | int | float | bool] = {}
    for name in (field.name for field in attrs.fields(type(event)) if field.name not in TEXTS):
        value: object = getattr(event, name)
        if isinstance(value, UsageByPart | Usage):
            parts: dict[str, int] = attrs.asdict(value)
            selected |= {f"{PREFIX}{name}.{part}": tokens for part, tokens in parts.items()}
        elif isinstance(value, str | int | float | bool):
            selected[f"{PREFIX}{name}"] = value
    return selected
