"""The README's prompt and the large prompt: what is measured, what is checked before it is, and which figures have a bar."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias, cast

import attrs
import pytest

from benchmarks import large_prompt, recorded as subject, render
from benchmarks.history import outcome
from benchmarks.large_prompt import (
    COMPONENTS,
    OWN,
    AgentFigures,
    Parts,
    Stopwatch,
    check_agent,
    measure_agent,
)
from benchmarks.recorded import (
    BUDGETS,
    TURN,
    HistoryFigures,
    budgets,
    check,
    count,
    find_foreign,
    following,
    measure_history,
    read_texts,
    record,
)
from benchmarks.render import BARS, HISTORY_BARS, Figures
from benchmarks.timing import medians
from benchmarks.tokenizing import fresh_tokenizer
from promptkit import Message, Renderer
from promptkit.pairing import pair_tool_calls
from tests.examples import keep_first

if TYPE_CHECKING:
    from benchmarks.timing import Case
    from benchmarks.workload import Shape
    from promptkit import PromptElement, Rendered
    from promptkit.elements.element import Child

UNLIMITED = 1_000_000
SMALL = record(40)
HALF = count(SMALL.request()) // 2
LATER = record(44).turns[-TURN:]


def rendered_at(prompt: PromptElement, budget: int) -> Rendered:
    return Renderer(budget=budget, tokenizer=fresh_tokenizer()).render((prompt,))


class TestRecorded:
    def test_is_a_conversation_that_a_provider_accepts(self) -> None:
        assert [message.role for message in SMALL.turns[:TURN]] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        assert not pair_tool_calls(SMALL.turns).repairs

    @pytest.mark.long
    def test_is_the_same_every_time_and_goes_on_where_it_ended(self) -> None:
        assert record(40) == SMALL
        assert record(80).turns[:40] == SMALL.turns

    def test_has_messages_of_some_sixty_tokens(self) -> None:
        assert 55 <= count(SMALL.turns) / len(SMALL.turns) <= 65

    def test_is_counted_as_it_is_rendered_whole(self) -> None:
        rendered = rendered_at(SMALL.prompt(), UNLIMITED)
        assert rendered.messages == SMALL.request()
        assert rendered.tokens == count(SMALL.request())

    def test_has_a_floor_of_every_text_and_every_argument_once(self) -> None:
        texts = read_texts(SMALL.request())
        assert len(texts) == len({*texts})
        wire = json.dumps(
            [attrs.asdict(message) for message in SMALL.request()], ensure_ascii=False
        )
        assert [
            text for text in texts if json.dumps(text, ensure_ascii=False)[1:-1] not in wire
        ] == []
        assert sum(map(len, texts)) == sum(
            len(message.text) + sum(len(call.arguments) for call in message.tool_calls)
            for message in SMALL.request()
        )

    def test_shares_no_text_and_no_message_with_its_fresh_copy(self) -> None:
        copy = SMALL.fresh()
        assert copy == SMALL
        texts = {id(text) for text in read_texts(SMALL.turns)} | {id(SMALL.log), id(SMALL.query)}
        assert not texts & {id(text) for text in (*read_texts(copy.turns), copy.log, copy.query)}
        assert not {*map(id, SMALL.turns)} & {*map(id, copy.turns)}


def test_every_next_render_has_one_more_turn_and_the_message_objects_of_the_render_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[Sequence[Message]] = []

    def watched(_: Renderer, elements: Iterable[Child]) -> None:
        shown.extend(cast("subject.ReadmePrompt", element).history for element in elements)

    monkeypatch.setattr(subject, "outcome", watched)
    case = following(SMALL, HALF, [LATER, LATER])
    case()()
    case()()
    assert [len(history) for history in shown] == [40, 44, 48]
    for before, after in pairwise(shown):
        assert all(new is old for old, new in zip(before, after, strict=False))


def test_half_is_half_of_the_whole_request() -> None:
    assert budgets(20_001) == {"8k": 8_000, "30k": 30_000, "half": 10_000}


@attrs.frozen
class Spoiled:
    """A result of a broken renderer."""

    messages: Sequence[Message]
    tokens: int


Change: TypeAlias = "Callable[[int, Rendered], Rendered | Spoiled]"
"""Returns what a render gives instead, from its number and what it really gives."""

FOREIGN = Message(role="user", content="foreign")
PROBLEMS: list[tuple[str, Change]] = [
    ("no full render", lambda _, rendered: rendered.at_budget(HALF // 2)),
    ("no full render", lambda _, rendered: rendered.at_budget(HALF * 2)),
    (
        "not what its messages have",
        lambda _, rendered: Spoiled(rendered.messages[1:], rendered.tokens),
    ),
    (
        "not of the conversation",
        lambda _, rendered: Spoiled((*rendered.messages, FOREIGN), rendered.tokens),
    ),
    (
        "instructions or request are missing",
        lambda _, rendered: Spoiled(rendered.messages[:-1], rendered.tokens),
    ),
    (
        "not that of a new Renderer",
        lambda number, rendered: rendered if number != 1 else Spoiled(rendered.messages[:-1], 0),
    ),
]


class TestCheck:
    @pytest.mark.parametrize("share", keep_first(1, 2, 1, 3))
    def test_passes_a_render_that_fills_its_budget(self, share: int) -> None:
        budget = count(SMALL.request()) // share
        assert 0.95 * budget < check(SMALL, LATER, budget) <= budget

    @pytest.mark.parametrize(("problem", "change"), PROBLEMS)
    def test_names_what_is_wrong_with_a_render(
        self, problem: str, change: Change, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        number = iter(range(10))

        def spoiled(renderer: Renderer, elements: tuple[Child, ...]) -> Rendered | Spoiled:
            return change(next(number), outcome(renderer, elements))

        monkeypatch.setattr(subject, "outcome", spoiled)
        with pytest.raises(RuntimeError, match=problem):
            check(SMALL, LATER, HALF)


def test_a_shortened_text_and_a_marker_are_not_foreign() -> None:
    known = SMALL.turns
    head, tail = known[0].text[:40], known[0].text[-30:]
    shown = [
        Message(role="user", content=f"{head}\n[… cut …]\n{tail}"),
        Message(role="user", content="[1,024 messages omitted]"),
    ]
    assert find_foreign(shown, known) == []
    assert find_foreign([Message(role="user", content=f"{head} and more")], known) == [
        f"{head} and more"
    ]
    call = attrs.evolve(known[1].tool_calls[0], id="call_0")
    assert find_foreign([Message(role="assistant", tool_calls=[call])], known) == ["call_0"]


@pytest.mark.long
def test_the_history_is_measured_at_every_budget() -> None:
    seconds: dict[str, float] = {}
    figures = measure_history(200, 1, seconds)
    assert list(figures) == list(BUDGETS)
    assert all(
        each.first > 0 and each.next > 0 and 0.95 < each.kept_share <= 1
        for each in figures.values()
    )
    assert {
        f"history_200_{name}_{part}" for name in BUDGETS for part in ("floor", "first", "next")
    } == seconds.keys()


@pytest.mark.parametrize("collector", [False, True])
def test_the_collector_is_off_while_a_case_runs_unless_it_is_asked_for(collector: bool) -> None:
    seen: list[bool] = []
    medians({"case": lambda: lambda: seen.append(gc.isenabled())}, 1, collector=collector)
    assert seen == [collector, collector]
    assert gc.isenabled()


class TestLargePrompt:
    def test_has_45_components_and_fits_every_budget(self) -> None:
        parts = Parts.make()
        whole = rendered_at(parts.prompt(), UNLIMITED)
        assert sum(
            text in "\n".join(message.text for message in whole.messages)
            for text in parts.paragraphs
        ) == len(parts.paragraphs)
        for budget in budgets(whole.tokens).values():
            OWN.reset()
            assert check_agent(parts, whole, budget) <= budget
            assert OWN.calls == COMPONENTS

    def test_a_render_of_fewer_components_is_not_measured(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        parts = Parts.make()
        whole = rendered_at(parts.prompt(), UNLIMITED)

        def render_twice(renderer: Renderer, elements: tuple[Child, ...]) -> Rendered:
            outcome(renderer, elements)
            return outcome(Renderer(budget=renderer.budget, tokenizer=fresh_tokenizer()), elements)

        monkeypatch.setattr(large_prompt, "outcome", render_twice)
        with pytest.raises(RuntimeError, match=rf"{2 * COMPONENTS} components were rendered"):
            check_agent(parts, whole, 8_000)

    @pytest.mark.long
    def test_the_time_of_its_own_components_is_subtracted(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def timed(cases: Mapping[str, Case], rounds: int, *, collector: bool) -> dict[str, float]:
            assert collector
            for _ in range(rounds + 1):
                cases["first"]()()
            return {"floor": 2.0, "first": 8.0}

        monkeypatch.setattr(large_prompt, "medians", timed)
        for figures in measure_agent(1, {}).values():
            assert figures.own > 0
            assert figures.first + figures.own == pytest.approx(4.0)

    def test_a_stopwatch_adds_the_processor_time_of_calls(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        times = iter([1.0, 1.5, 4.0, 6.0])
        monkeypatch.setattr("benchmarks.large_prompt.time.process_time", lambda: next(times))
        watch = Stopwatch()

        @watch.measure
        def double(number: int) -> int:
            return 2 * number

        assert (double(3), double(4)) == (6, 8)
        assert (watch.seconds, watch.calls) == (2.5, 2)
        watch.reset()
        assert (watch.seconds, watch.calls) == (0.0, 0)


def figures(
    *, first: float = 1.0, following: float = 0.1, few: float = 9.0, large: float = 9.0
) -> Figures:
    """Return figures within every bar, except where given: a short history and the large prompt have none."""
    return Figures(
        **dict.fromkeys(BARS, 0.0),  # type: ignore[arg-type]  # all of them are numbers
        over_floor={"messages": 0.5},
        incremental={"messages": 0.05},
        in_component={"messages": {"first": 9.0, "next": 9.0}},
        scaling={"flat": 4.0},
        history={
            200: {"8k": HistoryFigures(few, few, 1.0)},
            1_000: {"8k": HistoryFigures(1.0, 0.1, 1.0), "half": HistoryFigures(first, 0.1, 1.0)},
            4_000: {"8k": HistoryFigures(1.0, following, 1.0)},
        },
        agent={"8k": AgentFigures(large, 0.1, 0.98)},
        messages=5_000,
        text_bytes=1,
        text_tokens=1,
        rounds=5,
        seconds={"floor": 1.0},
    )


@pytest.fixture
def show(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Runs the command line on figures that were not measured, and returns its exit status and what it printed."""

    def run(measured: Figures, *arguments: str) -> tuple[int, str]:
        def measure(messages: int, rounds: int, shapes: Sequence[Shape]) -> Figures:
            return measured

        monkeypatch.setattr(render, "measure", measure)
        return render.main(arguments), capsys.readouterr().out

    return run


