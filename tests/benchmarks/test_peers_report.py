"""What a comparison looks like: as JSON, as tables, as a chart."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from benchmarks.peers.chart import draw, spread
from benchmarks.peers.figures import Case, Comparison, Outcome, Probe
from benchmarks.peers.peer import OWN, select_peers
from benchmarks.peers.report import markdown, table

if TYPE_CHECKING:
    from pathlib import Path


def ran(seconds: float, *, kept: int = 50, tokens: int = 990) -> Outcome:
    return Outcome(status="ran", seconds=seconds, floor=0.004, runs=3, kept=kept, tokens=tokens, claim=980)


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
    probes={"messages": {"priompt": Probe(budgets=200, fits=50, sound=199, faults={"does not fit": 150, "cut in the middle": 1})}},
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


def test_a_row_has_times_by_size_and_what_the_largest_came_to() -> None:
    assert rows()[""] == ["100", "1,000", "5,000", "over promptkit", "over tokenising", "kept", "of budget", "it says", "fits", "sound"]
    assert rows()["promptkit"] == ["2.0 ms", "21 ms", "100 ms", "1", "25", "50 of 50", "99.0 %", "98.0 %", "", ""]
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
    assert lines[1].index("5,000") + len("5,000") == lines[3].index("30,000 ms") + len("30,000 ms") or "over 60 s at 1,000" in lines[4]
    assert "Medians of 3 runs" in lines[-1]


def test_json_has_every_figure_the_ratios_and_the_versions() -> None:
    told = json.loads(json.dumps(COMPARISON.to_json()))
    outcome = told["cases"][1]["outcomes"]["priompt"]
    assert outcome["seconds"] == 2.5
    assert outcome["over_promptkit"] == pytest.approx(2.5 / 0.0208)
    assert outcome["over_floor"] == pytest.approx(625)
    assert told["cases"][1]["outcomes"]["litellm"]["over_promptkit"] is None
    assert told["peers"]["priompt"]["packages"] == ["priompt==0.1.2", "tiktoken==0.14.0"]
    assert told["probes"]["messages"]["priompt"]["faults"] == {"does not fit": 150, "cut in the middle": 1}
    assert (told["rounds"], told["limit"], told["node"]) == (3, 60, "20")


def test_what_was_written_to_json_is_shown_as_it_was() -> None:
    again = Comparison.from_json(json.loads(json.dumps(COMPARISON.to_json())))
    assert table(again) == table(COMPARISON)
    assert again.to_json() == COMPARISON.to_json()


@pytest.mark.slow
def test_the_chart_names_every_peer_that_ran_and_is_the_same_every_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: it comes with the extra `plot`")
    first, second = tmp_path / "a.svg", tmp_path / "deeper" / "b.svg"
    draw(COMPARISON, first)
    draw(COMPARISON, second)
    assert first.read_bytes() == second.read_bytes()
    drawn = first.read_text(encoding="utf-8")
    assert [name for name in ("promptkit", "priompt", "litellm trim_messages") if f">{name}<" not in drawn] == []
    assert ">prompt-poet<" not in drawn


@pytest.mark.parametrize("wanted", [[0.5, 0.5, 0.5], [0.1, 0.9, 0.12, 0.11], [0.3], [], [0.0, 0.04, 0.2, 0.21, 0.9]])
def test_names_stand_apart_in_the_order_of_their_lines(wanted: list[float]) -> None:
    places = spread(wanted, 0.05)
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    ordered = [places[index] for index in order]
    assert all(after - before >= 0.05 - 1e-9 for before, after in pairwise(ordered))
    assert sum(places) == pytest.approx(sum(wanted))


def test_names_that_have_room_stay_where_their_lines_end() -> None:
    assert spread([0.2, 0.8, 0.5], 0.05) == [0.2, 0.8, 0.5]
