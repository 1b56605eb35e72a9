"""What counts as worse, what as better, and what cannot be compared.

The differences as people read them.
"""

from __future__ import annotations

import attrs
import pytest

from promptkit.bench.results import (
    BaselineMismatchError,
    Change,
    Element,
    check_comparable,
    compare,
    format_comparison,
)
from promptkit.bench.sweep import measure
from tests.unit.bench.prompts import BUDGETS, Review, run_of, sweep_of


def worse(**changes: object) -> list[tuple[str, int, str | None]]:
    """What is worse in a sweep with these changes, and better when the two change places."""
    before, now = run_of(sweep_of()), run_of(sweep_of(**changes))  # type: ignore[arg-type]  # the arguments of sweep_of
    found = compare(now, before)
    mirrored = compare(before, now)
    assert [(c.kind, c.budget, c.element, c.before, c.now) for c in found.worse] == [
        (c.kind, c.budget, c.element, c.now, c.before) for c in mirrored.better
    ]
    assert not found.better
    return [(change.kind, change.budget, change.element) for change in found.worse]


def test_a_run_is_as_good_as_itself() -> None:
    run = run_of(sweep_of(required=(None, 250, None)))
    found = compare(run, run)
    assert (found.worse, found.better, found.notes) == ((), (), ())


def test_an_element_that_is_lost_is_worse_however_little_of_it_was_kept() -> None:
    before = run_of(sweep_of(notes=(1, 90, 100)))
    found = compare(run_of(sweep_of(notes=(0, 90, 100))), before, tolerance=1.0)
    assert found.worse == (
        Change(kind="lost", model=None, budget=100, element="A > Notes", before=0.01, now=0),
    )


def test_an_element_that_is_not_in_the_prompt_any_more_is_lost_wherever_it_was_kept() -> None:
    before = run_of(sweep_of())
    gone = attrs.evolve(
        before,
        sweeps=tuple(attrs.evolve(sweep, elements=sweep.elements[1:]) for sweep in before.sweeps),
    )
    assert [(c.kind, c.budget) for c in compare(gone, before).worse] == [
        ("lost", 200),
        ("lost", 400),
    ]
    assert [(c.kind, c.budget) for c in compare(before, gone).better] == [
        ("lost", 200),
        ("lost", 400),
    ]


@pytest.mark.parametrize(("kept", "said"), [(86, []), (85, []), (84, [("kept", 200, "A > Notes")])])
def test_a_share_may_fall_by_the_tolerance_and_no_more(kept: int, said: list[object]) -> None:
    assert worse(notes=(0, kept, 100)) == said


@pytest.mark.parametrize(("used", "said"), [(180, []), (179, [("utilisation", 200, None)])])
def test_utilisation_may_fall_by_the_tolerance_and_no_more(used: int, said: list[object]) -> None:
    assert worse(used=(90, used, 200)) == said


def test_utilisation_says_nothing_where_everything_fits() -> None:
    assert worse(used=(90, 190, 20)) == []


def test_what_no_longer_fits_is_worse_and_says_nothing_else_of_that_budget() -> None:
    assert worse(required=(120, None, None), notes=(None, 90, 100), rules=(None, 80, 80)) == [
        ("fits", 100, None)
    ]
    found = compare(run_of(sweep_of(required=(120, None, None))), run_of(sweep_of()))
    assert (found.worse[0].before, found.worse[0].now) == (0, 120)


def test_times_are_compared_over_the_floor_so_that_a_slower_machine_is_no_regression() -> None:
    before = run_of(sweep_of())
    slower_machine = run_of(sweep_of(cold=0.2, warm=0.1, floor=0.1))
    slower_prompt = run_of(sweep_of(cold=0.031, warm=0.015))
    assert compare(slower_machine, before).worse == ()
    assert [(c.kind, c.budget) for c in compare(slower_prompt, before).worse] == [
        ("cold", budget) for budget in BUDGETS
    ]
    assert compare(slower_prompt, before, time_tolerance=None).worse == ()
    assert compare(slower_prompt, before, time_tolerance=0.6).worse == ()
    assert len(compare(before, slower_prompt).better) == len(BUDGETS)


def test_a_run_without_times_is_compared_without_them_and_says_so() -> None:
    timed, untimed = (
        run_of(sweep_of()),
        run_of(sweep_of(cold=None, warm=None, floor=None), repeat=0),
    )
    assert compare(untimed, timed).notes == ("Times were not compared: this run has none.",)
    assert compare(timed, untimed).notes == ("Times were not compared: the baseline has none.",)
    assert (
        compare(untimed, untimed).notes == compare(timed, untimed, time_tolerance=None).notes == ()
    )


