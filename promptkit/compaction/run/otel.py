"""Turns, requests, tool calls and compactions as spans and metrics of OpenTelemetry.

Needs the extra `otel`.

Names follow OpenTelemetry's conventions for generative AI
(github.com/open-telemetry/semantic-conventions-genai, in development), where they have one; all
other names begin with `promptkit.`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import attrs

from promptkit.compaction.policy.usage import UsageByPart
from promptkit.compaction.run.events import (
    CacheMissed,
    CompactionCancelled,
    CompactionCommitted,
    CompactionFailed,
    CompactionStarted,
    DecisionMade,
    Event,
    ReplyReceived,
    RequestFailed,
    RequestPruned,
    RequestSent,
    Subscriber,
    SummaryAttemptFailed,
    SummaryDiscarded,
    ToolCalled,
    ToolReturned,
    ToolsChanged,
    TurnEnded,
    TurnStarted,
    WindowLearned,
)
from promptkit.messages import Json, Message, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.metrics import Meter
    from opentelemetry.trace import Span, Tracer

    Value = str | int | float | bool | Sequence[str]
    Attributes = dict[str, Value]
    Known = Mapping[str, Value | None]  # None: there is no such attribute

OUTCOMES: Mapping[type, str] = {
    CompactionCommitted: "committed",
    CompactionFailed: "failed",
    CompactionCancelled: "cancelled",
    SummaryDiscarded: "discarded",
}
"""The outcome of a compaction, by its last event."""

SPAN = "promptkit.compaction"
PREFIX = "promptkit."

TEXTS = frozenset({"detail", "summary"})
"""The fields of events with texts: a provider's error may quote the conversation, too."""

MEASURED = (
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.tool.name",
)
"""The attributes of spans that metrics have, too."""

_CAPITAL = re.compile(r"(?<=[a-z])[A-Z]")

UNKNOWN_PROVIDER = "unknown"
"""The provider of a model that does not tell it. The attribute is required."""

TOKEN_BUCKETS = tuple(4**power for power in range(14))
DURATION_BUCKETS = tuple(0.01 * 2**power for power in range(14))
"""The boundaries of the histograms, as the conventions give them."""


