"""`check_policy` and `check_summarizer`: all of ours pass, and one that breaks a promise is found."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from promptkit.compaction import (
    PRESETS,
    ApplySummary,
    ChunkedSummarizer,
    Compact,
    ExtractiveSummarizer,
    Fail,
    FallbackSummarizer,
    FileListSummarizer,
    FullSummarizer,
    InlineSummarizer,
    NoAction,
    PlaceholderSummarizer,
    Reason,
    SimpleSummarizer,
    SplitTurnSummarizer,
    Summary,
    Wait,
    compact_at,
    compact_on_demand,
    first_match,
    on_overflow,
)
from promptkit.errors import SummaryError
from promptkit.testing import (
    ScriptedModel,
    WordTokenizer,
    check_policy,
    check_summarizer,
    summary_answer,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit.compaction import Decision, PolicyState, Summarizer, SummaryTask

WHY = Reason(why="a test")
COUNT = WordTokenizer()


@pytest.mark.spec("E41")
@pytest.mark.parametrize("drawn", [0.0, 0.99])
@pytest.mark.parametrize("name", PRESETS)
def test_the_policy_of_every_preset_keeps_its_promises(name: str, drawn: float) -> None:
    check_policy(PRESETS[name]().policy(lambda: drawn))


def test_a_policy_of_rules_keeps_its_promises() -> None:
    check_policy(first_match([compact_on_demand, on_overflow(), compact_at(0.85)]))


class Deciding:
    """A policy that is one function."""

    def __init__(self, decide: Callable[[PolicyState], Any]) -> None:  # Any: wrong values, too
        self._decide = decide

    def decide(self, state: PolicyState) -> Decision:
        decision: Decision = self._decide(state)
        return decision


def returning(value: object) -> Callable[[object], Any]:  # Any: wrong values, too
    return lambda _: value


def change_facts(task: SummaryTask) -> Summary:
    object.__setattr__(task, "max_tokens", 1)
    return Summary(text="word", mode="x")


def or_manual(decision: Decision) -> Callable[[PolicyState], Decision]:
    return lambda state: (
        compact_on_demand(state) or (decision if state.enabled else NoAction(reason=WHY))
    )


@pytest.mark.parametrize(
    ("decide", "problem"),
    [
        (returning(NoAction(reason=WHY)), "is not what the user asks for"),
        (returning(NoAction(reason=Reason(why=""))), "has no reason"),
        (returning("compact"), "is no decision"),
        (returning(Compact(reason=WHY, trigger="x")), "although compaction is off"),
        (or_manual(Compact(reason=WHY, trigger="x")), "without an end"),
        (or_manual(Wait(reason=WHY, seconds=1)), "cannot be carried out"),
        (or_manual(ApplySummary(reason=WHY)), "cannot be carried out"),
        (or_manual(Fail(reason=WHY)), "cannot be carried out"),
    ],
)
def test_a_policy_that_breaks_a_promise_is_found(
    decide: Callable[[PolicyState], Any],  # Any: wrong values, too
    problem: str,
) -> None:
    with pytest.raises(AssertionError, match=problem):
        check_policy(Deciding(decide))


def test_a_policy_that_changes_its_mind_is_found() -> None:
    decisions = iter(range(10_000))
    with pytest.raises(AssertionError, match="differs for the same state"):
        check_policy(Deciding(lambda _: NoAction(reason=Reason(why=str(next(decisions))))))


def model() -> ScriptedModel:
    """A model that writes the same summary for ever."""
    return ScriptedModel(
        [summary_answer("The parser was read, and every part of it is sound.")] * 20
    )


MODELS: list[Callable[[], Summarizer]] = [
    lambda: InlineSummarizer(model=model(), window=100_000, tokenizer=COUNT),
    lambda: FullSummarizer(model=model(), window=100_000, tokenizer=COUNT),
    lambda: SimpleSummarizer(model=model(), window=100_000, tokenizer=COUNT),
    lambda: ChunkedSummarizer(model=model(), window=20_000, tokenizer=COUNT),
]
OTHERS: list[Callable[[], Summarizer]] = [
    partial(ExtractiveSummarizer, tokenizer=COUNT),
    partial(PlaceholderSummarizer, tokenizer=COUNT),
    lambda: FallbackSummarizer([ExtractiveSummarizer(tokenizer=COUNT)]),
    lambda: FileListSummarizer(summarizer=ExtractiveSummarizer(tokenizer=COUNT), tokenizer=COUNT),
    lambda: SplitTurnSummarizer(summarizer=ExtractiveSummarizer(tokenizer=COUNT), tokenizer=COUNT),
]


@pytest.mark.parametrize("make", [*MODELS, *OTHERS])
@pytest.mark.parametrize("max_tokens", [2_000, 200])
def test_every_summarizer_keeps_its_promises(
    make: Callable[[], Summarizer], max_tokens: int
) -> None:
    check_summarizer(make, tokenizer=COUNT, max_tokens=max_tokens)


@attrs.frozen
class Writing:
    """A summarizer that is one function."""

    write: Callable[[SummaryTask], Any]  # Any: wrong values are what the tests are about

    async def summarize(self, task: SummaryTask) -> Summary:
        written: Summary | Exception = self.write(task)
        if isinstance(written, Exception):
            raise written
        summary: Summary = written
        return summary


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (returning("text"), "is no Summary"),
        (returning(Summary(text=" \n", mode="simple")), "has no text"),
        (returning(Summary(text="word " * 3_000, mode="simple")), "has 3,000 tokens"),
        (returning(Summary(text="word", mode="")), "no mode"),
        (change_facts, "was changed"),
        (returning(SummaryError(reason="timeout", detail="down")), "are all that it has made of"),
    ],
)
def test_a_summarizer_that_breaks_a_promise_is_found(
    write: Callable[[SummaryTask], Any],
    problem: str,  # Any: as above
) -> None:
    with pytest.raises(AssertionError, match=problem):
        check_summarizer(lambda: Writing(write), tokenizer=COUNT)


def test_any_other_error_of_a_summarizer_is_raised() -> None:
    with pytest.raises(OSError, match="disk"):
        check_summarizer(lambda: Writing(lambda _: OSError("disk")), tokenizer=COUNT)
