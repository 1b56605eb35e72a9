"""What a comparison looks like: as JSON, as tables, as a chart."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

import attrs
import pytest

from benchmarks.peers.__main__ import choose_sizes, main
from benchmarks.peers.chart import draw, spread
from benchmarks.peers.figures import Case, Comparison, Outcome, Probe
from benchmarks.peers.peer import OWN, select_peers
from benchmarks.peers.report import markdown, table

if TYPE_CHECKING:
    from pathlib import Path


def ran(seconds: float, *, kept: int = 50, tokens: int = 990) -> Outcome:
    return Outcome(
        status="ran", seconds=seconds, floor=0.004, runs=3, kept=kept, tokens=tokens, claim=980
    )


def case(size: int, outcomes: dict[str, Outcome]) -> Case:
    return Case(shape="messages", size=size, tokens=2_000, budget=1_000, most=50, outcomes=outcomes)


COMPARISON = Comparison(
    peers=select_peers([OWN, "priompt", "litellm", "prompt-poet", "llama-index"]),
    cases=[
        case(
            100,
            {
                OWN: ran(0.002),
                "priompt": ran(0.02, kept=52, tokens=1_033),
                "litellm": ran(0.06),
                "prompt-poet": Outcome(status="failed", note="ERROR: no wheel"),
                "llama-index": Outcome(status="lacks", note="nothing for it"),
            },
        ),
        case(
            1_000,
            {
                OWN: ran(0.0208),
                "priompt": ran(2.5),
                "litellm": Outcome(status="over", note="over 60 s at 1,000"),
                "prompt-poet": Outcome(status="failed", note="ERROR: no wheel"),
                "llama-index": Outcome(status="lacks", note="nothing for it"),
            },
        ),
        case(
            5_000,
            {
                OWN: ran(0.1),
                "priompt": ran(30),
                "litellm": Outcome(status="over", note="over 60 s at 1,000"),
                "prompt-poet": Outcome(status="failed", note="ERROR: no wheel"),
                "llama-index": Outcome(status="lacks", note="nothing for it"),
            },
        ),
    ],
    probes={
        "messages": {
            "priompt": Probe(
                budgets=200,
                fits=50,
                sound=199,
                faults={"does not fit": 150, "cut in the middle": 1},
            )
        }
    },
    probe_size=40,
    rounds=3,
    limit=60,
    node="20",
)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def rows() -> dict[str, list[str]]:
    lines = [cells(line) for line in markdown(COMPARISON).splitlines() if line.startswith("|")]
    return {line[0]: line[1:] for line in lines}


def history(**seconds: float) -> Comparison:
    """Return a comparison of the shape `history` at two budgets, the same times at both."""
    outcomes = {name: ran(time) for name, time in seconds.items()}
    cases = [
        Case(
            shape="history",
            size=200,
            tokens=2_000,
            budget=budget,
            most=50,
            outcomes=outcomes,
            at=at,
        )
        for at, budget in (("8k", 8_000), ("half", 1_000))
    ]
    return attrs.evolve(COMPARISON, peers=select_peers(seconds), cases=cases, probes={})


def test_a_row_has_times_by_size_and_what_the_largest_came_to() -> None:
    assert rows()[""] == [
        "100",
        "1,000",
        "5,000",
        "over promptkit",
        "over tokenising",
        "kept",
        "of budget",
        "it says",
        "fits",
        "sound",
    ]
    assert rows()["promptkit"] == [
        "2.0 ms",
        "21 ms",
        "100 ms",
        "1",
        "25",
        "50 of 50",
        "99.0 %",
        "98.0 %",
        "",
        "",
    ]
    assert rows()["priompt (Python)"] == [
        *("20 ms", "2,500 ms", "30,000 ms"),
        *("300", "7,500", "50 of 50", "99.0 %", "98.0 %", "25 %", "99.5 %"),
    ]


def test_what_went_over_the_limit_says_where_and_shows_what_was_reached() -> None:
    litellm = rows()["litellm trim_messages"]
    assert litellm[:3] == ["60 ms", "over 60 s", "over 60 s at 1,000"]
    assert litellm[3] == "30 at 100"


def test_a_failure_and_a_lack_are_shown_and_never_left_out() -> None:
    assert rows()["prompt-poet"][:3] == ["failed: ERROR: no wheel"] * 3
    assert rows()["llama-index ChatMemoryBuffer"][:3] == ["-"] * 3


def test_the_terminal_has_the_same_rows_in_columns() -> None:
    lines = table(COMPARISON).splitlines()
    assert [line.split("  ")[0] for line in lines[2:7]] == [peer.title for peer in COMPARISON.peers]
    assert (
        lines[1].index("5,000") + len("5,000") == lines[3].index("30,000 ms") + len("30,000 ms")
        or "over 60 s at 1,000" in lines[4]
    )
    assert "Medians of at least 3 runs" in lines[-1]


def test_json_has_every_figure_the_ratios_and_the_versions() -> None:
    told = json.loads(json.dumps(COMPARISON.to_json()))
    outcome = told["cases"][1]["outcomes"]["priompt"]
    assert outcome["seconds"] == 2.5
    assert outcome["over_promptkit"] == pytest.approx(2.5 / 0.0208)
    assert outcome["over_floor"] == pytest.approx(625)
    assert told["cases"][1]["outcomes"]["litellm"]["over_promptkit"] is None
    assert told["peers"]["priompt"]["packages"] == ["priompt==0.1.2", "tiktoken==0.14.0"]
    assert told["probes"]["messages"]["priompt"]["faults"] == {
        "does not fit": 150,
        "cut in the middle": 1,
    }
    assert (told["rounds"], told["limit"], told["node"]) == (3, 60, "20")


def test_what_was_written_to_json_is_shown_as_it_was() -> None:
    again = Comparison.from_json(json.loads(json.dumps(COMPARISON.to_json())))
    assert table(again) == table(COMPARISON)
    assert again.to_json() == COMPARISON.to_json()


@pytest.mark.parametrize(("own", "missed"), [(0.02, False), (0.0199, False), (0.03, True)])
def test_promptkit_has_to_be_the_fastest_in_every_case_of_the_history(
    own: float, missed: bool, tmp_path: Path
) -> None:
    comparison = history(promptkit=own, priompt=0.02, litellm=0.5)
    assert [(each.case, each.peer, each.missed) for each in comparison.verdicts()] == [
        ("history, 200 at 8k", "priompt", missed),
        ("history, 200 at half", "priompt", missed),
    ]
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps(comparison.to_json()), encoding="utf-8")
    assert main(["--from", str(kept), "--check"]) == int(missed)
    assert main(["--from", str(kept)]) == 0


def test_the_bars_are_in_the_table_the_markdown_and_the_json() -> None:
    comparison = history(promptkit=0.03, priompt=0.02)
    line = "history, 200 at 8k: promptkit takes 1.50 of the time of priompt (Python), bar 1  MISSED"
    assert line in table(comparison)
    assert line in markdown(comparison)
    assert comparison.to_json()["bars"][0] == {
        "case": "history, 200 at 8k",
        "peer": "priompt",
        "figure": pytest.approx(1.5),
        "bar": 1.0,
        "missed": True,
    }
    assert (
        Comparison.from_json(json.loads(json.dumps(comparison.to_json()))).verdicts()
        == comparison.verdicts()
    )


def test_there_is_no_bar_in_another_shape_or_without_another_time() -> None:
    assert COMPARISON.verdicts() == []
    assert history(promptkit=0.03).verdicts() == []
    assert "MISSED" not in table(COMPARISON)


def test_a_column_of_the_history_names_its_budget() -> None:
    (head, *_) = [
        cells(line)
        for line in markdown(history(promptkit=0.03, priompt=0.02)).splitlines()
        if line.startswith("|")
    ]
    assert head[1:3] == ["200 at 8k", "200 at half"]


def test_a_comparison_from_before_there_were_budgets_is_at_half() -> None:
    told = json.loads(json.dumps(COMPARISON.to_json()))
    del told["bars"]
    for each in told["cases"]:
        del each["at"]
    assert Comparison.from_json(told).to_json() == COMPARISON.to_json()


def test_the_history_has_sizes_of_its_own() -> None:
    assert choose_sizes(["tools", "history"], None, quick=False) == {
        "tools": (100, 1_000, 5_000),
        "history": (200, 1_000, 4_000),
    }
    assert choose_sizes(["tools", "history"], None, quick=True) == {
        "tools": (100, 1_000),
        "history": (200, 1_000),
    }
    assert choose_sizes(["tools", "history"], [40, 80], quick=True) == {
        "tools": [40, 80],
        "history": [40, 80],
    }
    assert choose_sizes(["tools"], [10], quick=True) == {"tools": [10]}
    with pytest.raises(ValueError, match="multiples of 4 for --sizes"):
        choose_sizes(["tools", "history"], [10], quick=True)


@pytest.mark.slow
def test_the_chart_has_the_history_at_half_of_its_tokens(tmp_path: Path) -> None:
    pytest.importorskip(
        "matplotlib", reason="matplotlib is not installed: it comes with the extra `plot`"
    )
    comparison = history(promptkit=0.03, priompt=0.02)
    draw(comparison, tmp_path / "all.svg")
    draw(attrs.evolve(comparison, cases=comparison.cases[1:]), tmp_path / "half.svg")
    assert (tmp_path / "all.svg").read_bytes() == (tmp_path / "half.svg").read_bytes()


@pytest.mark.slow
def test_the_chart_names_every_peer_that_ran_and_is_the_same_every_time(tmp_path: Path) -> None:
    pytest.importorskip(
        "matplotlib", reason="matplotlib is not installed: it comes with the extra `plot`"
    )
    first, second = tmp_path / "a.svg", tmp_path / "deeper" / "b.svg"
    draw(COMPARISON, first)
    draw(COMPARISON, second)
    assert first.read_bytes() == second.read_bytes()
    drawn = first.read_text(encoding="utf-8")
    assert [
        name
        for name in ("promptkit", "priompt", "litellm trim_messages")
        if f">{name}<" not in drawn
    ] == []
    assert ">prompt-poet<" not in drawn


@pytest.mark.parametrize(
    "wanted", [[0.5, 0.5, 0.5], [0.1, 0.9, 0.12, 0.11], [0.3], [], [0.0, 0.04, 0.2, 0.21, 0.9]]
)
def test_names_stand_apart_in_the_order_of_their_lines(wanted: list[float]) -> None:
    places = spread(wanted, 0.05)
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    ordered = [places[index] for index in order]
    assert all(after - before >= 0.05 - 1e-9 for before, after in pairwise(ordered))
    assert sum(places) == pytest.approx(sum(wanted))


def test_names_that_have_room_stay_where_their_lines_end() -> None:
    assert spread([0.2, 0.8, 0.5], 0.05) == [0.2, 0.8, 0.5]