def test_notes_say_what_else_differs() -> None:
    before = run_of(sweep_of(model="gpt-5"), target="b.py:B", python="3.12.1")
    sweep = attrs.evolve(sweep_of(model="gpt-5"), whole=250, tokenizer="cl100k_base")
    assert compare(run_of(sweep), before).notes == (
        "The baseline was measured with b.py:B.",
        "Without a budget, for gpt-5: 200 tokens before, 250 now.",
        "Counted with o200k_base before, with cl100k_base now, for gpt-5.",
        "The baseline was timed with Python 3.12.1, this run with 3.11.0.",
    )


def test_each_model_is_held_against_itself() -> None:
    before = run_of(sweep_of(model="gpt-5"), sweep_of(model="gpt-4"))
    now = run_of(sweep_of(model="gpt-5"), sweep_of(model="gpt-4", notes=(0, 0, 100)))
    assert [(c.model, c.kind, c.budget) for c in compare(now, before).worse] == [
        ("gpt-4", "lost", 200)
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"budgets": (100, 200)},
            r"the budgets of the baseline \(100, 200, 400\) and of this run \(100, 200\) differ",
        ),
        (
            {"models": ("gpt-5",)},
            r"the models of the baseline \(none\) and of this run \(gpt-5\) differ",
        ),
        ({"depth": 2}, r"the depth of the baseline \(3\) and of this run \(2\) differ"),
    ],
)
def test_a_baseline_of_something_else_is_refused(changes: dict[str, object], said: str) -> None:
    asked: dict[str, object] = {"budgets": BUDGETS, "models": (None,), "depth": 3}
    with pytest.raises(BaselineMismatchError, match=said):
        check_comparable(run_of(sweep_of()), **(asked | changes))  # type: ignore[arg-type]  # the arguments of check_comparable
    with pytest.raises(BaselineMismatchError):
        compare(run_of(sweep_of(), depth=2), run_of(sweep_of()))


def test_a_real_prompt_whose_priorities_change_places_is_worse() -> None:
    budgets = (60, 90, 120, 200, 400)
    before = measure(Review(), budgets=budgets)
    found = compare(measure(Review(remarks_above=True), budgets=budgets), before)
    assert [(change.kind, change.element) for change in found.worse if change.kind == "lost"] == [
        ("lost", "Review > UserMessage(style)")
    ] * sum(change.kind == "lost" for change in found.worse)
    assert any(change.kind == "lost" for change in found.worse)
    assert {change.element for change in found.better} >= {
        "Review > UserMessage(remarks) > TextChunk"
    }


def test_an_element_of_no_tokens_counts_as_kept() -> None:
    assert Element(path="A", whole=0, kept=(0, None)).kept_share(0) == 1


def test_says_that_nothing_differs() -> None:
    assert (
        format_comparison(compare(run_of(sweep_of()), run_of(sweep_of())))
        == "As good as the baseline."
    )


def test_sums_an_element_up_and_shows_the_budget_where_it_differs_most() -> None:
    before = run_of(sweep_of(notes=(10, 90, 100), used=(90, 190, 200)))
    now = run_of(sweep_of(notes=(0, 60, 50), rules=(80, 80, 79), used=(90, 150, 200), cold=0.05))
    assert format_comparison(compare(now, before)) == "\n".join(  # noqa: FLY002  # a line each
        [
            "Worse than the baseline:",
            "  element or figure             budgets             largest difference",
            "  A > Notes                     3, from 100 to 400  10% → nothing at 100",
            "  (cold render over the floor)  3, from 100 to 400  2.00x → 5.00x at 100",
            "  (utilisation)                 200                 95% → 75%",
        ]
    )


def test_says_what_got_better_and_that_little_is_not_nothing() -> None:
    now, before = run_of(sweep_of(notes=(5, 90, 100))), run_of(sweep_of(notes=(0, 90, 100)))
    assert (
        format_comparison(compare(now, before)).splitlines()[2]
        == "  A > Notes          100      nothing → 5%"
    )
    before = run_of(sweep_of(required=(150, None, None)))
    assert format_comparison(compare(now, before)).splitlines() == [
        "Better than the baseline:",
        "  element or figure  budgets  largest difference",
        "  (fits at all)      100      needs 150 → fits",
    ]


def test_names_the_model_where_there_are_several() -> None:
    models = ("gpt-5", "gpt-4")
    before = run_of(*(sweep_of(model=model) for model in models))
    now = run_of(*(sweep_of(model=model, rules=(80, 0, 80)) for model in models))
    lines = format_comparison(compare(now, before)).splitlines()
    assert [line.split("  ")[1] for line in lines[2:]] == ["gpt-5: A > Rules", "gpt-4: A > Rules"]


def test_notes_stand_below() -> None:
    now = run_of(sweep_of(), target="b.py:B")
    assert (
        format_comparison(compare(now, run_of(sweep_of())))
        == "As good as the baseline.\nThe baseline was measured with a.py:A."
    )
