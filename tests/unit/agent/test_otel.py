"""Sessions as spans and metrics, by OpenTelemetry's conventions for generative AI."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import attrs
import openai
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from promptkit import AgentSession, ContextBudget, OpenAIModel, ToolCall, ToolDefinition, Usage
from promptkit.compaction import (
    Events,
    FallbackSummarizer,
    InlineSummarizer,
    SimpleSummarizer,
    otel_subscriber,
)
from promptkit.errors import ModelUnavailableError
from promptkit.testing import ScriptedModel, WordTokenizer, summary_answer
from promptkit.testing.server import serve
from promptkit.tools import Tool
from tests.conversations import summary_reply, words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.sdk.trace import ReadableSpan

    from promptkit.compaction import Summarizer
    from promptkit.testing.scripted_model import Step

WIDE = ContextBudget(window=4_000, reserved_output_tokens=0)
USED = Usage(input_tokens=500, output_tokens=40, cached_tokens=300)


class Traced:
    """Sessions whose spans and metrics stay in memory."""

    def __init__(self, *, content: bool = False) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("test")
        meter = MeterProvider(metric_readers=[self.reader]).get_meter("test")
        self.events = Events(otel_subscriber(self.tracer, meter=meter, content=content))

    def session(
        self, *steps: Step, tools: list[Tool] | None = None, summarizer: Summarizer | None = None
    ) -> AgentSession:
        return AgentSession(
            model=ScriptedModel(steps, name="writer", usage=USED),
            instructions="Be brief.",
            tools=tools or [],
            tokenizer=WordTokenizer(),
            budget=WIDE,
            events=self.events,
            summarizer=summarizer,
        )

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """The spans by name; of several with one name the last."""
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def tree(self) -> list[tuple[str, str | None]]:
        """Each span with the name of its parent, in the order of their starts."""
        spans = sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)
        names = {span.context.span_id: span.name for span in spans if span.context}
        return [
            (span.name, names.get(span.parent.span_id) if span.parent else None) for span in spans
        ]

    def points(self, metric: str) -> list[tuple[Mapping[str, object], HistogramDataPoint]]:
        """The points of a histogram, with their attributes."""
        data = self.reader.get_metrics_data()
        assert data is not None
        found = [
            each
            for kind in data.resource_metrics
            for scope in kind.scope_metrics
            for each in scope.metrics
            if each.name == metric
        ]
        points = [point for each in found for point in each.data.data_points]
        return [
            (dict(point.attributes or {}), point)
            for point in points
            if isinstance(point, HistogramDataPoint)
        ]


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def look(arguments: Mapping[str, object]) -> str:
    return f"a secret of {arguments['path']}"


LOOK = Tool(definition=ToolDefinition(name="look", description="Look into a file."), run=look)
CALL = ToolCall(id="c1", name="look", arguments='{"path": "key.txt"}')


def test_requests_and_tool_calls_are_children_of_their_turn() -> None:
    traced = Traced()
    session = traced.session(CALL, "Found.", tools=[LOOK])
    asyncio.run(session.run("What is the key?"))
    assert traced.tree() == [
        ("invoke_agent", None),
        ("chat writer", "invoke_agent"),
        ("execute_tool look", "invoke_agent"),
        ("chat writer", "invoke_agent"),
    ]
    conversation = session.transcript.entries[0].id
    chat, tool, turn = (
        traced.spans[name] for name in ("chat writer", "execute_tool look", "invoke_agent")
    )
    assert (chat.kind, tool.kind, turn.kind) == (
        SpanKind.CLIENT,
        SpanKind.INTERNAL,
        SpanKind.INTERNAL,
    )
    assert attributes(chat) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "unknown",
        "gen_ai.request.model": "writer",
        "gen_ai.conversation.id": conversation,
        "gen_ai.conversation.compacted": False,
        "promptkit.tokens": 10,
        "gen_ai.usage.input_tokens": 500,
        "gen_ai.usage.output_tokens": 40,
        "gen_ai.usage.cache_read.input_tokens": 300,
        "gen_ai.response.finish_reasons": ("stop",),
    }
    assert attributes(tool) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.conversation.id": conversation,
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Look into a file.",
    }
    assert attributes(turn) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.conversation.id": conversation,
        "gen_ai.usage.input_tokens": 1_000,
        "gen_ai.usage.output_tokens": 80,
        "gen_ai.usage.cache_read.input_tokens": 600,
    }


def test_summary_requests_are_children_of_their_compaction_and_what_follows_is_marked_as_compacted() -> (
    None
):
    traced = Traced()
    session = traced.session(
        words(100, "x"), words(100, "y"), summary_answer("It is about words."), "Fine."
    )

    async def talk() -> None:
        await session.run(words(200, "a"))
        await session.run(words(20, "b"))
        with traced.tracer.start_as_current_span("command"):
            assert await session.compact() is not None
        traced.exporter.clear()

    asyncio.run(talk())
    asyncio.run(session.run("Go on."))
    assert attributes(traced.spans["chat writer"])["gen_ai.conversation.compacted"] is True


def test_a_compaction_has_its_sizes_and_its_failed_attempts() -> None:
    traced = Traced()
    model = ScriptedModel(
        ["no tags", summary_answer("It is about words.")], name="summarizer", usage=USED
    )
    chain = FallbackSummarizer(
        [InlineSummarizer(model=model), SimpleSummarizer(model=model, window=100_000)]
    )
    session = traced.session(words(100, "x"), words(100, "y"), summarizer=chain)

    async def talk() -> None:
        await session.run(words(200, "a"))
        await session.run(words(20, "b"))
        traced.exporter.clear()
        with traced.tracer.start_as_current_span("command"):
            assert await session.compact() is not None

    asyncio.run(talk())
    assert traced.tree() == [
        ("command", None),
        ("promptkit.compaction", "command"),
        ("chat summarizer", "promptkit.compaction"),
        ("chat summarizer", "promptkit.compaction"),
    ]
    span = traced.spans["promptkit.compaction"]
    found = attributes(span)
    assert found["gen_ai.conversation.id"] == session.transcript.entries[0].id
    assert found["promptkit.outcome"] == "committed"
    assert found["promptkit.before.messages"] == 420
    assert found["promptkit.after.summary"] == session.context_usage().parts.summary
    assert (found["promptkit.model"], found["promptkit.usage.cached_tokens"]) == ("summarizer", 600)
    assert [event.name for event in span.events] == ["promptkit.summary_attempt_failed"]
    assert span.events[0].attributes is not None
    assert span.events[0].attributes["promptkit.reason"] == "untagged"


def test_tokens_and_durations_are_metrics() -> None:
    traced = Traced()
    asyncio.run(traced.session(CALL, "Found.", tools=[LOOK]).run("What is the key?"))
    tokens = {
        found["gen_ai.token.type"]: (found, point)
        for found, point in traced.points("gen_ai.client.token.usage")
    }
    assert {kind: (point.count, point.sum) for kind, (_, point) in tokens.items()} == {
        "input": (2, 1_000),
        "output": (2, 80),
    }
    chat = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "unknown",
        "gen_ai.request.model": "writer",
    }
    assert tokens["input"][0] == {**chat, "gen_ai.token.type": "input"}
    assert tokens["input"][1].explicit_bounds[:3] == (1, 4, 16)
    ((found, point),) = traced.points("gen_ai.client.operation.duration")
    assert (found, point.count) == (chat, 2)
    ((found, point),) = traced.points("gen_ai.execute_tool.duration")
    assert (found, point.count) == (
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"},
        1,
    )
    ((_, point),) = traced.points("gen_ai.invoke_agent.duration")
    assert point.count == 1


def test_nothing_that_was_said_is_recorded_unless_it_is_asked_for() -> None:
    said = ("secret", "key", "brief", "about words", "xx")

    async def talk(traced: Traced) -> str:
        session = traced.session(
            CALL,
            "The key is xx.",
            words(100, "y"),
            summary_answer("It is about words."),
            tools=[LOOK],
        )
        await session.run(f"What is the key? {words(200, 'b')}")
        await session.run(words(20, "c"))
        assert await session.compact() is not None
        return " ".join(span.to_json() for span in traced.exporter.get_finished_spans())

    without, full = asyncio.run(talk(Traced())), asyncio.run(talk(Traced(content=True)))
    assert not [text for text in said if text in without]
    assert not [text for text in said if text not in full]


def test_content_is_written_as_the_conventions_say() -> None:
    traced = Traced(content=True)
    asyncio.run(traced.session(CALL, "Found.", tools=[LOOK]).run("What is the key?"))
    chat, tool = (
        attributes(traced.spans["chat writer"]),
        attributes(traced.spans["execute_tool look"]),
    )
    assert json.loads(str(chat["gen_ai.system_instructions"])) == [
        {"type": "text", "content": "Be brief."}
    ]
    assert json.loads(str(chat["gen_ai.input.messages"])) == [
        {"role": "user", "parts": [{"type": "text", "content": "What is the key?"}]},
        {
            "role": "assistant",
            "parts": [
                {"type": "tool_call", "id": "c1", "name": "look", "arguments": CALL.arguments}
            ],
        },
        {
            "role": "tool",
            "parts": [
                {"type": "tool_call_response", "id": "c1", "response": "a secret of key.txt"}
            ],
        },
    ]
    assert json.loads(str(chat["gen_ai.output.messages"])) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": "Found."}],
            "finish_reason": "stop",
        }
    ]
    assert json.loads(str(chat["gen_ai.tool.definitions"])) == [
        {"type": "function", "name": "look", "description": "Look into a file."}
    ]
    assert (tool["gen_ai.tool.call.arguments"], tool["gen_ai.tool.call.result"]) == (
        CALL.arguments,
        "a secret of key.txt",
    )


def test_what_a_tool_does_is_below_its_span() -> None:
    traced = Traced()

    def read(arguments: Mapping[str, object]) -> str:
        with traced.tracer.start_as_current_span("disk"):
            return "text"

    tool = attrs.evolve(LOOK, run=read)
    asyncio.run(traced.session(CALL, "Found.", tools=[tool]).run("What is the key?"))
    assert ("disk", "execute_tool look") in traced.tree()


def test_failures_have_the_status_and_the_type_of_the_error() -> None:
    traced = Traced()

    def fails(arguments: Mapping[str, object]) -> str:
        raise OSError("no such file")

    session = traced.session(
        CALL, ModelUnavailableError("down"), tools=[attrs.evolve(LOOK, run=fails)]
    )
    with pytest.raises(ModelUnavailableError):
        asyncio.run(session.run("What is the key?"))
    types = {
        "execute_tool look": "tool_error",
        "chat writer": "ModelUnavailableError",
        "invoke_agent": "ModelUnavailableError",
    }
    for name, error in types.items():
        span = traced.spans[name]
        assert (attributes(span)["error.type"], span.status.status_code) == (
            error,
            StatusCode.ERROR,
        )
    durations = traced.points("gen_ai.client.operation.duration")
    assert [found.get("error.type") for found, _ in durations] == [None, "ModelUnavailableError"]


def test_a_cancelled_turn_ends_all_its_spans_and_leaves_no_span_current() -> None:
    traced = Traced()

    async def talk() -> None:
        started = asyncio.Event()

        async def hang(arguments: Mapping[str, object]) -> str:
            started.set()
            await asyncio.sleep(60)
            raise AssertionError

        session = traced.session(CALL, "Fine.", tools=[attrs.evolve(LOOK, run=hang)])
        turn = asyncio.create_task(session.run("What is the key?"))
        await asyncio.wait_for(started.wait(), timeout=5)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        await asyncio.sleep(0)
        assert attributes(traced.spans["execute_tool look"])["error.type"] == "CancelledError"
        assert attributes(traced.spans["invoke_agent"])["error.type"] == "CancelledError"
        await session.run("Never mind.")
        assert not get_current_span().get_span_context().is_valid

    asyncio.run(talk())
    assert [parent for name, parent in traced.tree() if name == "invoke_agent"] == [None, None]


def test_turns_at_the_same_time_have_children_of_their_own() -> None:
    traced = Traced()

    async def talk() -> None:
        sessions = [traced.session(CALL, "Found.", tools=[LOOK]) for _ in range(5)]
        await asyncio.gather(
            *(session.run(f"question {number}") for number, session in enumerate(sessions))
        )

    asyncio.run(talk())
    spans = traced.exporter.get_finished_spans()
    conversations = {
        span.context.span_id: attributes(span)["gen_ai.conversation.id"]
        for span in spans
        if span.context
    }
    children = [span for span in spans if span.parent]
    assert len(children) == 15
    for span in children:
        assert span.parent is not None
        assert conversations[span.parent.span_id] == attributes(span)["gen_ai.conversation.id"]


def test_over_http_the_provider_and_its_name_for_the_request_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A background summary outlasts its turn: its request is still a child of the compaction, and no context is left behind."""
    traced = Traced()

    async def talk(url: str) -> None:
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            budget = ContextBudget(window=2_000, reserved_output_tokens=0)
            session = AgentSession(
                model=OpenAIModel("gpt-4.1", client=client),
                budget=budget,
                events=traced.events,
                rng=lambda: 0.5,
            )
            for _ in range(12):
                await session.run(words(100, "question"))
                await session.window.wait_idle()

    with serve(
        after=lambda exchange: (
            summary_reply("It is about words.") if exchange.purpose else words(60, "x")
        )
    ) as server:
        asyncio.run(talk(server.url))
    chat = attributes(traced.spans["chat gpt-4.1"])
    assert chat["gen_ai.provider.name"] == "openai"
    assert str(chat["promptkit.request_id"]).startswith("req_")
    compactions = [
        attributes(span)
        for span in traced.exporter.get_finished_spans()
        if span.name == "promptkit.compaction"
    ]
    assert ("background", "committed") in [
        (each["promptkit.trigger"], each["promptkit.outcome"]) for each in compactions
    ]
    assert ("chat gpt-4.1", "promptkit.compaction") in traced.tree()
    assert not caplog.records
