"""The measuring: every figure is that of a real render.

Which element keeps how many of its tokens.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
from promptkit_components.demo import load_demo

from promptkit import (
    AssistantMessage,
    Chunk,
    Group,
    Message,
    Renderer,
    Reserve,
    SystemMessage,
    TextChunk,
    TokenLimit,
    UserMessage,
    render,
)
from promptkit.bench.sweep import InvalidBudgetsError, build_elements, count_kept_tokens, measure
from promptkit.elements.component import component
from promptkit.elements.element import Child, PromptElement, Sizing
from promptkit.errors import BudgetExceededError, UnknownModelError
from tests.unit.bench.prompts import Review

if TYPE_CHECKING:
    from promptkit.tracing.trace import Trace


BUDGETS = (40, 90, 150, 250, 1_000)


@pytest.mark.parametrize("model", [None, "gpt-5", "gpt-4"])
def test_every_point_is_what_a_render_at_that_budget_gives(model: str | None) -> None:
    run = measure(Review(), budgets=BUDGETS, models=[model] if model else ())
    (sweep,) = run.sweeps
    assert (sweep.model, [point.budget for point in sweep.points]) == (model, list(BUDGETS))
    for point in sweep.points:
        rendered = render(Review(), budget=point.budget, model=model)
        assert (point.used, point.messages, point.removed) == (
            rendered.tokens,
            len(rendered.messages),
            len(rendered.removals),
        )
        assert point.utilisation == rendered.tokens / point.budget
        assert (point.required, point.cold, point.warm) == (None, None, None)


def test_every_model_is_counted_as_it_counts() -> None:
    run = measure(load_demo().prompt, budgets=[4_000], models=["gpt-5", "gpt-4"])
    assert [(sweep.model, sweep.tokenizer) for sweep in run.sweeps] == [
        ("gpt-5", "o200k_base"),
        ("gpt-4", "cl100k_base"),
    ]
    assert run.sweeps[0].whole != run.sweeps[1].whole


@pytest.mark.parametrize("budgets", [[], [0], [100, -5], [50.5], ["0k"]])
# Any stands for it is wrong
def test_what_is_no_list_of_budgets_is_refused_before_anything_is_rendered(budgets: Any) -> None:
    with pytest.raises(InvalidBudgetsError, match="use one or more whole numbers of tokens"):
        measure("no prompt", budgets=budgets)


def test_a_model_that_nothing_is_known_of_is_refused_before_anything_is_rendered() -> None:
    with pytest.raises(UnknownModelError, match="gtp-5"):
        measure(Review(), budgets=[100], models=["gtp-5"])


def test_the_whole_is_the_prompt_with_room_for_everything() -> None:
    (sweep,) = measure(Review(), budgets=[40]).sweeps
    rendered = render(Review(), budget=1_000_000)
    assert (sweep.whole, sweep.messages) == (rendered.tokens, len(rendered.messages))


def test_a_prompt_larger_than_any_window_is_whole_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # rather than a prompt of ten million tokens
    monkeypatch.setattr("promptkit.bench.sweep.UNLIMITED", 70)
    (sweep,) = measure((Review(), Reserve(tokens=30)), budgets=[90]).sweeps
    assert sweep.whole == render(Review(), budget=1_000_000).tokens


def test_the_shares_fall_with_the_budget_and_nothing_is_left_out_when_all_fits() -> None:
    (sweep,) = measure(Review(), budgets=BUDGETS, depth=2).sweeps
    notes = next(element for element in sweep.elements if "remarks" in element.path)
    shares = [notes.kept_share(at) or 0 for at in range(len(BUDGETS))]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0, 1)
    assert 0 < shares[3] < 1
    assert sweep.dropped_tokens(len(BUDGETS) - 1) == 0
    assert sweep.dropped_tokens(0) > sweep.dropped_tokens(3) > 0


def test_a_budget_too_small_says_what_is_required_and_the_others_are_measured() -> None:
    (sweep,) = measure(Review(), budgets=[5, 1_000], repeat=1).sweeps
    small, large = sweep.points
    with pytest.raises(BudgetExceededError) as caught:
        render(Review(), budget=5)
    assert small.required == caught.value.required > 5
    assert (small.budget, small.used, small.cold, small.utilisation) == (5, 0, None, None)
    assert large.required is None
    assert large.cold is not None
    assert {element.kept[0] for element in sweep.elements} == {None}


def test_components_are_really_rendered_at_every_budget() -> None:
    @component
    class Half(PromptElement):
        """Fills half of what it is given."""

        def render(self, sizing: Sizing) -> Child:
            return UserMessage()["word " * min(sizing.token_budget // 2, 500)]

    (sweep,) = measure(Half(), budgets=[100, 200, 2_000]).sweeps
    assert [point.removed for point in sweep.points] == [0, 0, 0]
    assert sweep.points[0].used < sweep.points[1].used < sweep.points[2].used == sweep.whole
    assert (
        0
        < (sweep.elements[0].kept_share(0) or 0)
        < (sweep.elements[0].kept_share(1) or 0)
        < (sweep.elements[0].kept_share(2) or 0)
        == 1
    )


def test_the_stable_prefix_ends_before_the_first_message_that_differs() -> None:
    prompt = (
        SystemMessage(required=True)["Be brief."],
        UserMessage(priority=1)["An old question, long since answered. " * 5],
        AssistantMessage(priority=2)["An answer."],
        UserMessage(required=True)["Go."],
    )
    (sweep,) = measure(prompt, budgets=[30, 1_000]).sweeps
    system = Message(role="system", content=("Be brief.",))
    alone = Renderer(budget=100).render(SystemMessage()["Be brief."])
    assert alone.messages == (system,)
    assert sweep.points[0].messages < 4
    assert sweep.points[0].stable_prefix == alone.tokens - 3  # without the start of the reply
    assert sweep.points[1].stable_prefix == sweep.whole - 3


def test_a_changed_first_message_leaves_no_stable_prefix() -> None:
    @component
    class Told(PromptElement):
        """Says its budget at the very beginning."""

        def render(self, sizing: Sizing) -> Child:
            return (SystemMessage()[f"{sizing.token_budget} tokens"], UserMessage()["Go."])

    (sweep,) = measure(Told(), budgets=[1_000]).sweeps
    assert sweep.points[0].stable_prefix == 0


@pytest.mark.slow
def test_times_are_taken_only_when_asked_for() -> None:
    (without,) = measure(Review(), budgets=[100, 1_000]).sweeps
    assert (without.floor, without.points[0].cold, without.over_floor(without.points[0].cold)) == (
        None,
        None,
        None,
    )
    run = measure(load_demo().prompt, budgets=[1_000, 8_000], repeat=2)
    (timed,) = run.sweeps
    assert run.repeat == 2
    assert timed.floor is not None
    for point in timed.points:
        assert point.cold is not None
        assert point.warm is not None
        assert (timed.over_floor(point.cold) or 0) == point.cold / timed.floor > 0


@pytest.mark.slow
def test_cold_starts_from_nothing_and_warm_from_the_render_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[int, int]] = []
    plain = Renderer.render

    def spied(self: Renderer, prompt: Child) -> object:
        seen.append((id(self), id(self.tokenizer)))
        return plain(self, prompt)

    monkeypatch.setattr(Renderer, "render", spied)
    kept: list[Renderer] = []
    # or ids would be used again
    monkeypatch.setattr(Renderer, "__init__", _kept(kept, Renderer.__init__))
    measure(Review(), budgets=[100, 1_000], repeat=3)
    timed = seen[3:]  # the render with room for everything, and one for each budget
    pairs = list(zip(timed[::2], timed[1::2], strict=True))
    assert all(cold == warm for cold, warm in pairs)
    assert len({cold for cold, _ in pairs}) == len({tokenizer for (_, tokenizer), _ in pairs}) == 6


def _kept(renderers: list[Renderer], plain: object) -> object:
    def made(self: Renderer, **arguments: object) -> None:
        plain(self, **arguments)  # type: ignore[operator]  # Renderer's own
        renderers.append(self)

    return made


@pytest.mark.slow
def test_the_garbage_collector_is_left_as_it_was() -> None:
    frozen = gc.get_freeze_count()
    measure(Review(), budgets=[100], repeat=1)
    assert (gc.isenabled(), gc.get_freeze_count()) == (True, frozen)
    gc.disable()
    try:
        measure(Review(), budgets=[100], repeat=1)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_an_error_in_a_component_says_at_which_budget() -> None:
    @component
    class Strict(PromptElement):
        """Breaks when room is short."""

        def render(self, sizing: Sizing) -> Child:
            if sizing.token_budget < 100:
                message = "no room"
                raise ValueError(message)
            return UserMessage()["x"]

    with pytest.raises(ValueError, match="no room") as caught:
        measure(Strict(), budgets=[50, 200])
    assert "at a budget of 50 tokens" in caught.value.__notes__


ROOM = 10_000


@component
class Notes(PromptElement):
    """Notes that leave from the first on, and a word about those that are gone."""

    count: int = 3

    def render(self, sizing: Sizing) -> Child:
        return [
            UserMessage(priority=n, fallback=UserMessage()["gone"])[f"note {n} " + "and more " * 10]
            for n in range(self.count)
        ]


def traced(prompt: Child, budget: int = ROOM) -> Trace:
    trace = render(prompt, budget=budget, trace=True).trace
    assert trace is not None
    return trace


def test_elements_are_told_apart_by_their_path_and_not_by_their_position() -> None:
    prompt = Group()[
        SystemMessage()["Be brief."], Notes(), Notes(label="more"), UserMessage()["Go."]
    ]
    kept = count_kept_tokens(traced(prompt), 3)
    assert list(kept) == [
        "Group > SystemMessage",
        "Group > Notes > UserMessage",
        "Group > Notes(more) > UserMessage",
        "Group > UserMessage",
    ]


def test_the_tokens_of_all_elements_are_those_of_the_messages() -> None:
    prompt = Group()[SystemMessage()["Be brief."], Notes(), UserMessage()["Go."]]
    for budget in (30, 60, ROOM):
        rendered = render(prompt, budget=budget, trace=True)
        assert rendered.trace is not None
        fallbacks = sum(
            item.tokens for item in rendered.trace.kept(rendered.trace.state or 0) if item.since
        )
        # for the start of the reply
        assert sum(count_kept_tokens(rendered.trace, 3).values()) + fallbacks == rendered.tokens - 3


@pytest.mark.parametrize("depth", [1, 2, 3, 9])
def test_a_path_has_no_more_steps_than_the_depth(depth: int) -> None:
    trace = traced(
        Group()[Group()[Group()[Group()[UserMessage()[TextChunk()["a"], TextChunk()["b"]]]]]]
    )
    kept = count_kept_tokens(trace, depth)
    assert max(len(path.split(" > ")) for path in kept) == min(depth, 6)
    assert sum(kept.values()) == sum(item.tokens for item in trace.items)


def test_plain_text_belongs_to_the_element_around_it_and_a_chunk_is_its_own() -> None:
    kept = count_kept_tokens(traced(UserMessage()["plain", TextChunk()["chunk"]]), 3)
    assert list(kept) == ["UserMessage", "UserMessage > TextChunk"]


def test_what_is_gone_counts_nothing_and_keeps_its_place() -> None:
    prompt = Group()[
        SystemMessage(priority=1)["Be brief, and never say more than you must."],
        UserMessage(required=True)["Go."],
    ]
    kept = count_kept_tokens(traced(prompt, 10), 2)
    assert list(kept) == ["Group > SystemMessage", "Group > UserMessage"]
    assert kept["Group > SystemMessage"] == 0
    assert kept["Group > UserMessage"] > 0


def test_what_stands_in_for_something_removed_is_not_kept() -> None:
    trace = traced((Notes(count=1), UserMessage()["q"]), 20)
    assert [item.text for item in trace.kept(trace.state or 0) if item.text] == ["gone", "q"]
    kept = count_kept_tokens(trace, 9)
    assert list(kept) == ["Notes > UserMessage", "UserMessage"]
    assert kept["Notes > UserMessage"] == 0


def test_a_limit_that_always_removes_leaves_no_row() -> None:
    limited = UserMessage()[
        TokenLimit(max_tokens=5)[
            TextChunk(label="long", priority=1)["far too long " * 10],
            TextChunk(label="short", priority=2)["short"],
        ]
    ]
    kept = count_kept_tokens(traced(limited), 9)
    assert kept["UserMessage > TokenLimit > TextChunk(long)"] == 0
    assert [row.path for row in build_elements(kept, [kept])] == [
        "UserMessage",
        "UserMessage > TokenLimit > TextChunk(short)",
    ]


def test_names_cannot_move_the_cursor_or_break_a_line() -> None:
    kept = count_kept_tokens(
        traced(Group()[Chunk(label="a\nb\x1b[31m\ud800")[UserMessage()["x"]]]), 2
    )
    assert list(kept) == ["Group > Chunk(a\\nb\\x1b[31m\\ud800)"]


def test_an_element_that_is_there_only_when_room_is_short_is_measured_by_the_most_it_has() -> None:
    made = build_elements(
        {"Long": 100}, [None, {"Long": 0, "Short": 10}, {"Long": 0, "Short": 20}, {"Long": 100}]
    )
    assert [(row.path, row.whole, row.kept) for row in made] == [
        ("Long", 100, (None, 0, 0, 100)),
        ("Short", 20, (None, 10, 20, 0)),
    ]
    assert [made[1].kept_share(at) for at in range(4)] == [None, 0.5, 1.0, 0.0]


@pytest.mark.slow
def test_a_chain_deeper_than_recursion_is_summed_up() -> None:
    prompt: Child = UserMessage()["deep"]
    for _ in range(3_000):
        prompt = Group()[prompt]
    assert count_kept_tokens(traced(prompt), 2) == {
        "Group > Group": count_kept_tokens(traced(UserMessage()["deep"]), 1)["UserMessage"]
    }
