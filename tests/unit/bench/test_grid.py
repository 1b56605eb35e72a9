"""What a heat map shows."""

from __future__ import annotations

import attrs
import pytest

from promptkit.bench.grid import largest, short_size
from promptkit.bench.run import Element, Sweep
from tests.unit.bench.prompts import sweep_of


def of(*elements: tuple[str, int], kept: tuple[int | None, ...] = (None, 1, 2)) -> Sweep:
    return attrs.evolve(sweep_of(), elements=tuple(Element(path=path, whole=whole, kept=kept) for path, whole in elements))


def names(sweep: Sweep, most: int = 12) -> list[str]:
    return [element.path for element in largest(sweep, most)]


def test_the_largest_come_first_and_equals_as_they_are_written() -> None:
    assert names(of(("B", 5), ("A", 50), ("D", 5), ("C", 7))) == ["A", "C", "B", "D"]


def test_a_first_step_that_all_share_is_left_out() -> None:
    assert names(of(("P > A", 2), ("P > B > C", 1))) == ["A", "B > C"]
    assert names(of(("P > A", 2), ("Q > B", 1))) == ["P > A", "Q > B"]
    assert names(of(("P", 1))) == ["P"]
    assert names(of(("P", 2), ("P > A", 1))) == ["P (itself)", "P > A"]


def test_the_rest_is_summed_up_in_a_row_of_its_own() -> None:
    rows = largest(of(*((f"E{number}", 100 - number) for number in range(10))), 3)
    assert [row.path for row in rows] == ["E0", "E1", "E2", "7 more"]
    assert rows[-1].whole == sum(100 - number for number in range(3, 10))
    assert rows[-1].kept == (None, 7, 14)


def test_one_other_is_shown_as_it_is() -> None:
    assert names(of(*((f"E{number}", 100 - number) for number in range(4))), 3) == ["E0", "E1", "E2", "E3"]


def test_more_than_the_whole_of_one_does_not_hide_the_loss_of_another() -> None:
    sweep = attrs.evolve(sweep_of(), elements=tuple(Element(path=f"E{n}", whole=10, kept=(30 if n else 0,)) for n in range(4)))
    assert largest(sweep, 1)[-1].kept == (30,)
    sweep = attrs.evolve(sweep, elements=tuple(Element(path=f"E{n}", whole=10, kept=(0 if n == 3 else 30,)) for n in range(4)))
    assert largest(sweep, 1)[-1].share(0) == 2 / 3


def test_a_prompt_without_elements_has_no_rows() -> None:
    assert largest(of()) == ()


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (0, "0"),
        (1, "1"),
        (999, "999"),
        (1000, "1k"),
        (1382, "1.4k"),
        (9960, "10k"),
        (15789, "16k"),
        (128_000, "128k"),
        (999_999, "1m"),
        (1_050_000, "1.1m"),
        (2_000_000, "2m"),
    ],
)
def test_a_size_takes_four_characters_at_most(tokens: int, text: str) -> None:
    assert short_size(tokens) == text
