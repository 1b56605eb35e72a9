"""What got worse and what got better, as a table for a terminal, a log or a failed test."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit.bench.baseline import Change, Comparison, Kind

__all__ = ["report"]

Row: TypeAlias = "tuple[str, str, str]"

LEAST = 0.01

FIGURES: dict[Kind, str] = {
    "fits": "(fits at all)",
    "utilisation": "(utilisation)",
    "cold": "(cold render over the floor)",
    "warm": "(warm render over the floor)",
}


def report(comparison: Comparison) -> str:
    """The differences, an element or figure a line: at how many budgets, and how much where it is most. Notes stand below."""
    parts = [
        *_table("Worse than the baseline", comparison.worse),
        *_table("Better than the baseline", comparison.better),
        *comparison.notes,
    ]
    if not (comparison.worse or comparison.better):
        parts.insert(0, "As good as the baseline.")
    return "\n".join(parts)


def _table(title: str, changes: Sequence[Change]) -> list[str]:
    if not changes:
        return []
    groups: dict[tuple[str | None, str], list[Change]] = {}
    for change in changes:
        groups.setdefault((change.model, change.element or FIGURES[change.kind]), []).append(change)
    several = len({model for model, _ in groups}) > 1
    rows: list[Row] = [("element or figure", "budgets", "largest difference")]
    rows += [(f"{model}: {what}" if several else what, _budgets(found), _most(found)) for (model, what), found in groups.items()]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return [f"{title}:", *(f"  {what:<{widths[0]}}  {budgets:<{widths[1]}}  {most}" for what, budgets, most in rows)]


def _budgets(changes: Sequence[Change]) -> str:
    budgets = [change.budget for change in changes]
    return f"{budgets[0]:,}" if len(budgets) == 1 else f"{len(budgets)}, from {budgets[0]:,} to {budgets[-1]:,}"


def _most(changes: Sequence[Change]) -> str:
    change = max(changes, key=_size)
    return f"{_figure(change, change.before)} → {_figure(change, change.now)}" + (f" at {change.budget:,}" if len(changes) > 1 else "")


def _size(change: Change) -> float:
    """How much a change weighs beside others of its element or figure: a loss more than any share."""
    return abs(change.before - change.now) + (change.kind == "lost")


def _figure(change: Change, value: float) -> str:
    if change.kind == "fits":
        return f"needs {value:,.0f}" if value else "fits"
    if change.kind in ("cold", "warm"):
        return f"{value:.2f}x"
    return "nothing" if not value else f"{value:.0%}" if value >= LEAST else "under 1%"
