"""The laws of the default policy for whole conversations: a host does what the policy decides, with a model that helps or fails at random.

What is decided in each state: tests/unit/compaction/policy/test_rules.py.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal

import attrs
import pytest
from hypothesis import given, strategies as st

from promptkit.compaction.policy.rules import Thresholds, default_policy
from promptkit.compaction.policy.state import (
    ApplySummary,
    Attempts,
    BackgroundState,
    Compact,
    DiscardSummary,
    NoAction,
    Phase,
    PolicyState,
    RenderPruned,
    StartBackground,
    Wait,
    judge_attempt,
)
from promptkit.tokens.budget import ContextBudget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit.compaction.policy.rules import Policy

BUDGET = ContextBudget(window=1_000, reserved_output_tokens=0, tools=100)
OVERFLOW = BUDGET.render_budget or 0
Luck = Literal["helps", "little", "nothing", "fails"]


@attrs.define
class Host:
    """One conversation.

    `tokens` are of its requests; `log` holds what was done, one word for each thing.
    """

    policy: Policy
    luck: Iterator[Luck]
    tokens: int = 100
    background: BackgroundState = "idle"
    background_luck: Luck = "helps"
    attempts: Attempts = attrs.field(factory=Attempts)
    warm: bool = False
    log: list[str] = attrs.field(factory=list[str])

    def asked(self, tokens: int) -> None:
        """The user sends so many tokens."""
        self.attempts = self.attempts.after_user_message()
        self.warm = False
        self.tokens += tokens
        self.log.append("asked")
        self.request()

    def worked(self, tokens: int) -> None:
        """A round of calls came to so much."""
        self.warm = True
        self.tokens += tokens
        self.request()

    def settle(self) -> None:
        """The background is done."""
        if self.background == "running":
            self.background = "failed" if self.background_luck == "fails" else "ready"
            if self.background == "failed":
                self.attempts = self.attempts.after_attempt("failed", background=True)

    def request(self) -> None:
        decision = self.policy.decide(self.state("before_render"))
        compacted = False
        if isinstance(decision, ApplySummary):
            compacted = self.apply()
        elif isinstance(decision, DiscardSummary):
            self.background = "idle"
        if self.tokens > OVERFLOW and not self.overflowed(compacted=compacted):
            return
        self.log.append("sent")
        done = self.policy.decide(self.state("rendered", compacted=compacted))
        if isinstance(done, StartBackground):
            self.log.append("started")
            self.background = "running"
            self.background_luck = next(self.luck)

    def overflowed(self, *, compacted: bool) -> bool:
        """Act until a request fits or is rendered pruned.

        Return whether one was sent that is not pruned.
        """
        waited = extracted = False
        for _ in range(6):
            state = self.state("overflow", compacted=compacted, waited=waited)
            decision = self.policy.decide(attrs.evolve(state, extracted=extracted))
            match decision:
                case Compact(extract=True):  # nothing to extract would help here
                    extracted = True
                case Wait():
                    waited = True
                    self.settle()
                case ApplySummary():
                    compacted = self.apply()
                case Compact():
                    compacted = self.summarize() or compacted
                case RenderPruned():
                    self.log.append("pruned")
                    return False
                case _:
                    raise AssertionError(decision)
            if self.tokens <= OVERFLOW:
                return True
        raise AssertionError("the escalation has no end")

    def state(self, phase: Phase, *, compacted: bool = False, waited: bool = False) -> PolicyState:
        return PolicyState(
            phase=phase,
            budget=BUDGET,
            tokens=self.tokens,
            warm=self.warm,
            background=self.background,
            attempts=self.attempts,
            compacted=compacted,
            waited=waited,
        )

    def apply(self) -> bool:
        self.background = "idle"
        return self.put(self.background_luck)

    def summarize(self) -> bool:
        self.background = "idle"
        return self.put(next(self.luck))

    def put(self, luck: Luck) -> bool:
        if luck == "fails":
            self.attempts = self.attempts.after_attempt("failed")
            self.log.append("failed")
            return False
        after = {"helps": self.tokens // 4, "little": self.tokens - 1, "nothing": self.tokens + 5}[
            luck
        ]
        outcome = judge_attempt(self.tokens, after, budget=BUDGET)
        self.attempts = self.attempts.after_attempt(outcome)
        self.tokens = min(after, self.tokens)
        self.log.append("compacted" if outcome == "reduced" else "useless")
        return True


def always(luck: Luck) -> Iterator[Luck]:
    """The same luck each time."""
    return itertools.repeat(luck)


LUCK = st.sampled_from(["helps", "little", "nothing", "fails"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["asked", "worked", "worked", "worked", "settle"]), st.integers(1, 300)
    ),
    max_size=60,
)


@given(
    steps=STEPS,
    luck=st.lists(LUCK, min_size=1, max_size=5),
    drawn=st.floats(0, 1, exclude_max=True),
)
def test_attempts_without_progress_are_bounded_whatever_the_model_does(
    steps: list[tuple[str, int]], luck: list[Luck], drawn: float
) -> None:
    host = Host(default_policy(rng=lambda: drawn), (luck[at % len(luck)] for at in range(10_000)))
    for step, tokens in steps:
        if step == "settle":
            host.settle()
        else:
            (host.asked if step == "asked" else host.worked)(tokens)
    in_a_row = rested = 0
    since_asked = 0
    for word in host.log:
        if word == "asked":
            since_asked = 0
            rested += 1
        elif word == "compacted":
            in_a_row = since_asked = 0
        elif word in {"failed", "useless"}:
            running = 1  # that had been started before the breaker opened
            assert in_a_row <= Thresholds().breaker - 1 + running or rested >= Thresholds().breaker
            in_a_row += 1
            since_asked += 1
            rested = 0
        # one in the foreground, and a background pass that had been started before
        assert since_asked <= 2
    assert host.attempts.unsuccessful <= 2


@given(steps=STEPS, drawn=st.floats(0, 1, exclude_max=True))
def test_with_a_model_that_helps_no_request_is_ever_pruned(
    steps: list[tuple[str, int]], drawn: float
) -> None:
    host = Host(default_policy(rng=lambda: drawn), always("helps"))
    for step, tokens in steps:
        if step == "settle":
            host.settle()
        else:
            (host.asked if step == "asked" else host.worked)(tokens)
    assert "pruned" not in host.log
    assert host.tokens <= OVERFLOW


def test_a_summary_made_in_the_background_spares_the_wait() -> None:
    host = Host(default_policy(rng=lambda: 0.5), always("helps"))
    host.asked(500)
    for tokens in (100, 110, 20):
        host.worked(tokens)
        host.settle()
    assert host.log == ["asked", "sent", "sent", "sent", "started", "compacted", "sent"]


@pytest.mark.spec("E31")
@pytest.mark.parametrize("luck", ["little", "nothing"])
def test_a_compaction_that_helps_nothing_is_not_repeated_at_every_step(luck: Luck) -> None:
    host = Host(default_policy(rng=lambda: 0.5), always(luck), tokens=880)
    host.asked(1)
    for _ in range(20):
        host.worked(1)
        host.settle()
    assert host.log.count("started") == 1
    assert host.log.count("useless") == 1


def test_a_model_that_always_fails_is_left_alone_after_three_times_and_then_asked_at_every_third_message() -> (
    None
):
    host = Host(default_policy(rng=lambda: 0.5), always("fails"), tokens=880)
    for _ in range(20):
        host.asked(1)
        host.worked(1)
        host.settle()
    asked_at: list[int] = []
    messages = 0
    for word in host.log:
        messages += word == "asked"
        if word in {"started", "failed"}:
            asked_at.append(messages)
    assert asked_at[2:] == list(range(asked_at[2], 21, 3))
    before = host.log.count("started")
    host.attempts, host.tokens = Attempts(), 880
    host.worked(1)
    assert host.log.count("started") == before + 1


@pytest.mark.spec("E27")
def test_the_size_before_a_compaction_does_not_start_another() -> None:
    host = Host(default_policy(rng=lambda: 0.5), always("helps"), tokens=890)
    host.asked(50)
    assert host.log == ["asked", "compacted", "sent"]
    host.worked(10)
    assert host.log[-1] == "sent"
    assert host.log.count("compacted") == 1
    assert isinstance(host.policy.decide(host.state("rendered")), NoAction)
