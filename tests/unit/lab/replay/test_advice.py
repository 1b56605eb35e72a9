"""Which preset is recommended, and when the recordings are too few to tell."""

from __future__ import annotations

import random
from itertools import count

import attrs
import pytest

from promptkit.lab.replay.advice import CANDIDATES, DEFAULT, MIN_COMPACTED, advise
from promptkit.lab.replay.policies import find_policy
from promptkit.lab.replay.results import FileResult, ReplayTotals
from promptkit.lab.replay.retention import RetentionCounts
from promptkit.lab.replay.runner import ReplayOptions, ReplayRules
from promptkit.tokens.prices import BilledTokens, Price

PRICE = Price(input=1.0, output=10.0, cached_input=0.1)
OPTIONS = ReplayOptions(
    policies=CANDIDATES,
    rules=ReplayRules(model="gpt-5", window=64_000, cache="openai"),
    price=PRICE,
)
CHEAP = "break_even:beta=1"
NUMBERS = count()
"""The numbers of files: each conversation here is a session of its own."""


def conversation(
    *,
    tokens: int = 100_000,
    cheap: float = 0.7,
    compacted: int = 1,
    options: ReplayOptions = OPTIONS,
    **changes: object,
) -> FileResult:
    """A conversation in which one candidate costs so much of what all others cost.

    `changes` are those of its counts.
    """
    usual = ReplayTotals(
        requests=10,
        checkpoints=compacted,
        requests_billed=BilledTokens(input_tokens=tokens),
        retention=RetentionCounts(lines_used=100, lines_shown=90),
    )
    better = attrs.evolve(
        usual,
        requests_billed=BilledTokens(input_tokens=int(tokens * cheap)),
        **changes,  # type: ignore[arg-type]  # fields of the counts
    )
    return FileResult(
        file=f"talk{next(NUMBERS)}.jsonl",
        conversations=1,
        messages=20,
        window=64_000,
        model="gpt-5",
        policies=tuple(
            options.price_totals(name, better if name == CHEAP else usual) for name in CANDIDATES
        ),
    )


def several(number: int, **changes: object) -> list[FileResult]:
    """Equal conversations, each a session of its own."""
    return [conversation(**changes) for _ in range(number)]  # type: ignore[arg-type]  # as above


def test_every_candidate_is_a_preset_and_the_default_is_the_first() -> None:
    assert CANDIDATES[0] == DEFAULT
    assert [find_policy(name).name for name in CANDIDATES] == list(CANDIDATES)


def test_the_cheapest_candidate_is_recommended_with_its_saving_and_the_line_of_code() -> None:
    advice = advise(
        [conversation(tokens=1_000 * number) for number in range(90, 90 + 2 * MIN_COMPACTED)],
        OPTIONS,
    )
    assert advice.policy == CHEAP
    assert advice.is_certain
    assert advice.interval[0] <= advice.saving <= advice.interval[1]
    assert "30% less" in advice.describe()
    assert "preset=break_even(BreakEven(beta=1))" in advice.describe()


def test_a_few_conversations_that_are_compacted_are_too_few_to_tell() -> None:
    short = several(50, cheap=1.0, compacted=0)
    advice = advise([*short, *several(MIN_COMPACTED - 1)], OPTIONS)
    assert not advice.is_certain
    assert "too few to tell" in advice.describe()


def test_conversations_that_no_candidate_compacts_say_nothing_about_the_default() -> None:
    sentence = advise(several(50, cheap=1.0, compacted=0), OPTIONS).describe()
    assert "too few to tell. Only 0 of the 50 sessions" in sentence
    assert sentence.endswith("stay with vscode.")
    assert "too few" not in advise(several(MIN_COMPACTED, cheap=1.0), OPTIONS).describe()


def test_lookups_are_part_of_the_prices_that_are_compared() -> None:
    lookups = BilledTokens(input_tokens=20_000)
    lacking = several(2 * MIN_COMPACTED, lookups_billed=lookups)
    options = attrs.evolve(OPTIONS, lookups=2)
    assert advise(lacking, OPTIONS).policy == CHEAP
    lacking = several(2 * MIN_COMPACTED, lookups_billed=lookups, options=options)
    assert advise(lacking, options).policy == DEFAULT
    fewer = BilledTokens(input_tokens=5_000)
    some = advise(several(2 * MIN_COMPACTED, lookups_billed=fewer, options=options), options)
    assert (some.policy, round(some.saving, 2)) == (CHEAP, 0.2)
    assert "with 2 look-ups for each answer that lacks a line: 20% less" in some.describe()


def test_a_saving_that_one_conversation_makes_alone_is_not_certain() -> None:
    usual = several(2 * MIN_COMPACTED, cheap=1.02)
    assert not advise([*usual, conversation(tokens=2_000_000)], OPTIONS).is_certain


@pytest.mark.long
def test_a_preset_that_shows_fewer_quoted_lines_overflows_or_waits_more_is_not_recommended() -> (
    None
):
    for worse in (
        {"overflows": 1},
        {"invalid_requests": 1},
        {"foreground_waits": 1},
        {"retention": RetentionCounts(lines_used=100, lines_shown=86)},
    ):
        advice = advise(several(20, **worse), OPTIONS)
        assert advice.policy == DEFAULT
        assert "stay with" in advice.describe()


def test_too_few_recordings_say_how_many_are_needed() -> None:
    advice = advise([*several(12, cheap=1.0, compacted=0), *several(4)], OPTIONS)
    assert advice.needed == 16 * MIN_COMPACTED // 4
    assert f"It takes some {advice.needed} sessions like these." in advice.describe()
    assert advise(several(2 * MIN_COMPACTED), OPTIONS).needed is None
    assert advice.to_json()["needed"] == advice.needed


@pytest.mark.long
def test_the_interval_holds_the_saving_of_other_sessions_as_often_as_it_says() -> None:
    draw = random.Random(5)

    def sessions(number: int) -> list[FileResult]:
        return [
            conversation(
                tokens=int(100_000 * draw.lognormvariate(0, 0.5)), cheap=draw.uniform(0.4, 1.2)
            )
            for _ in range(number)
        ]

    def saving(policy: str, made: list[FileResult]) -> float:
        place = CANDIDATES.index(policy)
        return 1 - sum(each.policies[place].price for each in made) / sum(
            each.policies[0].price for each in made
        )

    held = 0
    for _ in range(25):
        advice = advise(sessions(24), OPTIONS)
        low, high = advice.interval
        held += low <= saving(advice.policy, sessions(24)) <= high
    assert held >= 20
