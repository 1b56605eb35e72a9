"""A run as a file: it comes back as it was, reads well in a review, and is never half there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from promptkit.bench.results import UnreadableRunError, read_run, run_to_json
from promptkit.bench.sweep import measure
from tests.unit.bench.prompts import Review, run_of, sweep_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from promptkit.bench.results import Run

Damage: TypeAlias = "Callable[[Any], object]"
"""Changes the JSON of a run."""

RUNS = [
    run_of(sweep_of()),
    run_of(
        sweep_of(model="gpt-5"),
        sweep_of(
            model="gpt-4", required=(70, None, None), notes=(None, 90, 100), rules=(None, 80, 80)
        ),
    ),
    run_of(sweep_of(cold=None, warm=None, floor=None), repeat=0, target="\ud800 ünï"),
    measure(Review(), budgets=(5, 60, 100), repeat=1),
]


@pytest.mark.parametrize("run", RUNS)
def test_a_run_comes_back_as_it_was(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(run_to_json(run).encode())
    assert read_run(path) == run


def test_the_same_run_is_the_same_text_so_that_a_baseline_only_changes_with_the_prompt() -> None:
    first, again = (run_to_json(measure(Review(), budgets=(60, 100))) for _ in range(2))
    assert first == again


def test_every_point_and_every_element_is_a_line() -> None:
    lines = [line.strip().rstrip(",") for line in run_to_json(run_of(sweep_of())).splitlines()]
    assert [json.loads(line)["budget"] for line in lines if line.startswith('{"budget"')] == [
        100,
        200,
        400,
    ]
    assert [json.loads(line)["path"] for line in lines if line.startswith('{"path"')] == [
        "A > Notes",
        "A > Rules",
    ]
    assert '"budgets": [100, 200, 400]' in lines
    assert json.loads(run_to_json(run_of(sweep_of())))["schema"] == 1


def _drop(name: str) -> Damage:
    return lambda run: run.pop(name)


DAMAGES: list[tuple[Damage, str]] = [
    (_drop("target"), "is damaged: required field missing @ run.target"),
    (
        lambda run: run["sweeps"][0].pop("points"),
        "is damaged: required field missing @ run.sweeps[0].points",
    ),
    (lambda run: run["sweeps"][0].update(whole="many"), "expected int @ run.sweeps[0].whole"),
    (
        lambda run: run["sweeps"][0]["points"][0].update(cold="slow"),
        "@ run.sweeps[0].points[0].cold",
    ),
    (lambda run: run.update(sweeps=None), "@ run.sweeps"),
    (lambda run: run.update(budgets=[1, 2, 3]), "its figures are not those of its budgets"),
    (lambda run: run["sweeps"][0]["points"].pop(), "its figures are not those of its budgets"),
    (
        lambda run: run["sweeps"][0]["elements"][0]["kept"].pop(),
        "its figures are not those of its budgets",
    ),
    (lambda run: run.update(schema=2), "has schema 2, but this version of promptkit reads 1"),
    (_drop("schema"), "is not a run of promptkit bench"),
]


@pytest.mark.parametrize(("damage", "said"), DAMAGES)
def test_a_damaged_file_is_refused_with_what_is_wrong(
    damage: Damage, said: str, tmp_path: Path
) -> None:
    fields = json.loads(run_to_json(run_of(sweep_of())))
    damage(fields)
    path = tmp_path / "run.json"
    path.write_text(json.dumps(fields), encoding="utf-8")
    with pytest.raises(UnreadableRunError) as caught:
        read_run(path)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"schema": 1, ', "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[" * 200_000, "is not JSON"),
        (b"[]", "is not a run"),
        (b"7", "is not a run"),
    ],
)
def test_a_file_that_is_no_run_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(UnreadableRunError, match=said):
        read_run(path)
    with pytest.raises(UnreadableRunError, match="cannot be read: No such file"):
        read_run(tmp_path / "missing.json")
