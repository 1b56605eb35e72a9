"""What an interactive session shows of a result: one line with figures, and no contents."""

from __future__ import annotations

from pathlib import Path

import pytest
from generate_reference import NAMESPACES, list_names

from promptkit import (
    AgentSession,
    ContextBudget,
    JsonlStore,
    Message,
    PromptElement,
    Renderer,
    SyncSession,
    ToolCall,
    Transcript,
    UserMessage,
    fit,
    render,
)
from promptkit.bench import compare, measure
from promptkit.compaction import PRESETS, Events
from promptkit.lab.recordings import import_recording
from promptkit.lab.replay import (
    FileResult,
    LogOptions,
    ReplayOptions,
    ReplayRules,
    log_conversation,
    read_recordings,
    replay,
)
from promptkit.reprs import describe
from promptkit.testing import ScriptedModel, summary_answer
from promptkit.tokens import model_info, read_prices
from promptkit.transcript import compute_statistics

LONG = "The parser scatters its tokens. " * 200


def read_file(path: str) -> str:
    """Read a file."""
    return path + LONG


def collect_session(folder: Path) -> list[object]:
    """Results of a conversation with a summary."""
    events: list[object] = []
    transcript = Transcript(JsonlStore(folder / "talk.jsonl"))
    steps: list[ToolCall | str] = [
        ToolCall(id="c", name="read_file", arguments='{"path": "a"}'),
        LONG,
        LONG,
        summary_answer(LONG[:2_000]),
    ]
    session = AgentSession(
        model=ScriptedModel(steps),
        tools=[read_file],
        transcript=transcript,
        budget=ContextBudget(window=40_000),
        events=Events(events.append),
    )
    with SyncSession(session) as sync:
        turns = [sync.run(LONG), sync.run(LONG), sync.compact()]
        assert None not in turns
        return [
            *events,
            *turns,
            *transcript.entries,
            *(entry.payload for entry in transcript.entries),
            *session.window.view.items,
            sync,
            session,
            session.model,
            session.window,
            session.window.view,
            session.window.last_rendered,
            session.context_usage(),
            session.compaction,
            session.tools["read_file"],
            transcript,
            transcript.store,
            compute_statistics(transcript.entries),
        ]


def collect_renders() -> list[object]:
    """Results of a fit and a render, and of measuring a prompt."""
    prompt = (UserMessage(priority=1)[LONG], UserMessage()["Fix it."])
    rendered = render(prompt, budget=100, trace=True)
    assert rendered.trace is not None
    run = measure(prompt, budgets=[100, 2_000])
    return [
        fit([Message(role="user", content=LONG), Message(role="user", content="b")], budget=100),
        rendered,
        *rendered.removals,
        rendered.trace,
        *rendered.trace.items,
        run,
        *run.sweeps,
        *run.sweeps[0].points,
        compare(run, run),
        Renderer(budget=100),
    ]


def collect_replays(talk: Path) -> list[object]:
    """Results of replaying and importing a recording."""
    options = ReplayOptions(
        policies=("drop_oldest", "vscode"),
        rules=ReplayRules(model="gpt-5", window=8_000, cache="openai"),
        price=read_prices().for_model("gpt-5"),
        timeline=True,
    )
    (result,) = replay([talk], options)
    assert isinstance(result, FileResult)
    log = log_conversation(talk, LogOptions(prices=read_prices(), model="gpt-5"))
    return [
        *read_recordings(talk),
        result,
        *result.policies,
        *(policy.totals for policy in result.policies),
        *result.policies[0].timeline,
        log,
        *log.messages,
        import_recording(talk, talk.with_name("new.jsonl")),
    ]


def test_each_result_is_one_line_of_at_most_120_characters(tmp_path: Path) -> None:
    results = [
        *collect_session(tmp_path),
        *collect_renders(),
        *collect_replays(tmp_path / "talk.jsonl"),
        ContextBudget.for_model("gpt-5"),
        model_info("gpt-5"),
        *(preset() for preset in PRESETS.values()),
    ]
    for result in results:
        shown = repr(result)
        assert len(shown) <= 120, shown
        assert "\n" not in shown, shown
        assert " object at 0x" not in shown, shown
        assert LONG[:60] not in shown, shown


def test_a_rendered_shows_messages_tokens_budget_and_removals() -> None:
    rendered = render((UserMessage(priority=1)[LONG], UserMessage()["Fix it."]), budget=100)
    assert repr(rendered) == "<Rendered messages: 1, tokens: 10, budget: 100, removed: 1>"


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        ({}, "<Transcript>"),
        ({"entries": 0, "model": None, "text": ""}, "<Transcript entries: 0>"),
        ({"calls": [1, 2], "text": "a\nb"}, "<Transcript calls: 2, text: 'a b'>"),
        ({"read": read_file}, "<Transcript read: read_file>"),
    ],
)
def test_facts_that_say_nothing_are_omitted(facts: dict[str, object], shown: str) -> None:
    assert describe(Transcript(), **facts) == shown


def test_a_long_line_ends_with_an_ellipsis() -> None:
    shown = describe(Transcript(), **{f"fact_{number}": number for number in range(50)})
    assert len(shown) == 120
    assert shown.endswith("…>")


NOT_RESULTS = {
    "If",
    "Provide",
    "Sizing",
    "TurnHooks",
    "CompactionHooks",
    "HookChain",
    "Events",
    "MemoryExtractionHook",
    "StoreContract",
    "ToolCallPairer",
    "Engine",
}
"""Parts that are used in place or extended, and held by nobody."""


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_no_public_class_shows_its_place_in_memory(namespace: str) -> None:
    module = pytest.importorskip(namespace, exc_type=ImportError)
    for name in list_names(namespace):
        value = getattr(module, name)
        if not isinstance(value, type) or getattr(value, "_is_protocol", False):
            continue
        if issubclass(value, PromptElement | BaseException) or name in NOT_RESULTS:
            continue
        assert value.__repr__ is not object.__repr__, name
