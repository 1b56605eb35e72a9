"""The differences as people read them."""

from __future__ import annotations

from promptkit.bench.baseline import compare
from promptkit.bench.report import report
from tests.unit.bench.prompts import run_of, sweep_of


def test_says_that_nothing_differs() -> None:
    assert report(compare(run_of(sweep_of()), run_of(sweep_of()))) == "As good as the baseline."


def test_sums_an_element_up_and_shows_the_budget_where_it_differs_most() -> None:
    before = run_of(sweep_of(notes=(10, 90, 100), used=(90, 190, 200)))
    now = run_of(sweep_of(notes=(0, 60, 50), rules=(80, 80, 79), used=(90, 150, 200), cold=0.05))
    assert report(compare(now, before)) == "\n".join(  # noqa: FLY002  # a line each
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
    assert report(compare(now, before)).splitlines()[2] == "  A > Notes          100      nothing → 5%"
    before = run_of(sweep_of(required=(150, None, None)))
    assert report(compare(now, before)).splitlines() == [
        "Better than the baseline:",
        "  element or figure  budgets  largest difference",
        "  (fits at all)      100      needs 150 → fits",
    ]


def test_names_the_model_where_there_are_several() -> None:
    models = ("gpt-5", "gpt-4")
    before = run_of(*(sweep_of(model=model) for model in models))
    now = run_of(*(sweep_of(model=model, rules=(80, 0, 80)) for model in models))
    lines = report(compare(now, before)).splitlines()
    assert [line.split("  ")[1] for line in lines[2:]] == ["gpt-5: A > Rules", "gpt-4: A > Rules"]


def test_notes_stand_below() -> None:
    now = run_of(sweep_of(), target="b.py:B")
    assert report(compare(now, run_of(sweep_of()))) == "As good as the baseline.\nThe baseline is of a.py:A."
