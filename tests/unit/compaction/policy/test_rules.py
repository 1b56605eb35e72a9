from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import attrs
import pytest

from promptkit.compaction.budget import Budget
from promptkit.compaction.policy.decisions import (
    ApplySummary,
    Compact,
    Decision,
    DiscardSummary,
    Fail,
    NoAction,
    Promote,
    Prune,
    Reason,
    RenderPruned,
    StartBackground,
    Wait,
)
from promptkit.compaction.policy.rules import (
    Policy,
    Thresholds,
    before_turns,
    block_at,
    compact_above,
    compact_at,
    compact_on,
    default_policy,
    fail_on,
    first_match,
    idle_at,
    least_messages,
    manual,
    once_a_turn,
    promote,
    prune_at,
    prune_on,
    settle_background,
    start_at,
    start_background,
)
from promptkit.compaction.policy.state import Attempts, Phase, PolicyState

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit.compaction.policy.rules import Rule


BUDGET = Budget(window=10_000, reply_tokens=0)


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


def state(phase: Phase, tokens: int | None = 5_000, budget: Budget = BUDGET, **more: Any) -> PolicyState:
    return PolicyState(phase=phase, tokens=tokens, budget=budget, **more)


def decide(at: PolicyState, draw: Callable[[], float] = never) -> Decision:
    return default_policy(draw=draw).decide(at)


# -- after a render: start in the background


@pytest.mark.parametrize(("drawn", "threshold"), [(0.0, 7_800), (0.25, 7_900), (0.5, 8_000), (0.75, 8_100), (0.9375, 8_175)])
def test_with_a_warm_cache_it_starts_at_78_to_82_percent(drawn: float, threshold: int) -> None:
    for tokens, started in ((threshold - 1, False), (threshold, True), (threshold + 1, True)):
        decision = decide(state("rendered", tokens, warm=True), Draws(drawn))
        assert isinstance(decision, StartBackground) is started, tokens


@pytest.mark.parametrize(
    ("tokens", "started"), [(7_800, False), (8_200, False), (8_500, False), (8_999, False), (9_000, True), (9_001, True)]
)
def test_with_a_cold_cache_it_starts_at_90_percent_and_draws_nothing(tokens: int, started: bool) -> None:
    assert isinstance(decide(state("rendered", tokens), never), StartBackground) is started


def test_a_warm_cache_never_starts_below_78_nor_waits_beyond_82_percent() -> None:
    assert isinstance(decide(state("rendered", 7_799, warm=True), Draws(0.0)), NoAction)
    assert isinstance(decide(state("rendered", 8_200, warm=True), Draws(0.999_999)), StartBackground)


@pytest.mark.parametrize("background", ["idle", "running", "ready", "failed"])
@pytest.mark.parametrize("tokens", [100, 8_500])
def test_each_warm_check_draws_once_also_while_a_pass_is_running(background: str, tokens: int) -> None:
    draws = Draws(0.1, 0.2, 0.3)
    policy = default_policy(draw=draws)
    for checks in (1, 2, 3):
        policy.decide(state("rendered", tokens, warm=True, background=background))
        assert draws.drawn == checks


@pytest.mark.parametrize("more", [{"enabled": False}, {"compacted": True}, {"pruned": True}, {"budget": Budget()}, {"tokens": None}])
def test_where_nothing_is_checked_nothing_is_drawn(more: dict[str, Any]) -> None:
    assert isinstance(decide(attrs.evolve(state("rendered", 9_900, warm=True), **more), never), NoAction)


@pytest.mark.parametrize(("background", "started"), [("idle", True), ("failed", True), ("running", False), ("ready", False)])
def test_E86_a_pass_starts_only_where_none_runs_or_waits(background: str, started: bool) -> None:
    decision = decide(state("rendered", 9_500, background=background))
    assert isinstance(decision, StartBackground) is started


def test_the_same_draws_give_the_same_decisions() -> None:
    numbers = [0.9, 0.1, 0.5, 0.7]
    sizes = [7_850, 7_950, 8_050, 8_150]
    first, second = (
        [policy.decide(state("rendered", tokens, warm=True)) for tokens in sizes]
        for policy in (default_policy(draw=Draws(*numbers)), default_policy(draw=Draws(*numbers)))
    )
    assert first == second


