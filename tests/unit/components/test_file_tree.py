"""`FileTree`: as much of a tree as there is room for, and a count of the rest."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings, strategies as st
from promptkit_components import FileTree

from promptkit import TokenLimit, UserMessage, render
from tests.examples import examples

PATHS = [f"src/package_{i}/module_{j}.py" for i in range(12) for j in range(12)] + [
    "README.md",
    "pyproject.toml",
]


def shown(paths: list[str], budget: int = 10_000) -> str:
    return "".join(
        message.text
        for message in render(UserMessage()[FileTree(paths=paths)], budget=budget).messages
    )


def test_shows_all_where_it_fits() -> None:
    assert shown(["b/c.py", "a.py", "b/d/e.py"]).strip() == "a.py\nb/\n  c.py\n  d/\n    e.py"


def test_counts_what_it_leaves_out() -> None:
    text = shown(PATHS, 200)
    lines = text.strip().split("\n")
    files = sum(not line.endswith("/") and "more" not in line for line in lines)
    assert "README.md" in lines
    assert "src/" in lines
    assert re.search(r"… \d+ more", text)
    assert files < len(PATHS)


@pytest.mark.parametrize("budget", range(20, 1_600, 137))
def test_fills_its_budget_and_no_more(budget: int) -> None:
    rendered = render(UserMessage()[FileTree(paths=PATHS)], budget=budget)
    assert rendered.tokens <= budget
    if 60 < budget < 1_000:
        assert rendered.tokens > budget * 0.6


def test_stays_within_a_limit_around_it() -> None:
    assert (
        render(UserMessage()[TokenLimit(max_tokens=50)[FileTree(paths=PATHS)]], budget=4_000).tokens
        < 70
    )


def test_is_nothing_without_paths() -> None:
    assert not shown([]).strip()


def test_survives_a_path_of_any_depth() -> None:
    assert "…" in shown(["/".join("d" * 3_000)], 500) or shown(["/".join("d" * 3_000)], 500) == ""


names = st.lists(st.sampled_from(["a", "b", "long_name.py"]), min_size=1, max_size=4).map("/".join)


@settings(max_examples=examples(40))
@given(st.lists(names, max_size=12), st.integers(5, 120))
def test_every_line_is_a_name_or_a_count(paths: list[str], budget: int) -> None:
    for line in shown(paths, budget).split("\n"):
        assert re.fullmatch(r"\s*(|(a|b|long_name\.py)/?|… \d+ more)", line)
