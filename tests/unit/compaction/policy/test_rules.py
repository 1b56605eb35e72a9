"""What a policy decides in each state: one table, and the laws that hold for every state.

The laws of whole conversations: tests/behaviour/test_policy.py.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NoReturn

import attrs
import pytest
from hypothesis import given, strategies as st

from promptkit.compaction.policy.rules import (
    Policy,
    Thresholds,
    apply_or_discard,
    block_at,
    compact_above,
    compact_at,
    compact_on,
    compact_on_demand,
    compact_when_idle,
    default_policy,
    fail_if_too_large,
    first_match,
    on_overflow,
    once_per_turn,
    only_before_turns,
    promote,
    prune_results,
    render_pruned_if_too_large,
    require_messages,
    start_background,
    start_background_at,
)
from promptkit.compaction.policy.state import (
    ApplySummary,
    Attempts,
    BackgroundState,
    Compact,
    Decision,
    DiscardSummary,
    Fail,
    NoAction,
    Phase,
    PolicyState,
    Promote,
    Prune,
    Reason,
    RenderPruned,
    StartBackground,
    Wait,
)
from promptkit.tokens.budget import ContextBudget

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit.compaction.policy.rules import Rule


BUDGET = ContextBudget(window=10_000, reserved_output_tokens=0)
UNKNOWN = ContextBudget()
PHASES: tuple[Phase, ...] = (
    "before_render",
    "rendered",
    "turn_end",
    "incomplete",
    "overflow",
    "rejected",
    "idle",
    "memory",
    "model_switch",
    "manual",
)
BACKGROUNDS: tuple[BackgroundState, ...] = ("idle", "running", "ready", "failed")
FAILED = Attempts().after_attempt("failed")
FAILED_BACKGROUND = Attempts().after_attempt("failed", background=True)
NOT_ENOUGH = Attempts().after_attempt("not enough", background=True)
NOT_REDUCED = Attempts().after_attempt("not reduced", background=True)


class Draws:
    """Draws these numbers, and counts."""

    def __init__(self, *numbers: float) -> None:
        self.numbers = list(numbers)
        self.drawn = 0

    def __call__(self) -> float:
        self.drawn += 1
        return self.numbers.pop(0) if self.numbers else 0.5


def never() -> NoReturn:
    raise AssertionError("the cold path draws")


def at(
    phase: Phase, tokens: int | None = 9_600, budget: ContextBudget = BUDGET, **more: Any
) -> PolicyState:  # Any: other fields of a state
    return PolicyState(phase=phase, tokens=tokens, budget=budget, **more)


def decide(state: PolicyState, rng: Callable[[], float] = never) -> Decision:
    return default_policy(rng=rng).decide(state)


DEFAULT: Rule = default_policy(rng=never).decide
BLOCK = block_at(0.95)
START = start_background_at(0.8)
ABOVE = compact_above(lambda _: 9_000, "turn_end")
ABOVE_INCLUSIVE = compact_above(lambda _: 9_000, "turn_end", inclusive=True)
AT = first_match([compact_at(0.85)]).decide
PRUNE = first_match([prune_results(warm_ratio=0.7), apply_or_discard()]).decide
IDLE = compact_when_idle(5_000, seconds=300)
FEW = require_messages(
    4,
    [compact_on_demand, compact_above(lambda _: 9_000, "before_render"), compact_on("overflow")],
    manual_count=2,
)
BEFORE_TURNS = only_before_turns(compact_above(lambda _: 9_000, "before_render", "turn_end"))


@pytest.mark.parametrize(
    ("rule", "state", "expected"),
    [
        # the default policy, after a render with a cold cache: start in the background from 0.90 on
        *((DEFAULT, at("rendered", tokens), NoAction) for tokens in (7_800, 8_200, 8_500, 8_999)),
        *((DEFAULT, at("rendered", tokens), StartBackground) for tokens in (9_000, 9_001)),
        # the background has attempts of its own
        (DEFAULT, at("rendered", attempts=FAILED), StartBackground),
        (DEFAULT, at("rendered", attempts=FAILED_BACKGROUND, background="failed"), StartBackground),
        (DEFAULT, at("rendered", attempts=NOT_ENOUGH), NoAction),
        (DEFAULT, at("rendered", attempts=NOT_REDUCED), NoAction),
        (DEFAULT, at("rendered", attempts=NOT_ENOUGH.after_user_message()), StartBackground),
        (DEFAULT, at("rendered", attempts=NOT_REDUCED.after_user_message()), StartBackground),
        (
            DEFAULT,
            at("rendered", attempts=Attempts(consecutive_unsuccessful=2, last="failed")),
            StartBackground,
        ),
        (
            DEFAULT,
            at("rendered", attempts=Attempts(consecutive_unsuccessful=3, last="failed")),
            NoAction,
        ),
        (
            DEFAULT,
            at("rendered", attempts=Attempts(consecutive_unsuccessful=4, last="failed")),
            NoAction,
        ),
        # before a render: apply a ready summary from 0.65 on, else discard it; never wait
        *(
            (DEFAULT, at("before_render", tokens, background="ready"), ApplySummary)
            for tokens in (6_500, 6_501)
        ),
        *(
            (DEFAULT, at("before_render", tokens, background="ready"), DiscardSummary)
            for tokens in (6_499, 0, None)
        ),
        *(
            (DEFAULT, at("before_render", tokens, background=background), NoAction)
            for background in ("idle", "running", "failed")
            for tokens in (6_500, 9_900, 20_000)
        ),
        # too large: apply, wait once, compact, render pruned, fail
        (DEFAULT, at("overflow", 100, background="ready"), ApplySummary),
        (DEFAULT, at("overflow", background="running"), Wait),
        (DEFAULT, at("overflow", background="running", waited=True), Compact),
        (DEFAULT, at("overflow", background="idle"), Compact),
        (DEFAULT, at("overflow", background="failed"), Compact),
        (DEFAULT, at("overflow", attempts=FAILED, extracted=True), RenderPruned),
        (DEFAULT, at("overflow", attempts=FAILED.after_user_message()), Compact),
        (DEFAULT, at("overflow", attempts=FAILED.after_attempt("reduced")), Compact),
        (DEFAULT, at("overflow", attempts=FAILED_BACKGROUND, background="failed"), Compact),
        *(
            (DEFAULT, at(phase, attempts=tried, extracted=True), RenderPruned)
            for phase in ("overflow", "rejected")
            for tried in (NOT_ENOUGH, NOT_REDUCED)
        ),
        (
            DEFAULT,
            at("overflow", attempts=Attempts(consecutive_unsuccessful=2, last="failed")),
            Compact,
        ),
        (
            DEFAULT,
            at(
                "overflow",
                attempts=Attempts(consecutive_unsuccessful=3, last="failed"),
                extracted=True,
            ),
            RenderPruned,
        ),
        # nothing in other phases
        (DEFAULT, at("idle"), NoAction),
        (DEFAULT, at("model_switch"), NoAction),
        # block_at: before a render, no request without a summary
        (BLOCK, at("before_render"), Compact),
        (BLOCK, at("before_render", 9_499), None),
        (BLOCK, at("before_render", None), None),
        (BLOCK, at("rendered"), None),
        (BLOCK, at("before_render", background="ready"), ApplySummary),
        (BLOCK, at("before_render", background="running"), Wait),
        (BLOCK, at("before_render", background="running", waited=True), Compact),
        (BLOCK, at("before_render", background="failed"), Compact),
        (BLOCK, at("before_render", compacted=True), None),
        (BLOCK, at("before_render", attempts=FAILED), NoAction),
        (BLOCK, at("before_render", enabled=False, background="ready"), NoAction),
        # start_background_at
        (START, at("rendered", 8_000), StartBackground),
        (START, at("rendered", 7_999), None),
        (START, at("rendered", background="running"), None),
        (START, at("rendered", background="failed"), StartBackground),
        (START, at("rendered", compacted=True), NoAction),
        (START, at("rendered", pruned=True), NoAction),
        (START, at("rendered", enabled=False), NoAction),
        (START, at("rendered", attempts=FAILED), StartBackground),
        (START, at("rendered", attempts=NOT_ENOUGH), NoAction),
        # compact_above: a threshold in tokens
        (ABOVE, at("turn_end", 9_001), Compact),
        (ABOVE, at("turn_end", 9_000), None),
        (ABOVE, at("before_render", 9_001), None),
        (ABOVE_INCLUSIVE, at("turn_end", 9_000), Compact),
        (ABOVE_INCLUSIVE, at("turn_end", 8_999), None),
        (compact_above(lambda _: None, "turn_end"), at("turn_end"), None),
        (ABOVE, at("turn_end", None), None),
        (ABOVE, at("turn_end", fixed_tokens=9_000), NoAction),
        (ABOVE, at("turn_end", attempts=FAILED), NoAction),
        # compact_at: a threshold as a ratio, with the same bounds
        (AT, at("before_render", 8_499), NoAction),
        *((AT, at("before_render", tokens), Compact) for tokens in (8_500, 8_501)),
        (AT, at("before_render", None), NoAction),
        (AT, at("rendered"), NoAction),
        (AT, at("before_render", compacted=True), NoAction),
        (AT, at("before_render", background="running"), NoAction),
        (AT, at("before_render", background="ready"), NoAction),
        (AT, at("before_render", enabled=False), NoAction),
        (AT, at("before_render", attempts=FAILED), NoAction),
        (AT, at("before_render", attempts=Attempts(consecutive_unsuccessful=3)), NoAction),
        (AT, at("before_render", fixed_tokens=8_500), NoAction),
        # a phase as such
        (compact_on("memory", "model_switch"), at("memory", None), Compact),
        (
            compact_on("memory", "model_switch"),
            at("model_switch", 10, to_smaller_window=True),
            Compact,
        ),
        (compact_on("memory", "model_switch"), at("model_switch", 9_900), None),
        (compact_on("memory"), at("idle"), None),
        (compact_on("memory"), at("memory", enabled=False), NoAction),
        # compact_when_idle
        (IDLE, at("idle", idle_seconds=300), Compact),
        (IDLE, at("idle", idle_seconds=299.9), None),
        (IDLE, at("idle", 4_999, idle_seconds=300), None),
        (IDLE, at("rendered", idle_seconds=300), None),
        (IDLE, at("idle", idle_seconds=300, attempts=FAILED), NoAction),
        (
            IDLE,
            at("idle", idle_seconds=300, attempts=Attempts(consecutive_unsuccessful=3)),
            NoAction,
        ),
        (
            IDLE,
            at("idle", idle_seconds=300, attempts=Attempts(consecutive_unsuccessful=2)),
            Compact,
        ),
        # prune_results: where it saves enough, and with a warm cache only in large requests
        (PRUNE, at("before_render", 7_000, prunable_tokens=20_000, warm=True), Prune),
        (PRUNE, at("before_render", 6_999, prunable_tokens=20_000, warm=True), NoAction),
        (
            PRUNE,
            at("before_render", 7_000, prunable_tokens=19_999, superseded_tokens=19_999, warm=True),
            NoAction,
        ),
        (PRUNE, at("before_render", None, prunable_tokens=90_000, warm=True), NoAction),
        (PRUNE, at("before_render", 10, prunable_tokens=20_000), Prune),
        (PRUNE, at("before_render", None, prunable_tokens=20_000), Prune),
        (PRUNE, at("before_render", 10, prunable_tokens=19_999), NoAction),
        (PRUNE, at("before_render", 10, prunable_tokens=1, superseded_tokens=1), Prune),
        (PRUNE, at("before_render", 10, prunable_tokens=20_000, background="running"), NoAction),
        (
            PRUNE,
            at("before_render", 10, prunable_tokens=20_000, background="ready"),
            DiscardSummary,
        ),
        (PRUNE, at("rendered", 10, prunable_tokens=20_000), NoAction),
        (PRUNE, at("before_render", 7_000, prunable_tokens=20_000, enabled=False), NoAction),
        (prune_results(least_saving=0), at("before_render", prunable_tokens=0), None),
        (prune_results(least_saving=0), at("before_render", prunable_tokens=1), Prune),
        # promote: a larger model first
        (promote(), at("overflow", larger_model="big"), Promote),
        (promote(), at("rejected", larger_model="big"), Promote),
        (promote(), at("overflow"), None),
        (promote(), at("turn_end", larger_model="big"), None),
        (promote("turn_end"), at("turn_end", larger_model="big"), Promote),
        (promote(), at("overflow", larger_model="big", enabled=False), None),
        # no summaries
        (render_pruned_if_too_large, at("overflow"), RenderPruned),
        (render_pruned_if_too_large, at("rejected", pruned=True), Fail),
        (render_pruned_if_too_large, at("rendered"), None),
        (fail_if_too_large, at("overflow"), Fail),
        (fail_if_too_large, at("rejected"), Fail),
        (fail_if_too_large, at("manual"), None),
        # only_before_turns: not between tool calls
        (BEFORE_TURNS, at("before_render"), Compact),
        (BEFORE_TURNS, at("before_render", mid_turn=True), None),
        (BEFORE_TURNS, at("turn_end", mid_turn=True), Compact),
        # once_per_turn
        (once_per_turn(compact_on("memory")), at("memory"), Compact),
        (
            once_per_turn(compact_on("memory")),
            at("memory", attempts=Attempts(ended_this_turn=1)),
            None,
        ),
        (
            once_per_turn(compact_on_demand),
            at("manual", attempts=Attempts(ended_this_turn=1)),
            Compact,
        ),
        # require_messages: a short conversation is compacted only if it does not fit
        (FEW, at("before_render", messages=3), None),
        (FEW, at("before_render", messages=4), Compact),
        (FEW, at("overflow", messages=0), Compact),
        (FEW, at("manual", messages=1), NoAction),
        (FEW, at("manual", messages=2), Compact),
        (require_messages(4, [compact_on_demand]), at("manual", messages=0), Compact),
        # first_match: compaction on demand where no rule says otherwise
        (first_match([fail_if_too_large]).decide, at("manual"), Compact),
        (
            first_match([require_messages(4, [], manual_count=2)]).decide,
            at("manual", messages=1),
            NoAction,
        ),
        (first_match([fail_if_too_large]).decide, at("idle"), NoAction),
    ],
)
def test_each_rule_has_its_moment(
    rule: Rule, state: PolicyState, expected: type[Decision] | None
) -> None:
    decision = rule(state)
    assert (None if decision is None else type(decision)) is expected


@pytest.mark.spec("E86")
@pytest.mark.parametrize(
    ("background", "started"),
    [("idle", True), ("failed", True), ("running", False), ("ready", False)],
)
def test_a_pass_starts_only_where_none_runs_or_waits(
    background: BackgroundState, started: bool
) -> None:
    assert isinstance(decide(at("rendered", background=background)), StartBackground) is started


@pytest.mark.spec("E91")
def test_a_summary_of_what_is_no_more_is_dropped_in_every_phase() -> None:
    for phase in PHASES:
        if phase != "manual":
            for background in ("ready", "running"):
                assert isinstance(
                    decide(at(phase, background=background, stale=True)), DiscardSummary
                )
            assert not isinstance(
                decide(at(phase, background="failed", stale=True)), DiscardSummary
            )


@pytest.mark.spec("E30")
def test_a_second_overflow_behind_a_compaction_brings_no_second_attempt() -> None:
    assert isinstance(decide(at("overflow", compacted=True)), RenderPruned)
    assert isinstance(decide(at("overflow", compacted=True, background="ready")), RenderPruned)
    assert isinstance(decide(at("rejected", compacted=True)), RenderPruned)
    assert isinstance(decide(at("rejected", compacted=True, pruned=True)), Fail)


@pytest.mark.spec("E32")
def test_what_every_request_has_alone_is_too_much_stops_and_explains() -> None:
    decision = decide(at("overflow", 12_000, fixed_tokens=10_000))
    assert isinstance(decision, Fail)
    assert decision.reason.why == (
        "no summary helps: system prompt, tools and framing take 10,000 tokens, and the request must take less than 10,000"
    )
    assert isinstance(decide(at("overflow", 12_000, fixed_tokens=9_999)), Compact)
    assert isinstance(decide(at("rendered", 9_900, fixed_tokens=7_800)), NoAction)
    assert isinstance(decide(at("rendered", 9_900, fixed_tokens=7_799)), StartBackground)


@pytest.mark.spec("E34")
def test_a_refusal_of_another_model_is_ignored() -> None:
    other, same = (
        at("rejected", model="small", refused_by="large"),
        at("rejected", model="small", refused_by="small"),
    )
    for rule in (DEFAULT, compact_on("rejected")):
        assert isinstance(rule(other), NoAction)
        assert isinstance(rule(same), Compact)
    assert isinstance(decide(at("rejected", model="small")), Compact)
    assert promote()(attrs.evolve(other, larger_model="big")) is None
    assert isinstance(render_pruned_if_too_large(other), NoAction)
    assert isinstance(fail_if_too_large(other), NoAction)


@pytest.mark.spec("E51")
def test_without_a_window_nothing_starts_and_nothing_is_put_in_place() -> None:
    assert isinstance(decide(at("rendered", 9_999_999, budget=UNKNOWN, warm=True)), NoAction)
    assert isinstance(
        decide(at("before_render", 9_999_999, budget=UNKNOWN, background="ready")), DiscardSummary
    )
    # the provider knows the window
    assert isinstance(decide(at("rejected", 9_999_999, budget=UNKNOWN)), Compact)


# -- laws: for every state


@st.composite
def states(draw: st.DrawFn) -> PolicyState:
    """Any state."""
    names = (
        "warm",
        "mid_turn",
        "enabled",
        "stale",
        "compacted",
        "waited",
        "pruned",
        "to_smaller_window",
    )
    flags: dict[str, Any] = {name: draw(st.booleans()) for name in names}  # Any: fields of a state
    return PolicyState(
        phase=draw(st.sampled_from(PHASES)),
        budget=draw(st.sampled_from([BUDGET, UNKNOWN])),
        tokens=draw(st.none() | st.integers(0, 20_000)),
        fixed_tokens=draw(st.sampled_from([0, 7_800, 20_000])),
        prunable_tokens=draw(st.sampled_from([0, 90_000])),
        background=draw(st.sampled_from(BACKGROUNDS)),
        attempts=draw(
            st.sampled_from(
                [
                    Attempts(),
                    FAILED,
                    NOT_ENOUGH,
                    Attempts(unsuccessful=9, consecutive_unsuccessful=9),
                ]
            )
        ),
        **flags,
    )


@given(state=states(), drawn=st.floats(0, 1, exclude_max=True))
def test_a_request_fails_only_after_it_was_pruned_or_where_nothing_can_be(
    state: PolicyState, drawn: float
) -> None:
    decision = decide(state, lambda: drawn)
    assert not isinstance(decision, Fail) or state.pruned or state.fixed_tokens


@pytest.mark.parametrize("phase", ["overflow", "rejected"])
def test_at_an_overflow_the_extract_is_taken_whatever_failed_before(phase: Phase) -> None:
    for tried in (FAILED, NOT_ENOUGH, NOT_REDUCED, Attempts(consecutive_unsuccessful=9)):
        decision = decide(at(phase, attempts=tried))
        assert isinstance(decision, Compact)
        assert decision.extract
    first = decide(at(phase))
    assert isinstance(first, Compact)
    assert not first.extract  # a model is asked first


@given(state=states())
def test_switched_off_a_request_that_is_too_large_is_pruned(state: PolicyState) -> None:
    small = attrs.evolve(
        state, enabled=False, phase="overflow", stale=False, pruned=False, fixed_tokens=0
    )
    assert isinstance(decide(small), RenderPruned)


# -- the jitter of the background's threshold


@pytest.mark.parametrize(
    ("drawn", "threshold"),
    [(0.0, 7_800), (0.25, 7_900), (0.5, 8_000), (0.75, 8_100), (0.9375, 8_175), (0.999_999, 8_200)],
)
def test_with_a_warm_cache_it_starts_at_78_to_82_percent(drawn: float, threshold: int) -> None:
    for tokens, started in ((threshold - 1, False), (threshold, True), (threshold + 1, True)):
        decision = decide(at("rendered", tokens, warm=True), Draws(drawn))
        assert isinstance(decision, StartBackground) is started, tokens


@pytest.mark.parametrize("background", BACKGROUNDS)
@pytest.mark.parametrize("tokens", [100, 8_500])
def test_each_warm_check_draws_once_also_while_a_pass_is_running(
    background: BackgroundState, tokens: int
) -> None:
    draws = Draws(0.1, 0.2, 0.3)
    policy = default_policy(rng=draws)
    for checks in (1, 2, 3):
        policy.decide(at("rendered", tokens, warm=True, background=background))
        assert draws.drawn == checks


@pytest.mark.parametrize(
    "more",
    [
        {"enabled": False},
        {"compacted": True},
        {"pruned": True},
        {"budget": UNKNOWN},
        {"tokens": None},
    ],
)
# Any stands for fields of a state
def test_where_nothing_is_checked_nothing_is_drawn(more: dict[str, Any]) -> None:
    assert isinstance(
        decide(attrs.evolve(at("rendered", 9_900, warm=True), **more), never), NoAction
    )


def test_the_same_draws_give_the_same_decisions() -> None:
    numbers = [0.9, 0.1, 0.5, 0.7]
    sizes = [7_850, 7_950, 8_050, 8_150]
    first, second = (
        [policy.decide(at("rendered", tokens, warm=True)) for tokens in sizes]
        for policy in (default_policy(rng=Draws(*numbers)), default_policy(rng=Draws(*numbers)))
    )
    assert first == second


# -- composition and figures


def test_the_first_rule_that_applies_decides() -> None:
    asked: list[str] = []

    def silent(_: PolicyState) -> Decision | None:
        asked.append("silent")
        return None

    def loud(_: PolicyState) -> Decision | None:
        asked.append("loud")
        return NoAction(reason=Reason(why="loud"))

    policy: Policy = first_match([silent, loud, compact_on_demand])
    assert policy.decide(at("manual")) == NoAction(reason=Reason(why="loud"))
    assert asked == ["silent", "loud"]
    expected = NoAction(reason=Reason(why="no rule applies in the phase 'idle'", ratio=0.5))
    assert first_match([]).decide(at("idle", 5_000)) == expected


def test_thresholds_can_be_set() -> None:
    policy = default_policy(
        rng=Draws(1.0),
        thresholds=Thresholds(warm=0.5, jitter=0.1, cold=0.7, apply=0.3, wait_seconds=1.5),
    )
    assert isinstance(policy.decide(at("rendered", 5_999, warm=True)), NoAction)
    assert isinstance(policy.decide(at("rendered", 7_000)), StartBackground)
    assert isinstance(policy.decide(at("before_render", 3_000, background="ready")), ApplySummary)
    waits = [
        each.decide(at("overflow", background="running"))
        for each in (policy, default_policy(rng=never))
    ]
    assert [attrs.asdict(each)["seconds"] for each in waits] == [1.5, 60]


@pytest.mark.parametrize(
    ("make", "figures"),
    [
        (apply_or_discard, {"threshold": 0.65}),
        (on_overflow, {"wait_seconds": 60, "attempts": 1, "breaker": 3}),
        (start_background, {"warm": 0.78, "jitter": 0.04, "cold": 0.9, "breaker": 3}),
        (start_background_at, {"breaker": 3}),
        (block_at, {"wait_seconds": 60, "attempts": 1, "breaker": 3}),
        (compact_at, {"attempts": 1, "breaker": 3}),
        (compact_above, {"inclusive": False, "trigger": "threshold", "attempts": 1, "breaker": 3}),
        (compact_on, {"attempts": 1, "breaker": 3}),
        (prune_results, {"least_saving": 20_000, "warm_ratio": 0.5}),
        (require_messages, {"manual_count": 0}),
    ],
)
def test_each_rule_has_its_figures_by_default(
    make: Callable[..., Rule], figures: dict[str, object]
) -> None:
    parameters = inspect.signature(make).parameters
    assert {
        name: each.default for name, each in parameters.items() if each.default is not each.empty
    } == figures


def test_pruning_says_what_it_replaces_and_what_the_size_was_compared_with() -> None:
    rule = prune_results(warm_ratio=0.7)
    warm, cold = (
        rule(at("before_render", 7_000, prunable_tokens=20_000, warm=warm))
        for warm in (True, False)
    )
    assert (warm, cold) == (
        Prune(
            reason=Reason(
                why="replacing tool results saves 20,000 tokens",
                ratio=0.7,
                threshold=0.7,
                warm=True,
            )
        ),
        Prune(
            reason=Reason(why="replacing tool results saves 20,000 tokens", ratio=0.7, warm=False)
        ),
    )
    assert rule(at("before_render", 7_000, prunable_tokens=9, superseded_tokens=5)) == Prune(
        reason=Reason(why="replacing superseded results saves 5 tokens", ratio=0.7, warm=False),
        only_superseded=True,
    )


def test_a_rule_alone_is_a_policy() -> None:
    policy = first_match([start_background(rng=Draws(0.0))])
    assert isinstance(policy.decide(at("rendered", 7_800, warm=True)), StartBackground)


def test_the_trigger_names_the_cause() -> None:
    triggers = [
        decision.trigger
        for decision in (
            decide(at("overflow")),
            compact_on("memory")(at("memory")),
            compact_above(lambda _: 1, "turn_end")(at("turn_end")),
            IDLE(at("idle", idle_seconds=300)),
        )
        if isinstance(decision, Compact)
    ]
    assert triggers == ["foreground", "memory", "threshold", "idle"]


def test_every_decision_says_why_with_its_figures() -> None:
    decision = decide(at("rendered", 8_123, warm=True), Draws(0.4025))
    assert str(decision.reason) == "warm cache (ratio 0.812, threshold 0.796, warm)"
    assert (
        str(decide(at("rendered", 8_123)).reason)
        == "below the threshold (ratio 0.812, threshold 0.900, cold)"
    )
    assert str(decide(at("before_render", 3_000, background="ready")).reason) == (
        "the conversation is small enough without the summary (ratio 0.300, threshold 0.650)"
    )
    assert (
        str(decide(at("rendered", 9_900, background="running")).reason)
        == "a summary is running (ratio 0.990, threshold 0.900, cold)"
    )
    assert str(decide(at("manual", None)).reason) == "requested"
    last = decide(at("overflow", 12_000, pruned=True))
    assert (
        str(last.reason)
        == "the request is larger than the budget, even with the history pruned (ratio 1.200)"
    )
    assert (
        str(decide(at("overflow", attempts=FAILED)).reason)
        == "an attempt since the last user message was unsuccessful: failed (ratio 0.960)"
    )