# -- before a render: apply or discard


@pytest.mark.parametrize(
    ("tokens", "kind"), [(6_499, DiscardSummary), (6_500, ApplySummary), (6_501, ApplySummary), (0, DiscardSummary), (None, DiscardSummary)]
)
def test_a_ready_summary_is_put_in_place_from_65_percent_on(tokens: int | None, kind: type[Decision]) -> None:
    assert isinstance(decide(state("before_render", tokens, background="ready")), kind)


@pytest.mark.parametrize("background", ["idle", "running", "failed"])
@pytest.mark.parametrize("tokens", [6_500, 9_900, 20_000])
def test_before_a_render_nothing_waits_for_a_running_pass(background: str, tokens: int) -> None:
    assert isinstance(decide(state("before_render", tokens, background=background)), NoAction)


def test_E91_a_summary_of_what_is_no_more_is_dropped_in_every_phase() -> None:
    phases: tuple[Phase, ...] = ("before_render", "rendered", "overflow", "rejected", "idle", "model_switch")
    for phase in phases:
        for background in ("ready", "running"):
            assert isinstance(decide(state(phase, 9_900, background=background, stale=True)), DiscardSummary)
        assert not isinstance(decide(state(phase, 9_900, background="failed", stale=True)), DiscardSummary)


# -- when a request is too large


def test_on_overflow_a_ready_summary_is_put_in_place_whatever_the_ratio() -> None:
    assert isinstance(decide(state("overflow", 100, background="ready")), ApplySummary)


def test_on_overflow_a_running_pass_is_waited_for_once_and_not_for_ever() -> None:
    decision = decide(state("overflow", background="running"))
    assert isinstance(decision, Wait)
    assert decision.seconds == 60
    assert isinstance(decide(state("overflow", background="running", waited=True)), Compact)
    bounded = default_policy(draw=never, thresholds=Thresholds(wait_seconds=1.5)).decide(state("overflow", background="running"))
    assert isinstance(bounded, Wait)
    assert bounded.seconds == 1.5


@pytest.mark.parametrize("background", ["idle", "failed"])
def test_on_overflow_without_a_pass_a_summary_is_made_now(background: str) -> None:
    decision = decide(state("overflow", background=background))
    assert isinstance(decision, Compact)
    assert decision.trigger == "foreground"


def test_nothing_but_overflow_waits() -> None:
    phases: tuple[Phase, ...] = ("before_render", "rendered", "idle", "model_switch", "manual")
    for phase in phases:
        assert not isinstance(decide(state(phase, 20_000, background="running")), Wait)


def test_the_ladder_of_an_overflow_ends_with_a_reason() -> None:
    at = state("overflow", 12_000, background="running")
    assert isinstance(decide(at), Wait)
    at = attrs.evolve(at, waited=True, background="failed")
    assert isinstance(decide(at), Compact)
    at = attrs.evolve(at, compacted=True, background="idle")
    assert isinstance(decide(at), RenderPruned)
    at = attrs.evolve(at, pruned=True)
    last = decide(at)
    assert isinstance(last, Fail)
    assert str(last.reason) == "the request overflows even with all of the history pruned that may be (ratio 1.200)"


def test_E30_a_second_overflow_behind_a_compaction_brings_no_second_attempt() -> None:
    assert isinstance(decide(state("overflow", compacted=True)), RenderPruned)
    assert isinstance(decide(state("overflow", compacted=True, background="ready")), RenderPruned)
    assert isinstance(decide(state("rejected", compacted=True)), RenderPruned)
    assert isinstance(decide(state("rejected", compacted=True, pruned=True)), Fail)


def test_one_failed_attempt_per_message_of_the_person() -> None:
    tried = Attempts().after_attempt("failed")
    assert isinstance(decide(state("overflow", attempts=Attempts())), Compact)
    assert isinstance(decide(state("overflow", attempts=tried)), RenderPruned)
    assert isinstance(decide(state("overflow", attempts=tried.after_user_message())), Compact)
    assert isinstance(decide(state("overflow", attempts=tried.after_attempt("reduced"))), Compact)