def otel_subscriber(
    tracer: Tracer | None = None, *, meter: Meter | None = None, content: bool = False
) -> Subscriber:
    """Make a subscriber that records turns, requests, tool calls and compactions as spans, and their tokens and durations as metrics.

    A turn is a span `invoke_agent`; the requests (`chat <model>`) and tool calls
    (`execute_tool <name>`) in it are its children, and so is a compaction (`promptkit.compaction`),
    whose children are the requests for the summary. While a turn, a request or a tool call lasts,
    its span is the current one, so that spans of HTTP clients and of your tools stand below it. A
    background summary may outlast the turn that it was started in. Decisions to do something, and
    pruned requests, are events on the current span.

    Use one subscriber for each `Events`, because everything is numbered within theirs.

    Args:
        tracer: Default: the global provider's tracer with the name `promptkit`.
        meter: Default: the global provider's meter with the name `promptkit`.
        content: Record messages, instructions, tool definitions, arguments, results and summaries
            as well. They may be confidential, and they are long.

    Raises:
        ImportError: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry import metrics, trace
    except ImportError as error:
        raise ImportError(
            "otel_subscriber needs OpenTelemetry: run `pip install 'opentelemetry-api>=1.27'`, or `pip install '.[otel]'` in a checkout of promptkit."
        ) from error

    used_tracer = trace.get_tracer("promptkit") if tracer is None else tracer
    used_meter = metrics.get_meter("promptkit") if meter is None else meter
    return _Recorder(used_tracer, used_meter, content=content)


@attrs.frozen
class _OpenSpan:
    """A span that has started, what its metrics are recorded with, and the token that makes its parent the current span again."""

    span: Span
    attributes: Attributes
    token: Token[Context] | None = None


class _Recorder:
    """The subscriber. Each kind of event has a method."""

    def __init__(self, tracer: Tracer, meter: Meter, *, content: bool) -> None:
        self._tracer = tracer
        self._content = content
        self._open: dict[tuple[str, int], _OpenSpan] = {}
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=TOKEN_BUCKETS,
        )
        self._durations = {
            kind: meter.create_histogram(
                name,
                unit="s",
                description=text,
                explicit_bucket_boundaries_advisory=DURATION_BUCKETS,
            )
            for kind, name, text in (
                (
                    "request",
                    "gen_ai.client.operation.duration",
                    "Duration of a request to a model.",
                ),
                ("tool", "gen_ai.execute_tool.duration", "Duration of a tool call."),
                ("turn", "gen_ai.invoke_agent.duration", "Duration of a turn."),
            )
        }

    def __call__(self, event: Event) -> None:  # noqa: C901, PLR0912  # a case for each event
        """Record an event."""
        from opentelemetry.trace import get_current_span

        match event:
            case TurnStarted():
                self._start(
                    "turn",
                    event.number,
                    "invoke_agent",
                    _name_operation("invoke_agent", event.conversation),
                )
            case RequestSent():
                self._start_request(event)
            case ToolCalled():
                self._start(
                    "tool",
                    event.number,
                    f"execute_tool {event.name}",
                    {
                        **_name_operation("execute_tool", event.conversation),
                        "gen_ai.tool.name": event.name,
                        "gen_ai.tool.call.id": event.call_id,
                        "gen_ai.tool.type": "function",
                        "gen_ai.tool.description": event.description,
                        "gen_ai.tool.call.arguments": event.arguments if self._content else None,
                    },
                )
            case CompactionStarted():
                self._start(
                    "compaction",
                    event.number,
                    SPAN,
                    {**_select_attributes(event), "gen_ai.conversation.id": event.conversation},
                )
            case TurnEnded():
                self._end(
                    "turn",
                    event.number,
                    _describe_usage(event.usage),
                    seconds=event.seconds,
                    error=event.error,
                )
            case ReplyReceived():
                self._end_request(event)
            case RequestFailed():
                self._end("request", event.number, {}, seconds=event.seconds, error=event.error)
            case ToolReturned():
                result = event.result if self._content and event.result else None
                self._end(
                    "tool",
                    event.number,
                    {"gen_ai.tool.call.result": result},
                    seconds=event.seconds,
                    error=event.error,
                )
            case SummaryAttemptFailed():
                opened = self._open.get(("compaction", event.number))
                if opened is not None:
                    opened.span.add_event(
                        f"{PREFIX}summary_attempt_failed",
                        _drop_missing(
                            {**_select_attributes(event), **_describe_usage(event.usage)}
                        ),
                    )
            case DecisionMade(decision="NoAction"):
                pass  # most decisions are of this kind, and they change nothing
            case (
                DecisionMade() | RequestPruned() | CacheMissed() | ToolsChanged() | WindowLearned()
            ):
                name = _CAPITAL.sub(r"_\g<0>", type(event).__name__).lower()
                get_current_span().add_event(f"{PREFIX}{name}", _select_attributes(event))
            case (
                CompactionCommitted()
                | CompactionFailed()
                | CompactionCancelled()
                | SummaryDiscarded()
            ):
                self._end_compaction(event)

    def _start_request(self, event: RequestSent) -> None:
        around = event.compaction
        self._start(
            "request",
            event.number,
            f"chat {event.model}",
            {
                **_name_operation("chat", event.conversation),
                "gen_ai.provider.name": event.provider or UNKNOWN_PROVIDER,
                "gen_ai.request.model": event.model,
                "gen_ai.conversation.compacted": event.compacted,
                f"{PREFIX}tokens": event.tokens,
                **(_describe_input(event) if self._content else {}),
            },
            parent=None if around is None else self._open.get(("compaction", around)),
        )

    def _end_request(self, event: ReplyReceived) -> None:
        opened = self._open.get(("request", event.number))
        if opened is not None and event.usage.input_tokens:
            for kind, tokens in (
                ("input", event.usage.input_tokens),
                ("output", event.usage.output_tokens),
            ):
                self._tokens.record(tokens, {**opened.attributes, "gen_ai.token.type": kind})
        self._end(
            "request",
            event.number,
            {
                **_describe_usage(event.usage),
                "gen_ai.response.finish_reasons": [event.finish],
                f"{PREFIX}request_id": event.request_id,
                "gen_ai.output.messages": _to_json(
                    [{**_describe_message(event.message), "finish_reason": event.finish}]
                )
                if self._content and event.message is not None
                else None,
            },
            seconds=event.seconds,
        )

    def _end_compaction(
        self, event: CompactionCommitted | CompactionFailed | CompactionCancelled | SummaryDiscarded
    ) -> None:
        self._end(
            "compaction",
            event.number,
            {
                **_select_attributes(event),
                f"{PREFIX}outcome": OUTCOMES[type(event)],
                f"{PREFIX}summary": event.summary
                if self._content and isinstance(event, CompactionCommitted)
                else None,
            },
            error=event.reason if isinstance(event, CompactionFailed) else None,
        )

    def _start(
        self,
        kind: str,
        number: int,
        name: str,
        known: Known,
        *,
        parent: _OpenSpan | None = None,
    ) -> None:
        """Start a span, as a child of `parent` or of the current span.

        Metrics get the attributes in MEASURED. A compaction is never the current span.
        """
        from opentelemetry import context, trace

        attributes = _drop_missing(known)
        span = self._tracer.start_span(
            name,
            context=None if parent is None else trace.set_span_in_context(parent.span),
            kind=trace.SpanKind.CLIENT if kind == "request" else trace.SpanKind.INTERNAL,
            attributes=attributes,
        )
        token = None if kind == "compaction" else context.attach(trace.set_span_in_context(span))
        measured = {key: attributes[key] for key in MEASURED if key in attributes}
        self._open[kind, number] = _OpenSpan(span, measured, token)

    def _end(
        self,
        kind: str,
        number: int,
        known: Known,
        *,
        seconds: float | None = None,
        error: str | None = None,
    ) -> None:
        """End a span, if its start was seen."""
        from opentelemetry import context, trace

        opened = self._open.pop((kind, number), None)
        if opened is None:  # it started before the subscription
            return
        if opened.token is not None:
            context.detach(opened.token)
        measured = (
            opened.attributes if error is None else {**opened.attributes, "error.type": error}
        )
        opened.span.set_attributes(_drop_missing(known))
        if error is not None:
            opened.span.set_attribute("error.type", error)
            opened.span.set_status(trace.Status(trace.StatusCode.ERROR, error))
        opened.span.end()
        if seconds is not None:
            self._durations[kind].record(seconds, measured)


def _drop_missing(known: Known) -> Attributes:
    return {name: value for name, value in known.items() if value is not None}


def _name_operation(operation: str, conversation: str | None) -> Known:
    return {"gen_ai.operation.name": operation, "gen_ai.conversation.id": conversation}


def _describe_usage(usage: Usage | None) -> Known:
    if usage is None or not usage.input_tokens:  # the provider reported nothing
        return {}
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.written_tokens or None,
    }


def _describe_input(event: RequestSent) -> Known:
    """Return the messages, the instructions and the tools of a request."""
    instructions = [
        part
        for message in event.messages
        if message.role == "system"
        for part in _describe_parts(message)
    ]
    return {
        "gen_ai.input.messages": _to_json(
            [_describe_message(each) for each in event.messages if each.role != "system"]
        ),
        "gen_ai.system_instructions": _to_json(instructions) if instructions else None,
        "gen_ai.tool.definitions": _to_json(
            [
                {"type": "function", "name": tool.name, "description": tool.description}
                for tool in event.tools
            ]
        )
        if event.tools
        else None,
    }


def _select_attributes(event: Event) -> Attributes:
    """Return the known fields of an event, those of sizes and usage with both names.

    Without texts that may quote the conversation.
    """
    selected: Attributes = {}
    for name in (field.name for field in attrs.fields(type(event)) if field.name not in TEXTS):
        value: object = getattr(event, name)
        if isinstance(value, UsageByPart | Usage):
            parts: dict[str, int] = attrs.asdict(value)
            selected |= {f"{PREFIX}{name}.{part}": tokens for part, tokens in parts.items()}
        elif isinstance(value, str | int | float | bool):
            selected[f"{PREFIX}{name}"] = value
        elif isinstance(event, RequestPruned):
            selected[f"{PREFIX}{name}"] = event.by
    return selected


def _to_json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


def _describe_message(message: Message) -> dict[str, Json]:
    return {"role": message.role, "parts": _describe_parts(message)}


def _describe_parts(message: Message) -> list[Json]:
    """Return the parts of a message as the conventions write them.

    Pictures and opaque parts are named, without their data.
    """
    if message.role == "tool":
        return [
            {"type": "tool_call_response", "id": message.tool_call_id, "response": message.text}
        ]
    parts: list[Json] = [
        {"type": "text", "content": part}
        if isinstance(part, str)
        else {"type": type(part).__name__}
        for part in message.content
    ]
    return parts + [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
