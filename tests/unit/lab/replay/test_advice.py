"""Which preset is recommended, and when the recordings are too few to tell."""

from __future__ import annotations

import attrs

from promptkit.lab.replay.advice import CANDIDATES, DEFAULT, MIN_COMPACTED, advise
from promptkit.lab.replay.policies.registry import find_policy
from promptkit.lab.replay.results import FileResult, ReplayTotals
from promptkit.lab.replay.retention import RetentionCounts
from promptkit.lab.replay.runner import ReplayOptions
from promptkit.lab.replay.simulate import ReplayRules
from promptkit.tokens.prices import BilledTokens, Price

PRICE = Price(input=1.0, output=10.0, cached_input=0.1)
OPTIONS = ReplayOptions(
    policies=CANDIDATES,
    rules=ReplayRules(model="gpt-5", window=64_000, cache="openai"),
    price=PRICE,
)
CHEAP = "break_even:beta=1"


def conversation(
    *, tokens: int = 100_000, cheap: float = 0.7, compacted: int = 1, **changes: object
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
        file="talk.jsonl",
        conversations=1,
        messages=20,
        window=64_000,
        model="gpt-5",
        policies=tuple(
            OPTIONS.price_totals(name, better if name == CHEAP else usual) for name in CANDIDATES
        ),
    )


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
    short = [conversation(cheap=1.0, compacted=0)] * 50
    advice = advise([*short, *[conversation()] * (MIN_COMPACTED - 1)], OPTIONS)
    assert not advice.is_certain
    assert "too few to tell" in advice.describe()


def test_conversations_that_no_candidate_compacts_say_nothing_about_the_default() -> None:
    sentence = advise([conversation(cheap=1.0, compacted=0)] * 50, OPTIONS).describe()
    assert "too few to tell. Only 0 of the conversations" in sentence
    assert sentence.endswith("stay with vscode.")
    assert "too few" not in advise([conversation(cheap=1.0)] * MIN_COMPACTED, OPTIONS).describe()


def test_lookups_are_part_of_the_prices_that_are_compared() -> None:
    lookups = BilledTokens(input_tokens=20_000)
    lacking = [conversation(lookups_billed=lookups)] * (2 * MIN_COMPACTED)
    options = attrs.evolve(OPTIONS, lookups=2)
    assert advise(lacking, OPTIONS).policy == CHEAP
    advice = advise(lacking, options)
    assert advice.policy == DEFAULT
    some = advise(
        [conversation(lookups_billed=BilledTokens(input_tokens=5_000))] * (2 * MIN_COMPACTED),
        options,
    )
    assert (some.policy, round(some.saving, 2)) == (CHEAP, 0.2)
    assert "with 2 look-ups for each answer that lacks a line: 20% less" in some.describe()


def test_a_saving_that_one_conversation_makes_alone_is_not_certain() -> None:
    usual = [conversation(cheap=1.02)] * (2 * MIN_COMPACTED)
    assert not advise([*usual, conversation(tokens=2_000_000)], OPTIONS).is_certain


def test_a_preset_that_shows_fewer_quoted_lines_overflows_or_waits_more_is_not_recommended() -> (
    None
):
    for worse in (
        conversation(overflows=1),
        conversation(invalid_requests=1),
        conversation(foreground_waits=1),
        conversation(retention=RetentionCounts(lines_used=100, lines_shown=86)),
    ):
        advice = advise([worse] * 20, OPTIONS)
        assert advice.policy == DEFAULT
        assert "stay with" in advice.describe()


def test_three_points_fewer_of_the_quoted_lines_are_allowed() -> None:
    fewer = conversation(retention=RetentionCounts(lines_used=100, lines_shown=87))
    advice = advise([fewer] * (2 * MIN_COMPACTED), OPTIONS)
    assert (advice.policy, advice.quoted, advice.default_quoted) == (CHEAP, 0.87, 0.9)
    assert "show 87.0% of the earlier lines that answers quote, and 90.0%" in advice.describe()