@pytest.mark.parametrize("outcome", ["not enough", "not reduced"])
def test_what_did_not_help_is_not_tried_again_before_the_person_speaks(outcome: Any) -> None:
    tried = Attempts().after_attempt(outcome, background=True)
    phases: tuple[Phase, ...] = ("overflow", "rejected")
    for phase in phases:
        assert isinstance(decide(state(phase, attempts=tried)), RenderPruned)
    assert isinstance(decide(state("rendered", 9_900, attempts=tried)), NoAction)
    assert isinstance(decide(state("rendered", 9_900, attempts=tried.after_user_message())), StartBackground)


def test_a_background_pass_that_failed_is_started_again_and_leaves_the_foreground_its_attempt() -> None:
    tried = Attempts().after_attempt("failed", background=True)
    assert isinstance(decide(state("rendered", 9_900, attempts=tried, background="failed")), StartBackground)
    assert isinstance(decide(state("overflow", attempts=tried, background="failed")), Compact)


def test_a_foreground_attempt_that_failed_leaves_the_background_its_own() -> None:
    assert isinstance(decide(state("rendered", 9_900, attempts=Attempts().after_attempt("failed"))), StartBackground)


@pytest.mark.parametrize(("row", "stopped"), [(0, False), (2, False), (3, True), (4, True)])
def test_three_failures_in_a_row_stop_every_automatic_reason(row: int, stopped: bool) -> None:
    tried = Attempts(in_a_row=row, last="failed")
    assert isinstance(decide(state("rendered", 9_900, attempts=tried)), NoAction) is stopped
    assert isinstance(decide(state("overflow", attempts=tried)), RenderPruned) is stopped
    assert isinstance(decide(state("manual", attempts=tried)), Compact)


def test_E32_what_every_request_has_alone_is_too_much_stops_and_explains() -> None:
    decision = decide(state("overflow", 12_000, fixed=10_000))
    assert isinstance(decision, Fail)
    assert "takes 10,000 tokens" in decision.reason.why
    assert "no summary helps" in decision.reason.why
    assert isinstance(decide(state("overflow", 12_000, fixed=9_999)), Compact)
    assert isinstance(decide(state("rendered", 9_900, fixed=7_800)), NoAction)
    assert isinstance(decide(state("rendered", 9_900, fixed=7_799)), StartBackground)


def test_E34_a_refusal_of_another_model_is_ignored() -> None:
    assert isinstance(decide(state("rejected", model="small", refused_by="large")), NoAction)
    assert isinstance(decide(state("rejected", model="small", refused_by="small")), Compact)
    assert isinstance(decide(state("rejected", model="small")), Compact)


# -- off, and by hand


@pytest.mark.parametrize("background", ["idle", "running", "ready", "failed"])
@pytest.mark.parametrize("tokens", [5_000, 9_900, 20_000, None])
def test_E41_switched_off_nothing_is_done_that_nobody_asked_for(background: str, tokens: int | None) -> None:
    phases: tuple[Phase, ...] = ("before_render", "rendered", "overflow", "rejected", "idle", "model_switch")
    for phase in phases:
        decision = decide(state(phase, tokens, enabled=False, background=background, warm=True, prunable=90_000))
        assert isinstance(decision, NoAction | DiscardSummary | RenderPruned)
    assert isinstance(decide(state("overflow", tokens, enabled=False, background=background)), RenderPruned)


@pytest.mark.parametrize(
    "more",
    [{}, {"enabled": False}, {"attempts": Attempts(failed=9, in_a_row=9)}, {"budget": Budget()}, {"tokens": 1}, {"fixed": 20_000}],
)
def test_what_somebody_asks_for_is_done_at_any_time(more: dict[str, Any]) -> None:
    decision = decide(attrs.evolve(state("manual", background="ready", stale=True), **more))
    assert isinstance(decision, Compact)
    assert decision.trigger == "manual"


