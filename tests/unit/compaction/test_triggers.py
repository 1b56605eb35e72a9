from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from promptkit.compaction.attempts import Attempts
from promptkit.compaction.budget import Budget
from promptkit.compaction.decision import Apply, Compact, Decision, Fail, Nothing, Promote, RenderPruned, StartBackground, Wait
from promptkit.compaction.policy import first_match, manual
from promptkit.compaction.state import Phase, State
from promptkit.compaction.triggers import (
    before_turns,
    block_at,
    compact_above,
    compact_on,
    fail_on,
    idle_at,
    least_messages,
    once_a_turn,
    promote,
    prune_on,
    start_at,
)

if TYPE_CHECKING:
    from promptkit.compaction.policy import Rule

BUDGET = Budget(window=10_000, reply_tokens=0)
SPENT = Attempts(failed=1, in_a_row=1, last="failed")


def at(phase: Phase, tokens: int | None = 9_600, **more: Any) -> State:  # Any: the other fields of a state
    return State(phase=phase, tokens=tokens, budget=BUDGET, **more)


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
        (block_at(0.95), at("before_render", background="ready"), Apply),
        (block_at(0.95), at("before_render", background="running"), Wait),
        (block_at(0.95), at("before_render", background="running", waited=True), Compact),
        (block_at(0.95), at("before_render", background="failed"), Compact),
        (block_at(0.95), at("before_render", compacted=True), None),
        (block_at(0.95), at("before_render", attempts=SPENT), Nothing),
        (block_at(0.95), at("before_render", enabled=False, background="ready"), Nothing),
        # the background's threshold
        (start_at(0.8), at("rendered", 8_000), StartBackground),
        (start_at(0.8), at("rendered", 7_999), None),
        (start_at(0.8), at("rendered", background="running"), None),
        (start_at(0.8), at("rendered", background="failed"), StartBackground),
        (start_at(0.8), at("rendered", compacted=True), Nothing),
        (start_at(0.8), at("rendered", pruned=True), Nothing),
        (start_at(0.8), at("rendered", enabled=False), Nothing),
        # a threshold in tokens of a budget
        (compact_above(lambda budget: 9_000, "turn_end"), at("turn_end", 9_001), Compact),
        (compact_above(lambda budget: 9_000, "turn_end"), at("turn_end", 9_000), None),
        (compact_above(lambda budget: 9_000, "turn_end"), at("before_render", 9_001), None),
        (compact_above(lambda budget: 9_000, "turn_end", inclusive=True), at("turn_end", 9_000), Compact),
        (compact_above(lambda budget: 9_000, "turn_end", inclusive=True), at("turn_end", 8_999), None),
        (compact_above(lambda budget: None, "turn_end"), at("turn_end"), None),
        (compact_above(lambda budget: 9_000, "turn_end"), at("turn_end", None), None),
        (compact_above(lambda budget: 9_000, "turn_end"), at("turn_end", fixed=9_000), Nothing),
        (compact_above(lambda budget: 9_000, "turn_end"), at("turn_end", attempts=SPENT), Nothing),
        # phases
        (compact_on("memory", "model_switch"), at("memory", None), Compact),
        (compact_on("memory", "model_switch"), at("model_switch", 10, smaller=True), Compact),
        (compact_on("memory", "model_switch"), at("model_switch", 9_900), None),
        (compact_on("rejected"), at("rejected", model="a", refused_by="b"), Nothing),
        (compact_on("rejected"), at("rejected", model="a", refused_by="a"), Compact),
        (compact_on("memory"), at("idle"), None),
        (compact_on("memory"), at("memory", enabled=False), Nothing),
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
        (prune_on(), at("rejected", model="a", refused_by="b"), Nothing),
        (fail_on(), at("rejected", model="a", refused_by="b"), Nothing),
        # one in a turn
        (once_a_turn(compact_on("memory")), at("memory"), Compact),
        (once_a_turn(compact_on("memory")), at("memory", attempts=Attempts(done=1)), None),
        (once_a_turn(manual), at("manual", attempts=Attempts(done=1)), Compact),
    ],
)
def test_each_rule_has_its_moment(rule: Rule, state: State, expected: type[Decision] | None) -> None:
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
    assert kind(rule(at("manual", messages=1))) is Nothing
    assert kind(rule(at("manual", messages=2))) is Compact


def test_what_somebody_asks_for_is_done_where_no_rule_says_otherwise() -> None:
    assert kind(first_match([fail_on()]).decide(at("manual"))) is Compact
    assert kind(first_match([least_messages(4, [], asked=2)]).decide(at("manual", messages=1))) is Nothing
    assert kind(first_match([fail_on()]).decide(at("idle"))) is Nothing