@pytest.mark.parametrize(
    ("measured", "missed"),
    [
        (figures(), []),
        (
            figures(first=HISTORY_BARS["first"] + 0.1),
            ["first render over the floor, history of 1,000, half"],
        ),
        (
            figures(following=HISTORY_BARS["next"] + 0.1),
            ["next render over the floor, history of 4,000, 8k"],
        ),
    ],
)
def test_a_missed_bar_of_the_history_is_named_and_fails_the_check(
    measured: Figures, missed: list[str], show: Callable[..., tuple[int, str]]
) -> None:
    assert [says for says, figure, bar in measured.verdicts() if figure > bar] == missed
    status, table = show(measured, "--check")
    assert status == bool(missed)
    assert [line.split("  ")[0] for line in table.splitlines() if line.endswith("MISSED")] == missed


def test_the_table_has_the_figures_without_a_bar(show: Callable[..., tuple[int, str]]) -> None:
    _, table = show(figures(few=7.25, large=3.5))
    lines = {line.split("  ")[0]: line.split() for line in table.splitlines()}
    assert lines["history of 200, 8k"][-3:] == ["7.250", "7.250", "100.0%"]
    assert lines["45 components, 8k (aim 2)"][-3:] == ["3.500", "0.100", "98.0%"]


def test_json_has_first_next_and_kept_share_by_messages_and_budget(
    show: Callable[..., tuple[int, str]],
) -> None:
    _, text = show(figures(), "--json")
    told = json.loads(text)
    assert told["history"]["1000"]["half"] == {"first": 1.0, "next": 0.1, "kept_share": 1.0}
    assert told["agent"]["8k"] == {"first": 9.0, "own": 0.1, "kept_share": 0.98}