def test_E51_without_a_window_nothing_starts_and_nothing_is_put_in_place() -> None:
    unknown = Budget()
    assert isinstance(decide(state("rendered", 9_999_999, budget=unknown, warm=True)), NoAction)
    assert isinstance(decide(state("before_render", 9_999_999, budget=unknown, background="ready")), DiscardSummary)
    assert isinstance(decide(state("rejected", 9_999_999, budget=unknown)), Compact)  # the provider knows the window


@pytest.mark.parametrize("phase", ["idle", "model_switch"])
def test_the_default_policy_leaves_idle_conversations_alone(phase: Phase) -> None:
    decision = decide(state(phase, 9_900))
    assert isinstance(decision, NoAction)
    assert phase in decision.reason.why


# -- composition


def test_the_first_rule_that_says_something_decides() -> None:
    asked: list[str] = []

    def silent(at: PolicyState) -> Decision | None:
        asked.append("silent")
        return None

    def loud(at: PolicyState) -> Decision | None:
        asked.append("loud")
        return NoAction(reason=Reason(why="loud"))

    policy: Policy = first_match([silent, loud, manual])
    assert policy.decide(state("manual")) == NoAction(reason=Reason(why="loud"))
    assert asked == ["silent", "loud"]
    assert first_match([]).decide(state("idle")) == NoAction(reason=Reason(why="no rule is about the phase 'idle'", ratio=0.5))


@pytest.mark.parametrize(
    ("tokens", "prunable", "pruned"), [(7_000, 20_000, True), (6_999, 20_000, False), (7_000, 19_999, False), (None, 90_000, False)]
)
def test_pruning_is_decided_where_it_saves_enough(tokens: int | None, prunable: int, pruned: bool) -> None:
    policy = first_match([prune_at(0.7), settle_background()])
    decision = policy.decide(state("before_render", tokens, prunable=prunable))
    assert isinstance(decision, Prune) is pruned
    assert isinstance(policy.decide(state("before_render", tokens, prunable=prunable, enabled=False)), NoAction)


def test_pruning_nothing_is_never_decided() -> None:
    assert isinstance(first_match([prune_at(0.0, least=0)]).decide(state("before_render", prunable=0)), NoAction)


@pytest.mark.parametrize(("tokens", "kind"), [(8_499, NoAction), (8_500, Compact), (8_501, Compact), (None, NoAction)])
def test_a_foreground_threshold_is_a_rule_of_its_own(tokens: int | None, kind: type[Decision]) -> None:
    assert isinstance(first_match([compact_at(0.85)]).decide(state("before_render", tokens)), kind)


@pytest.mark.parametrize(
    "more",
    [
        {"phase": "rendered"},
        {"compacted": True},
        {"background": "running"},
        {"background": "ready"},
        {"enabled": False},
        {"attempts": Attempts(failed=1, last="failed")},
        {"attempts": Attempts(in_a_row=3)},
        {"fixed": 8_500},
    ],
)
def test_a_foreground_threshold_knows_the_bounds(more: dict[str, Any]) -> None:
    assert isinstance(first_match([compact_at(0.85)]).decide(attrs.evolve(state("before_render", 9_000), **more)), NoAction)


def test_thresholds_can_be_set() -> None:
    policy = default_policy(draw=Draws(1.0), thresholds=Thresholds(warm=0.5, jitter=0.1, cold=0.7, apply=0.3))
    assert isinstance(policy.decide(state("rendered", 5_999, warm=True)), NoAction)
    assert isinstance(policy.decide(state("rendered", 7_000)), StartBackground)
    assert isinstance(policy.decide(state("before_render", 3_000, background="ready")), ApplySummary)


# -- what logs are told


