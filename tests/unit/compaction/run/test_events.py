from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from promptkit.compaction import (
    CompactionCancelled,
    CompactionCommitted,
    CompactionFailed,
    CompactionStarted,
    DecisionMade,
    Event,
    Events,
    SummaryDiscarded,
    logging_subscriber,
)
from promptkit.compaction.run.otel import otel_subscriber
from tests.unit.compaction.summarizers.writers import Recorder

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

START = CompactionStarted(number=1, trigger="manual", messages=4)
COMMITTED = CompactionCommitted(
    number=1,
    trigger="manual",
    checkpoint="e9",
    mode="live",
    tokens_before=900,
    tokens_after=100,
    seconds=1.5,
)
FAILED = CompactionFailed(
    number=1, trigger="manual", reason="empty", detail="the text of a secret", seconds=0.5
)
CANCELLED = CompactionCancelled(number=1, trigger="manual", seconds=0.5)
DISCARDED = SummaryDiscarded(number=1, trigger="manual", reason="small enough", seconds=0.5)
DECIDED = DecisionMade(
    decision="StartBackground", reason="warm cache", tokens=80, ratio=0.8, threshold=0.79, warm=True
)


def test_every_subscriber_hears_every_event_in_order() -> None:
    first, second = Recorder(), Recorder()
    events = Events(first)
    events.subscribe(second)
    events.emit(START)
    events.emit(COMMITTED)
    assert first.events == second.events == [START, COMMITTED]


def test_a_subscriber_that_raises_is_logged_and_breaks_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard = Recorder()

    def raises(event: Event) -> None:
        raise ValueError("broken meter")

    Events(raises, heard).emit(START)
    assert heard.events == [START]
    assert "broken meter" in caplog.text


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (DECIDED, logging.DEBUG),
        (START, logging.INFO),
        (COMMITTED, logging.INFO),
        (FAILED, logging.WARNING),
        (CANCELLED, logging.INFO),
        (DISCARDED, logging.INFO),
    ],
)
def test_a_log_has_one_line_for_each_event_with_its_figures(
    event: Event, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("test.events")
    with caplog.at_level(logging.DEBUG, logger="test.events"):
        logging_subscriber(logger)(event)
    (record,) = caplog.records
    assert record.levelno == level
    assert record.getMessage().startswith(type(event).__name__)
    if isinstance(event, CompactionCommitted):
        assert "tokens_before=900 tokens_after=100" in record.getMessage()


def spans(*events: Event) -> list[ReadableSpan]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tell = otel_subscriber(provider.get_tracer("test"))
    with provider.get_tracer("test").start_as_current_span("turn"):
        for event in events:
            tell(event)
    provider.shutdown()
    return list(exporter.get_finished_spans())


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (COMMITTED, "committed"),
        (FAILED, "failed"),
        (CANCELLED, "cancelled"),
        (DISCARDED, "discarded"),
    ],
)
def test_a_compaction_is_a_span_from_its_start_to_its_end(end: Event, outcome: str) -> None:
    made, turn = spans(START, end)
    assert made.name == "promptkit.compaction"
    assert made.parent is not None
    assert turn.context is not None
    assert made.parent.span_id == turn.context.span_id
    assert made.attributes is not None
    assert made.attributes["promptkit.outcome"] == outcome
    assert made.attributes["promptkit.messages"] == 4
    assert made.status.status_code == (
        StatusCode.ERROR if outcome == "failed" else StatusCode.UNSET
    )


def test_a_span_has_the_figures_and_none_of_the_conversation() -> None:
    made, _ = spans(START, COMMITTED)
    assert made.attributes is not None
    assert made.attributes["promptkit.tokens_after"] == 100
    failed, _ = spans(START, FAILED)
    assert "secret" not in failed.to_json()


def test_a_decision_is_an_event_on_the_span_at_hand() -> None:
    (turn,) = spans(DECIDED)
    (event,) = turn.events
    assert event.name == "promptkit.decision_made"
    assert event.attributes is not None
    assert event.attributes["promptkit.threshold"] == 0.79


def test_a_decision_to_do_nothing_is_not_recorded() -> None:
    (turn,) = spans(DecisionMade(decision="NoAction", reason="below the threshold", tokens=80))
    assert not turn.events


def test_what_is_unknown_is_no_attribute() -> None:
    (turn,) = spans(DecisionMade(decision="Compact", reason="no window is known"))
    assert turn.events[0].attributes is not None
    assert "promptkit.tokens" not in turn.events[0].attributes


def test_an_end_without_a_start_is_let_pass() -> None:
    assert [span.name for span in spans(COMMITTED)] == ["turn"]


@pytest.mark.long
def test_without_opentelemetry_everything_else_can_be_imported() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; import promptkit.compaction.run.otel, promptkit.agent.session.session"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_opentelemetry_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[otel\]'` in a checkout"):
        otel_subscriber()


def test_a_subscriber_is_a_function() -> None:
    given: Any = [print]
    with pytest.raises(TypeError, match=r"as in Events\(first, second\), not \["):
        Events(given)