def test_every_decision_says_why_with_its_figures() -> None:
    draws = Draws(0.4025)
    decision = default_policy(draw=draws).decide(state("rendered", 8_123, warm=True))
    assert str(decision.reason) == "warm cache (ratio 0.812, threshold 0.796, warm)"
    assert str(decide(state("rendered", 8_123)).reason) == "below the threshold (ratio 0.812, threshold 0.900, cold)"
    assert str(decide(state("before_render", 3_000, background="ready")).reason) == (
        "the conversation is small enough without the summary (ratio 0.300, threshold 0.650)"
    )
    assert str(decide(state("rendered", 9_900, background="running")).reason) == "a summary is running (ratio 0.990, threshold 0.900, cold)"
    assert str(decide(state("manual", None)).reason) == "asked for"


def test_every_state_has_a_decision_with_a_reason() -> None:
    phases: tuple[Phase, ...] = ("before_render", "rendered", "overflow", "rejected", "idle", "model_switch", "manual")
    for phase in phases:
        for tokens in (None, 0, 6_500, 9_900, 12_000):
            for background in ("idle", "running", "ready", "failed"):
                for flags in range(32):
                    names = ("warm", "enabled", "stale", "compacted", "pruned")
                    more: dict[str, Any] = {name: bool(flags & 1 << bit) for bit, name in enumerate(names)}
                    decision = decide(state(phase, tokens, background=background, **more), Draws())
                    assert decision.reason.why


def test_a_rule_alone_is_a_policy() -> None:
    policy = first_match([start_background(draw=Draws(0.0))])
    assert isinstance(policy.decide(state("rendered", 7_800, warm=True)), StartBackground)


SPENT = Attempts(failed=1, in_a_row=1, last="failed")


def at(phase: Phase, tokens: int | None = 9_600, **more: Any) -> PolicyState:  # Any: the other fields of a state
    return PolicyState(phase=phase, tokens=tokens, budget=BUDGET, **more)


def kind(decision: Decision | None) -> type[Decision] | None:
    return None if decision is None else type(decision)


@pytest.mark.parametrize(
    ("rule", "state", "expected"),
    [
        # before a render, nothing goes out without a summary
        (block_at(0.95), at("before_render"), Compact),
        (block_at(0.95), at("before_render", 9_499), None),
        (block_at(0.95), at("before_render", None), None),
        (block_at(0.95), at("rendered"), None),
        (block_at(0.95), at("before_render", background="ready"), ApplySummary),
        (block_at(0.95), at("before_render", background="running"), Wait),
        (block_at(0.95), at("before_render", background="running", waited=True), Compact),
        (block_at(0.95), at("before_render", background="failed"), Compact),
        (block_at(0.95), at("before_render", compacted=True), None),
        (block_at(0.95), at("before_render", attempts=SPENT), NoAction),
        (block_at(0.95), at("before_render", enabled=False, background="ready"), NoAction),
        # the background's threshold
        (start_at(0.8), at("rendered", 8_000), StartBackground),
        (start_at(0.8), at("rendered", 7_999), None),
        (start_at(0.8), at("rendered", background="running"), None),
        (start_at(0.8), at("rendered", background="failed"), StartBackground),
        (start_at(0.8), at("rendered", compacted=True), NoAction),
        (start_at(0.8), at("rendered", pruned=True), NoAction),
        (start_at(0.8), at("rendered", enabled=False), NoAction),
        # a threshold in tokens of a budget
        (compact_above(lambda budget: 9_000, "turn_end"), at("turn_end", 9_001), Compact),
        (compact_above(lambda budget: 9_000, "turn_end"), at("turn_end", 9_000), None),
        (compact_above(lambda budget: 9_000, "turn_end"), at("before_render", 9_001), None),
        (compact_above(lambda budget: 9_000, "turn_end", inclusive=True), at("turn_end", 9_000), Compact),
        (compact_above(lambda budget: 9_000, "turn_end", inclusive=True), at("turn_end", 8_999), None),
        (compact_above(lambda budget: None, "turn_end"), at("turn_end"), None),
        (compact_above(lambda budget: 9_000, "turn_end"), at("turn_end", None), None),
        (compact_above(lambda budget: 9_000, "turn_end"), at("turn_end", fixed=9_000), NoAction),
        (compact_above(lambda budget: 9_000, "turn_end"), at("turn_end", attempts=SPENT), NoAction),
        # phases
        (compact_on("memory", "model_switch"), at("memory", None), Compact),
        (compact_on("memory", "model_switch"), at("model_switch", 10, smaller=True), Compact),
        (compact_on("memory", "model_switch"), at("model_switch", 9_900), None),
        (compact_on("rejected"), at("rejected", model="a", refused_by="b"), NoAction),
        (compact_on("rejected"), at("rejected", model="a", refused_by="a"), Compact),
        (compact_on("memory"), at("idle"), None),
        (compact_on("memory"), at("memory", enabled=False), NoAction),
        # with nothing to do
        (idle_at(5_000, seconds=300), at("idle", idle_seconds=300), Compact),
        (idle_at(5_000, seconds=300), at("idle", idle_seconds=299.9), None),
        (idle_at(5_000, seconds=300), at("idle", 4_999, idle_seconds=300), None),
        (idle_at(5_000, seconds=300), at("rendered", idle_seconds=300), None),
        # a larger model first
        (promote(), at("overflow", larger="big"), Promote),
        (promote(), at("rejected", larger="big"), Promote),
        (promote(), at("overflow"), None),
        (promote(), at("turn_end", larger="big"), None),
        (promote("turn_end"), at("turn_end", larger="big"), Promote),
        (promote(), at("overflow", larger="big", enabled=False), None),
        # nothing is summarized
        (prune_on(), at("overflow"), RenderPruned),
        (prune_on(), at("rejected", pruned=True), Fail),
        (prune_on(), at("rendered"), None),
        (fail_on(), at("overflow"), Fail),
        (fail_on(), at("rejected"), Fail),
        (fail_on(), at("manual"), None),
        # a refusal by a model that was switched from
        (promote(), at("rejected", larger="big", model="a", refused_by="b"), None),
        (prune_on(), at("rejected", model="a", refused_by="b"), NoAction),
        (fail_on(), at("rejected", model="a", refused_by="b"), NoAction),
        # one in a turn
        (once_a_turn(compact_on("memory")), at("memory"), Compact),
        (once_a_turn(compact_on("memory")), at("memory", attempts=Attempts(done=1)), None),
        (once_a_turn(manual), at("manual", attempts=Attempts(done=1)), Compact),
    ],
)
def test_each_rule_has_its_moment(rule: Rule, state: PolicyState, expected: type[Decision] | None) -> None:
    assert kind(rule(state)) is expected


def test_the_checkpoint_is_told_what_it_is_for() -> None:
    triggers = [
        decision.trigger
        for decision in (
            compact_on("memory")(at("memory")),
            compact_above(lambda budget: 1, "turn_end")(at("turn_end")),
            idle_at(1, seconds=0)(at("idle")),
        )
        if isinstance(decision, Compact)
    ]
    assert triggers == ["memory", "threshold", "idle"]


def test_a_rule_for_turns_is_silent_between_calls_of_tools() -> None:
    rule = before_turns(compact_above(lambda budget: 9_000, "before_render", "turn_end"))
    assert kind(rule(at("before_render"))) is Compact
    assert rule(at("before_render", warm=True)) is None
    assert kind(rule(at("turn_end", warm=True))) is Compact


def test_a_short_conversation_is_not_summarized_unless_it_does_not_fit() -> None:
    rule = least_messages(4, [manual, compact_above(lambda budget: 9_000, "before_render"), compact_on("overflow")], asked=2)
    assert rule(at("before_render", messages=3)) is None
    assert kind(rule(at("before_render", messages=4))) is Compact
    assert kind(rule(at("overflow", messages=1))) is Compact
    assert kind(rule(at("manual", messages=1))) is NoAction
    assert kind(rule(at("manual", messages=2))) is Compact


def test_what_somebody_asks_for_is_done_where_no_rule_says_otherwise() -> None:
    assert kind(first_match([fail_on()]).decide(at("manual"))) is Compact
    assert kind(first_match([least_messages(4, [], asked=2)]).decide(at("manual", messages=1))) is NoAction
    assert kind(first_match([fail_on()]).decide(at("idle"))) is NoAction
